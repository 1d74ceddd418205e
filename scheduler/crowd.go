package scheduler

import (
	"math"
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
	return company.SharerOf(j, id, milli, w.rules[i].natures[w.kindOf(j)])
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
	return company.Judge(w.know, w.rules[i].Sharing, w.on[i], company.SharerOf(it.job, 0, n.Busy, w.rules[i].natures[it.kind]), w.limit)
}

// suits reports whether nothing speaks against placing a job on GPU i.
func (ft *fitter) suits(it *item, c int, i int32) bool {
	ft.judged++
	w, n := ft.crowd, &it.needs[c]
	if n.Way != rules.WayShare {
		return true
	}
	if w.strange(ft.f.Cards[i].GPU, i, it) {
		return false
	}
	g := &ft.guest
	if way := w.rules[i]; g.it != it || g.way != way || g.busy != n.Busy {
		*g = guest{it, way, n.Busy, company.SharerOf(it.job, 0, n.Busy, way.natures[it.kind])}
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

// slowed says which jobs the job would slow down on the first GPU of class c that is
// otherwise suitable, and what is known of sharing it.
func (ft *fitter) slowed(it *item, c int, want *fleet.Room) (company.Verdict, *sharing) {
	k := &ft.f.Classes[c]
	lo, hi, ok := ft.span(it, k)
	if ft.crowd == nil || !ok || it.needs[c].Way != rules.WayShare {
		return company.Verdict{}, nil
	}
	place := k.Used.First(lo, want)
	if place < 0 || place >= hi {
		return company.Verdict{}, nil
	}
	i := k.Cards[place]
	return ft.judge(it, &it.needs[c], i), ft.crowd.rules[i]
}

// settled records that a job joined a GPU.
func (w *crowd) settled(it *item, milli int64, cards []int32) {
	if w == nil {
		return
	}
	for _, i := range cards {
		w.on[i] = company.Insert(w.on[i], company.SharerOf(it.job, it.job.ID, milli, w.rules[i].natures[it.kind]))
	}
}

// twins holds hashes of what the waiting jobs need of the classes: once those that
// occur, and again those that occur again.
type twins []struct{ once, again uint64 }

// at returns the word and the bit for what a job needs of a class.
func (w twins) at(it *item, c int) (word int, bit uint64) {
	n := &it.needs[c]
	h := (uint64(n.Mem)<<10 ^ uint64(n.Milli)) * 0x9e3779b97f4a7c15
	h = (h ^ h>>32 ^ uint64(it.kind)<<8 ^ uint64(c)) * 0xd6e8feb86659fd93
	return int(h >> 32 & uint64(len(w)-1)), 1 << (h >> 26 & 63)
}

// unlike reports whether no other waiting job needs the same of class c as this one,
// so that nobody would ask what came of its search. It may say no by accident.
func (ft *fitter) unlike(it *item, c int) bool {
	if ft.twins == nil {
		size := 1
		for size < len(ft.items)*len(ft.f.Classes)/8 {
			size *= 2
		}
		ft.twins = make(twins, size)
		for i := range ft.items {
			for c := range ft.items[i].needs {
				word, bit := ft.twins.at(&ft.items[i], c)
				w := &ft.twins[word]
				w.again |= w.once & bit
				w.once |= bit
			}
		}
	}
	word, bit := ft.twins.at(it, c)
	return ft.twins[word].again&bit == 0
}
