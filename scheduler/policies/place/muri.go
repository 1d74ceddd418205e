package place

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/company"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/policies/order"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// muri lets jobs share a GPU if their stages use different resources. Source: Zhao
// et al., "Multi-Resource Interleaving for Deep Learning Training" (SIGCOMM 2022):
// an iteration is a row of stages, one for each resource; jobs in a group take
// turns on them, so that the group's iteration takes Σ_j max_i of the stages that
// meet (section 4.1), and groups are chosen by matching on their efficiency
// (section 4.2), in the order of the shortest remaining service, when more wait
// than there are GPUs.
//
// The paper profiles storage, CPU, GPU and network; we have the utilization of the
// GPU and the cores, and call the rest "other". It matches by Blossom and in rounds
// with preemption; we match greedily among waiting jobs, then let others join. A
// group must get at least muriGain more done than its members one after the other.
// That constant is ours.
type muri struct {
	mates   map[cluster.JobID]cluster.JobID
	card    map[cluster.JobID]int32 // of jobs placed in this pass
	perCard []int64                 // cores for each GPU, by class
	periods map[cohort]float64      // of groups
}

const (
	muriGain   = 100 // thousandths
	muriWindow = 256 // jobs that are matched with each other
)

// stages are the parts of an iteration, in thousandths of it.
type stages [3]int64

// stagesOf computes them from a utilization and the cores of a GPU's part of a
// node.
func stagesOf(milli, cpu, perCard int64) stages {
	gpu := min(cluster.WholeGPU, max(0, milli))
	onCPU := min(cluster.WholeGPU-gpu, cpu*cluster.WholeGPU/max(1, perCard))
	return stages{gpu, onCPU, cluster.WholeGPU - gpu - onCPU}
}

// period returns how long an iteration of a group takes, with the best offsets of
// its members, in thousandths of one alone. Groups of more than three take turns.
func period(group []stages) int64 {
	switch len(group) {
	case 0:
		return 0
	case 1:
		return cluster.WholeGPU
	case 2:
		return min(interleaved(group, [3]int{0, 1}), interleaved(group, [3]int{0, 2}))
	case 3:
		return min(interleaved(group, [3]int{0, 1, 2}), interleaved(group, [3]int{0, 2, 1}))
	}
	return int64(len(group)) * cluster.WholeGPU
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
	return len(group) < 2 || period(group)*(cluster.WholeGPU+muriGain) <= int64(len(group))*cluster.WholeGPU*cluster.WholeGPU
}

func newMuri(p *scene.Scene, ts *order.Turns) scene.Rule {
	m := &muri{mates: map[cluster.JobID]cluster.JobID{}, card: map[cluster.JobID]int32{}, periods: map[cohort]float64{}, perCard: make([]int64, len(p.Fleet.Classes))}
	for gi := range p.Fleet.Groups {
		g := &p.Fleet.Groups[gi]
		h := &p.Fleet.Hosts[g.Host]
		if m.perCard[g.Class] == 0 {
			m.perCard[g.Class] = h.Use.CPUMilli / int64(len(h.Node.GPUs))
		}
	}
	m.match(p, ts)
	return m
}

func (m *muri) of(t *scene.Task, class int32) stages {
	n := &t.Needs[class]
	return stagesOf(n.Share.Milli, max(n.Est.CPUMilli, t.CPU)/int64(max(1, t.GPUs)), m.perCard[class])
}

