package sim

import (
	"container/heap"
	"math"
	"slices"
)

// bounds fills in what no schedule can beat, and how far from it the run was.
func bounds(r *Result, w *Workload, f *Fleet, world Interference) {
	cards := f.GPUs()
	if cards == 0 || len(w.Jobs) == 0 {
		return
	}
	types := f.types()
	alone := func(j *Job) float64 {
		return j.shortest(types).Seconds() * float64(j.GPUs) * fraction(j) / float64(cards)
	}
	whole := heaviest(w, types, alone, pricesAlone(w, f))
	r.LowerBoundAlone, r.LowerBoundJCT = figure(makespanBound(w, types, whole)), figure(flowBound(w, types, whole))
	shares := f.MaxShares
	if shares == 0 {
		shares = defaultShares
	}
	for _, n := range f.Nodes {
		shares = max(shares, n.MaxShares)
	}
	// Who sits on a card that is too full may get on for a moment before
	// somebody is ended: then memory bounds nothing.
	needs := heaviest(w, types, func(j *Job) float64 { return alone(j) / float64(shares) }, prices(w, f, world, r.OOMs == 0, 0))
	if world.CapsWork() {
		work := heaviest(w, types, func(j *Job) float64 { return j.work(types) / float64(cards) }, nil)
		if total(work) > total(needs) {
			needs = work
		}
	}
	r.LowerBoundMakespan = figure(makespanBound(w, types, needs))
	r.LowerBoundSharedJCT = figure(flowBound(w, types, needs))
	if r.Completed == len(w.Jobs) {
		r.GapMakespanPct, r.GapJCTPct = gap(r.Makespan, r.LowerBoundMakespan), gap(r.MeanJCT, r.LowerBoundSharedJCT)
	}
}

// gap is by how many per cent a figure is above its bound.
func gap(v, bound *float64) *float64 {
	if v == nil || bound == nil || *bound <= 0 {
		return nil
	}
	return figure(100 * (*v / *bound - 1))
}

// pricesAlone are those of one job to a card, nil where declared shares let
// several jobs have a card anyhow, and where all cards are alike, so that work
// over cards is as good.
func pricesAlone(w *Workload, f *Fleet) []float64 {
	if len(f.types()) < 2 {
		return nil
	}
	for i := range w.Jobs {
		if w.Jobs[i].Milli%1000 != 0 {
			return nil
		}
	}
	return prices(w, f, Free{}, true, 1)
}

// heaviest is how long each job takes all cards together at least: by a simple
// rule or by prices, whichever makes more of all jobs. One of the two goes for
// all jobs, as a mixture is no bound.
func heaviest(w *Workload, types []string, rule func(*Job) float64, prices []float64) []float64 {
	byRule, byPrice := make([]float64, len(w.Jobs)), make([]float64, len(w.Jobs))
	for i := range w.Jobs {
		j := &w.Jobs[i]
		byRule[i] = rule(j)
		if prices != nil {
			byPrice[i] = prices[i] * j.shortest(types).Seconds() * float64(j.GPUs)
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

// fraction is the declared share of a card; a job that declares none has one.
func fraction(j *Job) float64 {
	if j.Milli > 0 {
		return float64(j.Milli) / 1000
	}
	return 1
}

// work is the least utilization-time of a job in card-seconds: what it asks
// of cards that do no more than a card's worth at a time.
func (j *Job) work(types []string) float64 {
	best := math.Inf(1)
	for _, t := range types {
		o := j.on(t)
		if len(j.Types) > 0 && !slices.Contains(j.Types, t) {
			continue
		}
		u := float64(orElse(o.UsedMilli, 1000)) / 1000
		best = min(best, o.Duration.Seconds()*u*float64(j.GPUs))
	}
	if math.IsInf(best, 1) {
		return 0
	}
	return best
}

// makespanBound is the largest of: the longest job after its arrival, and for
// every arrival what comes from then on over all cards. Jobs are in order of
// arrival; the bound counts from the first of them.
func makespanBound(w *Workload, types []string, needs []float64) float64 {
	first := w.Jobs[0].Submit
	bound, rest := 0.0, 0.0
	for i := len(w.Jobs) - 1; i >= 0; i-- {
		j := &w.Jobs[i]
		since := (j.Submit - first).Seconds()
		rest += needs[i]
		bound = max(bound, since+j.shortest(types).Seconds(), since+rest)
	}
	return bound
}

// flowBound bounds the mean completion time. It is the larger of two
// relaxations: every job runs at once as fast as alone, and one machine that
// does the jobs in turn, shortest remaining first, each for as long as it
// takes all cards together at least.
func flowBound(w *Workload, types []string, needs []float64) float64 {
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
		alone += j.shortest(types).Seconds()
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
