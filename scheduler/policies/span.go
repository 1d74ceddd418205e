package policies

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// A job over several nodes takes the same of each, of cards that are alike, on all
// at once or on none; one that wants nodes for itself takes all of them. Its
// nodes are those that the placement would give to as many jobs on one node
// each, one after the other and none twice. So every rule has its own way with
// gangs, and none has to know of them.

// spans tells of a task that it needs several nodes, or all of one.
func (t *task) spans() bool { return t.nodes > 1 || t.whole }

// gangs is the part of a pass that knows of jobs over several nodes.
type gangs struct {
	*pass
	spread  *spread       // of the task over several nodes that is being placed, or nil
	earlier cluster.JobID // for whom an earlier pass keeps some, 0 for nobody
}

// spread narrows what a placer may choose to the node that a task over several
// may take next.
type spread struct {
	family int32  // of the cards that it has so far, -1 for none
	failed []bool // families of which too few nodes have room
	named  int    // nodes that the job asks for by name and has not got yet
	late   bool   // nodes that held up an earlier attempt may be taken, too
	parts  []rules.Part
}

// takes reports whether a task may take cards of a class on a host next; the
// class is -1 where it needs no cards.
func (p *gangs) takes(t *task, hi, class int32) bool {
	s, h, family := p.spread, &p.f.hosts[hi], int32(-1)
	if class >= 0 {
		family = p.f.classes[class].family
	}
	if family >= 0 && (s.failed[family] || s.family >= 0 && s.family != family) ||
		slices.ContainsFunc(s.parts, func(o rules.Part) bool { return o.Host == hi }) || t.whole && !p.isEmpty(t, hi, class) {
		return false
	}
	asked := t.job.Spec.Where.Named() && t.job.Spec.Where.Nodes.Holds(h.node.ID)
	return asked || s.named == 0 && (s.late || !t.job.HeldUpBy(h.node.ID))
}

// isEmpty reports whether nobody is on a host, and nothing of it kept, so that t
// can have it with all cards of a class.
func (p *gangs) isEmpty(t *task, hi, class int32) bool {
	h := &p.f.hosts[hi]
	if h.use.UsedCPU > 0 || h.use.UsedMem > 0 || h.keptCPU > 0 {
		return false
	}
	for _, gi := range h.groups {
		for _, ci := range p.f.groups[gi].cards {
			if p.f.cards[ci].use.Shares > 0 || p.f.groups[gi].class == class && !p.hasRoom(t, ci) {
				return false
			}
		}
	}
	return true
}

// startSpan starts a task over several nodes if as many have room now.
func (p *gangs) startSpan(t *task) bool {
	if t.gpus == 0 && p.plainFailed(t) || t.gpus > 0 && (p.crowdedOut(t) || !p.worthTrying(t)) {
		return false
	}
	parts := p.chooseSpan(t)
	if p.cells != nil && slices.ContainsFunc(parts, func(x rules.Part) bool { return !p.cells.allowsAll(t, x.Cards) }) {
		parts = nil
	}
	switch {
	case parts != nil:
		p.placeSpan(t, parts)
		return true
	case t.gpus > 0:
		p.noteFailed(t)
	default:
		p.failed[t.plainShape()] = t.dur
	}
	return false
}

// chooseSpan returns the parts that t is to start on now, none when it has to
// wait. Nodes that held up an earlier attempt are taken where nothing else is.
func (p *gangs) chooseSpan(t *task) []rules.Part {
	s := &spread{failed: make([]bool, len(p.f.classes)), late: t.job.Undone() == 0}
	p.spread = s
	defer func() { p.spread = nil }()
	for {
		switch {
		case p.gather(t, s):
			return s.parts
		case s.family >= 0:
			s.failed[s.family] = true
		case !s.late:
			clear(s.failed)
			s.late = true
		default:
			return nil
		}
	}
}

// gather collects the parts of t on nodes that the placer chooses, of cards like
// those that it chooses first; false when they are too few.
func (p *gangs) gather(t *task, s *spread) bool {
	s.family, s.named, s.parts = -1, 0, nil
	if w := t.job.Spec.Where; w.Named() {
		s.named = w.Nodes.Len()
	}
	for len(s.parts) < t.nodes {
		x := rules.Part{Host: -1}
		if t.gpus == 0 {
			x.Host = p.plainHost(t)
		} else if cards := p.placer.choose(p.pass, t); len(cards) > 0 {
			gi := p.f.cards[cards[0]].group
			x.Host, s.family = p.f.groups[gi].host, p.f.classes[p.f.groups[gi].class].family
			x.Cards = p.partOf(t, gi, cards)
		}
		if x.Host < 0 {
			return false
		}
		s.parts = append(s.parts, x)
		s.named = max(0, s.named-1)
	}
	return true
}

