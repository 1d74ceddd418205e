package scheduler

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// item is one waiting job in a pass.
type item struct {
	job      *cluster.Job
	needs    []rules.Need // by class
	cpu, mem int64
	node     cluster.NodeID // copies of what the job asks for: the passes'
	gpus     int            // inner loops should not follow its pointers
	nodes    int            // on how many at once, 0 for one
	queue    int32          // the card in whose queue it stands, -1 for none
	aims     bool           // it has an objective
	gone     bool           // started in this pass
	old      bool           // waited so long that its length no longer counts
	kept     bool           // cards are kept for it; the old ask for that at once
	moved    bool           // in this pass, which a plan may do once
	tier     int8
	class    int8             // its priority; the greater go first
	fast     int32            // the class on which it is predicted to run shortest, -1 for none
	kind     int32            // what is known of its manners; 0 is nothing
	cores    *rules.CoresNeed // in place of its GPUs; nil for most
	whole    bool             // it takes all of each of its nodes
	bounds   bounds           // where it may lie; see realms
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

// gather makes items of the jobs that may be placed, sorted by id.
func (s *scene) gather(waiting []*cluster.Job) {
	if !slices.IsSortedFunc(waiting, byJob) {
		waiting = slices.Clone(waiting)
		slices.SortFunc(waiting, byJob)
	}
	classes := len(s.f.classes)
	needs := make([]rules.Need, len(waiting)*classes)
	s.items = make([]item, 0, len(waiting))
	for _, j := range waiting {
		if !j.State.Waiting() || j.Cancel != nil {
			continue
		}
		it := newItem(s, j, needs[:classes:classes])
		needs = needs[classes:]
		s.niced = s.niced || j.Spec.Nice != 0
		if j.Queue != "" {
			if c, ok := s.f.cardAt[j.Queue]; ok {
				it.queue = c
			}
		}
		s.items = append(s.items, it)
	}
	s.indexItems()
}

// newItem makes the item of a job in a pass, with its needs in needs.
func newItem(s *scene, j *cluster.Job, needs []rules.Need) item {
	it := item{job: j, queue: -1, gpus: j.Spec.GPUs, node: j.Spec.Node, aims: j.Spec.Objective != "", needs: needs}
	if n := j.Spec.NodeCount(); n > 1 {
		it.nodes = n
	}
	if it.whole = j.Spec.WholeNodes(); it.whole {
		it.nodes = j.Spec.NodeCount()
	}
	it.cpu, it.mem = rules.HostOf(j, &s.pol)
	it.class = int8(s.standing.Priority(j))
	if j.Spec.GPUs > 0 {
		s.fillNeeds(&it)
		if s.crowd != nil {
			it.kind = s.crowd.kindOf(j)
		}
		if s.realms != nil {
			s.bind(&it)
		}
		if j.Spec.OrCPU {
			s.doWithout(&it)
		}
	} else if s.realms != nil {
		it.bounds = s.realms.boundsOf(j, s.now, s.reservations)
	}
	return it
}

func byJob(a, b *cluster.Job) int { return cmp.Compare(a.ID, b.ID) }

func (s *scene) fillNeeds(it *item) {
	var e cluster.Estimate
	known, tight := "", false
	for c := range s.f.classes {
		k := &s.f.classes[c]
		if c == 0 || k.GPUType != known {
			e, _ = cluster.EstimateFor(it.job.Estimates, k.GPUType)
			known = k.GPUType
		}
		it.needs[c] = rules.NeedOn(it.job, k.rep, &e, &s.pol)
		tight = tight || it.needs[c].Tight
	}
	if s.pol.GoesOn(it.job) {
		for c := range it.needs {
			e, _ = cluster.EstimateFor(it.job.Estimates, s.f.classes[c].GPUType)
			it.needs[c].Dur = rules.LeftOf(it.job, &e, s.now, &s.pol)
		}
	}
	if it.job.MinGPUMemMiB > 0 {
		s.spareTooSmall(it, rules.VetoObserved, func(c int) bool { return s.f.classes[c].Sellable >= it.job.MinGPUMemMiB })
	}
	if tight {
		s.spareTooSmall(it, rules.VetoTight, func(c int) bool { return !it.needs[c].Tight })
	}
}

// indexItems makes item lookups by job cheap: ids of waiting jobs lie close
// together, so that a table over their range does it.
func (s *scene) indexItems() {
	n := len(s.items)
	if n == 0 {
		return
	}
	s.firstID = s.items[0].job.ID
	span := uint64(s.items[n-1].job.ID-s.firstID) + 1
	if span > 8*uint64(n)+1024 {
		return
	}
	s.byID = make([]int32, span)
	for i := range s.items {
		s.byID[s.items[i].job.ID-s.firstID] = int32(i) + 1
	}
}

// find returns the item of a job, nil when the pass does not know it.
func (s *scene) find(id cluster.JobID) *item {
	if s.byID != nil {
		if id < s.firstID || uint64(id-s.firstID) >= uint64(len(s.byID)) || s.byID[id-s.firstID] == 0 {
			return nil
		}
		return &s.items[s.byID[id-s.firstID]-1]
	}
	i, ok := slices.BinarySearchFunc(s.items, id, func(it item, id cluster.JobID) int { return cmp.Compare(it.job.ID, id) })
	if !ok {
		return nil
	}
	return &s.items[i]
}

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

// compare orders ranks.
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
			milli = min(milli, n.Dominant(ts.f.classes[c].Sellable))
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
		age = max(age, min(ts.pol.MaxAge.Microseconds(), ts.pol.OldDrains*ts.f.classes[it.fast].drain))
	}
	if ts.pol.GoesOn(it.job) {
		_, since := rules.Had(it.job, ts.now, ts.pol.FIFOAge)
		age = max(age, rules.PromoteAfter*since)
	}
	return age
}

// old reports whether a job waited so long that its length no longer counts.
func (s *scene) old(j *cluster.Job) bool {
	it := s.find(j.ID)
	return it != nil && it.old
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

// spareTooSmall leaves out the classes on which the job ran out of memory, or
// may by the upper quantile of a confident prediction, if there is one that is
// large enough and could ever run it: SchedTune's veto (section IV-C) on the
// side of caution. A job that dies alone on a card has taken it for nothing.
func (s *scene) spareTooSmall(it *item, why rules.Veto, large func(c int) bool) {
	for c := range it.needs {
		if it.needs[c].Way == rules.WayNone || !large(c) || !s.f.everOn(it, c) {
			continue
		}
		for o := range it.needs {
			if !large(o) && it.needs[o].Way != rules.WayNone {
				it.needs[o].Way, it.needs[o].Why = rules.WayNone, why
			}
		}
		return
	}
}

// everOn reports whether some node with cards of class c could ever run a job.
func (f *fleet) everOn(it *item, c int) bool {
	return slices.ContainsFunc(f.classes[c].groups, func(g group) bool {
		h := &f.hosts[g.host]
		return h.use.CPUMilli >= it.cpu && h.use.MemMiB >= it.mem && int(g.hi-g.lo) >= it.gpus && (it.node == "" || it.node == h.node.ID)
	})
}
