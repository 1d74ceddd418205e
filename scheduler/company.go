package scheduler

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// mate is one of those who share a card, as far as they slow each other down.
type mate struct {
	job    cluster.JobID // 0 for one that does not lie there yet
	util   float64       // alone, of the card
	temper cluster.Temper
	owner  *cluster.Owner
}

// maxMates is the largest set that is reckoned with; nobody joins a larger one.
const maxMates = 8

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
func (p *pass) tries(it *item) int {
	switch {
	case it.kept || p.old(it.job):
		return math.MaxInt
	case p.judged > mateBudget:
		return fewTries
	}
	return mateTries
}

// slowdowns appends how many times longer each of a set takes than alone. See
// cluster.Interference.
func slowdowns(x *cluster.Interference, s *cluster.Sharing, set []mate, out []float64) []float64 {
	for i := range set {
		v := &set[i]
		slow, all, pairs := 1.0, 0.0, 0.0
		for k := range set {
			all += x.BandwidthPerUtil * set[k].util
			if k == i {
				continue
			}
			n := &set[k]
			beyond := max(0, x.BandwidthPerUtil*(v.util+n.util)-1)
			pairs += beyond
			prior := 1 + s.Switch + s.Compute*v.util*n.util + s.Memory*v.util*x.BandwidthPerUtil*n.util + s.Bandwidth*beyond
			slow += max(1, prior*bend(s.Offset(v.temper, n.temper), x.MaxBend)) - 1
		}
		if len(set) > 2 {
			slow += s.Bandwidth * max(0, max(0, all-1)-pairs)
		}
		out = append(out, slow)
	}
	return out
}

// bend is the factor of an offset.
func bend(x, most float64) float64 {
	x = max(-most, min(most, x))
	return (2 + x) / (2 - x)
}

// verdict is what speaks against one more job on a card. The zero verdict is
// nothing.
type verdict struct {
	never    bool
	crowded  bool
	slowdown float64       // of whom it hits worst
	of       cluster.JobID // 0 for the newcomer
	strange  *cluster.GPU  // it is not shared with the owner of job of
}

func (v *verdict) against() bool {
	return v.never || v.slowdown > 0 || v.crowded || v.strange != nil
}

// words say why, with the numbers that decided. s is nil for a crowd.
func (v *verdict) words(s *cluster.Sharing, limitMilli int64) string {
	switch {
	case v.strange != nil:
		return fmt.Sprintf("GPU %s, capped by %s, is shared %s; job %d there is not of them", v.strange.ID, orNothing(v.strange.CapMode), v.strange.Scope.Among(), v.of)
	case v.never:
		return fmt.Sprintf("two jobs on one %s get less done than by turns: their speeds add up to %.2f in %d pairs", s.GPUType, s.SpeedSum, s.Pairs)
	case v.crowded:
		return "more jobs there than slowdowns can be told for"
	case v.of == 0:
		return fmt.Sprintf("would itself be slowed down %.1f×, the limit is %s×", v.slowdown, times(limitMilli))
	}
	return fmt.Sprintf("would slow job %d down %.1f×, the limit is %s×", v.of, v.slowdown, times(limitMilli))
}

// judge tells what speaks against a newcomer on a card where others lie; set
// is scratch.
func judge(x *cluster.Interference, s *cluster.Sharing, on []mate, newcomer mate, limitMilli int64) verdict {
	switch { // strangers are sent away before, see strangers
	case len(on) == 0 || s == nil || limitMilli <= 0:
		return verdict{}
	case s.Never:
		return verdict{never: true}
	case len(on) >= maxMates:
		return verdict{crowded: true}
	}
	var set [maxMates]mate
	var slow [maxMates]float64
	n := copy(set[:], on)
	set[n] = newcomer
	worst := verdict{}
	for i, v := range slowdowns(x, s, set[:n+1], slow[:0]) {
		if v*1000 > float64(limitMilli) && v > worst.slowdown {
			worst = verdict{slowdown: v, of: set[i].job}
		}
	}
	return worst
}

func mateOf(x *cluster.Interference, j *cluster.Job, id cluster.JobID, milli int64) mate {
	m := mate{job: id, util: float64(min(max(milli, 0), cluster.WholeGPU)) / cluster.WholeGPU, owner: &j.Owner}
	if x != nil {
		m.temper = x.Jobs[j.Spec.Signature]
	}
	return m
}

