package explain

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// spanPlace is a node and when it has room for its part.
type spanPlace struct {
	*clearing
	early, late int64
}

// together returns the first time, from at on, at which so many nodes are open to
// the job at once: they have room, and no reservation that it would run into. last
// is the one that opens last.
func together(ps []spanPlace, want int, at int64, room func(*spanPlace) int64) (when int64, last *spanPlace, ok bool) {
	const mostSteps = 1000
	for range mostSteps {
		open, next := 0, int64(rules.Forever)
		var nearest *spanPlace
		for i := range ps {
			p := &ps[i]
			t, may := p.shifted(max(at, room(p)), p.length)
			switch {
			case !may:
			case t <= at:
				if open++; last == nil {
					last = p
				}
			case t < next:
				next, nearest = t, p
			}
		}
		if open >= want {
			return at, last, true
		}
		if nearest == nil {
			break
		}
		at, last = next, nearest
	}
	return at, last, false
}

// afterOthers postpones a forecast on nodes that have room but are reserved for a
// job ahead to when that one has ended.
func (x *explainer) afterOthers(f *Forecast) {
	alone := *x.snap
	alone.Waiting = []*cluster.Job{x.job}
	plan := x.by.Schedule(&alone, x.pol)
	id, _ := x.by.Before(x.snap, x.job, &plan, x.pol)
	x.after(f, id, 0)
}

// after postpones a forecast to when another job has ended, unless that is expected
// to start no sooner than the job ends, which runs for length.
func (x *explainer) after(f *Forecast, id cluster.JobID, length int64) {
	i := slices.IndexFunc(x.snap.Waiting, func(j *cluster.Job) bool { return j.ID == id })
	if i < 0 {
		return
	}
	if length > 0 && !inNoQueue(x.snap.Waiting[i]) {
		return // it is counted where it is queued
	}
	before, less := x.snap.Waiting[i], *x.snap
	less.Waiting = slices.DeleteFunc(slices.Clone(x.snap.Waiting), func(j *cluster.Job) bool { return j.ID == x.job.ID })
	g, ok := When(&less, before, x.pol, x.by)
	if !ok || length > 0 && int64(f.P50)+length <= int64(g.P50) {
		return
	}
	e, _ := cluster.EstimateFor(before.Estimates, x.typeOn(g.Node))
	d := rules.DurationOf(before, &e, &x.pol)
	f.P50 = max(f.P50, g.P50+cluster.Time(rules.Stretched(d, rules.Middle, &e, before.Spec.TimeLimit)))
	f.P90 = max(f.P90, f.P50, g.P90+cluster.Time(rules.Stretched(d, rules.Tail, &e, before.Spec.TimeLimit)))
	f.Ahead++
	f.Missing += fmt.Sprintf("; job %d comes before it", id)
}

// inNoQueue reports whether a job needs several GPU nodes, or all of one, and so is
// in no queue.
func inNoQueue(j *cluster.Job) bool {
	return j.Spec.GPUs > 0 && (j.Spec.NodeCount() > 1 || j.Spec.WholeNodes())
}

func (x *explainer) typeOn(id cluster.NodeID) string {
	for _, n := range x.snap.Nodes {
		if n.ID == id && len(n.GPUs) > 0 {
			return n.GPUs[0].Type
		}
	}
	return cluster.CPUType
}

// forecastSpan forecasts a job on several nodes, or on whole ones: when the last of as many as it
// needs is free for its part, on GPUs of one type, for the nodes that are together
// soonest. A node that is free earlier is assumed to be reserved for it, as passes
// do once it has waited for a while, and the jobs ahead to delay it by no more than
// they let them.
func (x *explainer) forecastSpan(live map[cluster.NodeID][]*cluster.Job) (f Forecast, ok bool) {
	want, free, all, now := x.job.Spec.NodeCount(), 0, 0, int64(x.snap.Now)
	byType, own := map[string][]spanPlace{}, x.own(x.job)
	for _, n := range rules.SortedNodes(x.snap.Nodes) {
		c := &clearing{x: x, node: n, running: live[n.ID]}
		if !n.Schedulable() || !x.job.Spec.Allows(n) || own != nil && !own.Covers(n.ID, "") || !c.find() || !c.shift() {
			continue
		}
		typ := ""
		if len(c.cards) > 0 {
			typ = n.GPUs[c.cards[0]].Type
		}
		byType[typ] = append(byType[typ], spanPlace{clearing: c})
	}
	for _, typ := range sortedTypes(byType) {
		for _, set := range x.switchSets(byType[typ], want) {
			g, open := x.forecastOn(typ, set, want)
			if !open || ok && g.P50 >= f.P50 {
				continue
			}
			f, ok, all, free = g, true, len(set.places), 0
			for _, p := range set.places {
				if p.ends == 0 && p.at <= now {
					free++
				}
			}
		}
	}
	if ok {
		f.Missing = fmt.Sprintf("%d of %s with room, needs %d at once%s; the last to become free is %s", free, say.Nodes(all), want, say.FewSwitches(x.job, x.snap.Now), f.Missing)
	}
	if ok && int64(f.P50) <= now {
		x.afterOthers(&f)
	}
	return f, ok
}

