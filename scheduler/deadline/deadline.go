// Package deadline promises jobs their deadlines, and computes where and from when
// on they must run for that.
package deadline

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// Check is the answer to whether deadlines can be met.
type Check struct {
	// End is when the job would have ended by the plan, at the latest in nine of
	// ten cases; 0 if nothing reserved for deadlines could run it.
	End cluster.Time
	// GPUType is where it runs, and Before how many jobs with deadlines go before
	// it.
	GPUType string
	Before  int
	// Units is how many of its units a job of elastic size has there; see
	// cluster.Spec.Sizes.
	Units int

	Start int64
	lost  int64
	// On and Nodes are its GPUs and their nodes.
	On    []cluster.GPUID
	Nodes []cluster.NodeID
	// Yield holds the jobs that must be preempted for it, in order of id.
	Yield []*cluster.Job
}

// Admit checks whether jobs, which are not in snap yet, can meet their deadlines
// without making another job miss its own. The error has CodeInvalid and says what
// is missing in numbers. Jobs without a deadline are always admitted.
//
// It is the demand check of EDF, carried out by placing the jobs with deadlines on
// the GPUs in order of their deadlines (Chronus; gangs are indivisible, so summing
// up demands would promise too much): on those that become free first by the time
// limits of the jobs there, and of each type on at most Policy.DeadlineShareMilli of
// the GPUs. Each counts as alone on its GPUs, for as long as nine in ten such
// predictions stay below, at most its time limit. A job that would miss its deadline
// behind jobs that snap.Terms call preemptible is placed where they make room; see
// yields. A job of elastic size has the fewest units that are sufficient; see sizes.
// The plan holds only if it still does with each job on the nodes that it has then,
// where passes keep it.
func Admit(snap *dispatch.Snapshot, jobs []*cluster.Job, pol rules.Policy) (map[*cluster.Job]Check, *cluster.Error) {
	if !slices.ContainsFunc(jobs, func(j *cluster.Job) bool { return j.Spec.Deadline > 0 }) {
		return nil, nil
	}
	d := NewDemand(snap, &pol, admitMargin)
	d.sizing = snap
	held := append(due(snap.Waiting), returning(snap.Running)...)
	old := d.Plan(slices.Clone(held))
	var now map[*cluster.Job]Check
	for range 2 {
		now = d.Plan(append(slices.Clone(held), due(jobs)...))
		for _, j := range due(jobs) {
			if c := now[j]; !c.inTime(j) {
				return nil, d.refusal(j, c)
			}
		}
		for _, j := range held {
			if was, c := old[j], now[j]; was.inTime(j) && !c.inTime(j) {
				return nil, cluster.Errorf(cluster.CodeInvalid, "deadline: job %d, which was promised its end by %s, would then %s; ask for a later deadline or fewer GPUs",
					j.ID, say.Clock(j.Spec.Deadline), c.late())
			}
		}
		d.planned = now
	}
	if err := keepsQuotas(snap, jobs, now, &pol); err != nil {
		return nil, err
	}
	return now, nil
}

// due returns the jobs with deadlines, the earliest first.
func due(jobs []*cluster.Job) []*cluster.Job {
	var out []*cluster.Job
	for _, j := range jobs {
		if j.Spec.Deadline > 0 && j.Spec.GPUs >= 0 {
			out = append(out, j)
		}
	}
	slices.SortStableFunc(out, byDeadline)
	return out
}

func byDeadline(a, b *cluster.Job) int {
	return cmp.Or(cmp.Compare(a.Spec.Deadline, b.Spec.Deadline), cmp.Compare(a.ID, b.ID))
}

