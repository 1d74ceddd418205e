package policies

import (
	"cmp"
	"math"
	"slices"
)

// fgd places each job where the expected fragmentation of the cluster grows
// least. Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing
// Workloads with Fragmentation Gradient Descent", USENIX ATC 2023: the measure
// is that of section 4.2, equations 1 to 4, the rule is algorithm 1 of section
// 5. The score is the one of the authors' artefact, which the paper does not
// print: int(100·sigmoid(-Δ/1000)) with Δ in thousandths of a GPU, ties to the
// first node. That rounding matters: it makes first fit of what is nearly
// equal, and exact differences do worse than best fit.
//
// Other than in the paper, a card has two resources that fragment, compute
// and memory; what is idle of it is the larger of the two fractions. The
// target workload is what waits and runs in the snapshot, in steps of 1/20 of
// a card; it holds the most popular shapes, at most maxTargets, that cover 95 %
// of the jobs on each class of cards. The gain of a job is computed with its
// needs rounded up to the same steps, so that the scores of one shape on all
// nodes can be kept and only those of nodes that changed are made anew;
// whether it fits is asked exactly.
type fgd struct {
	open
	targets [][]target // by class
	total   []int64    // weight of all shapes kept, by class
	bases   []base     // by group
	version []int32    // of the groups, rises when their host changes
	seen    int        // of pass.changed
	shapes  map[coarse]*scores
	scratch []int32
	was, is []state // scratch of delta
}

// Bounds of the target workload.
const (
	grain      = 20 // steps to a card
	maxTargets = 32
	coverMilli = 950
	coreStep   = 1000    // thousandths of a core
	hostStep   = 4 << 10 // MiB
)

// target is one shape of the target workload.
type target struct {
	coarse
	weight int64 // how many jobs
}

// coarse is the shape of a job on a class, in steps.
type coarse struct {
	class      int32
	gpus       int32
	excl       bool
	mem, milli int64 // of one card, in grains
	cpu, host  int64 // in steps
}

func (p *pass) coarseOf(t *task, c int) coarse {
	n := &t.needs[c]
	k := coarse{class: int32(c), gpus: int32(t.gpus), excl: n.share.Exclusive, mem: grain, milli: grain,
		cpu: stepsUp(t.cpu, coreStep), host: stepsUp(t.mem, hostStep)}
	if !k.excl {
		k.mem = min(grain, stepsUp(n.share.MemMiB*grain, p.f.classes[c].sellable))
		k.milli = min(grain, stepsUp(n.share.Milli*grain, whole))
	}
	return k
}

func stepsUp(v, step int64) int64 { return (v + step - 1) / step }

func newFGD(p *pass) placer {
	f := &fgd{shapes: map[coarse]*scores{}, bases: make([]base, len(p.f.groups)), version: make([]int32, len(p.f.groups))}
	f.targets, f.total = p.targetWorkload()
	for gi := range f.bases {
		f.bases[gi].made = -1
	}
	return f
}

// targetWorkload counts the shapes of all jobs for GPUs, by class.
func (p *pass) targetWorkload() ([][]target, []int64) {
	counts := make([]map[coarse]int64, len(p.f.classes))
	for c := range counts {
		counts[c] = map[coarse]int64{}
	}
	add := func(t *task) {
		for c := range t.needs {
			if t.gpus > 0 && t.needs[c].ok {
				counts[c][p.coarseOf(t, c)]++
			}
		}
	}
	for _, t := range p.tasks {
		add(t)
	}
	for i := range p.runs {
		if !p.runs[i].fresh {
			add(p.newTask(p.runs[i].job))
		}
	}
	out, total := make([][]target, len(counts)), make([]int64, len(counts))
	for c := range counts {
		out[c], total[c] = popular(counts[c])
	}
	return out, total
}

// popular keeps the most frequent shapes.
func popular(count map[coarse]int64) (out []target, kept int64) {
	all := int64(0)
	for k, n := range count {
		out = append(out, target{k, n})
		all += n
	}
	slices.SortFunc(out, func(a, b target) int {
		return cmp.Or(-cmp.Compare(a.weight, b.weight), cmp.Compare(a.gpus, b.gpus), cmp.Compare(boolInt(a.excl), boolInt(b.excl)),
			cmp.Compare(a.milli, b.milli), cmp.Compare(a.mem, b.mem), cmp.Compare(a.cpu, b.cpu), cmp.Compare(a.host, b.host))
	})
	for i := range out {
		if i == maxTargets || kept*1000 >= all*coverMilli {
			return out[:i], kept
		}
		kept += out[i].weight
	}
	return out, kept
}

// state is what a card has left, as the measure sees it.
type state struct {
	mem, milli int64 // thousandths of the card
	takes      bool  // one more share
	empty      bool
}

