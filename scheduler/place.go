package scheduler

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// fitter finds the cards on which a job fits.
type fitter struct {
	*scene
	failed  map[shape]int64
	bulks   map[shape]bool
	frag    *frag   // nil where fragmentation plays no part
	typical *learn  // of what runs and waits, made when first asked for
	judged  int     // how often a job was held against those on a card
	careful bool    // something is kept for deadlines; see want
	picked  []int32 // scratch
	chosen  []int   // scratch
}

// shape is all of a job that decides on which cards of a class it fits, but
// for how long it stays. What has failed once in a pass fails again, since a
// pass only ever takes.
type shape struct {
	class      int32
	gpus       int32
	way        rules.Way
	kind       int32
	mem, milli int64
	cpu, host  int64
	node       cluster.NodeID
	strict     bool
	nodes      int32
}

func (ft *fitter) shapeOf(it *item, c int) shape {
	n := &it.needs[c]
	return shape{int32(c), int32(it.gpus), n.Way, it.kind, n.Mem, n.Milli, it.cpu, it.mem, it.node,
		it.gpus > 1 && n.Way == rules.WayWhole && ft.strict(it, &ft.f.classes[c], n.Dur), int32(it.nodes)}
}

// want is what each card must have left for it.
func (ft *fitter) want(it *item, c int) room {
	n := &it.needs[c]
	dur := n.Dur
	if ft.careful { // deadlines are promised for nine in ten cases
		e, _ := cluster.EstimateFor(it.job.Estimates, ft.f.classes[c].GPUType)
		dur = rules.Stretched(dur, rules.Tail, &e, it.job.Spec.TimeLimit)
	}
	return room{mem: n.Mem, milli: n.Milli, slots: 1, cpu: it.cpu, host: it.mem, until: ft.now + dur}
}

// mayFit is a cheap question: false means that it certainly does not fit.
func (ft *fitter) mayFit(it *item, c int) bool {
	if ft.limits != nil && ft.overLimit(it, c) {
		return false
	}
	want := ft.want(it, c)
	k := &ft.f.classes[c]
	if ft.bulky(it, c) || it.gpus > 1 {
		want.cpu, want.host = -1, -1 // the leaves hold what one GPU may take
	}
	if !k.empty.may(&want) && (it.needs[c].Way == rules.WayWhole || !k.used.may(&want)) {
		return false
	}
	until, failed := ft.failed[ft.shapeOf(it, c)]
	return !failed || want.until < until
}

// fit appends the cards of class c that a job would take now, none when it
// does not fit. One share goes to the first used card that holds it, in the
// order of nodes and ids, then to the first empty one, so that empty cards
// stay empty. Whole cards come from the node with the fewest empty ones.
func (ft *fitter) fit(it *item, c int, to []int32) []int32 {
	ft.frag.begin(ft, it, c)
	want := ft.want(it, c)
	k := &ft.f.classes[c]
	lo, hi, ok := ft.f.span(it, k)
	switch bulky := ft.bulky(it, c); {
	case !ok:
	case it.needs[c].Way == rules.WayWhole:
		to = ft.fitWhole(k, it, &want, to)
	case it.gpus == 1 && bulky:
		to = ft.fitBulky(it, c, want, lo, hi, to)
	case it.gpus > 1:
		to = ft.fitSpread(it, c, &want, lo, hi, to)
	case ft.frag != nil:
		to = ft.bestShare(it, c, &want, lo, hi, to)
	default:
		place := ft.suited(it, c, &want, lo, hi)
		if place < 0 || place >= hi {
			place = k.empty.first(lo, &want)
		}
		if place >= 0 && place < hi {
			to = append(to, k.cards[place])
		}
	}
	ft.frag.chose(ft, it, c, to)
	if len(to) == 0 {
		s := ft.shapeOf(it, c)
		if u, ok := ft.failed[s]; !ok || want.until < u {
			ft.failed[s] = want.until
		}
	}
	return to
}

// span is the places of class k that the job may lie on.
func (f *fleet) span(it *item, k *class) (lo, hi int, ok bool) {
	if it.node == "" {
		return 0, len(k.cards), true
	}
	g := f.groupOn(it.node, k)
	if g == nil {
		return 0, 0, false
	}
	return int(g.lo), int(g.hi), true
}

