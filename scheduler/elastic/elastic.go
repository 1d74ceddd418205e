// Package elastic chooses with how many GPUs jobs of elastic size run. One that waits
// gets what is idle at its start beside what others wait for, card after card to whom one
// more speeds up most: the marginal gain of Optimus (Peng et al., EuroSys 2018) and AFS
// (Hwang et al., NSDI 2021), by what runs of the job showed. One that runs and can save its state begins again with fewer
// when others wait, and with more when cards stay idle.
package elastic

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

const (
	// Every is the least time that a job runs with one number of GPUs: each change
	// costs it a save and a start.
	Every = 10 * time.Minute
	// patience is how long somebody waits before others begin again with fewer GPUs.
	patience = time.Minute
	// worth is by how much a job must speed up for it to begin again.
	worth = 1.2
)

// block is the idle GPUs of one type on a node.
type block struct {
	node *cluster.Node
	typ  string
	idle int
}

// blocks are the idle GPUs that a ledger shows, by nodes and types in order.
func blocks(nodes []*cluster.Node, led *dispatch.Ledger) []*block {
	var out []*block
	for _, n := range nodes {
		if !n.Schedulable() {
			continue
		}
		for i := range n.GPUs {
			if u, ok := led.GPU(n.GPUs[i].ID); !ok || !u.Idle() {
				continue
			}
			at := slices.IndexFunc(out, func(b *block) bool { return b.node == n && b.typ == n.GPUs[i].Type })
			if at < 0 {
				at = len(out)
				out = append(out, &block{node: n, typ: n.GPUs[i].Type})
			}
			out[at].idle++
		}
	}
	return out
}

func (b *block) serves(j *cluster.Job) bool {
	return (j.Spec.GPUType == "" || j.Spec.GPUType == b.typ) && j.Spec.Allows(b.node)
}

// choice is an elastic job that waits, and what it is to have.
type choice struct {
	job   *cluster.Job
	curve Curve
	on    *block
	n     int
}

// Sizes returns with how many GPUs jobs that wait should start, of those that should
// have more than their least number. GPUs that others wait for are left to them.
func Sizes(snap *dispatch.Snapshot) map[cluster.JobID]int {
	if !slices.ContainsFunc(snap.Waiting, func(j *cluster.Job) bool { return j.Spec.Elastic() }) {
		return nil
	}
	free, spare := blocks(snap.Nodes, snap.Ledger), 0
	for _, b := range free {
		spare += b.idle
	}
	var all []*choice
	for _, j := range snap.Waiting {
		spare -= j.Spec.GPUs * j.Spec.NodeCount() * (1 + snap.More[j.ID])
		if j.Spec.Elastic() {
			all = append(all, &choice{job: j, curve: CurveOf(j), n: j.Spec.GPURange.Min})
		}
		if spare < 1 {
			return nil
		}
	}
	slices.SortStableFunc(all, func(a, b *choice) int { return cmp.Compare(a.job.Eligible, b.job.Eligible) })
	for _, c := range all {
		for _, b := range free {
			if b.serves(c.job) && b.idle >= c.n && (c.on == nil || b.idle > c.on.idle) {
				c.on = b
			}
		}
		if c.on != nil {
			c.on.idle -= c.n
		}
	}
	for ; spare > 0; spare-- {
		var best *choice
		for _, c := range all {
			if c.on == nil || c.on.idle < 1 || c.n >= c.job.Spec.GPURange.Max || !c.curve.pays(c.n) {
				continue
			}
			if best == nil || c.curve.Speedup(c.n+1)-c.curve.Speedup(c.n) > best.curve.Speedup(best.n+1)-best.curve.Speedup(best.n) {
				best = c
			}
		}
		if best == nil {
			break
		}
		best.n++
		best.on.idle--
	}
	out := map[cluster.JobID]int{}
	for _, c := range all {
		if c.n > c.job.Spec.GPURange.Min {
			out[c.job.ID] = c.n
		}
	}
	return out
}

// Sized returns the snapshot in which jobs wait for as many GPUs as sizes says. What they
// need of time, cores and host memory is of that many. Its ledger and queues are its own.
func Sized(snap *dispatch.Snapshot, sizes map[cluster.JobID]int) *dispatch.Snapshot {
	out := *snap
	out.Ledger, out.Waiting = snap.Ledger.Clone(), slices.Clone(snap.Waiting)
	out.Queues = make(map[cluster.GPUID][]dispatch.Waiter, len(snap.Queues))
	for id, q := range snap.Queues {
		out.Queues[id] = q
	}
	for i, j := range out.Waiting {
		n, ok := sizes[j.ID]
		if !ok {
			continue
		}
		sized := j.Clone()
		least, curve := j.Spec.GPUs, CurveOf(j)
		sized.Spec, sized.Estimates = j.Spec.Sized(n), slices.Clone(j.Estimates)
		for k := range sized.Estimates {
			e := &sized.Estimates[k]
			e.Duration = time.Duration(float64(e.Duration) * curve.Speedup(least) / curve.Speedup(n))
			e.HostMemMiB, e.CPUMilli = e.HostMemMiB*int64(n)/int64(least), e.CPUMilli*int64(n)/int64(least)
		}
		out.Waiting[i] = sized
	}
	return &out
}