// match pairs the first waiting tasks, the best pairs first, if there are more of
// them than empty GPUs.
func (m *muri) match(p *scene.Scene, ts *order.Turns) {
	empty, waits := 0, 0
	for gi := range p.Fleet.Groups {
		empty += p.Fleet.Groups[gi].Empty
	}
	var pool []*scene.Task
	for _, t := range ts.Sorted() {
		if t.GPUs > 0 {
			waits += t.Cards()
		}
		if t.GPUs == 1 && !t.Spans() && t.Size < cluster.WholeGPU && len(pool) < min(muriWindow, 2*empty) {
			pool = append(pool, t)
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
	for a := range pool {
		for b := a + 1; b < len(pool); b++ {
			if t := m.together(p, pool[a], pool[b]); t > 0 {
				pairs = append(pairs, pair{t, a, b})
			}
		}
	}
	slices.SortFunc(pairs, func(x, y pair) int {
		return cmp.Or(cmp.Compare(x.period, y.period), cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b))
	})
	for _, x := range pairs {
		a, b := pool[x.a].ID, pool[x.b].ID
		if m.mates[a] == 0 && m.mates[b] == 0 {
			m.mates[a], m.mates[b] = b, a
		}
	}
}

// together returns the least period of two jobs over the classes that hold both, 0
// if none does or they gain too little.
func (m *muri) together(p *scene.Scene, a, b *scene.Task) int64 {
	least := int64(0)
	for c := range p.Fleet.Classes {
		x, y := &a.Needs[c], &b.Needs[c]
		if !x.OK || !y.OK || x.Share.Exclusive || y.Share.Exclusive || x.Share.Milli+y.Share.Milli > cluster.WholeGPU ||
			x.Share.MemMiB+y.Share.MemMiB > p.Fleet.Classes[c].Sellable {
			continue
		}
		group := []stages{m.of(a, int32(c)), m.of(b, int32(c))}
		if t := period(group); gains(group) && (least == 0 || t < least) {
			least = t
		}
	}
	return least
}

// groupOn returns the jobs on a GPU, and t.
func (m *muri) groupOn(p *scene.Scene, t *scene.Task, c *mirror.Card) []stages {
	class := p.Fleet.Groups[c.Group].Class
	out := make([]stages, 0, len(c.On)+1)
	for _, o := range c.On {
		r := &p.Fleet.Runs[o.Run]
		out = append(out, stagesOf(o.Share.Milli, max(r.Est.CPUMilli, r.Berth.CPUMilli)/int64(max(1, len(r.Berth.GPUs))), m.perCard[class]))
	}
	return append(out, m.of(t, class))
}

func (m *muri) Admits(p *scene.Scene, t *scene.Task, c *mirror.Card) bool {
	class := p.Fleet.Groups[c.Group].Class
	group := make([]Member, 0, len(c.On)+1)
	for _, o := range c.On {
		group = append(group, Member{Job: p.Fleet.Runs[o.Run].Job, Share: o.Share})
	}
	was, known := m.measured(p, class, group, nil)
	if !known {
		return gains(m.groupOn(p, t, c))
	}
	now, known := m.measured(p, class, append(group, Member{Job: t.Job, Share: t.Needs[class].Share}), nil)
	return known && total(now)-total(was) > teamGain
}

func total(xs []float64) (sum float64) {
	for _, x := range xs {
		sum += x
	}
	return sum
}

// Tag distinguishes jobs whose stages differ though they ask for the same.
func (m *muri) Tag(t *scene.Task) int64 {
	sum := int64(0)
	for c := range t.Needs {
		sum = sum*31 + t.Needs[c].Est.CPUMilli
	}
	return sum
}

// Choose puts t with its mate if that is placed, otherwise on empty GPUs, otherwise
// where the group's iteration is shortest.
func (m *muri) Choose(p *scene.Scene, t *scene.Task) []int32 {
	cards := m.find(p, t)
	if len(cards) > 0 {
		m.card[t.ID] = cards[0]
	}
	return cards
}

func (m *muri) find(p *scene.Scene, t *scene.Task) []int32 {
	if ci, ok := m.card[m.mates[t.ID]]; ok && p.MayHold(t, p.Fleet.Cards[ci].Group) && p.Fits(t, ci) {
		return []int32{ci}
	}
	for gi := range p.Fleet.Groups {
		if p.Fleet.Groups[gi].Empty < t.GPUs || !p.MayHold(t, int32(gi)) {
			continue
		}
		if cards := p.Pick(t, int32(gi), emptyFirst); cards != nil && p.Fleet.Cards[cards[len(cards)-1]].Use.Shares == 0 {
			return cards
		}
	}
	var best []int32
	least := int64(rules.Forever)
	for gi := range p.Fleet.Groups {
		if !p.MayHold(t, int32(gi)) {
			continue
		}
		cards, longest := m.shortest(p, t, int32(gi))
		if cards != nil && longest < least {
			best, least = p.Keep(cards), longest
		}
	}
	return best
}

// shortest returns the GPUs of a group on which t's iteration is shortest, and the
// longest of these iterations.
func (m *muri) shortest(p *scene.Scene, t *scene.Task, gi int32) ([]int32, int64) {
	type place struct {
		card   int32
		length int64
	}
	var all []place
	for _, ci := range p.Fleet.Groups[gi].Cards {
		if c := &p.Fleet.Cards[ci]; p.Fits(t, ci) {
			all = append(all, place{ci, period(m.groupOn(p, t, c))})
		}
	}
	if len(all) < t.GPUs {
		return nil, 0
	}
	slices.SortStableFunc(all, func(a, b place) int { return cmp.Compare(a.length, b.length) })
	cards := make([]int32, t.GPUs)
	for i := range cards {
		cards[i] = all[i].card
	}
	return cards, all[t.GPUs-1].length
}

// measured appends how fast each of a group runs by the profiles of its jobs,
// otherwise by what was learned of sharing; false if neither is known.
func (m *muri) measured(p *scene.Scene, class int32, group []Member, out []float64) (speeds []float64, known bool) {
	if speeds, known := m.interleaved(p, group, out); known {
		return speeds, true
	}
	return m.learned(p, class, group, out)
}

// Speeds implements Teamer: as measured, otherwise by utilization and cores.
func (m *muri) Speeds(p *scene.Scene, class int32, group []Member, out []float64) []float64 {
	if out, known := m.measured(p, class, group, out); known {
		return out
	}
	st := make([]stages, len(group))
	for i := range group {
		x := &group[i]
		st[i] = stagesOf(x.Share.Milli, max(x.Est.CPUMilli, x.CPU)/int64(max(1, x.Job.Spec.GPUs)), m.perCard[class])
	}
	for range group {
		out = append(out, cluster.WholeGPU/float64(max(1, period(st))))
	}
	return out
}

// learned appends the speeds of a group by what was learned of sharing; false if
// nothing was.
func (m *muri) learned(p *scene.Scene, class int32, group []Member, out []float64) (speeds []float64, known bool) {
	set := make([]company.Mate, len(group))
	for i := range group {
		set[i] = scene.MateOf(group[i].Job, group[i].Share.Milli)
	}
	out, known = company.Slowdowns(p.Snap.Interference, p.Fleet.Classes[class].Rep, set, out)
	for i := range out {
		out[i] = 1 / out[i]
	}
	return out, known
}
