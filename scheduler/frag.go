package scheduler

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/fleet"
	"github.com/berth-scheduler/berth/scheduler/fragment"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// frag lets a pass choose, among the GPUs on which a job fits, those on which the
// expected fragmentation of the cluster grows least (Weng et al., ATC 2023). Unlike
// there, the target workload is learned from running and waiting jobs, and only
// Policy.FragNodes nodes are considered for each job: those that first fit would
// reach first, equally many of each class.
type frag struct {
	typical []fragment.Typical // by class
	nodes   [][]measure        // by class and group
	vers    []int32            // by host: incremented when something starts there
	age     int32              // incremented when the typical shapes change
	sites   []site             // by class: what fit found last
	job     *cluster.Job
	left    int
	each    int                 // nodes of a class that it considers
	state   []fragment.CardLeft // scratch
	cards   []int32             // scratch
	was, is [maxLook]fragment.CardLeft
}

// maxLook bounds the GPUs of one job whose score is computed; wider jobs are scored
// as if they took that many.
const maxLook = 16

type measure struct {
	fragment.Measure
	made int64 // version of the host, and age
}

// site is the best place for a job on the GPUs of one class.
type site struct {
	cards []int32
	score int8
	used  bool // it would share a GPU
	host  int32
}

func (s *site) better(o *site) bool {
	if s.score != o.score {
		return s.score > o.score
	}
	if s.used != o.used {
		return s.used
	}
	return s.host < o.host
}

// sampled bounds the jobs sampled to learn what is typical.
const sampled = 512

// every returns the step at which n jobs are sampled: a power of two, so that the
// sample changes little from pass to pass.
func every(n int) int {
	step := 1
	for n > sampled*step {
		step *= 2
	}
	return step
}

// learn counts what jobs ask for, for each class of GPU.
type learn struct {
	mix []fragment.Mix
	// cpu and host are what GPU jobs take of cores and host memory, milli how much
	// of GPUs they take, in thousandths.
	cpu, host, milli int64
}

func newLearn(classes int) *learn { return &learn{mix: make([]fragment.Mix, classes)} }

func (l *learn) add(j *cluster.Job, f *fleet.Fleet, weight int64) {
	cpu, host := rules.HostOf(j, f.Pol)
	most := int64(0)
	for c := range f.Classes {
		k := &f.Classes[c]
		if j.Spec.GPUs == 0 {
			l.mix[c].AddUnable(weight)
			continue
		}
		e, _ := cluster.EstimateFor(j.Estimates, k.GPUType)
		n := rules.NeedOn(j, k.Rep, &e, f.Pol)
		if n.Way == rules.WayNone {
			l.mix[c].AddUnable(weight)
			continue
		}
		s := shapeOn(&n, k, j.Spec.GPUs, cpu, host)
		most = max(most, s.Mem, s.Milli)
		l.mix[c].Add(s, weight)
	}
	if most > 0 {
		l.cpu += weight * cpu
		l.host += weight * host
		l.milli += weight * most * int64(j.Spec.GPUs)
	}
}

func shapeOn(n *rules.Need, k *fleet.Class, gpus int, cpu, host int64) fragment.Shape {
	s := fragment.Shape{GPUs: gpus, Alone: n.Way == rules.WayWhole, Mem: cluster.WholeGPU, Milli: cluster.WholeGPU, CPUMilli: cpu, HostMiB: host}
	if !s.Alone {
		s.Mem, s.Milli = min(cluster.WholeGPU, n.Mem*cluster.WholeGPU/max(1, k.Sellable)), n.Milli
	}
	return s
}

