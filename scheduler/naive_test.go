package scheduler_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// naive is the rule of placement written down without any index: it asks the
// ledger about every card. Schedule must give the same starts.
type naive struct {
	led     *dispatch.Ledger
	nodes   []*cluster.Node // by id
	full    []*cluster.Node // at the beginning: without GPUs, the fewest idle, the fullest first
	pol     scheduler.Policy
	now     int64
	running []*cluster.Job
	// kept is what the idle GPUs of a node keep of cores and host memory,
	// keptPlain what they keep from jobs without GPUs.
	kept, keptPlain map[cluster.NodeID][2]int64
	// typical is what jobs take beside so many thousandths of GPUs.
	typical struct{ cpu, mem, milli int64 }
}

type naiveClass struct {
	gpuType   string
	sellable  int64
	shareable bool
	rep       *cluster.GPU
}

func newNaive(s *dispatch.Snapshot, pol scheduler.Policy) *naive {
	nodes := slices.Clone(s.Nodes)
	slices.SortFunc(nodes, func(a, b *cluster.Node) int { return cmp.Compare(a.ID, b.ID) })
	full := func(n *cluster.Node) int64 {
		u, _ := s.Ledger.Node(n.ID)
		return max(u.UsedCPU*1000/u.CPUMilli, u.UsedMem*1000/u.MemMiB)
	}
	fullest := slices.Clone(nodes)
	slices.SortStableFunc(fullest, func(a, b *cluster.Node) int {
		return cmp.Or(cmp.Compare(min(1, len(a.GPUs)), min(1, len(b.GPUs))),
			cmp.Compare(idleMilli(s.Ledger, a, pol), idleMilli(s.Ledger, b, pol)), cmp.Compare(full(b), full(a)))
	})
	v := &naive{led: s.Ledger.Clone(), nodes: nodes, full: fullest, pol: pol, now: int64(s.Now), running: s.Running, kept: map[cluster.NodeID][2]int64{}}
	v.learn(s)
	for _, n := range nodes {
		_, least := v.parts(n)
		idle := int64(len(v.idle(n)))
		v.kept[n.ID] = [2]int64{idle * least[0], idle * least[1]}
	}
	return v
}

// parts are what one GPU of n has of its cores and host memory, and the least
// that it keeps.
func (v *naive) parts(n *cluster.Node) (part, least [2]int64) {
	if len(n.GPUs) == 0 || v.pol.KeepCPUMilli+v.pol.KeepMemMiB == 0 {
		return part, least
	}
	k := int64(len(n.GPUs))
	part = [2]int64{n.CPUMilli / k, n.MemMiB / k}
	return part, [2]int64{min(part[0], v.pol.KeepCPUMilli), min(part[1], v.pol.KeepMemMiB)}
}

func (v *naive) idle(n *cluster.Node) (out []cluster.GPUID) {
	for i := range n.GPUs {
		if u, _ := v.led.GPU(n.GPUs[i].ID); u.Shares == 0 {
			out = append(out, u.ID)
		}
	}
	return out
}

// spares reports whether j leaves the idle GPUs of n enough when it takes some
// of them, or could leave it nowhere.
func (v *naive) spares(n *cluster.Node, j *cluster.Job, c naiveClass, takes int) bool {
	ok := func(n *cluster.Node, free, kept [2]int64, takes int) bool {
		part, least := v.parts(n)
		b := v.on(n, j)
		for i, want := range [2]int64{b.CPUMilli, b.MemMiB} {
			if part != [2]int64{} && want > min(free[i], part[i]*int64(max(1, takes))) && want > free[i]-kept[i]+least[i]*int64(takes) {
				return false
			}
		}
		return true
	}
	u, _ := v.led.Node(n.ID)
	if ok(n, [2]int64{u.CPUMilli - u.UsedCPU, u.MemMiB - u.UsedMem}, v.kept[n.ID], takes) {
		return true
	}
	return !slices.ContainsFunc(v.nodes, func(n *cluster.Node) bool {
		_, least := v.parts(n)
		k := int64(len(n.GPUs))
		return v.ever(n, j, c) && ok(n, [2]int64{n.CPUMilli, n.MemMiB}, [2]int64{k * least[0], k * least[1]}, j.Spec.GPUs)
	})
}

