package policies

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/company"
)

// muri lets jobs share a card whose stages wait for different resources.
// Source: Zhao et al., "Multi-Resource Interleaving for Deep Learning Training"
// (SIGCOMM 2022): an iteration is a row of stages, one for each resource;
// jobs in a group take turns on them, so that the group's iteration takes
// Σ_j max_i of the stages that meet (section 4.1), and groups are chosen by
// matching on their efficiency (section 4.2), in the order of the shortest
// remaining service, when more wait than there are cards.
//
// The paper profiles storage, CPU, GPU and network; we have the utilization of
// the GPU and the cores, and call the rest "other". It matches by Blossom and
// in rounds with preemption; we match greedily among who waits, then let
// others join. A group must get at least muriGain more done than its members
// one after the other. That constant is ours.
type muri struct {
	mates   map[cluster.JobID]cluster.JobID
	card    map[cluster.JobID]int32 // of who was placed in this pass
	perCard []int64                 // cores for each card, by class
	periods map[cohort]float64      // of groups
}

const (
	muriGain   = 100 // thousandths
	muriWindow = 256 // jobs that are matched with one another
)

// stages are the parts of an iteration, in thousandths of it.
type stages [3]int64

// stagesOf makes them from a utilization and the cores a card's part of a
// node has.
func stagesOf(milli, cpu, perCard int64) stages {
	gpu := min(whole, max(0, milli))
	onCPU := min(whole-gpu, cpu*whole/max(1, perCard))
	return stages{gpu, onCPU, whole - gpu - onCPU}
}

// period is how long an iteration of a group takes, with the best offsets of
// its members, in thousandths of one alone. Groups of more than three take
// turns.
func period(group []stages) int64 {
	switch len(group) {
	case 0:
		return 0
	case 1:
		return whole
	case 2:
		return min(interleaved(group, [3]int{0, 1}), interleaved(group, [3]int{0, 2}))
	case 3:
		return min(interleaved(group, [3]int{0, 1, 2}), interleaved(group, [3]int{0, 2, 1}))
	}
	return int64(len(group)) * whole
}

func interleaved(group []stages, offset [3]int) int64 {
	sum := int64(0)
	for j := range 3 {
		most := int64(0)
		for i := range group {
			most = max(most, group[i][(j+offset[i])%3])
		}
		sum += most
	}
	return sum
}

// gains reports whether a group gets enough done together.
func gains(group []stages) bool {
	return len(group) < 2 || period(group)*(whole+muriGain) <= int64(len(group))*whole*whole
}

func newMuri(p *pass) placer {
	m := &muri{mates: map[cluster.JobID]cluster.JobID{}, card: map[cluster.JobID]int32{}, periods: map[cohort]float64{}, perCard: make([]int64, len(p.f.classes))}
	for gi := range p.f.groups {
		g := &p.f.groups[gi]
		h := &p.f.hosts[g.host]
		if m.perCard[g.class] == 0 {
			m.perCard[g.class] = h.use.CPUMilli / int64(len(h.node.GPUs))
		}
	}
	m.match(p)
	return m
}

func (m *muri) of(t *task, class int32) stages {
	n := &t.needs[class]
	return stagesOf(n.share.Milli, max(n.est.CPUMilli, t.cpu)/int64(max(1, t.gpus)), m.perCard[class])
}

// match pairs the first of those who wait, the best pairs first, when there
// are more of them than empty cards.
func (m *muri) match(p *pass) {
	empty, waits := 0, 0
	for gi := range p.f.groups {
		empty += p.f.groups[gi].empty
	}
	var ts []*task
	for _, t := range p.sorted() {
		if t.gpus > 0 {
			waits += t.cards()
		}
		if t.gpus == 1 && !t.spans() && t.size < whole && len(ts) < min(muriWindow, 2*empty) {
			ts = append(ts, t)
		}
	}
	if waits <= empty {
		return
	}
	type pair struct {
		period int64
		a, b   int
	}
	var pairs []pair
	for a := range ts {
		for b := a + 1; b < len(ts); b++ {
			if t := m.together(p, ts[a], ts[b]); t > 0 {
				pairs = append(pairs, pair{t, a, b})
			}
		}
	}
	slices.SortFunc(pairs, func(x, y pair) int {
		return cmp.Or(cmp.Compare(x.period, y.period), cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b))
	})
	for _, x := range pairs {
		a, b := ts[x.a].id, ts[x.b].id
		if m.mates[a] == 0 && m.mates[b] == 0 {
			m.mates[a], m.mates[b] = b, a
		}
	}
}

// together is the least period of two jobs over the classes that hold both,
// 0 when none does or they gain too little.
func (m *muri) together(p *pass, a, b *task) int64 {
	least := int64(0)
	for c := range p.f.classes {
		x, y := &a.needs[c], &b.needs[c]
		if !x.ok || !y.ok || x.share.Exclusive || y.share.Exclusive || x.share.Milli+y.share.Milli > whole ||
			x.share.MemMiB+y.share.MemMiB > p.f.classes[c].sellable {
			continue
		}
		group := []stages{m.of(a, int32(c)), m.of(b, int32(c))}
		if t := period(group); gains(group) && (least == 0 || t < least) {
			least = t
		}
	}
	return least
}

