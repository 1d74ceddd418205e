package place

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/fleet"
	"github.com/berth-scheduler/berth/scheduler/fragment"
	"github.com/berth-scheduler/berth/scheduler/policies/order"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
)

// fgd places each job where the expected fragmentation of the cluster grows
// least. Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing
// Workloads with Fragmentation Gradient Descent", USENIX ATC 2023: the measure
// is that of section 4.2, equations 1 to 4, the rule is algorithm 1 of section
// 5. The score is the one of the authors' artefact, which the paper does not
// print, see scheduler.FragmentationScore; ties go to the first node.
//
// Unlike in the paper, a GPU has two resources that fragment, compute
// and memory; what is idle of it is the larger of the two fractions. The
// target workload is not given but learned from running and waiting jobs, see
// fragment.Typical.
type fgd struct {
	open
	mix     []fragment.Mix // by class
	counted int            // of the jobs that run or wait, by id
	stale   bool           // the targets stand for a job that is gone
	targets []fragment.Typical
	bases   []base  // by group
	version []int32 // of the groups, incremented when their host or the targets change
	seen    int     // of Fleet.Changed
	shapes  map[want]*scores
	scratch []int32
	left    []fragment.CardLeft // scratch
	was, is []fragment.CardLeft // scratch
}

// want is what a job asks for on a class of GPUs.
type want struct {
	class     int32
	gpus      int32
	share     cluster.Share
	cpu, host int64
}

func wantOf(t *scene.Task, c int) want {
	return want{int32(c), int32(t.GPUs), t.Needs[c].Share, t.CPU, t.Mem}
}

// shape returns the same in thousandths of GPUs.
func (k *want) shape(p *scene.Scene) fragment.Shape {
	s := fragment.Shape{GPUs: int(k.gpus), Alone: k.share.Exclusive, Mem: cluster.WholeGPU, Milli: cluster.WholeGPU, CPUMilli: k.cpu, HostMiB: k.host}
	if !s.Alone {
		s.Mem, s.Milli = min(cluster.WholeGPU, k.share.MemMiB*cluster.WholeGPU/max(1, p.Fleet.Classes[k.class].Sellable)), k.share.Milli
	}
	return s
}

func newFGD(p *scene.Scene, _ *order.Turns) scene.Rule {
	f := &fgd{
		shapes: map[want]*scores{}, bases: make([]base, len(p.Fleet.Groups)), version: make([]int32, len(p.Fleet.Groups)),
		mix: make([]fragment.Mix, len(p.Fleet.Classes)), targets: make([]fragment.Typical, len(p.Fleet.Classes)),
	}
	for gi := range f.bases {
		f.bases[gi].made = -1
	}
	f.learn(p)
	return f
}

// newest returns how many of n jobs are not counted yet: the target workload is
// relearned only when n has grown by a 256th or so.
func newest(n int) int {
	step := 1
	for n > 256*step {
		step *= 2
	}
	return n % step
}

// learn updates the target workload from running and waiting jobs.
func (f *fgd) learn(p *scene.Scene) {
	var ran []*cluster.Job
	for i := range p.Fleet.Runs {
		if !p.Fleet.Runs[i].Fresh {
			ran = append(ran, p.Fleet.Runs[i].Job)
		}
	}
	n := len(ran) + len(p.Tasks)
	n -= newest(n)
	for i := 0; i < n; i++ {
		if i < len(ran) {
			f.count(p, p.NewTask(ran[i]), 1)
		} else {
			f.count(p, p.Tasks[i-len(ran)], 1)
		}
	}
	f.aim()
}

// count counts what a job asks for, or takes it back.
func (f *fgd) count(p *scene.Scene, t *scene.Task, weight int64) {
	for c := range t.Needs {
		if k := wantOf(t, c); t.GPUs > 0 && t.Needs[c].OK {
			f.mix[c].Add(k.shape(p), weight)
		} else {
			f.mix[c].AddUnable(weight)
		}
	}
	f.counted += int(weight)
}

// aim computes the target workload from what was counted.
func (f *fgd) aim() {
	for c := range f.mix {
		f.targets[c] = f.mix[c].Typical()
	}
	for gi := range f.version {
		f.version[gi]++
	}
	clear(f.shapes)
}

// base is the current measure of a group.
type base struct {
	made int32 // version, -1 never
	fragment.Measure
}

// baseOf returns the measure of a group, recomputed if its host changed.
func (f *fgd) baseOf(p *scene.Scene, gi int32) *base {
	b := &f.bases[gi]
	if b.made == f.version[gi] {
		return b
	}
	b.made = f.version[gi]
	g := &p.Fleet.Groups[gi]
	f.left = f.left[:0]
	for _, ci := range g.Cards {
		f.left = append(f.left, fleet.LeftOn(&p.Fleet.Cards[ci].Use, p.Pol))
	}
	cpu, host := p.Fleet.Hosts[g.Host].Left()
	f.targets[g.Class].Measure(&b.Measure, cpu, host, f.left)
	return b
}

// delta returns how much the expected fragmentation of a group grows if a job is
// placed on cards, in thousandths of a GPU.
func (f *fgd) delta(p *scene.Scene, gi int32, k *want, cards []int32) int64 {
	b := f.baseOf(p, gi)
	g := &p.Fleet.Groups[gi]
	s := k.shape(p)
	f.was, f.is = f.was[:0], f.is[:0]
	for _, ci := range cards {
		c := &p.Fleet.Cards[ci]
		was := fleet.LeftOn(&c.Use, p.Pol)
		f.was, f.is = append(f.was, was), append(f.is, was.After(&s, c.Use.FreeShares() < 2 || c.Use.Shares+1 >= p.Fleet.MaxShares))
	}
	cpu, host := p.Fleet.Hosts[g.Host].Left()
	return f.targets[g.Class].Growth(&b.Measure, cpu-k.cpu, host-k.host, f.was, f.is)
}

func score(delta int64) int8 { return fragment.Score(delta) }

// Arrives updates the target workload with the running jobs and t.
func (f *fgd) Arrives(p *scene.Scene, t *scene.Task) {
	n := len(p.Fleet.Runs) + 1
	n -= newest(n)
	if n == f.counted && !f.stale {
		return
	}
	f.stale = false
	for f.counted > n { // the step has grown
		f.count(p, p.NewTask(p.Fleet.Runs[f.counted-1].Job), -1)
	}
	for f.counted < min(n, len(p.Fleet.Runs)) {
		f.count(p, p.NewTask(p.Fleet.Runs[f.counted].Job), 1)
	}
	if f.counted < n {
		f.count(p, t, 1)
	}
	f.aim()
}

// Decided takes t back if it does not run and was counted.
func (f *fgd) Decided(p *scene.Scene, t *scene.Task, ok bool) {
	if !ok && f.counted > len(p.Fleet.Runs) {
		f.count(p, t, -1)
		f.stale = true
	}
}