// partOf is what t takes of a group of which the placer would give it cards: all
// of it where it wants the node for itself. Empty cards are alike to placers
// that have no rule for cards of one group, but to a gang they are not: it gets
// those that are nearest to each other.
func (p *gangs) partOf(t *task, gi int32, cards []int32) []int32 {
	if t.whole {
		return slices.Clone(p.f.groups[gi].cards)
	}
	if _, own := p.placer.(grouper); own || !p.plainly || t.gpus < 2 || !t.needs[p.f.groups[gi].class].share.Exclusive {
		return slices.Clone(cards)
	}
	return nearest(p.pass, t, gi)
}

// nearest takes cards of the smallest NUMA group of a node that holds t, else from
// the largest groups on: what scheduler does with gangs.
func nearest(p *pass, t *task, gi int32) []int32 {
	islands := consolidate{}.islands(p, t, gi)
	tight := -1
	for i := range islands {
		if n := len(islands[i].cards); n >= t.gpus && (tight < 0 || n < len(islands[tight].cards)) {
			tight = i
		}
	}
	if tight >= 0 {
		return islands[tight].cards[:t.gpus]
	}
	slices.SortStableFunc(islands, func(a, b island) int { return len(b.cards) - len(a.cards) })
	var out []int32
	for i := range islands {
		out = append(out, islands[i].cards...)
	}
	return out[:t.gpus]
}

// placeSpan starts t on the parts. Nodes have their ranks in the order of their
// ids.
func (p *gangs) placeSpan(t *task, parts []rules.Part) {
	slices.SortFunc(parts, func(a, b rules.Part) int { return int(a.Host - b.Host) })
	st := cluster.Start{Job: t.id, Attempt: uint32(len(t.job.Attempts)) + 1}
	dur, of := t.dur, ""
	if t.gpus == 0 {
		st.Estimate, _ = cluster.EstimateFor(t.job.Estimates, cluster.CPUType)
	} else {
		class := p.f.groups[p.f.cards[parts[0].Cards[0]].group].class
		n := &t.needs[class]
		st.Estimate, dur = n.est, n.dur
		of = fmt.Sprintf(" with %d of %s each", len(parts[0].Cards), p.f.classes[class].gpuType)
	}
	st.Why = fmt.Sprintf("%s: %d nodes%s; predicted %s", p.label, len(parts), of, (time.Duration(dur) * time.Microsecond).Round(time.Second))
	for i := range parts {
		b := p.berthOn(t, &parts[i])
		for _, g := range b.GPUs {
			if st.Overtook == "" {
				st.Overtook = p.overtakes(t, g.GPU)
			}
		}
		if i == 0 {
			st.Berth = b
		} else {
			st.Rest = append(st.Rest, b)
		}
	}
	if s, ok := p.placer.(*schedTune); ok {
		s.spanned(p.pass, t, parts)
	}
	p.commit(t, st, dur)
}

// berthOn is what t holds of a node.
func (p *gangs) berthOn(t *task, x *rules.Part) cluster.Berth {
	h := &p.f.hosts[x.Host]
	b := cluster.Berth{Node: h.node.ID, CPUMilli: t.coresOn(h), MemMiB: t.mem}
	for _, ci := range x.Cards {
		share := t.needs[p.f.groups[p.f.cards[ci].group].class].share
		b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: p.f.cards[ci].use.ID, Share: share})
	}
	slices.SortFunc(b.GPUs, func(x, y cluster.GPUShare) int { return cmp.Compare(x.GPU, y.GPU) })
	return b
}

// coresOn is how many cores of a host t takes.
func (t *task) coresOn(h *host) int64 {
	if t.whole {
		return h.use.CPUMilli
	}
	return t.cpu
}

// siblings are the runs of the attempt that a run is part of.
func (p *gangs) siblings(ri int32) (lo, hi int32) {
	lo = ri - p.runs[ri].part
	return lo, lo + max(1, p.runs[ri].parts)
}