// learned returns what the pass knows of typical jobs, learned on first use from a
// sample of the running jobs, then of the waiting ones, by id.
func (ft *fitter) learned() *learn {
	if ft.typical != nil {
		return ft.typical
	}
	ft.typical = newLearn(len(ft.f.Classes))
	running := ft.running
	if !slices.IsSortedFunc(running, byJob) {
		running = slices.Clone(running)
		slices.SortFunc(running, byJob)
	}
	n := len(running) + len(ft.items)
	for i, step := 0, every(n); i < n; i += step {
		if i < len(running) {
			ft.typical.add(running[i], ft.f, int64(step))
		} else {
			ft.typical.add(ft.items[i-len(running)].job, ft.f, int64(step))
		}
	}
	return ft.typical
}

// newFrag returns nil if fragmentation plays no part: if the site disabled it, if
// so many jobs wait that the order by size does better, or if no job asks for more
// cores or host memory than come with its GPUs.
func (ft *fitter) newFrag() *frag {
	if ft.pol.FragNodes <= 0 || len(ft.items) > ft.pol.FragJobs {
		return nil
	}
	w := ft.makeFrag()
	if !w.learn(ft) {
		return nil
	}
	return w
}

func (ft *fitter) makeFrag() *frag {
	n := len(ft.f.Classes)
	w := &frag{typical: make([]fragment.Typical, n), sites: make([]site, n), nodes: make([][]measure, n), vers: make([]int32, len(ft.f.Hosts))}
	for c := range w.nodes {
		w.nodes[c] = make([]measure, len(ft.f.Classes[c].Groups))
	}
	return w
}

// learn adopts what the pass has learned. It reports false if cores and host memory
// constrain no job.
func (w *frag) learn(ft *fitter) (tight bool) {
	l := ft.learned()
	w.age++
	for c := range w.typical {
		w.typical[c] = l.mix[c].Typical()
		tight = tight || w.typical[c].Binds(ft.f.Classes[c].EasyCPU, ft.f.Classes[c].EasyMem)
	}
	return tight
}

// changed records that something started on a node.
func (w *frag) changed(host int32) {
	if w != nil {
		w.vers[host]++
	}
}

// begin forgets what was found on a class for another job, and sets how many of its
// nodes this one may consider.
func (w *frag) begin(ft *fitter, it *item, c int) {
	if w == nil {
		return
	}
	w.sites[c].cards = w.sites[c].cards[:0]
	if w.job != it.job {
		w.job, w.left = it.job, ft.pol.FragNodes
	}
	able := 0
	for i := c; i < len(it.needs); i++ {
		if it.needs[i].Way != rules.WayNone && ft.mayFit(it, i) {
			able++
		}
	}
	w.each = max(1, w.left/max(1, able))
}

// chose records the GPUs that a job gets on a class where only one place was
// considered, so that its score can be compared with those of other classes.
func (w *frag) chose(ft *fitter, it *item, c int, cards []int32) {
	if w != nil && len(cards) > 0 && len(w.sites[c].cards) == 0 {
		w.offer(ft, it, c, ft.f.Cards[cards[0]].Group, cards)
	}
}

// score rates how well a job fits on GPUs of group gi.
func (w *frag) score(ft *fitter, it *item, c int, gi int32, cards []int32) int8 {
	k := &ft.f.Classes[c]
	g, t, m := &k.Groups[gi], &w.typical[c], &w.nodes[c][gi]
	h := &ft.f.Hosts[g.Host]
	cpu, host := h.Use.CPUMilli-h.Use.UsedCPU, h.Use.MemMiB-h.Use.UsedMem
	if made := int64(w.age)<<32 | int64(w.vers[g.Host]); m.made != made {
		m.made = made
		w.state = w.state[:0]
		for _, i := range k.Cards[g.Lo:g.Hi] {
			w.state = append(w.state, ft.f.LeftOf(&ft.f.Cards[i]))
		}
		t.Measure(&m.Measure, cpu, host, w.state)
	}
	share := it.needs[c].Share(k.Sellable)
	n := min(len(cards), maxLook)
	for x, i := range cards[:n] {
		u := ft.f.Cards[i].Use
		w.was[x] = fleet.LeftOn(&u, &ft.pol)
		u.UsedMiB += share.MemMiB
		u.UsedMilli += share.Milli
		u.Shares++
		u.Exclusive = share.Exclusive
		w.is[x] = fleet.LeftOn(&u, &ft.pol)
	}
	return fragment.Score(t.Growth(&m.Measure, cpu-it.cpu, host-it.mem, w.was[:n], w.is[:n]))
}

