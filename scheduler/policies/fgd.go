package policies

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/fragment"
)

// fgd places each job where the expected fragmentation of the cluster grows
// least. Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing
// Workloads with Fragmentation Gradient Descent", USENIX ATC 2023: the measure
// is that of section 4.2, equations 1 to 4, the rule is algorithm 1 of section
// 5. The score is the one of the authors' artefact, which the paper does not
// print, see scheduler.FragmentationScore; ties go to the first node.
//
// Other than in the paper, a card has two resources that fragment, compute
// and memory; what is idle of it is the larger of the two fractions. The
// target workload is not given but learned from what runs and waits, see
// fragment.Typical.
type fgd struct {
	open
	mix     []fragment.Mix // by class
	counted int            // of the jobs that run or wait, by id
	stale   bool           // the targets stand for somebody who is gone
	targets []fragment.Typical
	bases   []base  // by group
	version []int32 // of the groups, rises when their host or the targets change
	seen    int     // of pass.changed
	shapes  map[want]*scores
	scratch []int32
	left    []fragment.CardLeft // scratch
	was, is []fragment.CardLeft // scratch
}

// want is what a job asks for on a class of cards.
type want struct {
	class     int32
	gpus      int32
	share     cluster.Share
	cpu, host int64
}

func wantOf(t *task, c int) want {
	return want{int32(c), int32(t.gpus), t.needs[c].share, t.cpu, t.mem}
}

// shapeOn is the same in thousandths of cards.
func (p *pass) shapeOn(k *want) fragment.Shape {
	s := fragment.Shape{GPUs: int(k.gpus), Alone: k.share.Exclusive, Mem: whole, Milli: whole, CPUMilli: k.cpu, HostMiB: k.host}
	if !s.Alone {
		s.Mem, s.Milli = min(whole, k.share.MemMiB*whole/max(1, p.f.classes[k.class].sellable)), k.share.Milli
	}
	return s
}

func newFGD(p *pass) placer {
	f := &fgd{
		shapes: map[want]*scores{}, bases: make([]base, len(p.f.groups)), version: make([]int32, len(p.f.groups)),
		mix: make([]fragment.Mix, len(p.f.classes)), targets: make([]fragment.Typical, len(p.f.classes)),
	}
	for gi := range f.bases {
		f.bases[gi].made = -1
	}
	f.learn(p)
	return f
}

// newest is how many of n jobs are not counted yet: the target workload is
// learned anew only when n has grown by a 256th or so.
func newest(n int) int {
	step := 1
	for n > 256*step {
		step *= 2
	}
	return n % step
}

// learn brings the target workload up to what runs and waits.
func (f *fgd) learn(p *pass) {
	var ran []*cluster.Job
	for i := range p.runs {
		if !p.runs[i].fresh {
			ran = append(ran, p.runs[i].job)
		}
	}
	n := len(ran) + len(p.tasks)
	n -= newest(n)
	for i := 0; i < n; i++ {
		if i < len(ran) {
			f.count(p, p.newTask(ran[i]), 1)
		} else {
			f.count(p, p.tasks[i-len(ran)], 1)
		}
	}
	f.aim()
}

// count counts what a job asks for, or takes it back.
func (f *fgd) count(p *pass, t *task, weight int64) {
	for c := range t.needs {
		if k := wantOf(t, c); t.gpus > 0 && t.needs[c].ok {
			f.mix[c].Add(p.shapeOn(&k), weight)
		} else {
			f.mix[c].AddUnable(weight)
		}
	}
	f.counted += int(weight)
}

// aim makes the target workload of what was counted.
func (f *fgd) aim() {
	for c := range f.mix {
		f.targets[c] = f.mix[c].Typical()
	}
	for gi := range f.version {
		f.version[gi]++
	}
	clear(f.shapes)
}

func leftOn(c *card, maxShares int) fragment.CardLeft {
	return fragment.CardLeft{
		Mem: c.use.FreeMiB() * whole / max(1, c.use.SellableMiB), Milli: c.use.FreeMilli(),
		Takes: c.use.FreeShares() > 0 && c.use.Shares < maxShares, Empty: c.use.Shares == 0,
	}
}

// base is the measure of a group as it is.
type base struct {
	made int32 // version, -1 never
	fragment.Measure
}

// baseOf returns the measure of a group, made anew when its host changed.
func (f *fgd) baseOf(p *pass, gi int32) *base {
	b := &f.bases[gi]
	if b.made == f.version[gi] {
		return b
	}
	b.made = f.version[gi]
	g := &p.f.groups[gi]
	f.left = f.left[:0]
	for _, ci := range g.cards {
		f.left = append(f.left, leftOn(&p.f.cards[ci], p.maxShares()))
	}
	cpu, host := p.leftOfHost(g.host)
	f.targets[g.class].Measure(&b.Measure, cpu, host, f.left)
	return b
}

func (p *pass) leftOfHost(hi int32) (cpu, host int64) {
	u := &p.f.hosts[hi].use
	return u.CPUMilli - u.UsedCPU, u.MemMiB - u.UsedMem
}

// delta is how much the expected fragmentation of a group grows when a job
// comes to lie on cards, in thousandths of a GPU.
func (f *fgd) delta(p *pass, gi int32, k *want, cards []int32) int64 {
	b := f.baseOf(p, gi)
	g := &p.f.groups[gi]
	s := p.shapeOn(k)
	f.was, f.is = f.was[:0], f.is[:0]
	for _, ci := range cards {
		c := &p.f.cards[ci]
		was := leftOn(c, p.maxShares())
		f.was, f.is = append(f.was, was), append(f.is, was.After(&s, c.use.FreeShares() < 2 || c.use.Shares+1 >= p.maxShares()))
	}
	cpu, host := p.leftOfHost(g.host)
	return f.targets[g.class].Growth(&b.Measure, cpu-k.cpu, host-k.host, f.was, f.is)
}

func score(delta int64) int8 { return fragment.Score(delta) }
