// Package optimum computes what no schedule can beat, by bounds and for few jobs
// exactly.
package optimum

import (
	"cmp"
	"container/heap"
	"math"

	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// Bounds are what no schedule can beat, in seconds: the makespan and the mean
// completion time of one job per GPU, and of jobs that share GPUs.
type Bounds struct {
	MakespanAlone, JCTAlone, Makespan, JCT float64
}

// Of computes the bounds of jobs in order of arrival; false if there are no jobs or
// no GPUs. Jobs on a GPU that is too full may progress briefly before one is ended:
// with overfull GPUs memory bounds nothing.
func Of(w *workload.Workload, f *workload.Fleet, world slowdown.Interference, overfull bool) (b Bounds, ok bool) {
	cards := f.GPUs()
	if cards == 0 || len(w.Jobs) == 0 {
		return b, false
	}
	types := f.Types()
	alone := func(j *workload.Job) float64 {
		return j.Shortest(types).Seconds() * float64(j.GPUs) * j.Fraction() / float64(cards)
	}
	whole := heaviest(w, types, alone, pricesAlone(w, f))
	b.MakespanAlone, b.JCTAlone = makespanBound(w, types, whole), flowBound(w, types, whole)
	shares := f.Shares()
	for _, n := range f.Nodes {
		shares = max(shares, n.MaxShares)
	}
	needs := heaviest(w, types, func(j *workload.Job) float64 { return alone(j) / float64(shares) }, prices(w, f, world, !overfull, 0))
	if world.CapsWork() {
		work := heaviest(w, types, func(j *workload.Job) float64 { return workOf(j, types) / float64(cards) }, nil)
		if total(work) > total(needs) {
			needs = work
		}
	}
	b.Makespan, b.JCT = makespanBound(w, types, needs), flowBound(w, types, needs)
	return b, true
}

// pricesAlone returns those of one job per GPU, nil if declared shares let several
// jobs share a GPU anyhow, and if all GPUs are alike, so that work over GPUs is as
// good.
func pricesAlone(w *workload.Workload, f *workload.Fleet) []float64 {
	if len(f.Types()) < 2 {
		return nil
	}
	for i := range w.Jobs {
		if w.Jobs[i].Milli%1000 != 0 {
			return nil
		}
	}
	return prices(w, f, slowdown.Free{}, true, 1)
}

// heaviest returns how long each job takes all GPUs together at least: by a simple
// rule or by prices, whichever sums to more over all jobs. One of the two is used
// for all jobs, as a mixture is no bound.
func heaviest(w *workload.Workload, types []string, rule func(*workload.Job) float64, prices []float64) []float64 {
	byRule, byPrice := make([]float64, len(w.Jobs)), make([]float64, len(w.Jobs))
	for i := range w.Jobs {
		j := &w.Jobs[i]
		byRule[i] = rule(j)
		if prices != nil {
			byPrice[i] = prices[i] * j.Shortest(types).Seconds() * float64(j.GPUs)
		}
	}
	if total(byPrice) > total(byRule) {
		return byPrice
	}
	return byRule
}

func total(vs []float64) float64 {
	sum := 0.0
	for _, v := range vs {
		sum += v
	}
	return sum
}

// workOf returns the least utilization-time of a job in GPU-seconds: what it asks
// of GPUs that do no more than a GPU's worth at a time.
func workOf(j *workload.Job, types []string) float64 {
	best := math.Inf(1)
	for _, t := range types {
		o := j.Figures(t)
		if !j.MayUse(t) {
			continue
		}
		u := float64(cmp.Or(o.UsedMilli, 1000)) / 1000
		best = min(best, o.Duration.Seconds()*u*float64(j.GPUs))
	}
	if math.IsInf(best, 1) {
		return 0
	}
	return best
}

// makespanBound returns the largest of: the longest job after its arrival, and for
// every arrival what comes from then on over all GPUs. Jobs are in order of
// arrival; the bound counts from the first of them.
func makespanBound(w *workload.Workload, types []string, needs []float64) float64 {
	first := w.Jobs[0].Submit
	bound, rest := 0.0, 0.0
	for i := len(w.Jobs) - 1; i >= 0; i-- {
		j := &w.Jobs[i]
		since := (j.Submit - first).Seconds()
		rest += needs[i]
		bound = max(bound, since+j.Shortest(types).Seconds(), since+rest)
	}
	return bound
}

// flowBound bounds the mean completion time. It is the larger of two relaxations:
// every job runs at once as fast as alone, and one machine that does the jobs in
// turn, shortest remaining first, each for as long as it takes all GPUs together at
// least.
func flowBound(w *workload.Workload, types []string, needs []float64) float64 {
	alone := 0.0
	var q remaining
	flow, now := 0.0, 0.0
	run := func(until float64) {
		for len(q) > 0 && now < until {
			d := q[0].left
			if now+d > until {
				q[0].left -= until - now
				now = until
				return
			}
			now += d
			flow += now - q[0].arrived
			heap.Pop(&q)
		}
		now = max(now, until)
	}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		alone += j.Shortest(types).Seconds()
		run(j.Submit.Seconds())
		heap.Push(&q, pending{needs[i], j.Submit.Seconds()})
	}
	run(math.Inf(1))
	return max(alone, flow) / float64(len(w.Jobs))
}

type pending struct{ left, arrived float64 }

// remaining is a heap by least work left.
type remaining []pending

func (r remaining) Len() int           { return len(r) }
func (r remaining) Less(i, k int) bool { return r[i].left < r[k].left }
func (r remaining) Swap(i, k int)      { r[i], r[k] = r[k], r[i] }
func (r *remaining) Push(x any)        { *r = append(*r, x.(pending)) }
func (r *remaining) Pop() any {
	s := *r
	x := s[len(s)-1]
	*r = s[:len(s)-1]
	return x
}