func (f *fleet) groupOn(node cluster.NodeID, k *class) *group {
	h, ok := f.hostAt[node]
	if !ok {
		return nil
	}
	i, ok := slices.BinarySearchFunc(k.groups, h, func(g group, h int32) int { return cmp.Compare(g.host, h) })
	if !ok {
		return nil
	}
	return &k.groups[i]
}

// fitWhole looks for empty cards on one node, the node with the fewest that
// are enough, so that nodes stay whole for larger jobs.
func (ft *fitter) fitWhole(k *class, it *item, want *room, to []int32) []int32 {
	n := it.gpus
	if it.node != "" {
		return ft.takeEmpty(k, it, ft.f.groupOn(it.node, k), want, to)
	}
	for _, near := range [...]bool{true, false} {
		if near && (n < 2 || !k.parted) {
			continue
		}
		if ft.frag != nil {
			if to = ft.bestWhole(k, it, want, near, to); len(to) > 0 {
				return to
			}
		}
		for free := n; free < len(k.free) && ft.frag == nil; free++ {
			for i := k.free[free].next(0); i >= 0; i = k.free[free].next(i + 1) {
				g := &k.groups[i]
				if near && ft.f.nearest(k, g, n, want, nil) < 0 {
					continue
				}
				if to = ft.takeEmpty(k, it, g, want, to); len(to) > 0 {
					return to
				}
			}
		}
		if near && ft.strict(it, k, want.until-ft.now) {
			return to
		}
	}
	return to
}

// takeEmpty appends n empty cards of a group, or none.
func (ft *fitter) takeEmpty(k *class, it *item, g *group, want *room, to []int32) []int32 {
	n := it.gpus
	h := &ft.f.hosts[g.host]
	if int(g.empty) < n || h.foreignQueue || h.freeCPU() < want.cpu || h.freeMem() < want.host ||
		!h.keepsEnough(want.cpu, want.host, n) && !ft.bulky(it, int(ft.f.cards[k.cards[g.lo]].class)) {
		return to
	}
	at := len(to)
	if n > 1 && k.parted {
		ft.f.nearest(k, g, n, want, &to)
		if len(to) == at+n {
			return to
		}
		return to[:at]
	}
	for _, i := range k.cards[g.lo:g.hi] {
		if c := &ft.f.cards[i]; c.open(want) {
			if to = append(to, i); len(to) == at+n {
				return to
			}
		}
	}
	return to[:at]
}

// fitSpread looks for shares of n cards of one node: the first node that has
// them, and there used cards before empty ones.
func (ft *fitter) fitSpread(it *item, c int, want *room, lo, hi int, to []int32) []int32 {
	k := &ft.f.classes[c]
	each := *want
	each.cpu, each.host = -1, -1 // of the node, spreadOn asks
	want = &each
	for from := lo; from < hi; {
		place := k.used.first(from, want)
		if e := k.empty.first(from, want); place < 0 || e >= 0 && e < place {
			place = e
		}
		if place < 0 || place >= hi {
			return to
		}
		g := &k.groups[ft.f.cards[k.cards[place]].group]
		if int(g.hi-g.lo) >= it.gpus {
			if to = ft.spreadOn(it, c, g, want, to); len(to) > 0 {
				return to
			}
		}
		from = int(g.hi)
	}
	return to
}

func (ft *fitter) spreadOn(it *item, c int, g *group, want *room, to []int32) []int32 {
	k, at, takes := &ft.f.classes[c], len(to), 0
	h := &ft.f.hosts[g.host]
	if h.freeCPU() < it.cpu || h.freeMem() < it.mem {
		return to
	}
	for _, t := range []*tree{k.used, k.empty} {
		for place := t.first(int(g.lo), want); place >= 0 && place < int(g.hi); place = t.first(place+1, want) {
			if ft.crowd != nil && !ft.suits(it, c, k.cards[place]) {
				continue
			}
			if t == k.empty {
				takes++
			}
			if to = append(to, k.cards[place]); len(to) == at+it.gpus {
				if !h.keepsEnough(it.cpu, it.mem, takes) && !ft.bulky(it, c) {
					return to[:at]
				}
				slices.Sort(to[at:])
				return to
			}
		}
	}
	return to[:at]
}

