// Package elastic chooses with how many GPUs, on one node or on how many nodes,
// elastic jobs run. A waiting job gets, at its start, idle GPUs beyond what other
// jobs wait for, unit by unit in the order of a sizing: by default to the job that
// one more speeds up most, the marginal gain of Optimus (Peng et al., EuroSys 2018)
// and AFS (Hwang et al., NSDI 2021), by what runs of the job showed. A running job
// that can save its state restarts with fewer when others wait, and with more when
// GPUs stay idle. One sizing, Sia, also chooses types of GPU.
package elastic

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
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

// Size is with how many units a job should start, see Spec.Sizes, and on which type of
// GPU, "" for any.
type Size struct {
	Units int
	Type  string
}

// Sizes returns how waiting jobs should start: those that should have more than their
// least number, or have a share that their deadlines need, or for which a type is
// chosen. GPUs that others wait for are left to them.
func (r Rules) Sizes(snap *dispatch.Snapshot) map[cluster.JobID]Size {
	if !slices.ContainsFunc(snap.Waiting, func(j *cluster.Job) bool { return j.Spec.Elastic() }) {
		return nil
	}
	out := map[cluster.JobID]Size{}
	for _, j := range snap.Waiting {
		if n, ok := snap.Shares[j.ID]; ok {
			out[j.ID] = Size{Units: n}
		}
	}
	free := blocksOf(snap, snap.Ledger)
	spare := free.idle()
	if r.Sizing == None {
		return out
	}
	for _, j := range snap.Waiting {
		least, _, gpus := j.Spec.Sizes()
		if spare -= max(least, out[j.ID].Units) * gpus * (1 + snap.More[j.ID]); spare < 1 && r.Sizing != Sia {
			return out
		}
	}
	var all []*claim
	for _, j := range snap.Waiting {
		if j.Spec.Elastic() {
			all = append(all, claimOf(snap, j))
		}
	}
	slices.SortStableFunc(all, func(a, b *claim) int { return cmp.Compare(a.job.Eligible, b.job.Eligible) })
	if r.Sizing == Sia {
		return r.typed(snap, all, out, free, spare)
	}
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
	r.share(all, free, spare, snap)
	for _, c := range all[:waiting] {
		if c.n > c.least {
			out[c.job.ID] = Size{Units: c.n}
		}
	}
	return out
}

// share allocates idle GPUs, unit by unit or by Sia all at once, at most spare of them.
func (r Rules) share(all []*claim, free blocks, spare int, snap *dispatch.Snapshot) {
	if r.Sizing == Sia {
		m := bidders(all, free, spare, true, snap)
		m.divide()
		m.award()
		return
	}
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

// Sized returns the snapshot in which jobs wait for as many units as sizes says, and
// for the types.
// Their needs in time and, if the units are of one node, in cores and host memory
// are of that many; those with a share for their deadline take as long as for what
// is left of them. It has its own ledger and queues.
func Sized(snap *dispatch.Snapshot, sizes map[cluster.JobID]Size) *dispatch.Snapshot {
	out := *snap
	out.Ledger, out.Waiting = snap.Ledger.Clone(), slices.Clone(snap.Waiting)
	out.Queues = make(map[cluster.GPUID][]dispatch.Waiter, len(snap.Queues))
	maps.Copy(out.Queues, snap.Queues)
	for i, j := range out.Waiting {
		if n, ok := sizes[j.ID]; ok {
			_, due := snap.Shares[j.ID]
			out.Waiting[i] = jobSized(j, n, snap.Now, due)
		}
	}
	return &out
}

// jobSized returns a waiting job as one that wants a size; due means that what it did
// before counts.
func jobSized(j *cluster.Job, size Size, now cluster.Time, due bool) *cluster.Job {
	sized, n := j.Clone(), size.Units
	least, curve := j.Spec.Size(), CurveOf(j)
	_, _, unit := j.Spec.Sizes()
	takes := func(d time.Duration, e *cluster.Estimate) time.Duration {
		if due { // as long at most as the rest of what it may take at most
			tail := time.Duration(rules.Stretched(int64(d), rules.Tail, e, 0))
			return time.Duration(float64(d) * float64(Rest(j, now, tail, n)) / float64(tail))
		}
		return time.Duration(float64(d) * curve.Speedup(least*unit) / curve.Speedup(n*unit))
	}
	sized.Spec, sized.Estimates = j.Spec.Sized(n), slices.Clone(j.Estimates)
	if d := j.Spec.Duration; d > 0 || size.Type != "" {
		spec := *sized.Spec
		spec.GPUType = cmp.Or(size.Type, spec.GPUType)
		spec.Duration = takes(d, &cluster.Estimate{})
		sized.Spec = &spec
	}
	for k := range sized.Estimates {
		e := &sized.Estimates[k]
		e.Duration = takes(e.Duration, e)
		if j.Spec.GPURange.Max > 0 {
			e.HostMemMiB, e.CPUMilli = e.HostMemMiB*int64(n)/int64(least), e.CPUMilli*int64(n)/int64(least)
		}
	}
	return sized
}

// Less lowers the sizes of jobs that a plan does not start, halfway to their least
// or to their share, and then leaves their types open; it reports whether there were
// any.
func Less(snap *dispatch.Snapshot, sizes map[cluster.JobID]Size, plan *dispatch.Plan) (lowered bool) {
	for _, j := range snap.Waiting {
		size, ok := sizes[j.ID]
		share, due := snap.Shares[j.ID]
		if !ok || due && size.Units <= share || slices.ContainsFunc(plan.Starts, func(s dispatch.Start) bool { return s.Job == j.ID }) {
			continue
		}
		lowered = true
		least, _, _ := j.Spec.Sizes()
		least = max(least, share)
		if n := (size.Units + least) / 2; n == least && !due && (size.Type == "" || n == size.Units) {
			delete(sizes, j.ID)
		} else {
			sizes[j.ID] = Size{n, size.Type}
		}
	}
	return lowered
}