// groupOn is who lies on a card, and t.
func (m *muri) groupOn(p *pass, t *task, c *card) []stages {
	class := p.f.groups[c.group].class
	out := make([]stages, 0, len(c.on)+1)
	for _, o := range c.on {
		r := &p.runs[o.run]
		out = append(out, stagesOf(o.share.Milli, max(r.est.CPUMilli, r.berth.CPUMilli)/int64(max(1, len(r.berth.GPUs))), m.perCard[class]))
	}
	return append(out, m.of(t, class))
}

func (m *muri) admits(p *pass, t *task, c *card) bool {
	class := p.f.groups[c.group].class
	group := make([]member, 0, len(c.on)+1)
	for _, o := range c.on {
		group = append(group, member{job: p.runs[o.run].job, share: o.share})
	}
	was, known := m.measured(p, class, group, nil)
	if !known {
		return gains(m.groupOn(p, t, c))
	}
	now, known := m.measured(p, class, append(group, member{job: t.job, share: t.needs[class].share}), nil)
	return known && total(now)-total(was) > teamGain
}

func total(xs []float64) (sum float64) {
	for _, x := range xs {
		sum += x
	}
	return sum
}

// tag tells apart jobs whose stages differ though they ask for the same.
func (m *muri) tag(t *task) int64 {
	sum := int64(0)
	for c := range t.needs {
		sum = sum*31 + t.needs[c].est.CPUMilli
	}
	return sum
}

// choose puts t beside its mate if that is placed, else on empty cards, else
// where the group's iteration is shortest.
func (m *muri) choose(p *pass, t *task) []int32 {
	cards := m.find(p, t)
	if len(cards) > 0 {
		m.card[t.id] = cards[0]
	}
	return cards
}

func (m *muri) find(p *pass, t *task) []int32 {
	if ci, ok := m.card[m.mates[t.id]]; ok && p.mayHold(t, p.f.cards[ci].group) && p.fits(t, ci) {
		return []int32{ci}
	}
	for gi := range p.f.groups {
		if p.f.groups[gi].empty < t.gpus || !p.mayHold(t, int32(gi)) {
			continue
		}
		if cards := p.pick(t, int32(gi), emptyFirst); cards != nil && p.f.cards[cards[len(cards)-1]].use.Shares == 0 {
			return cards
		}
	}
	var best []int32
	least := int64(forever)
	for gi := range p.f.groups {
		if !p.mayHold(t, int32(gi)) {
			continue
		}
		cards, longest := m.shortest(p, t, int32(gi))
		if cards != nil && longest < least {
			best, least = p.keep(cards), longest
		}
	}
	return best
}

// shortest returns the cards of a group on which t's iteration is shortest,
// and the longest of these iterations.
func (m *muri) shortest(p *pass, t *task, gi int32) ([]int32, int64) {
	type place struct {
		card   int32
		length int64
	}
	var all []place
	for _, ci := range p.f.groups[gi].cards {
		if c := &p.f.cards[ci]; p.fits(t, ci) {
			all = append(all, place{ci, period(m.groupOn(p, t, c))})
		}
	}
	if len(all) < t.gpus {
		return nil, 0
	}
	slices.SortStableFunc(all, func(a, b place) int { return cmp.Compare(a.length, b.length) })
	cards := make([]int32, t.gpus)
	for i := range cards {
		cards[i] = all[i].card
	}
	return cards, all[t.gpus-1].length
}

// measured appends how fast each of a group runs by the profiles of its jobs,
// else by what was learned of sharing; false when neither is known.
func (m *muri) measured(p *pass, class int32, group []member, out []float64) (speeds []float64, known bool) {
	if speeds, known := m.interleaved(p, group, out); known {
		return speeds, true
	}
	return m.learned(p, class, group, out)
}

// speeds implements teamer: as measured, else by utilization and cores.
func (m *muri) speeds(p *pass, class int32, group []member, out []float64) []float64 {
	if out, known := m.measured(p, class, group, out); known {
		return out
	}
	st := make([]stages, len(group))
	for i := range group {
		x := &group[i]
		st[i] = stagesOf(x.share.Milli, max(x.est.CPUMilli, x.cpu)/int64(max(1, x.job.Spec.GPUs)), m.perCard[class])
	}
	for range group {
		out = append(out, whole/float64(max(1, period(st))))
	}
	return out
}

// learned appends the speeds of a group by what was learned of sharing; false
// when nothing was.
func (m *muri) learned(p *pass, class int32, group []member, out []float64) (speeds []float64, known bool) {
	set := make([]company.Mate, len(group))
	for i := range group {
		set[i] = mateOf(group[i].job, group[i].share.Milli)
	}
	out, known = company.Slowdowns(p.snap.Interference, p.f.classes[class].rep, set, out)
	for i := range out {
		out[i] = 1 / out[i]
	}
	return out, known
}
