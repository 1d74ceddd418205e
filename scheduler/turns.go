package scheduler

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/fleet"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
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
			if n, k := &it.needs[c], &ts.f.Classes[c]; n.Way != rules.WayNone {
				rate += float64(len(k.Cards)) * cluster.WholeGPU / (float64(n.Dominant(k.Sellable)+1) * float64(n.Dur))
			}
		}
		// Whole microseconds, so that the sum does not depend on the order.
		// Tasks of its array that are not shown wait, too.
		alike := 1 + ts.more[it.job.ID]
		t := int64(math.Min(float64(it.allGPUs()*alike)/rate, rules.MaxSpread))
		for c := range it.needs {
			if it.needs[c].Way != rules.WayNone {
				ts.f.Classes[c].Drain += t
				ts.f.Classes[c].Wanted += int64(it.allGPUs() * alike)
			}
		}
	}
	ts.measureRunning()
	ts.plenty = !slices.ContainsFunc(ts.f.Classes, func(k fleet.Class) bool { return k.Wanted > k.Idle() })
	if ts.crowd != nil && ts.crowd.know != nil && ts.plenty {
		ts.crowd.calm = 1000 + int64(calmPart*float64(ts.crowd.most-1000))
	}
}

// measureRunning adds what runs, and those in queues whom the pass cannot see
// as if they were like it.
func (ts *turns) measureRunning() {
	type sums struct{ left, all, count, unseen int64 }
	by := make([]sums, len(ts.f.Classes))
	for _, j := range ts.running {
		a := j.Live()
		if a == nil {
			continue
		}
		end, _ := rules.EndsAt(j, a, ts.now, &ts.pol)
		for _, gs := range a.HeldGPUs() {
			i, ok := ts.f.CardAt[gs.GPU]
			if !ok || ts.f.Cards[i].Class < 0 {
				continue
			}
			n := rules.Need{Mem: gs.Share.MemMiB, Milli: gs.Share.Milli, Way: rules.WayShare}
			if gs.Share.Exclusive {
				n.Way = rules.WayWhole
			}
			s := &by[ts.f.Cards[i].Class]
			s.left += min(end-ts.now, rules.MaxSpread) / cluster.WholeGPU * n.Dominant(ts.f.Cards[i].Use.SellableMiB)
			s.all += min(rules.DurationOf(j, &a.Estimate, &ts.pol), rules.MaxSpread)
			s.count++
		}
	}
	for i := range ts.f.Cards {
		if c := &ts.f.Cards[i]; c.Class >= 0 {
			by[c.Class].unseen += int64(c.Unseen)
		}
	}
	for c := range ts.f.Classes {
		s, mean := &by[c], ts.pol.AssumedDuration.Microseconds()
		if s.count > 0 {
			mean = s.all / s.count
		}
		ts.f.Classes[c].Drain += (s.left + s.unseen*min(mean, rules.MaxSpread)) / int64(len(ts.f.Classes[c].Cards))
	}
}

// length is how long a job is beside all there is to do.
type length uint8

const (
	lengthShort  length = iota // whoever waits for it loses next to nothing
	lengthLong                 // it may be what everybody waits for in the end
	lengthMiddle               // neither
)

func (ts *turns) lengthOf(it *item) length {
	d, drain := it.needs[it.fast].Dur, ts.f.Classes[it.fast].Drain
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
	return min(dur, rules.MaxSpread) / 1000 * n.Dominant(ts.f.Classes[it.fast].Sellable) / cluster.WholeGPU * int64(it.allGPUs())
}

// rank decides the order of a pass: less goes first.
type rank struct {
	class         int8 // less the priority
	tier          int8
	first, second int64
	id            cluster.JobID
	item          int32
}

// Tiers of a pass, in each class of priority.
const (
	tierDue    int8 = iota // with a deadline: the earliest first, as Admit promised
	tierOld                // waited too long: first come, first served
	tierShort              // short beside all there is to do: the least GPU time first
	tierLong               // long beside it: the longest first
	tierMiddle             // the least GPU time first
	tierPlain              // no GPU: the most cores first
)

// order returns the items in the order in which the pass tries them.
func (ts *turns) order() []rank {
	ts.measure()
	out := make([]rank, len(ts.items))
	for i := range ts.items {
		out[i] = ts.rankOf(&ts.items[i])
		out[i].item = int32(i)
	}
	slices.SortFunc(out, rank.compare)
	ts.mix(out)
	return out
}

func (a rank) compare(b rank) int {
	switch {
	case a.class != b.class:
		return cmp.Compare(a.class, b.class)
	case a.tier != b.tier:
		return cmp.Compare(a.tier, b.tier)
	case a.first != b.first:
		return cmp.Compare(a.first, b.first)
	case a.second != b.second:
		return cmp.Compare(a.second, b.second)
	}
	return cmp.Compare(a.id, b.id)
}

