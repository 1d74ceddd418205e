package sim

import (
	"container/heap"
	"math"
	"slices"
	"time"
)

// bounds fills in what no schedule can beat.
func bounds(r *Result, w *Workload, f *Fleet, world Interference) {
	cards := f.GPUs()
	if cards == 0 || len(w.Jobs) == 0 {
		return
	}
	types := f.types()
	alone := func(j *Job) float64 { return j.shortest(types).Seconds() * float64(j.GPUs) * fraction(j) }
	r.LowerBoundAlone = figure(makespanBound(w, types, cards, alone))
	shares := f.MaxShares
	if shares == 0 {
		shares = defaultShares
	}
	for _, n := range f.Nodes {
		shares = max(shares, n.MaxShares)
	}
	shared := func(j *Job) float64 { return alone(j) / float64(shares) }
	if _, free := world.(Free); world.CapsWork() || free && shares == 1 {
		shared = func(j *Job) float64 { return j.work(types) }
	}
	both := func(j *Job) float64 { return max(shared(j), alone(j)/float64(shares)) }
	r.LowerBoundMakespan = figure(makespanBound(w, types, cards, both))
	r.LowerBoundJCT = figure(flowBound(w, types, cards))
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
// every arrival the work that comes from then on over all cards. Jobs are in
// order of arrival; the bound counts from the first of them.
func makespanBound(w *Workload, types []string, cards int, work func(*Job) float64) float64 {
	first := w.Jobs[0].Submit
	bound, rest := 0.0, 0.0
	for i := len(w.Jobs) - 1; i >= 0; i-- {
		j := &w.Jobs[i]
		since := (j.Submit - first).Seconds()
		rest += work(j)
		bound = max(bound, since+j.shortest(types).Seconds(), since+rest/float64(cards))
	}
	return bound
}

// flowBound bounds the mean completion time of any schedule that gives each
// card to one job at a time. It is the larger of two relaxations: every job
// runs at once, and shortest remaining work first on one machine as fast as
// all cards together.
func flowBound(w *Workload, types []string, cards int) float64 {
	alone := 0.0
	var q remaining
	total, now := 0.0, time.Duration(0).Seconds()
	run := func(until float64) {
		for len(q) > 0 && now < until {
			d := q[0].left / float64(cards)
			if now+d > until {
				q[0].left -= (until - now) * float64(cards)
				now = until
				return
			}
			now += d
			total += now - q[0].arrived
			heap.Pop(&q)
		}
		now = max(now, until)
	}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		d := j.shortest(types).Seconds()
		alone += d
		run(j.Submit.Seconds())
		heap.Push(&q, pending{d * float64(j.GPUs) * fraction(j), j.Submit.Seconds()})
	}
	run(math.Inf(1))
	return max(alone, total) / float64(len(w.Jobs))
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