func stateOf(c *card, maxShares int) state {
	return state{
		mem: c.use.FreeMiB() * whole / max(1, c.use.SellableMiB), milli: c.use.FreeMilli(),
		takes: c.use.FreeShares() > 0 && c.use.Shares < maxShares, empty: c.use.Shares == 0,
	}
}

// idle is what is left of a card, in thousandths: the larger of its two
// fractions.
func (s *state) idle() int64 { return max(s.mem, s.milli) }

// takesOne tells whether one GPU of target m finds room.
func (s *state) takesOne(m *coarse) bool {
	if m.excl {
		return s.empty && s.takes
	}
	return s.takes && s.mem*grain >= m.mem*whole && s.milli*grain >= m.milli*whole
}

// base is the measure of a group as it is: for each target how many cards
// take it, and what those have idle.
type base struct {
	made  int32 // version, -1 never
	idle  int64
	cards []int64
	good  []int64
	frag  int64 // weighted sum over the targets
}

// hostLeft is what a group's host has left, in thousandths of a core and MiB.
type hostLeft struct{ cpu, mem int64 }

// fragment is F of equation 3 for one target: all that is idle if the node
// cannot run it, and otherwise what is idle on cards that cannot.
func fragment(m *target, left hostLeft, idle, cards, good int64) int64 {
	if cards < int64(m.gpus) || left.cpu < m.cpu*coreStep || left.mem < m.host*hostStep {
		return idle
	}
	return idle - good
}

// baseOf returns the measure of a group, made anew when its host changed.
func (f *fgd) baseOf(p *pass, gi int32) *base {
	b := &f.bases[gi]
	if b.made == f.version[gi] {
		return b
	}
	g := &p.f.groups[gi]
	ts := f.targets[g.class]
	if b.cards == nil {
		b.cards, b.good = make([]int64, len(ts)), make([]int64, len(ts))
	}
	clear(b.cards)
	clear(b.good)
	b.made, b.idle, b.frag = f.version[gi], 0, 0
	for _, ci := range g.cards {
		s := stateOf(&p.f.cards[ci], p.maxShares())
		b.idle += s.idle()
		for m := range ts {
			if s.takesOne(&ts[m].coarse) {
				b.cards[m]++
				b.good[m] += s.idle()
			}
		}
	}
	left := p.leftOfHost(g.host)
	for m := range ts {
		b.frag += ts[m].weight * fragment(&ts[m], left, b.idle, b.cards[m], b.good[m])
	}
	return b
}

func (p *pass) leftOfHost(hi int32) hostLeft {
	u := &p.f.hosts[hi].use
	return hostLeft{u.CPUMilli - u.UsedCPU, u.MemMiB - u.UsedMem}
}

// after is a card's state with a share of shape k on it.
func (s state) after(k *coarse, shares, maxShares int) state {
	s.empty = false
	if k.excl {
		return state{}
	}
	s.mem, s.milli = max(0, s.mem-k.mem*whole/grain), max(0, s.milli-k.milli*whole/grain)
	s.takes = s.takes && shares+1 < maxShares
	return s
}

// delta is how much the expected fragmentation of a group grows when shape k
// comes to lie on cards, in thousandths of a GPU.
func (f *fgd) delta(p *pass, gi int32, k *coarse, cards []int32) int64 {
	b := f.baseOf(p, gi)
	g := &p.f.groups[gi]
	ts := f.targets[g.class]
	if f.total[g.class] == 0 {
		return 0
	}
	left := p.leftOfHost(g.host)
	left.cpu -= k.cpu * coreStep
	left.mem -= k.host * hostStep
	idle := b.idle
	was, is := f.was[:0], f.is[:0]
	for _, ci := range cards {
		c := &p.f.cards[ci]
		before := stateOf(c, p.maxShares())
		after := before.after(k, c.use.Shares, min(p.maxShares(), c.use.Shares+c.use.FreeShares()))
		was, is = append(was, before), append(is, after)
		idle += after.idle() - before.idle()
	}
	f.was, f.is = was, is
	frag := int64(0)
	for m := range ts {
		n, good := b.cards[m], b.good[m]
		for i := range cards {
			if !was[i].takesOne(&ts[m].coarse) {
				continue // nor does it with less
			}
			n--
			good -= was[i].idle()
			if is[i].takesOne(&ts[m].coarse) {
				n++
				good += is[i].idle()
			}
		}
		frag += ts[m].weight * fragment(&ts[m], left, idle, n, good)
	}
	return (frag - b.frag) / f.total[g.class]
}

// score makes a growth of fragmentation a whole number from 0 to 100, more
// being better.
func score(delta int64) int8 {
	return int8(100 / (1 + math.Exp(float64(delta)/1000)))
}
