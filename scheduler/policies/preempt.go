package policies

import (
	"cmp"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/policies/order"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// heads bounds for how many waiting jobs one plan looks for victims.
const heads = 16

// evictor proposes preemptions.
type evictor struct {
	*scene.Scene
	turns  *order.Turns
	minRun time.Duration // that an attempt must have run, less than 0 for no minimum
}

// preempt proposes to end attempts so that the first waiting tasks can start in a
// later plan. Only jobs whose terms allow it are ended, only if the order lets the
// one take the other's place, and not before Options.MinRun if the order requires
// that. Of the nodes where that would make room it takes the one with the fewest
// victims, then the one that loses the least work, then the first. It waits for
// room that is being cleared anyway.
func (ev *evictor) preempt() {
	if ev.turns.Order.Over == nil {
		return
	}
	var able []int32
	for ri := range ev.Fleet.Runs {
		if r := &ev.Fleet.Runs[ri]; ev.mayEnd(r) {
			able = append(able, int32(ri))
		}
	}
	if len(able) == 0 {
		return
	}
	for ri := range ev.Fleet.Runs {
		if r := &ev.Fleet.Runs[ri]; r.Job.State == cluster.JobCompleting || r.Job.Cancel != nil || r.Job.Preempting() {
			ev.Fleet.Remove(int32(ri)) // its room is being cleared anyway
		}
	}
	tried := 0
	for _, t := range ev.turns.Sorted() {
		if tried == heads || !ev.MayAsk() {
			return
		}
		if t.Gone || t.GPUs == 0 || !ev.EverFits(t) {
			continue
		}
		tried++
		ev.preemptFor(t)
	}
}

// mayEnd reports whether an attempt may be preempted at all.
func (ev *evictor) mayEnd(r *mirror.Run) bool {
	return !r.Fresh && !ev.Asked(r.Job.ID) && ev.Snap.Terms[r.Job.ID].Preemptible && r.Job.State == cluster.JobRunning && r.Job.Cancel == nil &&
		!r.Job.Preempting() && (ev.turns.Order.AtOnce || time.Duration(ev.Now-r.Began)*time.Microsecond >= ev.minRun) && ev.rested(r.Job)
}

// rested reports whether a job's last preemption is long enough ago. The state
// machine checks the same; Options that compare with published rules do not.
func (ev *evictor) rested(j *cluster.Job) bool {
	return ev.minRun < 0 || j.Rested(cluster.Time(ev.Now))
}

// victims are the runs that would be ended on one host.
type victims struct {
	runs []int32
	lost int64
}

func (ev *evictor) preemptFor(t *scene.Task) {
	if t.Spans() {
		ev.preemptSpan(t)
		return
	}
	var best *victims
	at := int32(-1)
	for gi := range ev.Fleet.Groups {
		if !ev.CouldHold(t, int32(gi)) {
			continue
		}
		v := ev.victimsOn(t, int32(gi))
		if v != nil && (best == nil || len(v.runs) < len(best.runs) || len(v.runs) == len(best.runs) && v.lost < best.lost) {
			best, at = v, int32(gi)
		}
	}
	if best == nil || len(ev.Plan.Preempt)+len(best.runs) > ev.MaxPreempt {
		return
	}
	for _, ri := range best.runs {
		ev.end(ri, t)
	}
	ev.claim(t, at)
}

// claim enters t into the mirror where room is made for it, so that no other task
// counts on that.
func (ev *evictor) claim(t *scene.Task, gi int32) {
	g := &ev.Fleet.Groups[gi]
	h := &ev.Fleet.Hosts[g.Host]
	share := t.Needs[g.Class].Share
	b := cluster.Berth{Node: h.Node.ID, CPUMilli: t.CoresOn(h), MemMiB: t.MemOn(h)}
	undo := ev.Fleet.Remember(gi)
	cards := slices.Clone(ev.AnyOf(t, gi))
	undo()
	if t.Whole {
		cards = g.Cards
	}
	for _, ci := range cards {
		c := &ev.Fleet.Cards[ci]
		c.Use.UsedMiB += share.MemMiB
		c.Use.UsedMilli += share.Milli
		c.Use.Shares++
		c.Use.Exclusive = share.Exclusive
		b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: c.Use.ID, Share: share})
	}
	h.Use.UsedCPU += b.CPUMilli
	h.Use.UsedMem += b.MemMiB
	ev.Fleet.AddRun(mirror.Run{Job: t.Job, Berth: &b, Began: ev.Now, End: rules.Forever, Latest: rules.Forever, Fresh: true})
}

