package policies

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
)

// placed is an option for a task over several nodes: the best parts of cards that
// are alike, and the groups that they are of.
type placed struct {
	parts  []scheduler.Part
	groups map[int32]int32 // by host; none for a task without GPUs
}

// eachFamily asks what t would take of each host that could hold it, a group of
// cards of one family at a time or, for a task that needs no cards, the hosts
// themselves; part may say no. It yields for each family the best parts, where
// they are enough.
func (p *pass) eachFamily(t *task, part func(at int32) (scheduler.Part, bool), yield func(placed)) {
	take := func(x placed) {
		for i := range x.parts {
			x.parts[i] = scheduler.NewPart(t.job, p.f.hosts[x.parts[i].Host].node.ID, x.parts[i])
		}
		if best, ok := scheduler.BestParts(t.job, x.parts); ok {
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
func (p *pass) ofFamily(t *task, family int32, part func(gi int32) (scheduler.Part, bool)) placed {
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
func (p *pass) everSpans(t *task) (first placed, ok bool) {
	any := func(int32) (scheduler.Part, bool) { return scheduler.Part{}, true }
	p.eachFamily(t, any, func(x placed) {
		if !ok {
			first, ok = x, true
		}
	})
	return first, ok
}

// emptySpan closes the first nodes that could hold t.
func (p *pass) emptySpan(t *task) {
	if first, ok := p.everSpans(t); ok {
		p.keepParts(t, &first, p.now)
	}
}

// holdSpan keeps the nodes on which t could start soonest, by when the last of
// them is clear; until then they take who is gone by then.
func (p *pass) holdSpan(t *task) {
	var best placed
	at := int64(forever)
	p.eachFamily(t, func(at int32) (scheduler.Part, bool) {
		if t.gpus == 0 {
			when, ok := p.clearsPlain(t, &p.f.hosts[at])
			return scheduler.Part{Order: p.afterKept(at, when, t.dur)}, ok
		}
		when, on := p.clears(t, at, forever)
		when = p.afterKept(p.f.groups[at].host, when, t.needs[p.f.groups[at].class].dur)
		return scheduler.Part{Order: when, Cards: slices.Clone(on)}, on != nil
	}, func(x placed) {
		if last := scheduler.LastOrder(x.parts); last < at {
			best, at = x, last
		}
	})
	p.keepParts(t, &best, at)
}

// keepParts keeps what t needs of the parts' nodes until a time: the cards that
// they name, else all of their groups.
func (p *pass) keepParts(t *task, x *placed, until int64) {
	for i := range x.parts {
		hi, cards := x.parts[i].Host, x.parts[i].Cards
		if gi, ok := x.groups[hi]; ok && (cards == nil || t.whole) {
			cards = p.f.groups[gi].cards
		}
		p.keepCards(cards, until)
		p.keepHost(t, hi, until)
	}
}

// toll is whom a task over several nodes would displace on the nodes of parts.
type toll struct {
	placed
	runs []int32 // one of each attempt
	lost int64
}

// preemptSpan proposes to end those in the way of t on as many nodes as it needs,
// those with the fewest victims, then those that lose the least.
func (p *pass) preemptSpan(t *task) {
	var best *toll
	on := map[int32]*victims{} // by group
	p.eachFamily(t, func(gi int32) (scheduler.Part, bool) {
		v := p.victimsOn(t, gi)
		if v == nil {
			return scheduler.Part{}, false
		}
		on[gi] = v
		return scheduler.Part{Order: int64(len(v.runs))<<32 + v.lost>>20}, true // about a second
	}, func(x placed) {
		if o := p.tollOf(x, on); best == nil || cmp.Or(cmp.Compare(len(o.runs), len(best.runs)), cmp.Compare(o.lost, best.lost)) < 0 {
			best = o
		}
	})
	if best == nil || len(p.plan.Preempt)+len(best.runs) > p.opt.MaxPreempt {
		return
	}
	for _, ri := range best.runs {
		p.end(ri, t)
	}
	for i := range best.parts {
		p.claim(t, best.groups[best.parts[i].Host])
	}
}

func (p *pass) tollOf(x placed, on map[int32]*victims) *toll {
	o := &toll{placed: x}
	seen := map[cluster.JobID]bool{}
	for i := range o.parts {
		v := on[o.groups[o.parts[i].Host]]
		for _, ri := range v.runs {
			if id := p.runs[ri].job.ID; !seen[id] {
				seen[id] = true
				o.runs = append(o.runs, ri)
				o.lost += p.lossOf(ri)
			}
		}
	}
	return o
}

// lossOf is what the preemption of a run's attempt costs, in GPU time.
func (p *pass) lossOf(ri int32) int64 {
	s := p.runs[ri].job.Spec
	n := s.GPUs * s.NodeCount()
	return preemptCost(n) * int64(max(1, n))
}

// end proposes to end the attempt that a run is part of for t, and takes it out
// of the mirror, on all of its nodes.
func (p *pass) end(ri int32, t *task) {
	r := &p.runs[ri]
	p.plan.Preempt = append(p.plan.Preempt, cluster.Preemption{
		Job: r.job.ID, Attempt: r.job.Live().No, For: t.id, Why: p.label + ": that one goes first",
	})
	for lo, hi := p.siblings(ri); lo < hi; lo++ {
		p.remove(lo)
	}
}

// spanReason says how many nodes have room for a task over several: of the class
// of which most have.
func (p *pass) spanReason(t *task) cluster.Reason {
	if len(p.plan.Unplaced) >= p.opt.Base.MaxReasons {
		return cluster.Reason{Code: cluster.ReasonNodes} // words cost more than the pass
	}
	most, what := 0, "cores and host memory free"
	for hi := range p.f.hosts {
		if when, ok := p.clearsPlain(t, &p.f.hosts[hi]); t.gpus == 0 && ok && when == p.now {
			most++
		}
	}
	for c := range t.needs {
		if !t.needs[c].ok || p.f.classes[c].family != int32(c) {
			continue
		}
		x := p.ofFamily(t, int32(c), func(gi int32) (scheduler.Part, bool) {
			defer p.remember(gi)()
			return scheduler.Part{}, p.roomOn(t, gi)
		})
		if n := len(x.parts); n > most || most == 0 {
			most, what = n, fmt.Sprintf("room for %d of %s", t.gpus, p.f.classes[c].gpuType)
		}
	}
	switch {
	case most >= t.nodes && p.before(t) != 0:
		return cluster.Reason{Code: cluster.ReasonQueueOrder, Detail: fmt.Sprintf("%s with room, but job %d is before it and waits for room", nodesText(most), p.before(t))}
	case most >= t.nodes && t.job.Spec.Where.Named():
		what += ", not all that it asks for by name"
	}
	if t.whole {
		what += " and nobody there"
	}
	return cluster.Reason{Code: cluster.ReasonNodes, Detail: fmt.Sprintf("%s with %s, needs %d at once", nodesText(most), what, t.nodes)}
}

func nodesText(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}