// spanSet is nodes that a job on several may have, and from when on.
type spanSet struct {
	places []spanPlace
	from   int64
}

// switchSets returns all of the nodes or, for a job that waits for few switches,
// those of each switch that has enough, and all of them from when it no longer
// waits.
func (x *explainer) switchSets(ps []spanPlace, want int) []spanSet {
	most, until := x.job.FewSwitches(x.snap.Now)
	if most == 0 {
		return []spanSet{{ps, int64(x.snap.Now)}}
	}
	by := map[string][]spanPlace{}
	for _, p := range ps {
		by[p.node.SwitchPath()] = append(by[p.node.SwitchPath()], p)
	}
	sets := []spanSet{{ps, int64(until)}}
	if len(by) <= most {
		sets[0].from = int64(x.snap.Now)
	}
	for _, path := range sortedTypes(by) {
		if len(by[path]) >= want && len(by) > most {
			sets = append(sets, spanSet{by[path], int64(x.snap.Now)})
		}
	}
	return sets
}

// forecastOn forecasts a job on so many of a set of nodes, with GPUs of one type.
func (x *explainer) forecastOn(typ string, set spanSet, want int) (f Forecast, ok bool) {
	ps := set.places
	if len(ps) < want {
		return f, false
	}
	slices.SortStableFunc(ps, func(a, b spanPlace) int { return cmp.Compare(a.at, b.at) })
	e, _ := cluster.EstimateFor(x.job.Estimates, cmp.Or(typ, cluster.CPUType))
	waited := max(int64(x.snap.Now-x.job.Eligible), x.pol.ReserveAge.Microseconds())
	bound := ps[want-1].at + max(0, rules.DurationOf(x.job, &e, &x.pol)-waited)
	for i := range ps {
		p := &ps[i]
		if typ != "" {
			p.bound = bound
		}
		p.early, p.late = p.play(rules.Middle), p.play(rules.Tail)
	}
	slices.SortStableFunc(ps, func(a, b spanPlace) int { return cmp.Compare(a.early, b.early) })
	early, last, open := together(ps, want, set.from, func(p *spanPlace) int64 { return p.early })
	late, _, _ := together(ps, want, early, func(p *spanPlace) int64 { return p.late })
	if !open {
		return f, false
	}
	return Forecast{Node: last.node.ID, Missing: last.missing(), P50: cluster.Time(early), P90: cluster.Time(late), Ahead: last.before()}, true
}

func sortedTypes[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// span prefixes what each node lacks with how many have room, and which job they
// are reserved for if not for this one.
func (x *explainer) span(pol rules.Policy) Explanation {
	snap, job := x.snap, x.job
	alone := *snap
	alone.Waiting = []*cluster.Job{job}
	pol.MaxReasons = max(1, pol.MaxReasons)
	plan := x.by.Schedule(&alone, pol)
	room, have := say.Nodes(job.Spec.NodeCount())+" with room", " have"
	if job.Spec.NodeCount() == 1 {
		have = " has"
	}
	e := Explanation{Count: job.Spec.NodeCount(), Reason: cluster.Reason{
		Code: cluster.ReasonUnconfirmed, Detail: say.Nodes(job.Spec.NodeCount()) + have + " room; the next pass decides",
	}}
	switch before, kept := x.by.Before(snap, job, &plan, pol); {
	case len(plan.Starts) == 0 && len(plan.Unplaced) > 0:
		e.Reason = plan.Unplaced[0].Reason
	case kept:
		e.Reason = cluster.Reason{Code: cluster.ReasonQueueOrder, Detail: fmt.Sprintf("%s, but they are kept for waiting job %d", room, before)}
	case before != 0:
		e.Reason = cluster.Reason{Code: cluster.ReasonQueueOrder, Detail: fmt.Sprintf("%s, but job %d comes before it and starts there", room, before)}
	}
	return e
}