// victimsOn returns which runs t would displace in a group, the worst placed in the
// order first and none without need; nil if that makes no room.
func (ev *evictor) victimsOn(t *scene.Task, gi int32) *victims {
	undo := ev.Fleet.Remember(gi)
	defer func() { undo() }()
	rivals := ev.rivals(t, gi)
	v := &victims{}
	for !ev.RoomOn(t, gi) {
		if len(v.runs) == len(rivals) {
			return nil
		}
		v.runs = append(v.runs, rivals[len(v.runs)])
		ev.Fleet.Lift(gi, v.runs[len(v.runs)-1])
	}
	for i := 0; i < len(v.runs)-1; { // the last one is needed
		undo()
		undo = ev.Fleet.Remember(gi)
		rest := slices.Delete(slices.Clone(v.runs), i, i+1)
		for _, ri := range rest {
			ev.Fleet.Lift(gi, ri)
		}
		if ev.RoomOn(t, gi) {
			v.runs = rest
		} else {
			i++
		}
	}
	for _, ri := range v.runs {
		v.lost += lossOf(&ev.Fleet.Runs[ri])
	}
	return v
}

// rivals returns the runs in a group that t may displace, the worst placed in the
// order first.
func (ev *evictor) rivals(t *scene.Task, gi int32) []int32 {
	type rival struct {
		ri int32
		id cluster.JobID
		scene.Key
	}
	var all []rival
	for _, ri := range ev.Fleet.Hosts[ev.Fleet.Groups[gi].Host].Runs {
		r := &ev.Fleet.Runs[ri]
		f := ev.FactsOfRun(r)
		if ev.mayEnd(r) && ev.Fleet.LiesIn(r, gi) && ev.turns.Over(&t.Facts, &f) {
			all = append(all, rival{ri, f.ID, ev.turns.Key(&f)})
		}
	}
	slices.SortFunc(all, func(x, y rival) int {
		return cmp.Or(-cmp.Compare(x.A, y.A), -cmp.Compare(x.B, y.B), -cmp.Compare(x.id, y.id))
	})
	out := make([]int32, len(all))
	for i := range all {
		out[i] = all[i].ri
	}
	return out
}

// toll is what a task over several nodes would displace on the nodes of parts.
type toll struct {
	scene.Placed
	runs []int32 // one of each attempt
	lost int64
}

// preemptSpan proposes to end the runs in the way of t on as many nodes as it
// needs, those with the fewest victims, then those that lose the least.
func (ev *evictor) preemptSpan(t *scene.Task) {
	var best *toll
	on := map[int32]*victims{} // by group
	ev.EachFamily(t, func(gi int32) (rules.Part, bool) {
		v := ev.victimsOn(t, gi)
		if v == nil {
			return rules.Part{}, false
		}
		on[gi] = v
		return rules.Part{Order: int64(len(v.runs))<<32 + v.lost>>20}, true // about a second
	}, rules.FewParts, func(x scene.Placed) {
		if o := ev.tollOf(x, on); best == nil || cmp.Or(cmp.Compare(len(o.runs), len(best.runs)), cmp.Compare(o.lost, best.lost)) < 0 {
			best = o
		}
	})
	if best == nil || len(ev.Plan.Preempt)+len(best.runs) > ev.MaxPreempt {
		return
	}
	for _, ri := range best.runs {
		ev.end(ri, t)
	}
	for i := range best.Parts {
		ev.claim(t, best.Groups[best.Parts[i].Host])
	}
}

func (ev *evictor) tollOf(x scene.Placed, on map[int32]*victims) *toll {
	o := &toll{Placed: x}
	seen := map[cluster.JobID]bool{}
	for i := range o.Parts {
		v := on[o.Groups[o.Parts[i].Host]]
		for _, ri := range v.runs {
			if id := ev.Fleet.Runs[ri].Job.ID; !seen[id] {
				seen[id] = true
				o.runs = append(o.runs, ri)
				o.lost += lossOf(&ev.Fleet.Runs[ri])
			}
		}
	}
	return o
}

// lossOf returns what the preemption of a run's attempt costs, in GPU time.
func lossOf(r *mirror.Run) int64 {
	s := r.Job.Spec
	n := s.GPUs * s.NodeCount()
	return order.PreemptCost(n) * int64(max(1, n))
}

// end proposes to end for t the attempt that a run is part of, and removes it from
// the mirror, on all of its nodes.
func (ev *evictor) end(ri int32, t *scene.Task) {
	r := &ev.Fleet.Runs[ri]
	ev.Ask(r, t.ID, "that one goes first")
	for lo, hi := ev.Fleet.Siblings(ri); lo < hi; lo++ {
		ev.Fleet.Remove(lo)
	}
}