// demand records when each GPU becomes free, and how many of them deadlines may claim.
type demand struct {
	pol    *rules.Policy
	now    int64
	types  []string
	slots  map[string][]slot // by type, in order of when they are free
	claims map[string]int    // by type
	nodes  map[string][]slotNode
	at     map[string]map[cluster.NodeID]int // of nodes
	reps   map[string]*cluster.GPU
	places []rules.Place
	clears bool // some job may be preempted
	nodeOf map[cluster.GPUID]cluster.NodeID
	node   map[cluster.NodeID]*cluster.Node
	rs     dispatch.Reservations
	open   map[cluster.NodeID]int   // how many slots there are on each node
	cores  map[cluster.NodeID]int64 // until when jobs without GPUs are there
	// planned is where jobs are by an earlier plan, if they are to stay there.
	planned map[*cluster.Job]Check
	// sizing is what jobs of elastic size are sized by; without it, they have the
	// size that their specs say.
	sizing *dispatch.Snapshot
}

type slot struct {
	node cluster.NodeID
	gpu  cluster.GPUID
	free int64
	mine bool // promised to some job in this plan
	// cleared is when it is free if preemptible jobs make room, never after free,
	// lost is what those lose, and by holds them.
	cleared, lost int64
	by            []*cluster.Job
	// kept is when it is free if its job of elastic size restarts with fewer, but
	// this one.
	kept int64
}

// NewDemand reads the running jobs. margin is how much longer a preemption may take
// than its grace period.
func NewDemand(snap *dispatch.Snapshot, pol *rules.Policy, margin time.Duration) *demand {
	d := &demand{
		pol: pol, now: int64(snap.Now), slots: map[string][]slot{}, claims: map[string]int{}, nodes: map[string][]slotNode{},
		at: map[string]map[cluster.NodeID]int{}, reps: map[string]*cluster.GPU{}, nodeOf: map[cluster.GPUID]cluster.NodeID{},
		node: map[cluster.NodeID]*cluster.Node{}, rs: snap.Reservations, open: map[cluster.NodeID]int{}, cores: map[cluster.NodeID]int64{},
	}
	held := d.holders(snap, margin)
	for _, n := range rules.SortedNodes(snap.Nodes) {
		d.node[n.ID] = n
		for i := range n.GPUs {
			g := &n.GPUs[i]
			if !n.Schedulable() || !n.Open(g) || g.SellableMiB <= 0 {
				continue
			}
			if d.reps[g.Type] == nil || g.SellableMiB < d.reps[g.Type].SellableMiB {
				d.reps[g.Type] = g
			}
			d.nodeOf[g.ID] = n.ID
			d.open[n.ID]++
			d.slots[g.Type] = append(d.slots[g.Type], held[g.ID].slot(n.ID, g.ID, d.now))
		}
	}
	for t, s := range d.slots {
		slices.SortFunc(s, func(a, b slot) int {
			return cmp.Or(cmp.Compare(a.cleared, b.cleared), cmp.Compare(a.free, b.free), cmp.Compare(a.node, b.node), cmp.Compare(a.gpu, b.gpu))
		})
		d.claims[t] = int((int64(len(s))*min(1000, max(0, pol.DeadlineShareMilli)) + 999) / 1000)
		d.types = append(d.types, t)
		d.nodes[t], d.at[t] = slotNodes(s)
		for k := range d.nodes[t] {
			d.nodes[t][k].like = d.likeOf(s, d.nodes[t][k].at)
		}
	}
	slices.Sort(d.types)
	d.places = rules.PlacesOf(snap.Nodes)
	return d
}

// Plan places the jobs so that the fewest miss their deadlines: with those planned
// before on the nodes where they wait, or else all anew, or else either way with
// preemption.
//
// On its nodes a promise only gets earlier from plan to plan as long as no other job
// is placed on its GPUs beyond its start: what is free there is free no later, GPU
// by GPU. Placed anew it need not, since for gangs more free GPUs elsewhere can
// make a later plan (Graham's anomalies).
func (d *demand) Plan(jobs []*cluster.Job) map[*cluster.Job]Check {
	slices.SortStableFunc(jobs, byDeadline)
	best := d.lay(jobs, true, false)
	late := lateIn(best)
	for _, how := range [...]struct{ stay, clear bool }{{false, false}, {true, true}, {false, true}} {
		if late == 0 || how.clear && !d.clears {
			break
		}
		if other := d.lay(jobs, how.stay, how.clear); lateIn(other) < late {
			best, late = other, lateIn(other)
		}
	}
	return best
}