// offer keeps cards if they are the best found so far in a class.
func (w *frag) offer(ft *fitter, it *item, c int, gi int32, cards []int32) {
	best := &w.sites[c]
	s := site{
		score: w.score(ft, it, c, gi, cards), used: ft.f.Cards[cards[0]].Use.Shares > 0, host: ft.f.Classes[c].Groups[gi].Host,
	}
	if len(best.cards) == 0 || s.better(best) {
		s.cards = append(best.cards[:0], cards...)
		*best = s
	}
}

// bestShare looks for one share: first on nodes with a GPU in use that holds it,
// then on others, in the order of nodes. It considers every GPU of a node it
// visits.
func (ft *fitter) bestShare(it *item, c int, want *fleet.Room, lo, hi int, to []int32) []int32 {
	k, w := &ft.f.Classes[c], ft.frag
	left, tries := w.each, 0
	for place := k.Used.First(lo, want); place >= 0 && place < hi && left > 0; {
		g := ft.f.Cards[k.Cards[place]].Group
		if ft.offerCards(it, c, g, want, &tries) {
			left--
		}
		if tries > mateTries && !it.kept && !it.old {
			break
		}
		place = k.Used.First(int(k.Groups[g].Hi), want)
	}
	for place := k.Empty.First(lo, want); place >= 0 && place < hi && left > 0; {
		g := ft.f.Cards[k.Cards[place]].Group
		ft.offerCards(it, c, g, want, nil)
		left--
		place = k.Empty.First(int(k.Groups[g].Hi), want)
	}
	w.left -= w.each - left
	return append(to, w.sites[c].cards...)
}

// offerCards offers the GPUs of a node that hold one share, the first of those in
// the same state. With tries nil it considers only empty ones; otherwise it counts
// those in use on which some job would be too slow.
func (ft *fitter) offerCards(it *item, c int, gi int32, want *fleet.Room, tries *int) (any bool) {
	k := &ft.f.Classes[c]
	g := &k.Groups[gi]
	empty := false
	for place := int(g.Lo); place < int(g.Hi); place++ {
		i := k.Cards[place]
		u := &ft.f.Cards[i].Use
		switch {
		case u.Shares == 0:
			if empty || !k.Empty.Leaf(place).Holds(want) {
				continue
			}
			empty = true
		case tries == nil || !k.Used.Leaf(place).Holds(want):
			continue
		case ft.crowd != nil && !ft.suits(it, c, i):
			*tries++
			continue
		}
		ft.frag.cards = append(ft.frag.cards[:0], i)
		ft.frag.offer(ft, it, c, gi, ft.frag.cards)
		any = true
	}
	return any
}

// bestWhole looks for whole GPUs on the nodes with the fewest empty ones that
// suffice.
func (ft *fitter) bestWhole(k *fleet.Class, it *item, want *fleet.Room, near bool, to []int32) []int32 {
	n, left, c := it.gpus, ft.frag.each, int(ft.f.Cards[k.Cards[0]].Class)
	for free := n; free < len(k.Free) && left > 0; free++ {
		for i := k.Free[free].Next(0); i >= 0 && left > 0; i = k.Free[free].Next(i + 1) {
			g := &k.Groups[i]
			if near && ft.f.Nearest(k, g, n, want, nil) < 0 {
				continue
			}
			if ft.frag.cards = ft.takeEmpty(k, it, g, want, ft.frag.cards[:0]); len(ft.frag.cards) > 0 {
				ft.frag.offer(ft, it, c, int32(i), ft.frag.cards)
				left--
			}
		}
	}
	ft.frag.left -= ft.frag.each - left
	return append(to, ft.frag.sites[c].cards...)
}
