package order

import (
	"cmp"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// byTimeLeft takes the job with least left to do, by prediction: shortest remaining
// time first (Schrage, Operations Research 16, 1968, for one machine).
func byTimeLeft(_ *Turns, f *scene.Facts) scene.Key { return scene.Key{A: f.Left, B: f.Since} }

// PreemptCost returns what a preemption costs the preempted job, in microseconds:
// what the artefact of Lucid (ASPLOS 2023) charges.
func PreemptCost(gpus int) int64 {
	if gpus <= 8 {
		return (40 * time.Second).Microseconds()
	}
	return time.Minute.Microseconds()
}

// muchShorter requires that the newcomer, which pays for the preemption too, still
// ends sooner than the one that it displaces.
func muchShorter(_ *Turns, waits, runs *scene.Facts) bool {
	return waits.Left+PreemptCost(runs.Cards()) < runs.Left
}

// byServiceLeft takes the job with least GPU time left to do, by prediction:
// shortest remaining service first, the order of Muri (SIGCOMM 2022, section 4.2).
func byServiceLeft(_ *Turns, f *scene.Facts) scene.Key { return scene.Key{A: f.GPUTime(), B: f.Since} }

// muchLessService is muchShorter for GPU time.
func muchLessService(_ *Turns, waits, runs *scene.Facts) bool {
	return waits.GPUTime()+PreemptCost(runs.Cards())*int64(waits.Width()) < runs.GPUTime()
}

// LAS are the queues of the order "las".
type LAS struct {
	// Limits are how much time of one GPU a job has had when it sinks into the next
	// queue, the shortest first. None stands for 3250, 7200 and 18000 seconds,
	// those of the published simulator of Tiresias. Muri's has the same but never
	// uses the third, Lucid's has one of 18000.
	Limits []time.Duration
	// ByArrival orders a queue by arrival, even before running jobs: Lucid's rule.
	// It matters only to EvictRanked; otherwise running jobs stay.
	ByArrival bool
	// Promote moves a job that waited this many times as long as it ran back into
	// the first queue and forgets its service: the knob P of Tiresias, section 3.3.
	// 0 leaves it off, as the paper does; sites use PromoteAfter.
	Promote int64
}

// PromoteAfter is the LAS.Promote of sites, so that no job that sank starves.
const PromoteAfter = 8

// queues returns the limits of the queues of discretised 2D-LAS.
func (l *LAS) queues() []time.Duration {
	if len(l.Limits) > 0 {
		return l.Limits
	}
	return []time.Duration{3250 * time.Second, 7200 * time.Second, 18000 * time.Second}
}

// byService is discretised two-dimensional least attained service of Gu et al.,
// "Tiresias: A GPU Cluster Manager for Distributed Deep Learning" (NSDI 2019),
// section 3.3: jobs sink from queue to queue as the product of GPUs and time that
// they received grows, and are first come, first served in each. Its promotion of
// starving jobs (knob P) is LAS.Promote.
func byService(ts *Turns, f *scene.Facts) scene.Key {
	return scene.Key{A: ts.serviceQueue(f), B: f.Submitted}
}

func (ts *Turns) serviceQueue(f *scene.Facts) int64 { return ts.queueOf(ts.attained(f)) }

// attained returns the service that a job received, since it was last promoted.
func (ts *Turns) attained(f *scene.Facts) int64 {
	if ts.LAS.Promote > 0 {
		return sincePromoted(f, ts.Now, ts.LAS.Promote) * int64(f.Width())
	}
	return f.Attained
}

// queueOf returns the queue of a job that had so much service.
func (ts *Turns) queueOf(had int64) (q int64) {
	for _, limit := range ts.LAS.queues() {
		if had >= limit.Microseconds() {
			q++
		}
	}
	return q
}

// byWeighedService is byService with the service weighed by the part of the job's
// steps that is still to do, so that one that is nearly done does not sink: the idea
// of E-LAS (Sultana et al., ICPP 2020), which weighs by the progress in epochs. A job
// that reports no steps counts as under "las".
func byWeighedService(ts *Turns, f *scene.Facts) scene.Key {
	return scene.Key{A: ts.weighedQueue(f), B: f.Submitted}
}

func (ts *Turns) weighedQueue(f *scene.Facts) int64 {
	return ts.queueOf(ts.attained(f) / 1000 * (1000 - doneMilli(f, ts.Now)))
}

// doneMilli returns the part of a job's steps that are done, in thousandths, by its
// latest report: from there on it goes on as fast while it runs. 0 is unknown.
func doneMilli(f *scene.Facts, now int64) int64 {
	for i := len(f.Attempts) - 1; i >= 0; i-- {
		a := &f.Attempts[i]
		p := a.Progress
		if p == nil || p.Total <= 0 {
			continue
		}
		step := p.Step
		if a.State.Live() && p.StepTime > 0 {
			step += max(0, now-int64(p.At)) / max(1, p.StepTime.Microseconds())
		}
		return min(step, p.Total) * 1000 / p.Total
	}
	return 0
}

func lowerWeighedQueue(ts *Turns, waits, runs *scene.Facts) bool {
	return ts.weighedQueue(waits) < ts.weighedQueue(runs)
}

// sincePromoted returns how long a job ran since it was last promoted: whenever it
// had waited, or waits, so many times as long as it ran until then. It is computed
// from its attempts, so nothing has to be stored.
func sincePromoted(f *scene.Facts, now, times int64) int64 {
	ran, idleFrom := int64(0), f.Submitted
	waited := func(until int64) {
		if ran > 0 && until-idleFrom >= times*ran {
			ran = 0
		}
	}
	for i := range f.Attempts {
		a := &f.Attempts[i]
		if a.Started == 0 {
			continue
		}
		waited(int64(a.Placed))
		end := int64(a.Ended)
		if a.State.Live() {
			end = now
		}
		ran += max(0, end-int64(a.Started))
		idleFrom = end
	}
	waited(now)
	return ran
}

func lowerQueue(ts *Turns, waits, runs *scene.Facts) bool {
	return ts.serviceQueue(waits) < ts.serviceQueue(runs)
}

// byUse takes the jobs of the user that used least, counting the earlier jobs of
// the same user in this pass as used already, so that users take turns. Usage is
// the snapshot's decayed service; without that it is the GPU time that the user's
// running jobs have received. A weight of two halves what a job counts. Source: the
// fair-share factor of batch systems (Kay and Lauder, "A Fair Share Scheduler",
// CACM 1988), without its hierarchy.
func byUse(ts *Turns, f *scene.Facts) scene.Key { return scene.Key{A: ts.use[f.ID], B: f.Since} }

func countUse(ts *Turns) {
	used := map[cluster.UID]int64{}
	for uid, s := range ts.Snap.Service {
		used[uid] = s * time.Second.Microseconds()
	}
	if ts.Snap.Service == nil {
		for i := range ts.Fleet.Runs {
			if ts.Fleet.Runs[i].Part > 0 {
				continue // counted with the first
			}
			f := ts.FactsOfRun(&ts.Fleet.Runs[i])
			used[f.UID] += f.Attained
		}
	}
	ts.use = make(map[cluster.JobID]int64, len(ts.Tasks))
	for _, t := range ts.byArrival() {
		ts.use[t.ID] = used[t.UID]
		used[t.UID] += t.GPUTime() / 1000 * max(1, t.Size) * 1000 / t.Weight
	}
}

func (ts *Turns) byArrival() []*scene.Task {
	all := slices.Clone(ts.Tasks)
	slices.SortFunc(all, func(a, b *scene.Task) int { return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.ID, b.ID)) })
	return all
}

// byUnfairness takes the job with the worst finish-time fairness: how long it takes
// from submission to its end if it started now, over how long it would take alone.
// Source: Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling" (NSDI
// 2020), section 3. Its auction among the worst jobs is left out: the worst chooses
// first.
func byUnfairness(ts *Turns, f *scene.Facts) scene.Key {
	return scene.Key{A: -unfairness(ts, f), B: f.Submitted}
}

// unfairness returns ρ in millionths.
func unfairness(ts *Turns, f *scene.Facts) int64 {
	shared := max(0, ts.Now-f.Submitted) + f.Left
	if shared >= rules.Forever/1_000_000 {
		return shared / max(1, f.Dur) * 1_000_000
	}
	return shared * 1_000_000 / max(1, f.Dur)
}

// lease is how long Themis lets a job keep its GPUs; section 5 finds 20
// minutes a fair compromise.
const lease = 20 * time.Minute

// leaseEnded lets a worse-off job take the place of one whose lease is over.
func leaseEnded(ts *Turns, waits, runs *scene.Facts) bool {
	return time.Duration(ts.Now-runs.Since)*time.Microsecond >= lease && unfairness(ts, waits) > unfairness(ts, runs)
}