func lateIn(laid map[*cluster.Job]Check) (n int) {
	for j, c := range laid {
		if !c.inTime(j) {
			n++
		}
	}
	return n
}

// inTime reports whether a job ends by its deadline.
func (c *Check) inTime(j *cluster.Job) bool { return 0 < c.End && c.End <= j.Spec.Deadline }

// late says when a job would end that is too late.
func (c *Check) late() string {
	if c.End == 0 {
		return "find no GPUs that deadlines may claim"
	}
	return "end at " + say.Clock(c.End)
}

// lay plans the jobs, which are in order of their deadlines, and returns the
// outcome of each. With clear, jobs that would otherwise be late have room made.
func (d *demand) lay(jobs []*cluster.Job, stay, clear bool) map[*cluster.Job]Check {
	slots := map[string][]slot{}
	for t, s := range d.slots {
		slots[t] = slices.Clone(s)
		for i := range slots[t] {
			if s := &slots[t][i]; clear {
				s.free, s.cleared = max(s.free, s.kept), max(s.cleared, s.kept)
			}
		}
	}
	out, left := make(map[*cluster.Job]Check, len(jobs)), maps.Clone(d.claims)
	for i, j := range jobs {
		best, on := d.best(slots, left, j, stay, clear)
		best.Before = i
		for _, k := range on {
			s := &slots[best.GPUType][k]
			if !s.mine {
				s.mine = true
				left[best.GPUType]--
			}
			s.free, s.cleared, s.by = int64(best.End), int64(best.End), nil
			best.On = append(best.On, s.gpu)
			if !slices.Contains(best.Nodes, s.node) {
				best.Nodes = append(best.Nodes, s.node)
			}
		}
		slices.Sort(best.Nodes)
		out[j] = best
	}
	return out
}

// best returns where and with how many units a job is served best, on is its slots.
func (d *demand) best(slots map[string][]slot, left map[string]int, j *cluster.Job, stay, clear bool) (best Check, on []int) {
	if j.Spec.GPUs == 0 { // cores are not rationed by deadline
		return Check{End: cluster.Time(d.now + d.length(j, cluster.CPUType, 0)), Start: d.now}, nil
	}
	nodes, claims, may := asked(j), true, d.may(j)
	if at := d.stays(j); stay && at != nil {
		nodes, claims = at, false
	}
	able := rules.SparingOf(d.places, j, d.pol)
	for _, t := range d.types {
		e, _ := cluster.EstimateFor(j.Estimates, t)
		nd := rules.NeedOn(j, d.reps[t], &e, d.pol)
		if nd.Way == rules.WayNone || able.Veto(d.reps[t], &nd) != rules.VetoNone {
			continue
		}
		r := room{d: d, job: j, slots: slots[t], nodes: d.among(t, nodes), left: len(slots[t]), may: may}
		if claims {
			r.left = max(0, left[t])
		}
		for n, want := range d.sizes(j) {
			length, c := d.length(j, t, n), Check{}
			at, start := r.earliest(want)
			if c.Start = start; clear && (at == nil || start+length > int64(j.Spec.Deadline)) {
				c, at = r.cleared(want, int64(j.Spec.Deadline)-length)
			}
			if at == nil {
				break // nor for more
			}
			c.End, c.GPUType, c.Units = cluster.Time(c.Start+length), t, n
			if best.End == 0 || c.serves(j, &best) {
				best, on = c, at
			}
			if c.End <= j.Spec.Deadline && c.lost == 0 {
				break // more are not better
			}
		}
	}
	return best, on
}

// may returns on which GPUs a job can be promised its deadline: those of nodes that
// it asks for, on which no reservation but its own begins before the deadline. nil
// is all.
func (d *demand) may(j *cluster.Job) func(*slot) bool {
	if j.Spec.Where == nil && len(d.rs) == 0 {
		return nil
	}
	now := cluster.Time(d.now)
	shut := d.rs.Outside(j, now).Code != ""
	own := d.rs.Get(j.Spec.Where.InReservation())
	return func(s *slot) bool {
		if shut || !j.Spec.Allows(d.node[s.node]) || own != nil && !own.Covers(s.node, s.gpu) {
			return false
		}
		return !slices.ContainsFunc(d.rs, func(r *dispatch.Reservation) bool {
			_, bars := r.Bars(j, s.node, s.gpu, now, j.Spec.Deadline)
			return bars
		})
	}
}

