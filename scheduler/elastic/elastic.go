// Package elastic chooses with how many GPUs, on one node or on how many nodes,
// elastic jobs run. A waiting job gets, at its start, idle GPUs beyond what other
// jobs wait for, unit by unit in the order of a sizing: by default to the job that
// one more speeds up most, the marginal gain of Optimus (Peng et al., EuroSys 2018)
// and AFS (Hwang et al., NSDI 2021), by what runs of the job showed. A running job
// that can save its state restarts with fewer when others wait, and with more when
// GPUs stay idle.
package elastic

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

const (
	// Every is the least time that a job runs with one number of GPUs, unless Rules
	// say otherwise: each change costs it a save and a start.
	Every = 10 * time.Minute
	// patience is how long a job waits before others restart with fewer GPUs,
	// unless Rules say otherwise.
	patience = time.Minute
	// worth is by how much a job must speed up to restart.
	worth = 1.2
)

// Rules are how sizes are chosen. The zero value is the default.
type Rules struct {
	// Sizing decides which job gets one more unit; "" is Marginal.
	Sizing Sizing
	// Every is the least time that an attempt runs before its job restarts with
	// another size, and Patience how long a job waits before others make room; 0 is
	// ten minutes and one. No job is asked twice within cluster.PreemptEvery,
	// whatever they say.
	Every, Patience time.Duration
}

func (r Rules) every() time.Duration    { return cmp.Or(r.Every, Every) }
func (r Rules) patience() time.Duration { return cmp.Or(r.Patience, patience) }

// Pace returns the least time between two passes that restart jobs.
func (r Rules) Pace() time.Duration { return r.patience() }

// Sizes returns with how many units waiting jobs should start, see Spec.Sizes, for
// those that should have more than their least number. GPUs that others wait for
// are left to them.
func (r Rules) Sizes(snap *dispatch.Snapshot) map[cluster.JobID]int {
	if r.Sizing == None || !slices.ContainsFunc(snap.Waiting, func(j *cluster.Job) bool { return j.Spec.Elastic() }) {
		return nil
	}
	free := blocksOf(snap, snap.Ledger)
	spare := free.idle()
	var all []*claim
	for _, j := range snap.Waiting {
		spare -= j.Spec.GPUs * j.Spec.NodeCount() * (1 + snap.More[j.ID])
		if j.Spec.Elastic() {
			all = append(all, claimOf(snap, j))
		}
		if spare < 1 {
			return nil
		}
	}
	slices.SortStableFunc(all, func(a, b *claim) int { return cmp.Compare(a.job.Eligible, b.job.Eligible) })
	for _, c := range all {
		if at, ok := free.place(c.job, c.n); ok {
			free.take(at, c.unit)
			c.settle(at, free)
		}
	}
	waiting := len(all)
	if r.Sizing.moves() { // idle GPUs may be worth more to running jobs
		all = append(all, r.running(snap, &dispatch.Plan{}, free)...)
	}
	r.share(all, free, spare)
	out := map[cluster.JobID]int{}
	for _, c := range all[:waiting] {
		if c.n > c.least {
			out[c.job.ID] = c.n
		}
	}
	return out
}

// share allocates idle GPUs, unit by unit, at most spare of them.
func (r Rules) share(all []*claim, free blocks, spare int) {
	r.Sizing.weigh(all, spare)
	for spare > 0 {
		var best *claim
		for _, c := range all {
			if c.n >= c.most || c.unit > spare || !c.pays() || best != nil && !r.Sizing.prefers(c, best) {
				continue
			}
			if free.next(c) != nil {
				best = c
			}
		}
		if best == nil {
			return
		}
		free.grow(best)
		spare -= best.unit
	}
}

// Sized returns the snapshot in which jobs wait for as many units as sizes says.
// Their needs in time and, if the units are of one node, in cores and host memory
// are of that many. It has its own ledger and queues.
func Sized(snap *dispatch.Snapshot, sizes map[cluster.JobID]int) *dispatch.Snapshot {
	out := *snap
	out.Ledger, out.Waiting = snap.Ledger.Clone(), slices.Clone(snap.Waiting)
	out.Queues = make(map[cluster.GPUID][]dispatch.Waiter, len(snap.Queues))
	maps.Copy(out.Queues, snap.Queues)
	for i, j := range out.Waiting {
		n, ok := sizes[j.ID]
		if !ok {
			continue
		}
		sized := j.Clone()
		least, curve := j.Spec.Size(), CurveOf(j)
		_, _, unit := j.Spec.Sizes()
		sized.Spec, sized.Estimates = j.Spec.Sized(n), slices.Clone(j.Estimates)
		for k := range sized.Estimates {
			e := &sized.Estimates[k]
			e.Duration = time.Duration(float64(e.Duration) * curve.Speedup(least*unit) / curve.Speedup(n*unit))
			if j.Spec.GPURange.Max > 0 {
				e.HostMemMiB, e.CPUMilli = e.HostMemMiB*int64(n)/int64(least), e.CPUMilli*int64(n)/int64(least)
			}
		}
		out.Waiting[i] = sized
	}
	return &out
}

// Less lowers the sizes of jobs that a plan does not start, halfway to their least,
// and reports whether there were any.
func Less(snap *dispatch.Snapshot, sizes map[cluster.JobID]int, plan *dispatch.Plan) (lowered bool) {
	for _, j := range snap.Waiting {
		n, ok := sizes[j.ID]
		if !ok || slices.ContainsFunc(plan.Starts, func(s dispatch.Start) bool { return s.Job == j.ID }) {
			continue
		}
		lowered = true
		least, _, _ := j.Spec.Sizes()
		if sizes[j.ID] = (n + least) / 2; sizes[j.ID] == least {
			delete(sizes, j.ID)
		}
	}
	return lowered
}