// rankOf gives an item its place in the order. Where there are empty cards for
// all who wait, nobody need wait for anybody and the order decides nothing but
// how many cards are taken: then the largest go first, as in first fit
// decreasing (at most 11/9 of the fewest bins; Johnson 1973).
func (ts *turns) rankOf(it *item) rank {
	r := rank{id: it.job.ID, class: -it.class}
	it.old = ts.now-int64(it.job.Eligible) >= ts.oldAge(it)
	it.kept = it.old
	switch {
	case it.job.Spec.Deadline > 0:
		r.class, r.tier, r.first = -classDue, tierDue, int64(it.job.Spec.Deadline)
	case it.old:
		r.tier, r.first = tierOld, int64(it.job.Eligible)
	case it.gpus == 0:
		r.tier, r.first = tierPlain, -it.cpu
	case it.fast < 0:
		r.tier = tierPlain // it starts nowhere
	default:
		r.tier, r.first, r.second = ts.byLength(it)
	}
	it.tier = r.tier
	if ts.plenty && it.ranked() {
		size, _ := ts.size(it)
		r.tier, r.first, r.second = tierShort, -size*int64(it.allGPUs()), ts.gpuTime(it, it.needs[it.fast].Dur)
	}
	return r
}

// ranked tells of an item that its length decides when its turn comes.
func (it *item) ranked() bool {
	return it.tier == tierShort || it.tier == tierLong || it.tier == tierMiddle
}

// byLength is the place of a job that is not old.
//
// The short go first, by predicted GPU time: QSSF of Hu et al. (SC 2021),
// section 4.2. They are most of the jobs and little of the work, so that all
// others lose next to nothing, and mean completion time is made here. Then the
// long, the longest first (Graham 1969): whatever is started late may be what
// everybody waits for in the end, and what is shorter fills the gaps beside.
// Then the rest by GPU time again. GPU times that are about equal, within a
// factor of two, are told apart by size, the largest first, so that first fit
// stays first fit decreasing.
func (ts *turns) byLength(it *item) (tier int8, first, second int64) {
	size, _ := ts.size(it)
	size *= int64(it.allGPUs())
	switch ts.lengthOf(it) {
	case lengthShort:
		return tierShort, ts.timeClass(it), -size
	case lengthLong:
		return tierLong, -it.needs[it.fast].Dur, -size
	}
	return tierMiddle, ts.timeClass(it), -size
}

func (ts *turns) timeClass(it *item) int64 {
	return int64(bits.Len64(uint64(ts.gpuTime(it, it.needs[it.fast].Dur))))
}

// size is the least dominant fraction of a card over the classes that can run
// the job, in thousandths, and whether all of them run it alone.
func (ts *turns) size(it *item) (milli int64, whole bool) {
	milli, whole = cluster.WholeGPU, true
	for c := range it.needs {
		n := &it.needs[c]
		if n.Way == rules.WayShare {
			whole = false
			milli = min(milli, n.Dominant(ts.f.Classes[c].Sellable))
		}
	}
	return milli, whole
}

// oldAge is how long a job waits before its length no longer counts: FIFOAge,
// or a few times as long as all takes that there is to do, since under a
// backlog of days everybody waits for days and nobody is passed over; but
// never longer than MaxAge.
func (ts *turns) oldAge(it *item) int64 {
	age := ts.pol.FIFOAge.Microseconds()
	if age <= 0 {
		return rules.Forever
	}
	if it.gpus > 0 && it.fast >= 0 {
		age = max(age, min(ts.pol.MaxAge.Microseconds(), ts.pol.OldDrains*ts.f.Classes[it.fast].Drain))
	}
	if ts.pol.GoesOn(it.job) {
		_, since := rules.Had(it.job, ts.now, ts.pol.FIFOAge)
		age = max(age, rules.PromoteAfter*since)
	}
	return age
}

// before says in words why a job comes before another in the pass.
func (ts *turns) before(a, b *item) string {
	sizes := ts.plenty && a.ranked() && b.ranked()
	if !sizes && a.tier != b.tier || a.tier == tierDue || a.tier == tierOld {
		return a.words() + " first"
	}
	if x, y := ts.lengthWords(a), ts.lengthWords(b); x != y && !sizes {
		return x + " before " + y
	}
	x, _ := ts.size(a)
	y, _ := ts.size(b)
	if sizes {
		return say.Percent(x) + " of a GPU before " + say.Percent(y) + ", as there are GPUs for all"
	}
	return say.Percent(x) + " of a GPU before " + say.Percent(y) + " for about as long"
}

// words is what the tier of an item is called.
func (it *item) words() string {
	switch it.tier {
	case tierDue:
		return "deadlines"
	case tierOld:
		return "who waited longest"
	case tierShort:
		return "what is short beside all that waits"
	case tierLong:
		return "what is long beside all that waits"
	}
	return "GPU jobs by their GPU time"
}

func (ts *turns) lengthWords(it *item) string {
	if it.fast < 0 {
		return "what fits nowhere"
	}
	if it.tier == tierLong {
		return say.About(it.needs[it.fast].Dur)
	}
	return say.About(ts.gpuTime(it, it.needs[it.fast].Dur)*1000) + " of a GPU"
}