// fitBulky looks for a place for one share of a job that may strand GPUs; the
// indexes do not know how much of a node it may take.
func (ft *fitter) fitBulky(it *item, c int, want room, lo, hi int, to []int32) []int32 {
	k := &ft.f.classes[c]
	want.cpu, want.host = -1, -1
	for _, t := range []*tree{k.used, k.empty} {
		for place := t.first(lo, &want); place >= 0 && place < hi; place = t.first(place+1, &want) {
			h := &ft.f.hosts[ft.f.cards[k.cards[place]].host]
			if h.freeCPU() >= it.cpu && h.freeMem() >= it.mem && (ft.crowd == nil || ft.suits(it, c, k.cards[place])) {
				return append(to, k.cards[place])
			}
		}
	}
	return to
}

// startPlain places a job that needs no GPU: a node without GPUs if one has
// room, then where it takes nothing that idle GPUs need, see plainPlace.
func (p *pass) startPlain(it *item) bool {
	want := room{mem: -1, milli: -1, slots: -1, cpu: it.cpu, host: it.mem, until: -1}
	if !p.f.plain.may(&want) {
		return false
	}
	place, why := p.plains.plainPlace(it, &want)
	if place < 0 {
		return false
	}
	hi := p.f.order[place]
	e, _ := cluster.EstimateFor(it.job.Estimates, cluster.CPUType)
	if it.cores != nil {
		e, why = it.cores.Est, "on "+say.Cores(it.cpu)+", since no GPU could ever run it; "+why
	}
	p.commit(it, &cluster.Start{
		Job: it.job.ID, Attempt: uint32(len(it.job.Attempts)) + 1, Estimate: e, Why: why,
		Berth: cluster.Berth{Node: p.f.hosts[hi].node.ID, CPUMilli: it.cpu, MemMiB: it.mem},
	}, hi)
	return true
}

// place starts a job on cards of class c.
func (p *pass) place(it *item, c int, cards []int32) {
	n, k := &it.needs[c], &p.f.classes[c]
	first := &p.f.cards[cards[0]]
	st := cluster.Start{
		Job: it.job.ID, Attempt: uint32(len(it.job.Attempts)) + 1,
		Berth: cluster.Berth{Node: p.f.hosts[first.host].node.ID, CPUMilli: it.cpu, MemMiB: it.mem, GPUs: make([]cluster.GPUShare, 0, len(cards))},
		Why:   p.why(it, n, k, first, len(cards)),
	}
	_, st.Estimate, _ = rules.ShareOn(it.job, k.rep, p.pol)
	takes := 0
	for _, i := range cards {
		if p.f.cards[i].use.Shares == 0 {
			takes++
		}
		st.Berth.GPUs = append(st.Berth.GPUs, cluster.GPUShare{GPU: p.f.cards[i].use.ID, Share: n.Share(k.Sellable)})
		if st.Overtook == "" {
			st.Overtook = p.overtakes(it, c, i)
		}
	}
	slices.SortFunc(st.Berth.GPUs, func(a, b cluster.GPUShare) int { return cmp.Compare(a.GPU, b.GPU) })
	p.f.hosts[first.host].occupy(it.cpu, it.mem, takes)
	p.commit(it, &st, first.host)
	p.lines.settle(it, c, cards)
	p.crowd.settled(it.job, n.Milli, cards)
}

// commit takes the berth in the ledger. The indexes only hold what the ledger
// says, so that a refusal here is a fault of ours.
func (p *pass) commit(it *item, st *cluster.Start, host int32) {
	if r := p.f.led.Fits(&st.Berth); r.Code != "" {
		panic("scheduler: index and ledger disagree on job " + st.Job.String() + ": " + r.String())
	}
	p.f.led.Take(&st.Berth)
	it.gone = true
	p.countStart(it, st)
	p.fitter.frag.changed(host)
	p.plan.Starts = append(p.plan.Starts, *st)
	p.f.took(host, st.Berth.GPUs)
	p.plains.spared(host)
}

