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

// mateTries bounds on how many cards with room one job is held against those
// who lie there, so that a pass stays cheap. Who waits too long tries all.
const mateTries = 32

// mateBudget is how many such comparisons a pass makes at that rate; then each
// job has fewTries. Only passes over tens of thousands of jobs come so far,
// and those who came late in their order wait in any case.
const (
	mateBudget = 1 << 18
	fewTries   = 2
)

// tries is on how many more cards a job may be held against others.
func (ft *fitter) tries(it *item) int {
	switch {
	case it.kept || ft.old(it.job):
		return math.MaxInt
	case ft.judged > mateBudget:
		return fewTries
	}
	return mateTries
}

// crowd is what a pass knows of who shares which card. It is nil when nothing
// was learned or no limit is set, and all cards are shared among all users.
type crowd struct {
	know  *dispatch.Interference // nil when slowdowns do not count
	owned bool                   // some card is shared among some users only
	on    [][]company.Sharer     // by card
	rules []*dispatch.Sharing    // by card
	kinds map[kind]int32
	// limit is the slowdown that nobody may be predicted to exceed, in thousandths, most
	// the policy's, and calm that while there are empty cards for all who wait; 0 is most.
	limit, most, calm int64
}

// calmPart is the part of what a policy lets jobs be slowed down by that they are while
// there are empty cards for all who wait: sharing gains little then.
const calmPart = 0.2

// calmly sets which of both limits holds, and reports whether there are two.
func (w *crowd) calmly(calm bool) bool {
	if w == nil || w.calm == 0 {
		return false
	}
	if w.limit = w.most; calm {
		w.limit = w.calm
	}
	return true
}

// kind is what tells jobs of the same needs apart.
type kind struct {
	temper   dispatch.Temper
	uid, gid uint32
}

// newCrowd reads who runs where.
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
				w.on[i] = company.Insert(w.on[i], company.SharerOf(know, j, j.ID, gs.Share.Milli))
			}
		}
	}
	return w
}

// kindOf numbers what was learned of a job's signature, so that jobs alike
// share what a pass found out.
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

// judge tells what speaks against a job on card i.
func (ft *fitter) judge(it *item, n *rules.Need, i int32) company.Verdict {
	w := ft.crowd
	if w == nil || n.Way != rules.WayShare {
		return company.Verdict{}
	}
	if v := company.Strangers(ft.f.Cards[i].GPU, w.on[i], &it.job.Owner); v.Strange != nil {
		return v
	}
	return company.Judge(w.know, w.rules[i], w.on[i], company.SharerOf(w.know, it.job, 0, n.Milli), w.limit)
}

func (ft *fitter) suits(it *item, c int, i int32) bool {
	ft.judged++
	v := ft.judge(it, &it.needs[c], i)
	return !v.Against()
}

// suited is the first place at or after from where a card in use has room for
// the job and all there stay fast enough, or -1.
func (ft *fitter) suited(it *item, c int, want *fleet.Room, from, hi int) int {
	k := &ft.f.Classes[c]
	place := k.Used.First(from, want)
	if ft.crowd == nil {
		return place
	}
	most := ft.tries(it)
	for tries := 0; place >= 0 && place < hi; place = k.Used.First(place+1, want) {
		if ft.crowd.strange(ft.f.Cards[k.Cards[place]].GPU, k.Cards[place], it) {
			continue // costs next to nothing, and is no try
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

// strange reports whether a card is not shared among those on it and a job's
// owner.
func (w *crowd) strange(g *cluster.GPU, i int32, it *item) bool {
	if !w.owned {
		return false
	}
	v := company.Strangers(g, w.on[i], &it.job.Owner)
	return v.Strange != nil
}

// slowed says in words whom the job would slow down on the first card of class
// c that has all else, "" when none has.
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

// settled notes who joined a card.
func (w *crowd) settled(j *cluster.Job, milli int64, cards []int32) {
	if w == nil {
		return
	}
	for _, i := range cards {
		w.on[i] = company.Insert(w.on[i], company.SharerOf(w.know, j, j.ID, milli))
	}
}