// Less lowers the sizes of jobs that a plan does not start, half the way to their least,
// and reports whether there were any.
func Less(snap *dispatch.Snapshot, sizes map[cluster.JobID]int, plan *dispatch.Plan) (lowered bool) {
	for _, j := range snap.Waiting {
		n, ok := sizes[j.ID]
		if !ok || slices.ContainsFunc(plan.Starts, func(s dispatch.Start) bool { return s.Job == j.ID }) {
			continue
		}
		lowered = true
		if sizes[j.ID] = (n + j.Spec.GPURange.Min) / 2; sizes[j.ID] == j.Spec.GPURange.Min {
			delete(sizes, j.ID)
		}
	}
	return lowered
}

// Restarts names jobs that should save their state and begin again with another number
// of GPUs, once a plan is carried out. led is of before the plan. At most one makes room
// for another job, or, where nobody waits, one gets more.
func Restarts(snap *dispatch.Snapshot, led *dispatch.Ledger, plan *dispatch.Plan) []dispatch.Preemption {
	for i := range plan.Starts {
		led.TakeStart(&plan.Starts[i])
	}
	free, nobody := blocks(snap.Nodes, led), true
	for _, w := range snap.Waiting {
		if w.Spec.GPUs == 0 || slices.ContainsFunc(plan.Starts, func(s dispatch.Start) bool { return s.Job == w.ID }) {
			continue
		}
		if nobody = false; w.Spec.NodeCount() > 1 || snap.Now.Sub(w.Eligible) < patience {
			continue
		}
		for _, r := range snap.Running {
			if a := ready(r, snap.Now, plan); a != nil && r.Spec.Partition == w.Spec.Partition && makesRoom(r, a, w, free) {
				return []dispatch.Preemption{{Job: r.ID, Attempt: a.No, For: w.ID, Why: fmt.Sprintf("begins again with fewer GPUs than %d: job %d waits for some", r.Spec.GPUs, w.ID)}}
			}
		}
	}
	for _, r := range snap.Running {
		a := ready(r, snap.Now, plan)
		if a == nil || !nobody {
			continue
		}
		if rest := a.Estimate.Duration - snap.Now.Sub(a.Started); a.Estimate.Duration > 0 && rest < Every {
			continue
		}
		curve := CurveOf(r)
		if m := curve.fewer(r.Spec.GPUs); m >= r.Spec.GPURange.Min {
			return []dispatch.Preemption{{Job: r.ID, Attempt: a.No, Why: fmt.Sprintf("begins again with fewer GPUs than %d: its steps took no longer with %d", r.Spec.GPUs, m)}}
		}
		n := min(r.Spec.GPURange.Max, r.Spec.GPUs+idleBeside(r, a, free))
		if curve.Speedup(n) < worth*curve.Speedup(r.Spec.GPUs) {
			continue
		}
		return []dispatch.Preemption{{Job: r.ID, Attempt: a.No, Why: fmt.Sprintf("begins again with %d GPUs instead of %d: they are idle, and nobody waits", n, r.Spec.GPUs)}}
	}
	return nil
}

// ready is the attempt of a job that may begin again now, nil for none.
func ready(j *cluster.Job, now cluster.Time, plan *dispatch.Plan) *cluster.Attempt {
	if !j.Spec.Elastic() || j.Unpreemptible(now) != "" || slices.ContainsFunc(plan.Preempt, func(p dispatch.Preemption) bool { return p.Job == j.ID }) {
		return nil
	}
	if a := j.Live(); a.Started > 0 && now.Sub(a.Started) >= Every {
		return a
	}
	return nil
}

// makesRoom reports whether a job has as many more than its least number of GPUs as
// another one lacks on that node.
func makesRoom(r *cluster.Job, a *cluster.Attempt, w *cluster.Job, free []*block) bool {
	more := r.Spec.GPUs - r.Spec.GPURange.Min
	if more == 0 {
		return false
	}
	for _, b := range free {
		if b.node.ID == a.Berth.Node && b.serves(w) {
			return more+b.idle >= w.Spec.GPUs
		}
	}
	return more >= w.Spec.GPUs && (w.Spec.Node == "" || w.Spec.Node == a.Berth.Node) && (w.Spec.GPUType == "" || w.Spec.GPUType == a.Estimate.GPUType)
}

// idleBeside is how many GPUs like those of a job are idle on its node.
func idleBeside(j *cluster.Job, a *cluster.Attempt, free []*block) int {
	for _, b := range free {
		if b.node.ID == a.Berth.Node && b.typ == a.Estimate.GPUType && b.serves(j) {
			return b.idle
		}
	}
	return 0
}
