package elastic

import (
	"fmt"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// Restarts names jobs that should save their state and restart with another number
// of GPUs, once a plan is carried out. led is from before the plan. At most one
// makes room for another job or, if none waits, one gets more, or by some sizings
// fewer for one that is to get more. Jobs that resize in place continue meanwhile,
// and get or give up nodes.
func (r Rules) Restarts(snap *dispatch.Snapshot, led *dispatch.Ledger, plan *dispatch.Plan) []dispatch.Preemption {
	for i := range plan.Starts {
		led.TakeStart(&plan.Starts[i])
	}
	free, nobody := blocksOf(snap, led), true
	all := r.running(snap, plan, free)
	if len(all) == 0 {
		return nil
	}
	tried := map[shape]struct{}{}
	for _, w := range snap.Waiting {
		if w.Spec.GPUs == 0 || slices.ContainsFunc(plan.Starts, func(s dispatch.Start) bool { return s.Job == w.ID }) {
			continue
		}
		if nobody = false; snap.Now.Sub(w.Eligible) < r.patience() {
			continue
		}
		of := shape{w.Spec.GPUs, w.Spec.NodeCount(), w.Spec.GPUType, w.Spec.Partition, w.Spec.Node, w.Spec.Where}
		if _, again := tried[of]; again {
			continue
		}
		tried[of] = struct{}{}
		if c := r.makesRoom(all, w, free); c != nil {
			why := fmt.Sprintf("job %d waits for some", w.ID)
			if gives := c.givesFor(w, free); gives != nil {
				return c.givesUp(gives, w.ID, why)
			}
			return c.again(w.ID, "begins again with fewer %s than %d: %s", c.units(), c.n, why)
		}
	}
	if !nobody {
		return nil
	}
	all = slices.DeleteFunc(all, func(c *claim) bool { return r.endsSoon(c, snap.Now) })
	for _, c := range all {
		if m := c.curve.fewer(c.n * c.unit); m > 0 && m%c.unit == 0 && m/c.unit >= c.least {
			if c.inPlace() {
				return c.givesUp(c.newest(c.n-m/c.unit), 0, fmt.Sprintf("its steps took no longer with %d", m/c.unit))
			}
			return c.again(0, "begins again with fewer %s than %d: its steps took no longer with %d", c.units(), c.n, m/c.unit)
		}
	}
	if r.Sizing == None {
		return nil
	}
	if p := r.more(all, free, snap, led); p != nil {
		return p
	}
	if r.Sizing == Sia {
		return r.trade(all, free, snap)
	}
	if r.Sizing.moves() {
		return r.exchange(all, free, snap)
	}
	return nil
}

// shape is what decides for which jobs room can be made: of jobs of one shape only
// the first is considered.
type shape struct {
	gpus, nodes        int
	gpuType, partition string
	node               cluster.NodeID
	where              *cluster.Where
}

// units names what it has more or fewer of.
func (c *claim) units() string {
	if c.spans() {
		return "nodes"
	}
	return "GPUs"
}

// running returns the jobs that may restart now, as they are, by their ids.
func (r Rules) running(snap *dispatch.Snapshot, plan *dispatch.Plan, free blocks) []*claim {
	var out []*claim
	for _, j := range snap.Running {
		a := r.ready(j, snap.Now, plan)
		if a == nil {
			continue
		}
		c := claimOf(snap, j)
		c.attempt, c.had, c.typ = a, c.n, a.Estimate.GPUType
		for rank, berth := range a.Berths() {
			if b := free.at(berth.Node, c.typ); b != nil && a.Stays(rank) {
				c.at = append(c.at, b)
			}
		}
		if c.home = c.at; len(c.at) == a.Width() {
			out = append(out, c)
		}
	}
	return out
}

// ready returns the attempt of a job that may restart now, nil for none.
func (r Rules) ready(j *cluster.Job, now cluster.Time, plan *dispatch.Plan) *cluster.Attempt {
	if !j.Spec.Elastic() || j.Unpreemptible(now) != "" || slices.ContainsFunc(plan.Preempt, func(p dispatch.Preemption) bool { return p.Job == j.ID }) {
		return nil
	}
	if a := j.Live(); a.Started > 0 && now.Sub(a.SizedAt()) >= r.every() {
		return a
	}
	return nil
}

// endsSoon reports whether a job is predicted to end before another size would pay.
func (r Rules) endsSoon(c *claim, now cluster.Time) bool {
	d := c.attempt.Estimate.Duration
	return d > 0 && d-now.Sub(c.attempt.Started) < r.every()
}

// makesRoom returns the job that has more than its least and would, without going
// below it, leave enough for a waiting job: the first, or by some sizings the one
// that loses the least. None does for a job that already has room and waits for
// something else.
func (r Rules) makesRoom(all []*claim, w *cluster.Job, free blocks) *claim {
	least, _, _ := w.Spec.Sizes()
	if _, ok := free.place(w, least); ok {
		return nil
	}
	var best *claim
	for _, c := range all {
		if c.n == c.least || c.job.Spec.Partition != w.Spec.Partition || best != nil && (!r.Sizing.moves() || r.Sizing.loss(c) >= r.Sizing.loss(best)) {
			continue
		}
		then := free.clone()
		for _, b := range c.at {
			then.at(b.node.ID, b.typ).idle += c.job.Spec.GPUs
		}
		at, ok := then.place(w, least)
		if !ok {
			continue
		}
		then.take(at, w.Spec.GPUs)
		if _, ok := then.place(c.job, c.least); ok {
			best = c
		}
	}
	return best
}

// more returns the job that gets some of what is idle if none waits.
func (r Rules) more(all []*claim, free blocks, snap *dispatch.Snapshot, led *dispatch.Ledger) []dispatch.Preemption {
	defer func() {
		for _, c := range all {
			c.back(free)
		}
	}()
	if r.Sizing.moves() {
		idle := free.clone()
		for _, c := range all {
			c.back(idle)
		}
		r.share(all, idle, idle.idle(), snap)
	}
	for _, c := range all {
		if !r.Sizing.moves() { // the first has all
			idle := free.clone()
			for c.back(idle); c.n < c.most && idle.next(c) != nil; {
				idle.grow(c)
			}
		}
		if c.faster(c.typ, c.n) < worth {
			continue
		}
		if had := c.attempt.Estimate.GPUType; c.typ != had {
			return c.again(0, "begins again with %d × %s instead of %d × %s: they are idle, and nobody waits", c.n*c.unit, c.typ, c.had*c.unit, had)
		}
		if !c.inPlace() {
			return c.again(0, "begins again with %d %s instead of %d: they are idle, and nobody waits", c.n, c.units(), c.had)
		}
		if p := c.getsMore(snap, led); p != nil {
			return p
		}
	}
	return nil
}

// back places it where its attempt runs, in a copy of the blocks.
func (c *claim) back(to blocks) {
	at := make([]*block, 0, len(c.home))
	for _, b := range c.home {
		at = append(at, to.at(b.node.ID, b.typ))
	}
	c.at, c.n, c.typ = at, c.had, c.attempt.Estimate.GPUType
}

// exchange returns the job that restarts with fewer so that another one can with
// more, if that is better for all of them together.
func (r Rules) exchange(all []*claim, free blocks, snap *dispatch.Snapshot) []dispatch.Preemption {
	then := free.clone()
	for _, c := range all {
		c.back(then)
		keep := c.at
		if c.spans() {
			keep = c.at[:c.least]
			then.take(c.at[c.least:], -c.unit)
		} else {
			then.take(c.at, -(c.n-c.least)*c.unit)
		}
		c.at, c.n = keep, c.least
	}
	r.share(all, then, then.idle(), snap)
	now := snap.Now
	var gives, gets *claim
	for _, c := range all {
		switch {
		case c.n < c.had && (gives == nil || (c.had-c.n)*c.unit > (gives.had-gives.n)*gives.unit):
			gives = c
		case c.n > c.had && c.speed(c.n) >= worth*c.speed(c.had):
			gets = c
		}
	}
	if gives == nil || gets == nil || !r.Sizing.better(all, func(c *claim) time.Duration { return now.Sub(c.job.Submitted) }) {
		return nil
	}
	return r.giveTo(gives, gets, free)
}

// giveTo has one restart with fewer for another.
func (r Rules) giveTo(gives, gets *claim, free blocks) []dispatch.Preemption {
	if gives.inPlace() {
		n := gives.had - gives.n
		gives.back(free)
		return gives.givesUp(gives.newest(n), 0, fmt.Sprintf("job %d gains more from them (%s)", gets.job.ID, r.Sizing))
	}
	return gives.again(0, "begins again with fewer %s than %d: job %d gains more from them (%s)", gives.units(), gives.had, gets.job.ID, r.Sizing)
}