// take takes a berth and what of it the idle GPUs had kept.
func (v *naive) take(b *cluster.Berth) {
	takes := int64(0)
	for _, g := range b.GPUs {
		if u, _ := v.led.GPU(g.GPU); u.Shares == 0 {
			takes++
		}
	}
	for _, n := range v.nodes {
		if _, least := v.parts(n); n.ID == b.Node {
			k := v.kept[n.ID]
			v.kept[n.ID] = [2]int64{k[0] - min(k[0], b.CPUMilli, takes*least[0]), k[1] - min(k[1], b.MemMiB, takes*least[1])}
		}
	}
	v.led.Take(b)
}

// keepFrom keeps from jobs without GPUs what the waiting others take at most
// beside one GPU.
func (v *naive) keepFrom(waiting []*cluster.Job, gone []dispatch.Start) {
	v.keptPlain = map[cluster.NodeID][2]int64{}
	var most [2]int64
	for _, j := range waiting {
		if k := int64(j.Spec.GPUs); k > 0 && !slices.ContainsFunc(gone, func(s dispatch.Start) bool { return s.Job == j.ID }) {
			b := v.on(v.nodes[0], j)
			most = [2]int64{max(most[0], (b.CPUMilli+k-1)/k), max(most[1], (b.MemMiB+k-1)/k)}
		}
	}
	for _, n := range v.nodes {
		part, _ := v.parts(n)
		idle := int64(len(v.idle(n)))
		v.keptPlain[n.ID] = [2]int64{idle * min(most[0], part[0]), idle * min(most[1], part[1])}
	}
}

// starts is what Schedule should start of jobs that stand in no queue and
// have not waited long.
func (v *naive) starts(waiting []*cluster.Job) []dispatch.Start {
	var out []dispatch.Start
	for _, j := range v.order(waiting) {
		if j.Spec.GPUs == 0 && v.keptPlain == nil {
			v.keepFrom(waiting, out)
		}
		if b, est, ok := v.berth(j); ok {
			v.take(&b)
			out = append(out, dispatch.Start{Job: j.ID, Attempt: uint32(len(j.Attempts)) + 1, Berth: b, Estimate: est})
		}
	}
	return out
}