// insert keeps mates in order of their ids, so that sums do not depend on the
// order in which they came.
func insert(on []mate, m mate) []mate {
	i, _ := slices.BinarySearchFunc(on, m, func(a, b mate) int { return cmp.Compare(a.job, b.job) })
	return slices.Insert(on, i, m)
}

// strangers reports whether a card is not shared among those on it and an owner.
func strangers(g *cluster.GPU, on []mate, owner *cluster.Owner) verdict {
	if g.Scope == cluster.ScopeAnyone {
		return verdict{}
	}
	for i := range on {
		if !g.Scope.Allows(on[i].owner, owner) {
			return verdict{strange: g, of: on[i].job}
		}
	}
	return verdict{}
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

// crowd is what a pass knows of who shares which card. It is nil when nothing
// was learned or no limit is set, and all cards are shared among all users.
type crowd struct {
	know  *cluster.Interference // nil when slowdowns do not count
	owned bool                  // some card is shared among some users only
	on    [][]mate              // by card
	rules []*cluster.Sharing    // by card
	kinds map[kind]int32
}

// kind is what tells jobs of the same needs apart.
type kind struct {
	temper   cluster.Temper
	uid, gid uint32
}

// newCrowd reads who runs where.
func newCrowd(know *cluster.Interference, f *fleet, running []*cluster.Job) *crowd {
	if f.pol.MaxSlowdownMilli <= 0 {
		know = nil
	}
	owned := slices.ContainsFunc(f.cards, func(c card) bool { return c.gpu.Scope != cluster.ScopeAnyone })
	if know == nil && !owned {
		return nil
	}
	w := &crowd{know: know, owned: owned, on: make([][]mate, len(f.cards)), rules: make([]*cluster.Sharing, len(f.cards)), kinds: map[kind]int32{}}
	for i := range f.cards {
		w.rules[i] = know.SharingOn(f.cards[i].gpu)
	}
	for _, j := range running {
		a := j.Live()
		if a == nil {
			continue
		}
		for _, gs := range a.HeldGPUs() {
			if i, ok := f.cardAt[gs.GPU]; ok {
				w.on[i] = insert(w.on[i], mateOf(know, j, j.ID, gs.Share.Milli))
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
func (p *pass) judge(it *item, n *need, i int32) verdict {
	w := p.crowd
	if w == nil || n.way != wayShare {
		return verdict{}
	}
	if v := strangers(p.f.cards[i].gpu, w.on[i], &it.job.Owner); v.strange != nil {
		return v
	}
	return judge(w.know, w.rules[i], w.on[i], mateOf(w.know, it.job, 0, n.milli), p.pol.MaxSlowdownMilli)
}

func (p *pass) suits(it *item, c int, i int32) bool {
	p.judged++
	v := p.judge(it, &it.needs[c], i)
	return !v.against()
}

// suited is the first place at or after from where a card in use has room for
// the job and all there stay fast enough, or -1.
func (p *pass) suited(it *item, c int, want *room, from, hi int) int {
	k := &p.f.classes[c]
	place := k.used.first(from, want)
	if p.crowd == nil {
		return place
	}
	most := p.tries(it)
	for tries := 0; place >= 0 && place < hi; place = k.used.first(place+1, want) {
		if p.crowd.strange(p.f.cards[k.cards[place]].gpu, k.cards[place], it) {
			continue // costs next to nothing, and is no try
		}
		if p.suits(it, c, k.cards[place]) {
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
	v := strangers(g, w.on[i], &it.job.Owner)
	return v.strange != nil
}

// slowed says in words whom the job would slow down on the first card of class
// c that has all else, "" when none has.
func (p *pass) slowed(it *item, c int, want *room) string {
	k := &p.f.classes[c]
	lo, hi, ok := p.span(it, k)
	if p.crowd == nil || !ok || it.needs[c].way != wayShare {
		return ""
	}
	place := k.used.first(lo, want)
	if place < 0 || place >= hi {
		return ""
	}
	i := k.cards[place]
	if v := p.judge(it, &it.needs[c], i); v.against() {
		return v.words(p.crowd.rules[i], p.pol.MaxSlowdownMilli)
	}
	return ""
}

// settled notes who joined a card.
func (w *crowd) settled(j *cluster.Job, milli int64, cards []int32) {
	if w == nil {
		return
	}
	for _, i := range cards {
		w.on[i] = insert(w.on[i], mateOf(w.know, j, j.ID, milli))
	}
}