// held are the cards of the attempt that a run is part of, on all of its nodes.
func (p *gangs) held(ri int32) []cluster.GPUShare {
	lo, hi := p.siblings(ri)
	if hi-lo == 1 {
		return p.runs[ri].berth.GPUs
	}
	var out []cluster.GPUShare
	for ; lo < hi; lo++ {
		out = append(out, p.runs[lo].berth.GPUs...)
	}
	return out
}

// placed is an option for a task over several nodes: the best parts of cards that
// are alike, and the groups that they are of.
type placed struct {
	parts  []rules.Part
	groups map[int32]int32 // by host; none for a task without GPUs
}

// eachFamily asks what t would take of each host that could hold it, a group of
// cards of one family at a time or, for a task that needs no cards, the hosts
// themselves; part may say no. It yields for each family the best parts, where
// they are enough.
func (p *gangs) eachFamily(t *task, part func(at int32) (rules.Part, bool), yield func(placed)) {
	take := func(x placed) {
		for i := range x.parts {
			x.parts[i] = rules.NewPart(t.job, p.f.hosts[x.parts[i].Host].node.ID, x.parts[i])
		}
		if best, ok := rules.BestParts(t.job, x.parts); ok {
			yield(placed{best, x.groups})
		}
	}
	if t.gpus == 0 {
		x := placed{}
		for hi := range p.f.hosts {
			if part, ok := part(int32(hi)); ok && p.f.hosts[hi].large(t) {
				part.Host = int32(hi)
				x.parts = append(x.parts, part)
			}
		}
		take(x)
		return
	}
	for c := range p.f.classes {
		if p.f.classes[c].family == int32(c) {
			take(p.ofFamily(t, int32(c), part))
		}
	}
}

// ofFamily is the parts of t on all groups of a family, the better of a host that
// has two.
func (p *gangs) ofFamily(t *task, family int32, part func(gi int32) (rules.Part, bool)) placed {
	x := placed{groups: map[int32]int32{}}
	for gi := range p.f.groups {
		g := &p.f.groups[gi]
		if p.f.classes[g.class].family != family || !p.couldHold(t, int32(gi)) {
			continue
		}
		one, ok := part(int32(gi))
		if !ok {
			continue
		}
		one.Host = g.host
		if n := len(x.parts); n == 0 || x.parts[n-1].Host != g.host {
			x.parts = append(x.parts, one)
		} else if one.Order < x.parts[n-1].Order {
			x.parts[n-1] = one
		} else {
			continue
		}
		x.groups[g.host] = int32(gi)
	}
	return x
}

// everSpans reports whether as many nodes in service as t needs could hold it,
// were they empty, and which: the first of the first family of cards.
func (p *gangs) everSpans(t *task) (first placed, ok bool) {
	any := func(int32) (rules.Part, bool) { return rules.Part{}, true }
	p.eachFamily(t, any, func(x placed) {
		if !ok {
			first, ok = x, true
		}
	})
	return first, ok
}

// emptySpan closes the first nodes that could hold t.
func (p *gangs) emptySpan(t *task) {
	if first, ok := p.everSpans(t); ok {
		p.keepParts(t, &first, p.now)
	}
}

// holdSpan keeps the nodes on which t could start soonest, by when the last of
// them is clear; until then they take who is gone by then.
func (p *gangs) holdSpan(t *task) {
	var best placed
	at := int64(forever)
	p.eachFamily(t, func(at int32) (rules.Part, bool) {
		if t.gpus == 0 {
			when, ok := p.clearsPlain(t, &p.f.hosts[at])
			return rules.Part{Order: p.f.hosts[at].afterKept(when, t.dur)}, ok
		}
		when, on := p.clears(t, at, forever)
		when = p.f.hosts[p.f.groups[at].host].afterKept(when, t.needs[p.f.groups[at].class].dur)
		return rules.Part{Order: when, Cards: slices.Clone(on)}, on != nil
	}, func(x placed) {
		if last := rules.LastOrder(x.parts); last < at {
			best, at = x, last
		}
	})
	p.keepParts(t, &best, at)
}

// keepParts keeps what t needs of the parts' nodes until a time: the cards that
// they name, else all of their groups.
func (p *gangs) keepParts(t *task, x *placed, until int64) {
	for i := range x.parts {
		hi, cards := x.parts[i].Host, x.parts[i].Cards
		if gi, ok := x.groups[hi]; ok && (cards == nil || t.whole) {
			cards = p.f.groups[gi].cards
		}
		p.keepCards(cards, until)
		p.keepHost(t, hi, until)
	}
}