func (v *naive) classes() []naiveClass {
	var out []naiveClass
	for _, n := range v.nodes {
		for i := range n.GPUs {
			g := &n.GPUs[i]
			c := naiveClass{g.Type, g.SellableMiB, g.Shareable(), g}
			if n.Schedulable() && !slices.ContainsFunc(out, c.same) {
				out = append(out, c)
			}
		}
	}
	slices.SortFunc(out, func(a, b naiveClass) int {
		s := func(c naiveClass) int {
			if c.shareable {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(a.gpuType, b.gpuType), cmp.Compare(a.sellable, b.sellable), cmp.Compare(s(a), s(b)))
	})
	return out
}

func (c naiveClass) same(o naiveClass) bool {
	return c.gpuType == o.gpuType && c.sellable == o.sellable && c.shareable == o.shareable
}

func host(asked, otherwise int64) int64 {
	if asked == 0 {
		return otherwise
	}
	return asked
}

// berth is where a job would start now.
func (v *naive) berth(j *cluster.Job) (b cluster.Berth, est cluster.Estimate, ok bool) {
	if j.Spec.GPUs == 0 {
		b, ok = v.plain(j)
		est, _ = cluster.EstimateFor(j.Estimates, cluster.CPUType)
		return b, est, ok
	}
	type option struct {
		class naiveClass
		berth cluster.Berth
		est   cluster.Estimate
		dur   time.Duration
		whole bool
	}
	var options []option
	fastest := time.Duration(1 << 62)
	for _, c := range v.classes() {
		s, e, r := rules.ShareOn(j, c.rep, v.pol)
		if r.Code != "" || v.spared(j, c) {
			continue
		}
		if b, ok := v.onClass(j, c, s); ok {
			d := e.Duration
			if d == 0 {
				d = cmp.Or(j.Spec.Duration, j.Spec.TimeLimit, v.pol.AssumedDuration)
			}
			if j.Spec.TimeLimit > 0 {
				d = min(d, j.Spec.TimeLimit)
			}
			options = append(options, option{c, b, e, d, s.Exclusive})
			fastest = min(fastest, d)
		}
	}
	best := -1
	for i, o := range options {
		if float64(o.dur) > float64(fastest)*float64(v.pol.FastGainMilli)/1000 {
			continue
		}
		if best < 0 {
			best = i
			continue
		}
		p := options[best]
		unknown := o.whole && j.Spec.GPUMemMiB == 0 && o.est.ConfidenceMilli < v.pol.MinConfidenceMilli
		switch {
		case o.dur != p.dur:
			if o.dur > p.dur {
				best = i
			}
		case unknown && o.class.sellable > p.class.sellable, !unknown && o.class.sellable < p.class.sellable:
			best = i
		}
	}
	if best < 0 {
		return b, est, false
	}
	return options[best].berth, options[best].est, true
}

// plain is where a job without GPUs costs idle ones least: by how many
// thousandths of them fewer find beside them what typical jobs take.
func (v *naive) plain(j *cluster.Job) (best cluster.Berth, found bool) {
	least := int64(1 << 62)
	for _, n := range v.full {
		b := v.on(n, j)
		whole := b
		whole.CPUMilli += v.keptPlain[n.ID][0]
		whole.MemMiB += v.keptPlain[n.ID][1]
		if !v.may(n, j) || v.led.Fits(&whole).Code != "" {
			continue
		}
		if cost := v.usable(n, 0, 0) - v.usable(n, b.CPUMilli, b.MemMiB); cost < least {
			best, least, found = b, cost, true
		}
	}
	return best, found
}

// usable is how much of a node's idle GPUs typical jobs could take, if so much
// more of its cores and host memory were gone.
func (v *naive) usable(n *cluster.Node, cpu, mem int64) int64 {
	u, _ := v.led.Node(n.ID)
	all, t := idleMilli(v.led, n, v.pol), v.typical
	if t.milli == 0 || v.pol.KeepCPUMilli+v.pol.KeepMemMiB == 0 {
		return 0
	}
	if t.cpu > 0 {
		all = min(all, (u.CPUMilli-u.UsedCPU-cpu)*t.milli/t.cpu)
	}
	if t.mem > 0 {
		all = min(all, (u.MemMiB-u.UsedMem-mem)*t.milli/t.mem)
	}
	return all
}

// idleMilli is what is idle of a node's GPUs: of each the larger of its two
// fractions.
func idleMilli(led *dispatch.Ledger, n *cluster.Node, pol scheduler.Policy) (all int64) {
	for i := range n.GPUs {
		if u, _ := led.GPU(n.GPUs[i].ID); u.SellableMiB > 0 {
			all += max(u.FreeMilli(), u.FreeMiB()*1000/u.SellableMiB)
		}
	}
	return all
}

// learn sums up what jobs take beside GPUs.
func (v *naive) learn(s *dispatch.Snapshot) {
	for _, j := range append(slices.Clone(s.Running), s.Waiting...) {
		most := int64(0)
		for _, c := range v.classes() {
			share, _, r := rules.ShareOn(j, c.rep, v.pol)
			if r.Code == "" && share.Exclusive {
				most = 1000
			} else if r.Code == "" {
				most = max(most, share.Milli, share.MemMiB*1000/c.sellable)
			}
		}
		if most > 0 && j.Spec.GPUs > 0 {
			b := v.on(v.nodes[0], j)
			v.typical.cpu += b.CPUMilli
			v.typical.mem += b.MemMiB
			v.typical.milli += most * int64(j.Spec.GPUs)
		}
	}
}

func (v *naive) may(n *cluster.Node, j *cluster.Job) bool {
	return n.Schedulable() && (j.Spec.Node == "" || j.Spec.Node == n.ID)
}

func (v *naive) on(n *cluster.Node, j *cluster.Job) cluster.Berth {
	return cluster.Berth{Node: n.ID, CPUMilli: host(j.Spec.CPUMilli, v.pol.DefaultCPUMilli), MemMiB: host(j.Spec.MemMiB, v.pol.DefaultMemMiB)}
}

// ever reports whether n could run j on cards of a class if it were empty.
func (v *naive) ever(n *cluster.Node, j *cluster.Job, c naiveClass) bool {
	b, cards := v.on(n, j), 0
	for i := range n.GPUs {
		if g := &n.GPUs[i]; c.same(naiveClass{g.Type, g.SellableMiB, g.Shareable(), nil}) {
			cards++
		}
	}
	return v.may(n, j) && b.CPUMilli <= n.CPUMilli && b.MemMiB <= n.MemMiB && cards >= j.Spec.GPUs
}

// onClass finds the cards of one class by asking about each.
func (v *naive) onClass(j *cluster.Job, c naiveClass, s cluster.Share) (best cluster.Berth, found bool) {
	fewest := 1 << 30
	for _, usedFirst := range []bool{true, false} {
		for _, n := range v.nodes {
			if !v.may(n, j) {
				continue
			}
			used, empty := v.fitting(n, j, c, s)
			cards, free := append(slices.Clone(used), empty...), v.empties(n, c)
			switch {
			case s.Exclusive && (len(empty) < j.Spec.GPUs || free >= fewest):
				continue
			case s.Exclusive:
				cards = empty
			case j.Spec.GPUs == 1 && usedFirst:
				cards = used
			}
			if len(cards) < j.Spec.GPUs {
				continue
			}
			takes := max(0, j.Spec.GPUs-len(used))
			if s.Exclusive {
				takes = j.Spec.GPUs
			} else if j.Spec.GPUs == 1 && usedFirst {
				takes = 0
			} else if j.Spec.GPUs == 1 {
				cards, takes = empty, 1
			}
			if len(cards) < j.Spec.GPUs || !v.spares(n, j, c, takes) {
				continue
			}
			fewest = free
			best, found = v.on(n, j), true
			for _, g := range cards[:j.Spec.GPUs] {
				best.GPUs = append(best.GPUs, cluster.GPUShare{GPU: g, Share: s})
			}
			slices.SortFunc(best.GPUs, func(a, b cluster.GPUShare) int { return cmp.Compare(a.GPU, b.GPU) })
			if !s.Exclusive {
				return best, true
			}
		}
	}
	return best, found
}

func (v *naive) fitting(n *cluster.Node, j *cluster.Job, c naiveClass, s cluster.Share) (used, empty []cluster.GPUID) {
	for i := range n.GPUs {
		g := &n.GPUs[i]
		u, _ := v.led.GPU(g.ID)
		b := v.on(n, j)
		b.GPUs = []cluster.GPUShare{{GPU: g.ID, Share: s}}
		switch {
		case !c.same(naiveClass{g.Type, g.SellableMiB, g.Shareable(), nil}), v.led.Fits(&b).Code != "", u.Shares >= v.pol.MaxShares:
		case u.Shares > 0:
			used = append(used, g.ID)
		default:
			empty = append(empty, g.ID)
		}
	}
	return used, empty
}

func (v *naive) empties(n *cluster.Node, c naiveClass) (k int) {
	for i := range n.GPUs {
		g := &n.GPUs[i]
		if u, _ := v.led.GPU(g.ID); u.Shares == 0 && c.same(naiveClass{g.Type, g.SellableMiB, g.Shareable(), nil}) {
			k++
		}
	}
	return k
}