// why says in words why a job lies where it lies.
func (p *pass) why(it *item, n *rules.Need, k *class, c *card, cards int) string {
	b := make([]byte, 0, 96)
	switch {
	case n.Way == rules.WayWhole && cards > 1:
		b = strconv.AppendInt(b, int64(cards), 10)
		b = append(b, " whole "...)
		b = append(b, k.GPUType...)
		b = append(b, " on the node with the fewest free that are enough"...)
	case n.Way == rules.WayWhole:
		b = append(b, "alone on "...)
		b = append(b, k.GPUType...)
		b = append(b, ", on the node with the fewest free"...)
	default:
		b = append(b, "first "...)
		b = append(b, k.GPUType...)
		b = append(b, " with "...)
		b = strconv.AppendInt(b, n.Mem, 10)
		b = append(b, " MiB and "...)
		b = append(b, say.Percent(n.Milli)...)
		b = append(b, " free, beside "...)
		b = append(b, say.Jobs(c.use.Shares)...)
	}
	b = append(b, "; "...)
	b = append(b, say.TimeWords(it.job, k.GPUType, n.Dur)...)
	if it.job.Spec.Objective != "" {
		e, _ := cluster.EstimateFor(it.job.Estimates, k.GPUType)
		b = append(b, "; of the types that are free the best for "...)
		b = append(b, it.job.Spec.Objective...)
		b = append(b, " ("...)
		b = append(b, p.pol.GoalWords(it.job, k.GPUType, &e, n, k.Sellable)...)
		b = append(b, ')')
	}
	return string(b)
}

// overtakes says whom the start of a job on a card passes in its queue, ""
// when nobody stands before it.
func (p *pass) overtakes(it *item, c int, i int32) string {
	k := &p.f.cards[i]
	for k.head < len(k.queue) {
		head := p.find(k.queue[k.head].Job)
		if head != nil && head == it {
			return ""
		}
		if head == nil || !head.gone {
			return p.overtook(it, head, c, k, k.queue[k.head])
		}
		k.head++
	}
	return ""
}

func (p *pass) overtook(it, head *item, c int, k *card, w cluster.Waiter) string {
	if head == nil {
		return "head j" + w.Job.String() + " is not old, and not looked at in this pass"
	}
	why := lacks(head.job, &head.needs[c], k, &p.f.hosts[k.host], p.pol)
	if why == "" && p.crowd != nil {
		at := p.f.cardAt[k.use.ID]
		if v := p.fitter.judge(head, &head.needs[c], at); v.Against() {
			why = v.Words(p.crowd.rules[at], p.pol.MaxSlowdownMilli)
		}
	}
	if why == "" {
		why = "would fit as well; the pass takes " + p.turns.before(it, head)
	}
	return "head j" + head.job.ID.String() + " " + why
}

// lacks says in numbers what a job misses on a card, "" when one card has it
// all.
func lacks(j *cluster.Job, n *rules.Need, k *card, h *host, pol Policy) string {
	cpu, mem := rules.HostOf(j, &pol)
	num := func(v int64) string { return strconv.FormatInt(max(0, v), 10) }
	switch {
	case n.Way == rules.WayNone:
		return "cannot run there any more"
	case n.Way == rules.WayWhole && k.use.Shares > 0:
		return "needs the GPU alone, " + say.Jobs(k.use.Shares) + " on it"
	case n.Way == rules.WayShare && n.Mem > k.use.FreeMiB():
		return "needs " + num(n.Mem) + " MiB, " + num(k.use.FreeMiB()) + " free"
	case n.Way == rules.WayShare && n.Milli > k.use.FreeMilli():
		return "needs " + say.Percent(n.Milli) + " of the GPU, " + say.Percent(k.use.FreeMilli()) + " free"
	case k.use.FreeShares() < 1:
		return "needs a place, " + say.Jobs(k.use.Shares) + " on the GPU"
	case h.use.UsedCPU+cpu > h.use.CPUMilli:
		return "needs " + say.Cores(cpu) + ", " + say.Cores(max(0, h.use.CPUMilli-h.use.UsedCPU)) + " free"
	case h.use.UsedMem+mem > h.use.MemMiB:
		return "needs " + num(mem) + " MiB of host memory, " + num(h.use.MemMiB-h.use.UsedMem) + " free"
	case j.Spec.GPUs > 1:
		return "needs " + say.GPUs(j.Spec.GPUs) + " of the node at once"
	}
	return ""
}
