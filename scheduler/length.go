package scheduler

import (
	"math"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// The drain of a class of cards is how long it takes until all that runs and
// waits is done, if nobody came any more and work were a fluid: each waiter is
// spread over the cards that could run it, in proportion to how fast they are,
// and takes of a card the larger fraction of memory and compute. It is what
// makes lengths comparable: a job of an hour is long when all is done in two,
// and short under a backlog of days.

// turns says who comes when: by age, by length beside all there is to do, by shares.
type turns struct {
	*scene
	lasted int64 // how long jobs have kept coming, see streamAge
	plenty bool  // each who waits could have empty cards; see rankOf
}

// measure works out the drain of each class.
func (ts *turns) measure() {
	ts.lasted = ts.streamAge()
	for i := range ts.items {
		it := &ts.items[i]
		it.fast = ts.fastest(it)
		if it.fast < 0 || it.gpus == 0 {
			continue
		}
		rate := 0.0 // how many such jobs all cards together end in a microsecond
		for c := range it.needs {
			if n, k := &it.needs[c], &ts.f.classes[c]; n.Way != rules.WayNone {
				rate += float64(len(k.cards)) * cluster.WholeGPU / (float64(n.Dominant(k.Sellable)+1) * float64(n.Dur))
			}
		}
		// Whole microseconds, so that the sum does not depend on the order.
		// Tasks of its array that are not shown wait, too.
		alike := 1 + ts.more[it.job.ID]
		t := int64(math.Min(float64(it.allGPUs()*alike)/rate, rules.MaxSpread))
		for c := range it.needs {
			if it.needs[c].Way != rules.WayNone {
				ts.f.classes[c].drain += t
				ts.f.classes[c].wanted += int64(it.allGPUs() * alike)
			}
		}
	}
	ts.measureRunning()
	ts.plenty = !slices.ContainsFunc(ts.f.classes, func(k class) bool { return k.wanted > k.idle() })
}

// idle counts the empty cards of a class.
func (k *class) idle() (n int64) {
	for i := range k.groups {
		n += int64(k.groups[i].empty)
	}
	return n
}

// measureRunning adds what runs, and those in queues whom the pass cannot see
// as if they were like it.
func (ts *turns) measureRunning() {
	type sums struct{ left, all, count, unseen int64 }
	by := make([]sums, len(ts.f.classes))
	for _, j := range ts.running {
		a := j.Live()
		if a == nil {
			continue
		}
		end, _ := rules.EndsAt(j, a, ts.now, &ts.pol)
		for _, gs := range a.HeldGPUs() {
			i, ok := ts.f.cardAt[gs.GPU]
			if !ok || ts.f.cards[i].class < 0 {
				continue
			}
			n := rules.Need{Mem: gs.Share.MemMiB, Milli: gs.Share.Milli, Way: rules.WayShare}
			if gs.Share.Exclusive {
				n.Way = rules.WayWhole
			}
			s := &by[ts.f.cards[i].class]
			s.left += min(end-ts.now, rules.MaxSpread) / cluster.WholeGPU * n.Dominant(ts.f.cards[i].use.SellableMiB)
			s.all += min(rules.DurationOf(j, &a.Estimate, &ts.pol), rules.MaxSpread)
			s.count++
		}
	}
	for i := range ts.f.cards {
		if c := &ts.f.cards[i]; c.class >= 0 {
			by[c.class].unseen += int64(c.unseen)
		}
	}
	for c := range ts.f.classes {
		s, mean := &by[c], ts.pol.AssumedDuration.Microseconds()
		if s.count > 0 {
			mean = s.all / s.count
		}
		ts.f.classes[c].drain += (s.left + s.unseen*min(mean, rules.MaxSpread)) / int64(len(ts.f.classes[c].cards))
	}
}

// fastest is the class on which a job is predicted to run shortest, -1 when it
// can run on none.
func (s *scene) fastest(it *item) int32 {
	best := int32(-1)
	for c := range it.needs {
		if it.needs[c].Way != rules.WayNone && (best < 0 || it.needs[c].Dur < it.needs[best].Dur) {
			best = int32(c)
		}
	}
	return best
}

// length is how long a job is beside all there is to do.
type length uint8

const (
	lengthShort  length = iota // whoever waits for it loses next to nothing
	lengthLong                 // it may be what everybody waits for in the end
	lengthMiddle               // neither
)

func (ts *turns) lengthOf(it *item) length {
	d, drain := it.needs[it.fast].Dur, ts.f.classes[it.fast].drain
	switch {
	case ts.pol.ShortPart > 0 && d <= drain/ts.pol.ShortPart:
		return lengthShort
	case ts.pol.LongPart > 0 && ts.lasted < drain && d >= drain/ts.pol.LongPart && !ts.pol.GoesOn(it.job): // that made room, and does not take it back
		return lengthLong
	}
	return lengthMiddle
}

// How a stream of jobs is told from a batch: by the newest streamSize times at
// which somebody came, of those whom the pass sees, streamLeast at least. It
// has ended when nobody came for streamGaps times their mean distance; at
// random times that happens by chance once in three thousand gaps.
const (
	streamSize  = 16
	streamLeast = 4
	streamGaps  = 8
)

// streamAge is for how long jobs have kept coming, in microseconds: the age of
// the oldest whom the pass sees, and 0 when they came at one time or nobody comes any
// more. With nothing else known, what has lasted so long lasts as long again
// (Gott, Nature 1993): a stream younger than the drain is a batch that has not
// all arrived, in an older one all that is here is never done, and what is started
// late is not what everybody waits for in the end.
func (ts *turns) streamAge() int64 {
	var newest [streamSize + 1]int64 // the latest first, those who came together once
	n, oldest := 0, ts.now
	see := func(j *cluster.Job) {
		t := int64(j.Submitted)
		oldest = min(oldest, t)
		if n == len(newest) && t <= newest[n-1] {
			return
		}
		i := 0
		for i < n && newest[i] > t {
			i++
		}
		if i < n && newest[i] == t {
			return
		}
		n = min(n+1, len(newest))
		copy(newest[i+1:n], newest[i:n-1])
		newest[i] = t
	}
	for i := range ts.items {
		see(ts.items[i].job)
	}
	for _, j := range ts.running {
		see(j)
	}
	if n < streamLeast || ts.now-newest[0] >= streamGaps*(newest[0]-newest[n-1])/int64(n-1) {
		return 0
	}
	return ts.now - oldest
}

// gpuTime is what a job that runs for so many microseconds takes of all cards, in
// milliseconds of a whole one.
func (ts *turns) gpuTime(it *item, dur int64) int64 {
	n := &it.needs[it.fast]
	return min(dur, rules.MaxSpread) / 1000 * n.Dominant(ts.f.classes[it.fast].Sellable) / cluster.WholeGPU * int64(it.allGPUs())
}
