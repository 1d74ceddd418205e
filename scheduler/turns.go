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

// The drain of a class of GPUs is how long everything running and waiting would
// take if no job arrived any more and work were a fluid: each waiting job is spread
// over the GPUs that could run it, in proportion to their speed, and takes the
// larger of its fractions of memory and compute. It makes lengths comparable: a job
// of an hour is long if all is done in two, and short under a backlog of days.

// turns orders the waiting jobs: by age, by length relative to all the work, by
// shares.
type turns struct {
	*scene
	lasted int64 // how long jobs have kept arriving; see streamAge
}

// measure computes the drain of each class.
func (ts *turns) measure() {
	ts.lasted = ts.streamAge()
	for i := range ts.items {
		it := &ts.items[i]
		it.fast = ts.fastest(it)
		if it.fast < 0 || it.gpus == 0 {
			continue
		}
		rate := 0.0 // how many such jobs all GPUs together finish in a microsecond
		for c := range it.needs {
			if n, k := &it.needs[c], &ts.f.Classes[c]; n.Way != rules.WayNone {
				rate += float64(len(k.Cards)) * cluster.WholeGPU / (float64(n.Dominant(k.Sellable)+1) * float64(n.Dur))
			}
		}
		// Whole microseconds, so that the sum does not depend on the order. Tasks
		// of its array that are not in the snapshot wait too.
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

// measureRunning adds running jobs, and counts queued jobs that the pass cannot see
// as if they were like them.
func (ts *turns) measureRunning() {
	type sums struct{ left, all, count, unseen int64 }
	by := make([]sums, len(ts.f.Classes))
	for _, h := range ts.holdings() {
		if c := ts.f.Cards[h.card].Class; c >= 0 {
			s := &by[c]
			s.left += min(h.left, rules.MaxSpread) / cluster.WholeGPU * h.dominant
			s.all += min(h.dur, rules.MaxSpread)
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

// length is how long a job is relative to all the work.
type length uint8

const (
	lengthShort  length = iota // a job that waits for it loses next to nothing
	lengthLong                 // everything may end up waiting for it
	lengthMiddle               // neither
)

func (ts *turns) lengthOf(it *item) length {
	d, drain := it.needs[it.fast].Dur, ts.f.Classes[it.fast].Drain
	switch {
	case ts.pol.ShortPart > 0 && d <= drain/ts.pol.ShortPart:
		return lengthShort
	case ts.pol.LongPart > 0 && ts.lasted < drain && d >= drain/ts.pol.LongPart && !it.goesOn: // that made room, and does not take it back
		return lengthLong
	}
	return lengthMiddle
}

// How a stream of jobs is distinguished from a batch: by the newest streamSize
// arrival times of the jobs in the pass, at least streamLeast. It has ended when
// nothing arrived for streamGaps times their mean distance; at random times that
// happens by chance once in three thousand gaps.
const (
	streamSize  = 16
	streamLeast = 4
	streamGaps  = 8
)

// streamAge returns how long jobs have kept arriving, in microseconds: the age of
// the oldest in the pass, 0 if they arrived at one time or arrivals have ended.
// With nothing else known, what has lasted so long lasts as long again (Gott,
// Nature 1993): a stream younger than the drain is a batch that has not all
// arrived; in an older one the backlog is never finished, and what starts late is
// not what everything waits for in the end.
func (ts *turns) streamAge() int64 {
	var newest [streamSize + 1]int64 // the latest first, simultaneous arrivals once
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

// gpuTime returns what a job that runs for dur microseconds takes of all GPUs, in
// milliseconds of a whole one.
func (ts *turns) gpuTime(it *item, dur int64) int64 {
	n := &it.needs[it.fast]
	return min(dur, rules.MaxSpread) / 1000 * n.Dominant(ts.f.Classes[it.fast].Sellable) / cluster.WholeGPU * int64(it.allGPUs())
}

// rank decides the order of a pass: lower goes first.
type rank struct {
	class         int8 // less the priority
	tier          int8
	item          int32
	first, second int64
	id            cluster.JobID
}

// Tiers of a pass, in each class of priority.
const (
	tierDue    int8 = iota // with a deadline: the earliest first, as Admit promised
	tierOld                // waited too long: first come, first served
	tierShort              // short relative to all the work: least GPU time first
	tierLong               // long relative to it: longest first
	tierMiddle             // least GPU time first
	tierPlain              // no GPU: most cores first
)

// order returns the items in the order in which the pass tries them.
func (ts *turns) order() []rank {
	ts.measure()
	ts.mem.order = sized(ts.mem.order, len(ts.items))
	out := ts.mem.order
	for i := range ts.items {
		out[i] = ts.rankOf(&ts.items[i])
		out[i].item = int32(i)
	}
	out = sorted(out, &ts.mem.sorter)
	ts.mix(out)
	return out
}

// radixLeast is how many ranks are sorted sooner by their digits than by comparison.
const radixLeast = 32

// sorter is what sorted works on.
type sorter struct {
	ranks    []rank
	keys, to []rankKey
}

// rankKey is what distinguishes a rank of one class and tier from others, and where it
// was.
type rankKey struct {
	key uint64
	at  int32
}

// sorted sorts the ranks of items, which are in the order of ids: first by class and
// tier, then each of those by itself.
func sorted(rs []rank, m *sorter) []rank {
	if len(rs) < radixLeast {
		slices.SortFunc(rs, rank.compare)
		return rs
	}
	var at [1<<11 + 1]int32
	group := func(r *rank) int { return (int(r.class)+128)<<3 + int(r.tier) }
	for i := range rs {
		at[group(&rs[i])+1]++
	}
	for g := range len(at) - 1 {
		at[g+1] += at[g]
	}
	m.ranks = sized(m.ranks, len(rs))
	for i := range rs {
		g := group(&rs[i])
		m.ranks[at[g]] = rs[i]
		at[g]++
	}
	lo := int32(0)
	for _, hi := range at[:len(at)-1] { // each is where its group ends by now
		if hi > lo {
			m.sort(m.ranks[lo:hi], rs[lo:hi])
			lo = hi
		}
	}
	return rs
}

// sort sorts ranks of one class and tier into to: digit by digit of the bits in which
// they differ, the last one first, each time keeping the order of equals.
func (m *sorter) sort(rs, to []rank) {
	least, most := rs[0], rs[0]
	for i := range rs {
		r := &rs[i]
		least.first, most.first = min(least.first, r.first), max(most.first, r.first)
		least.second, most.second = min(least.second, r.second), max(most.second, r.second)
	}
	low := bits.Len64(uint64(most.second - least.second))
	size := low + bits.Len64(uint64(most.first-least.first))
	if len(rs) < radixLeast || size > 64 {
		copy(to, rs)
		slices.SortFunc(to, rank.compare)
		return
	}
	m.keys, m.to = sized(m.keys, len(rs)), sized(m.to, len(rs))
	keys, next := m.keys, m.to
	for i := range rs {
		keys[i] = rankKey{uint64(rs[i].first-least.first)<<low | uint64(rs[i].second-least.second), int32(i)}
	}
	for shift := 0; shift < size; shift += 8 {
		var at [257]int32
		for i := range keys {
			at[keys[i].key>>shift&255+1]++
		}
		for d := range 255 {
			at[d+1] += at[d]
		}
		for _, k := range keys {
			d := k.key >> shift & 255
			next[at[d]] = k
			at[d]++
		}
		keys, next = next, keys
	}
	for i, k := range keys {
		to[i] = rs[k.at]
	}
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

// rankOf returns an item's place in the order. If there are empty GPUs for all
// waiting jobs, no job need wait and the order decides only how many GPUs are
// taken: then the largest go first, as in first fit decreasing (at most 11/9 of the
// fewest bins; Johnson 1973).
func (ts *turns) rankOf(it *item) rank {
	r := rank{id: it.id, class: -it.class}
	it.old = ts.now-it.eligible >= ts.oldAge(it)
	it.kept = it.old
	switch {
	case it.due:
		r.class, r.tier, r.first = -classDue, tierDue, int64(it.job.Spec.Deadline)
	case it.old:
		r.tier, r.first = tierOld, it.eligible
	case it.gpus == 0:
		r.tier, r.first = tierPlain, -it.cpu
	case it.fast < 0:
		r.tier = tierPlain // it starts nowhere
	default:
		r.tier, r.first, r.second = ts.byLength(it)
	}
	it.tier = r.tier
	if ts.plenty && it.ranked() {
		size := ts.size(it)
		r.tier, r.first, r.second = tierShort, -size*int64(it.allGPUs()), ts.gpuTime(it, it.needs[it.fast].Dur)
	}
	return r
}

// ranked reports whether an item's length decides its turn.
func (it *item) ranked() bool {
	return it.tier == tierShort || it.tier == tierLong || it.tier == tierMiddle
}

// byLength returns the place of a job that is not old.
//
// The short go first, by predicted GPU time: QSSF of Hu et al. (SC 2021), section
// 4.2. They are most of the jobs and little of the work, so all others lose next to
// nothing, and the mean completion time is decided here. Then the long, the longest
// first (Graham 1969): what starts late may be what everything waits for in the
// end, and shorter jobs fill the gaps next to it. Then the rest by GPU time again.
// GPU times within a factor of two are ordered by size, the largest first, so that
// first fit stays first fit decreasing.
func (ts *turns) byLength(it *item) (tier int8, first, second int64) {
	size := ts.size(it)
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

// size returns the least dominant fraction of a GPU over the classes that can run
// the job, in thousandths.
func (ts *turns) size(it *item) int64 {
	milli := int64(cluster.WholeGPU)
	for c := range it.needs {
		if n := &it.needs[c]; n.Way == rules.WayShare {
			milli = min(milli, n.Dominant(ts.f.Classes[c].Sellable))
		}
	}
	return milli
}

// oldAge returns how long a job waits before its length no longer counts: FIFOAge,
// or a few times the time of all the work, since under a backlog of days every job
// waits for days and none is passed over; but never longer than MaxAge.
func (ts *turns) oldAge(it *item) int64 {
	age := ts.pol.FIFOAge.Microseconds()
	if age <= 0 {
		return rules.Forever
	}
	if it.gpus > 0 && it.fast >= 0 {
		age = max(age, min(ts.pol.MaxAge.Microseconds(), ts.pol.OldDrains*ts.f.Classes[it.fast].Drain))
	}
	if it.goesOn {
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
	x := ts.size(a)
	y := ts.size(b)
	if sizes {
		return say.Percent(x) + " of a GPU before " + say.Percent(y) + ", as there are GPUs for all"
	}
	return say.Percent(x) + " of a GPU before " + say.Percent(y) + " for about as long"
}

// words names the tier of an item.
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
