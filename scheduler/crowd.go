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
	case it.kept || ft.old(it.job):
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
	rules []*dispatch.Sharing    // by GPU
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
	w := &crowd{know: know, owned: owned, on: make([][]company.Sharer, len(f.Cards)), rules: make([]*dispatch.Sharing, len(f.Cards)), kinds: map[kind]int32{}, limit: f.Pol.MaxSlowdownMilli, most: f.Pol.MaxSlowdownMilli}
	for i := range f.Cards {
		w.rules[i] = know.SharingOn(f.Cards[i].GPU)
	}
	for _, j := range running {
		a := j.Live()
		if a == nil {
			continue
		}
		for _, gs := range a.HeldGPUs() {
			if i, ok := f.CardAt[gs.GPU]; ok {
				w.on[i] = company.Insert(w.on[i], company.SharerOf(know, j, j.ID, cluster.BusyMilli(j.Spec, gs.Share, &a.Estimate)))
			}
		}
	}
	return w
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
	return company.Judge(w.know, w.rules[i], w.on[i], company.SharerOf(w.know, it.job, 0, n.Busy), w.limit)
}

func (ft *fitter) suits(it *item, c int, i int32) bool {
	ft.judged++
	v := ft.judge(it, &it.needs[c], i)
	return !v.Against()
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

// slowed says in words which jobs the job would slow down on the first GPU of class
// c that is otherwise suitable, "" if there is none.
func (ft *fitter) slowed(it *item, c int, want *fleet.Room) string {
	k := &ft.f.Classes[c]
	lo, hi, ok := ft.span(it, k)
	if ft.crowd == nil || !ok || it.needs[c].Way != rules.WayShare {
		return ""
	}
	place := k.Used.First(lo, want)
	if place < 0 || place >= hi {
		return ""
	}
	i := k.Cards[place]
	if v := ft.judge(it, &it.needs[c], i); v.Against() {
		return v.Words(ft.crowd.rules[i], ft.pol.MaxSlowdownMilli)
	}
	return ""
}

// settled records that a job joined a GPU.
func (w *crowd) settled(j *cluster.Job, milli int64, cards []int32) {
	if w == nil {
		return
	}
	for _, i := range cards {
		w.on[i] = company.Insert(w.on[i], company.SharerOf(w.know, j, j.ID, milli))
	}
}