// reserved names a reservation that keeps a job from GPUs because it begins before the
// deadline, for a sentence on them; "" if there is none.
func (d *demand) reserved(j *cluster.Job) string {
	for _, t := range d.types {
		for i := range d.slots[t] {
			for _, r := range d.rs {
				if start, bars := r.Bars(j, d.slots[t][i].node, d.slots[t][i].gpu, cluster.Time(d.now), j.Spec.Deadline); bars {
					_, end, _ := r.Window(cluster.Time(d.now))
					return fmt.Sprintf(" and that nobody has reserved until then (reservation %s keeps some from %s until %s; %s)", r.Name, say.Clock(start), say.Clock(end), r.Who())
				}
			}
		}
	}
	return ""
}

func (d *demand) refusal(j *cluster.Job, c Check) *cluster.Error {
	if c.End == 0 {
		return cluster.Errorf(cluster.CodeInvalid, "deadline: no %s among the %s of each type that deadlines may claim%s; ask for fewer, or submit without a deadline",
			lacking(j), say.Percent(d.pol.DeadlineShareMilli), d.reserved(j))
	}
	where, would, behind := "", "fewer GPUs", ""
	if c.Before > 0 {
		behind = ", behind " + say.Jobs(c.Before) + " with earlier deadlines and what runs and cannot make room"
	} else if c.Start > d.now {
		behind = ", behind what runs and cannot make room"
	}
	if c.GPUType != "" {
		where = " on " + c.GPUType
	}
	switch _, most, _ := j.Spec.Sizes(); {
	case j.Spec.Elastic():
		if where = " with " + Units(j, c.Units) + where; c.Units < most {
			where += ", with which it ends first,"
		}
		if would = "a range with more GPUs"; j.Spec.NodeRange.Max > 0 {
			would = "a range with more nodes"
		}
	case j.Spec.NodeCount() > 1:
		where, would = " on "+say.Nodes(j.Spec.NodeCount())+" of "+c.GPUType, "fewer nodes or GPUs"
	}
	return cluster.Errorf(cluster.CodeInvalid, "deadline %s cannot be met: it takes up to %s%s and would end at %s%s; ask for that time or later, %s, or a shorter --time",
		say.Clock(j.Spec.Deadline), say.About(d.length(j, c.GPUType, c.Units)), where, say.Clock(c.End), behind, would)
}

// Slack returns how much later than expected a job may end and still meet its
// deadline; negative if it is expected to miss it. ok is false for a job without a
// deadline, or one that has ended.
func Slack(job *cluster.Job, now cluster.Time, pol rules.Policy) (slack time.Duration, ok bool) {
	if job.Spec.Deadline == 0 || job.State.Terminal() {
		return 0, false
	}
	if a := job.Live(); a != nil {
		return job.Spec.Deadline.Sub(cluster.Time(rules.EndAt(job, a, rules.Middle, int64(now), &pol))), true
	}
	return time.Duration(laxity(job, int64(now), &pol)) * time.Microsecond, true
}

// laxity returns how long a waiting job may still wait beyond its expected start,
// in microseconds, on the type that is fastest for it.
func laxity(job *cluster.Job, now int64, pol *rules.Policy) int64 {
	d := int64(rules.Forever)
	for i := range job.Estimates {
		if e := &job.Estimates[i]; (e.GPUType == cluster.CPUType) == (job.Spec.GPUs == 0) && (job.Spec.GPUType == "" || job.Spec.GPUType == e.GPUType) {
			d = min(d, rules.DurationOf(job, e, pol))
		}
	}
	if d == rules.Forever {
		d = rules.DurationOf(job, &cluster.Estimate{}, pol)
	}
	return int64(job.Spec.Deadline) - max(now, int64(job.EstStart)) - d
}
