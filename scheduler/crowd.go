package scheduler

import (
	"math"
	"math/bits"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/company"
	"github.com/berth-scheduler/berth/scheduler/fleet"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// mateTries bounds the GPUs with room on which a pass compares one job with the
// residents, so that a pass stays cheap. A job that has waited too long tries all.
const mateTries = 32

// mateBudget is how many such comparisons a pass makes at that rate; after that
// each job has fewTries. Only passes over tens of thousands of jobs get that far,
// and jobs that late in the order wait in any case.
const (
	mateBudget = 1 << 18
	fewTries   = 2
)

// tries returns on how many more GPUs a job may be compared with residents.
func (ft *fitter) tries(it *item) int {
	switch {
	case it.kept || it.old:
		return math.MaxInt
	case ft.judged > mateBudget:
		return fewTries
	}
	return mateTries
}

// crowd is what a pass knows of the jobs on each GPU. It is nil if nothing was
// learned or no limit is set, and all GPUs are shared among all users.
type crowd struct {
	know  *dispatch.Interference // nil if slowdowns do not count
	owned bool                   // some GPU is shared among some users only
	on    [][]company.Sharer     // by GPU
	rules []*sharing             // by GPU
	ways  []*sharing             // each once
	kinds map[kind]int32
	// limit is the highest predicted slowdown allowed for any job, in thousandths;
	// most is the policy's limit, and calm the one that holds while there are empty
	// GPUs for all waiting jobs; 0 is most.
	limit, most, calm int64
	read              uint64 // see readAhead
}

// calmPart is the part of a policy's allowed slowdown that is allowed while there
// are empty GPUs for all waiting jobs: sharing gains little then.
const calmPart = 0.2

// calmly sets which of the two limits holds, and reports whether there are two.
func (w *crowd) calmly(calm bool) bool {
	if w == nil || w.calm == 0 {
		return false
	}
	if w.limit = w.most; calm {
		w.limit = w.calm
	}
	return true
}

// calm returns the room that a job is to find first, and whether it differs from
// want or the lower limit holds for it: while there are empty GPUs for all waiting
// jobs, no GPU is overcommitted.
func (ft *fitter) calm(it *item, c int, want fleet.Room) (fleet.Room, bool) {
	spare := int64(0)
	if ft.plenty {
		spare = it.needs[c].Calm(&ft.pol)
	}
	want.Milli += spare
	return want, ft.crowd.calmly(true) || spare > 0
}

// sharing is what was learned of one way of sharing GPUs.
type sharing struct {
	*dispatch.Sharing // nil if nothing was
	victims           map[uint64]struct{}
	natures           []company.Nature // by kind of job
}

// kind distinguishes jobs with the same needs.
type kind struct {
	temper   dispatch.Temper
	uid, gid uint32
}

// newCrowd records which jobs run where.
func newCrowd(know *dispatch.Interference, f *fleet.Fleet, running []*cluster.Job) *crowd {
	if f.Pol.MaxSlowdownMilli <= 0 {
		know = nil
	}
	owned := slices.ContainsFunc(f.Cards, func(c fleet.Card) bool { return c.GPU.Scope != cluster.ScopeAnyone })
	if know == nil && !owned {
		return nil
	}
	w := &crowd{know: know, owned: owned, on: make([][]company.Sharer, len(f.Cards)), rules: make([]*sharing, len(f.Cards)), kinds: map[kind]int32{}, limit: f.Pol.MaxSlowdownMilli, most: f.Pol.MaxSlowdownMilli}
	for i := range f.Cards {
		w.rules[i] = w.way(know.SharingOn(f.Cards[i].GPU))
	}
	for _, j := range running {
		a := j.Live()
		if a == nil {
			continue
		}
		for _, gs := range a.HeldGPUs() {
			if i, ok := f.CardAt[gs.GPU]; ok {
				w.on[i] = company.Insert(w.on[i], w.sharer(j, j.ID, cluster.BusyMilli(j.Spec, gs.Share, &a.Estimate), i))
			}
		}
	}
	return w
}

// way returns what is known of a way of sharing, with what this pass looked up.
func (w *crowd) way(s *dispatch.Sharing) *sharing {
	for _, have := range w.ways {
		if have.Sharing == s {
			return have
		}
	}
	way := &sharing{Sharing: s, natures: make([]company.Nature, 1)}
	if s != nil {
		way.victims = company.Victims(s)
	}
	w.ways = append(w.ways, way)
	return way
}

// sharer returns a job as one on GPU i.
func (w *crowd) sharer(j *cluster.Job, id cluster.JobID, milli int64, i int32) company.Sharer {
	return company.SharerOf(j, id, milli, &w.rules[i].natures[w.kindOf(j)])
}

// readAhead reads what was learned of a job; see scene.readAhead.
func (w *crowd) readAhead(it *item) {
	if w == nil || it.kind == 0 {
		return
	}
	for _, way := range w.ways {
		w.read += way.natures[it.kind].Read()
	}
}

// readNames reads the signatures of jobs; see scene.readAhead.
func (w *crowd) readNames(jobs []*cluster.Job) {
	for _, j := range jobs {
		if s := j.Spec.Signature; s != "" {
			w.read += uint64(s[0])
		}
	}
}

// kindOf numbers what was learned of a job's signature, so that similar jobs share
// what a pass found out.
func (w *crowd) kindOf(j *cluster.Job) int32 {
	var t kind
	if w.know != nil {
		t.temper = w.know.Jobs[j.Spec.Signature]
	}
	if w.owned {
		t.uid, t.gid = uint32(j.Owner.UID), j.Owner.GID
	}
	if t == (kind{}) {
		return 0
	}
	k, ok := w.kinds[t]
	if !ok {
		k = int32(len(w.kinds)) + 1
		w.kinds[t] = k
		for _, s := range w.ways {
			s.natures = append(s.natures, company.NatureOf(w.know, s.Sharing, j.Spec.Signature, s.victims))
		}
	}
	return k
}

// judge returns what speaks against placing a job on GPU i.
func (ft *fitter) judge(it *item, n *rules.Need, i int32) company.Verdict {
	w := ft.crowd
	if w == nil || n.Way != rules.WayShare {
		return company.Verdict{}
	}
	if v := company.Strangers(ft.f.Cards[i].GPU, w.on[i], &it.job.Owner); v.Strange != nil {
		return v
	}
	return company.Judge(w.know, w.rules[i].Sharing, w.on[i], company.SharerOf(it.job, 0, n.Busy, &w.rules[i].natures[it.kind]), w.limit)
}

// suits reports whether nothing speaks against placing a job on GPU i, and counts that
// it was asked.
func (ft *fitter) suits(it *item, c int, i int32) bool {
	ft.judged++
	return ft.agrees(it, c, i)
}

// agrees reports whether nothing speaks against placing a job on GPU i; it is judge
// for when the reason does not matter.
func (ft *fitter) agrees(it *item, c int, i int32) bool {
	w, n := ft.crowd, &it.needs[c]
	if n.Way != rules.WayShare {
		return true
	}
	if w.strange(ft.f.Cards[i].GPU, i, it) {
		return false
	}
	g := &ft.guest
	if way := w.rules[i]; g.it != it || g.way != way || g.busy != n.Busy {
		*g = guest{it, way, n.Busy, company.SharerOf(it.job, 0, n.Busy, &way.natures[it.kind])}
	}
	return company.Suits(w.know, g.way.Sharing, w.on[i], &g.Sharer, w.limit)
}

// guest is a job as a newcomer on GPUs shared in one way.
type guest struct {
	it   *item
	way  *sharing
	busy int64
	company.Sharer
}

// suited returns the first place at or after from where a GPU in use has room for
// the job and all jobs there stay fast enough, or -1.
func (ft *fitter) suited(it *item, c int, want *fleet.Room, from, hi int) int {
	k := &ft.f.Classes[c]
	place := k.Used.First(from, want)
	if ft.crowd == nil {
		return place
	}
	most := ft.tries(it)
	for tries := 0; place >= 0 && place < hi; place = k.Used.First(place+1, want) {
		if ft.crowd.strange(ft.f.Cards[k.Cards[place]].GPU, k.Cards[place], it) {
			continue // costs next to nothing and does not count as a try
		}
		if ft.suits(it, c, k.Cards[place]) {
			break
		}
		if tries >= most {
			return -1
		}
		tries++
	}
	return place
}

// strange reports whether a GPU may not be shared between its residents and the
// job's owner.
func (w *crowd) strange(g *cluster.GPU, i int32, it *item) bool {
	if !w.owned {
		return false
	}
	v := company.Strangers(g, w.on[i], &it.job.Owner)
	return v.Strange != nil
}

// likely returns the first GPU of class c that is otherwise suitable for a share, -1
// if there is none or nothing is known of sharing.
func (tl *teller) likely(it *item, c int, want *fleet.Room) int32 {
	k := &tl.f.Classes[c]
	lo, hi, ok := tl.span(it, k)
	if tl.crowd == nil || !ok || it.needs[c].Way != rules.WayShare {
		return -1
	}
	if place := k.Used.First(lo, want); place >= 0 && place < hi {
		return k.Cards[place]
	}
	return -1
}

// settled records that a job joined a GPU.
func (w *crowd) settled(it *item, milli int64, cards []int32) {
	if w == nil {
		return
	}
	for _, i := range cards {
		w.on[i] = company.Insert(w.on[i], company.SharerOf(it.job, it.job.ID, milli, &w.rules[i].natures[it.kind]))
	}
}

// hashOf hashes what a job needs of a class.
func hashOf(it *item, c int) uint64 {
	n := &it.needs[c]
	h := (uint64(n.Mem)<<10 ^ uint64(n.Milli)) * 0x9e3779b97f4a7c15
	return (h ^ h>>32 ^ uint64(it.kind)<<8 ^ uint64(c)) * 0xd6e8feb86659fd93
}

// twins holds hashes of what the waiting jobs need of the classes: once those that
// occur, and again those that occur again.
type twins []struct{ once, again uint64 }

// see records a hash, and returns 1 if it occurred before.
func (w twins) see(hash uint64) int {
	at, bit := &w[hash>>32&uint64(len(w)-1)], hash>>26&63
	was := at.once >> bit & 1
	at.again |= was << bit
	at.once |= 1 << bit
	return int(was)
}

// again reports whether a hash occurred more than once, or another one by accident.
func (w twins) again(hash uint64) bool {
	return w[hash>>32&uint64(len(w)-1)].again>>(hash>>26&63)&1 != 0
}

// match sets Need.Like of all waiting jobs, and returns fitter.failedLike. It reads them
// in the order of memory, a pass does not: looked up in its turn, what became of a job's
// likes is waited for.
func match(ft *fitter) []int64 {
	m := ft.mem
	m.twins = zeroed(m.twins, powerOf2(len(ft.items)*len(ft.f.Classes)/8))
	seen := m.twins
	repeated := 0
	for i := range ft.items {
		for c := range ft.items[i].needs {
			if it := &ft.items[i]; ft.crowd != nil || !ft.forgets(it, c) {
				repeated += seen.see(hashOf(it, c))
			}
		}
	}
	m.numbered = zeroed(m.numbered, powerOf2(4*repeated))
	nb := numbers{items: ft.items, table: m.numbered}
	for i := range ft.items {
		for c := range ft.items[i].needs {
			it := &ft.items[i]
			h := hashOf(it, c)
			switch {
			case ft.crowd == nil && ft.forgets(it, c) || !seen.again(h):
			case it.gpus == 1 && it.nodes == 0 && it.node == "" && it.needs[c].Way != rules.WayNone:
				it.needs[c].Like = nb.of(int32(i), int32(c), h)
			default:
				it.needs[c].Like = -1
			}
		}
	}
	m.failed = sized(m.failed, len(nb.firsts)+1)
	for i := range m.failed {
		m.failed[i] = math.MaxInt64
	}
	return m.failed
}

func powerOf2(least int) int {
	return 1 << bits.Len(uint(max(least, 1)-1))
}

// numbers numbers needs: equal ones equally, from 1.
type numbers struct {
	items  []item
	firsts [][2]int32 // the item and the class of the first need with each number
	table  []numbered // by hash, or after that
}

type numbered struct {
	hash   uint32
	number int32
}

// of returns the number of what item i needs of class c.
func (nb *numbers) of(i, c int32, hash uint64) int32 {
	it := &nb.items[i]
	a := &it.needs[c]
	for at := hash >> 32; ; at++ {
		s := &nb.table[at&uint64(len(nb.table)-1)]
		if s.number == 0 {
			nb.firsts = append(nb.firsts, [2]int32{i, c})
			*s = numbered{uint32(hash), int32(len(nb.firsts))}
			return s.number
		}
		if s.hash != uint32(hash) || nb.firsts[s.number-1][1] != c {
			continue
		}
		o := &nb.items[nb.firsts[s.number-1][0]]
		if b := &o.needs[c]; a.Mem == b.Mem && a.Milli == b.Milli && a.Way == b.Way && it.cpu == o.cpu && it.mem == o.mem && it.kind == o.kind {
			return s.number
		}
	}
}

// unlike reports whether no other waiting job needs the same of class c as this one,
// so that nobody would ask what came of its search. It may say no by accident.
func (ft *fitter) unlike(it *item, c int) bool {
	if !ft.matched {
		ft.matched = true
		ft.failedLike = match(ft)
	}
	return it.needs[c].Like == 0
}

// failedUntil returns until when the job that would have stayed least among those that
// need the same of class c and did not fit; the end of time if there is none.
func (ft *fitter) failedUntil(it *item, c int) int64 {
	if ft.unlike(it, c) {
		return math.MaxInt64
	}
	if like := it.needs[c].Like; like > 0 && it.node == "" {
		return ft.failedLike[like]
	}
	if until, ok := ft.failed[ft.shapeOf(it, c)]; ok {
		return until
	}
	return math.MaxInt64
}

// noteFailed remembers that no job of the shape that runs as long fits on GPUs of
// class c, if another job may have that shape.
func (ft *fitter) noteFailed(it *item, c int) {
	if ft.unlike(it, c) {
		return
	}
	until := min(ft.want(it, c).Until, ft.failedUntil(it, c))
	if like := it.needs[c].Like; like > 0 && it.node == "" {
		ft.failedLike[like] = until
	} else {
		ft.failed[ft.shapeOf(it, c)] = until
	}
}
