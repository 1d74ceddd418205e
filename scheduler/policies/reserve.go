package policies

import (
	"cmp"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// hold keeps room for t if it is the first in the order that does not fit:
// EASY backfill (Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; Mu'alem
// and Feitelson, TPDS 2001). The cards on which it could start soonest, going
// by the time limits of those there, take until then only who is predicted to
// be gone. Since nothing that ends later is laid there, the start that is
// promised only comes nearer from pass to pass, if predictions hold.
func (p *pass) hold(t *task) {
	if p.head != nil || !p.everFits(t) {
		return
	}
	p.head = t
	switch old := p.opt.HoldAge > 0 && time.Duration(p.now-t.since)*time.Microsecond >= p.opt.HoldAge; {
	case old && t.spans():
		p.gangs.emptySpan(t)
	case t.spans():
		p.gangs.holdSpan(t)
	case old:
		p.empty(t)
	case t.gpus == 0:
		p.holdPlain(t)
	default:
		p.holdCards(t)
	}
}

// empty closes the first node that could hold t, whoever is there, so that it
// is the same one in the next pass.
func (p *pass) empty(t *task) {
	if t.gpus == 0 {
		hi := slices.IndexFunc(p.f.hosts, func(h host) bool { return h.large(t) })
		p.keepHost(t, int32(hi), p.now)
		return
	}
	for gi := range p.f.groups {
		if !p.couldHold(t, int32(gi)) {
			continue
		}
		p.gangs.keepCards(p.f.groups[gi].cards, p.now)
		p.keepHost(t, p.f.groups[gi].host, p.now)
		return
	}
}

func (p *pass) holdCards(t *task) {
	best, at := int32(-1), int64(forever)
	var cards []int32
	for gi := range p.f.groups {
		if !p.couldHold(t, int32(gi)) {
			continue
		}
		if when, on := p.clears(t, int32(gi), at); on != nil {
			if when = p.f.hosts[p.f.groups[gi].host].afterKept(when, t.needs[p.f.groups[gi].class].dur); when < at {
				best, at, cards = int32(gi), when, slices.Clone(on)
			}
		}
	}
	if best < 0 {
		return
	}
	p.gangs.keepCards(cards, at)
	p.keepHost(t, p.f.groups[best].host, at)
}

func (p *pass) keepHost(t *task, hi int32, until int64) {
	h := &p.f.hosts[hi]
	if h.foreign {
		h.keptCPU, h.keptMem, h.until = h.keptCPU+t.coresOn(h), h.keptMem+t.mem, min(h.until, until)
		return
	}
	h.keptCPU, h.keptMem, h.until = t.coresOn(h), t.mem, until
}

func (p *gangs) keepCards(cards []int32, until int64) {
	for _, ci := range cards {
		c := &p.f.cards[ci]
		if !p.f.hosts[p.f.groups[c.group].host].foreign || until < c.until {
			c.until = until
		}
	}
}

// everFits reports whether some node that takes jobs could hold t, were it
// empty; for a task over several nodes, whether as many could.
func (p *pass) everFits(t *task) bool {
	if t.spans() {
		_, ok := p.gangs.everSpans(t)
		return ok
	}
	if t.gpus == 0 {
		return slices.ContainsFunc(p.f.hosts, func(h host) bool { return h.large(t) })
	}
	for gi := range p.f.groups {
		if p.couldHold(t, int32(gi)) {
			return true
		}
	}
	return false
}

func (h *host) large(t *task) bool {
	return h.use.CPUMilli >= t.cpu && h.use.MemMiB >= t.mem && (t.job.Spec.Node == "" || t.job.Spec.Node == h.node.ID)
}

// couldHold is everFits for one group.
func (p *pass) couldHold(t *task, gi int32) bool {
	g := &p.f.groups[gi]
	return t.needs[g.class].ok && len(g.cards) >= t.gpus && p.f.hosts[g.host].large(t) && (!t.whole || len(g.cards) <= cluster.MaxGPUsPerJob)
}

// clears returns when so many of those on a group's host have ended that t
// fits, by their latest ends, and the cards it would get. It gives up at
// limit. The host's mirror is changed on the way and put back.
func (p *pass) clears(t *task, gi int32, limit int64) (int64, []int32) {
	runs := p.byLatest(&p.f.hosts[p.f.groups[gi].host])
	undo := p.remember(gi)
	defer undo()
	at := p.now
	for i := 0; ; i++ {
		if p.roomOn(t, gi) {
			return at, p.anyOf(t, gi)
		}
		if i == len(runs) || p.runs[runs[i]].latest >= limit {
			return forever, nil
		}
		p.lift(gi, runs[i])
		at = max(at, p.runs[runs[i]].latest)
	}
}

// lift takes a run off a group and its host in the mirror.
func (p *pass) lift(gi, ri int32) {
	r, h := &p.runs[ri], &p.f.hosts[p.f.groups[gi].host]
	h.use.UsedCPU -= r.berth.CPUMilli
	h.use.UsedMem -= r.berth.MemMiB
	for _, gs := range r.berth.GPUs {
		ci, ok := p.f.cardAt[gs.GPU]
		if !ok || p.f.cards[ci].group != gi {
			continue
		}
		c := &p.f.cards[ci]
		c.use.UsedMiB -= gs.Share.MemMiB
		c.use.UsedMilli -= gs.Share.Milli
		c.use.Shares--
		c.use.Exclusive = false
		c.on = slices.DeleteFunc(slices.Clone(c.on), func(o resident) bool { return o.run == ri })
	}
}

// byLatest returns the runs of a host, the first to end first.
func (p *pass) byLatest(h *host) []int32 {
	runs := slices.Clone(h.runs)
	slices.SortFunc(runs, func(a, b int32) int {
		return cmp.Or(cmp.Compare(p.runs[a].latest, p.runs[b].latest), cmp.Compare(p.runs[a].job.ID, p.runs[b].job.ID))
	})
	return runs
}

// holdPlain keeps cores and memory of the node that is free soonest.
func (p *pass) holdPlain(t *task) {
	best, at := int32(-1), int64(forever)
	for hi := range p.f.hosts {
		if h := &p.f.hosts[hi]; h.large(t) {
			if when, ok := p.gangs.clearsPlain(t, h); ok && h.afterKept(when, t.dur) < at {
				best, at = int32(hi), h.afterKept(when, t.dur)
			}
		}
	}
	if best >= 0 {
		p.keepHost(t, best, at)
	}
}

// clearsPlain is when a host has the cores and memory of t, by the latest ends
// of those there.
func (p *gangs) clearsPlain(t *task, h *host) (when int64, ok bool) {
	cpu, mem, when := h.use.CPUMilli-h.use.UsedCPU, h.use.MemMiB-h.use.UsedMem, p.now
	want := t.coresOn(h)
	for _, ri := range p.byLatest(h) {
		if cpu >= want && mem >= t.mem {
			break
		}
		r := &p.runs[ri]
		cpu, mem, when = cpu+r.berth.CPUMilli, mem+r.berth.MemMiB, max(when, r.latest)
	}
	return when, cpu >= want && mem >= t.mem
}

// Kept is what a pass keeps of a node for those who wait: who ends after Until
// must leave the cores and the memory free, and may not lie on the GPUs.
type Kept struct {
	Node             cluster.NodeID
	CPUMilli, MemMiB int64
	Until            cluster.Time
	GPUs             []cluster.GPUID
	For              cluster.JobID
}

// PlanBeside is Plan for some of those who wait, after passes for others: what
// these keep binds it, too. It returns what is kept then of the snapshot's nodes,
// in the order of their ids.
func (e *engine) PlanBeside(snap *cluster.Snapshot, kept []Kept) (cluster.Plan, []Kept) {
	p := newPass(snap, e)
	for i := range kept {
		p.gangs.honour(&kept[i])
	}
	plan := e.run(p)
	return plan, p.gangs.kept()
}

// honour keeps what an earlier pass does.
func (p *gangs) honour(k *Kept) {
	hi, ok := p.f.hostAt[k.Node]
	if !ok {
		return
	}
	h := &p.f.hosts[hi]
	h.keptCPU, h.keptMem, h.until, h.foreign = k.CPUMilli, k.MemMiB, int64(k.Until), true
	p.earlier = k.For
	for _, id := range k.GPUs {
		if ci, ok := p.f.cardAt[id]; ok {
			p.f.cards[ci].until = int64(k.Until)
		}
	}
}

// afterKept is when a place is a job's that is clear at when: not before the
// first who has it kept by an earlier pass, unless the job is gone by then.
func (h *host) afterKept(when, dur int64) int64 {
	if h.foreign && when < h.until && dur > h.until-when {
		return h.until
	}
	return when
}

// before is for whom places are kept where t waits, 0 for nobody.
func (p *gangs) before(t *task) cluster.JobID {
	if p.head != nil && p.head != t {
		return p.head.id
	}
	return p.earlier
}

// kept is what is kept at the end of the pass.
func (p *gangs) kept() (out []Kept) {
	for hi := range p.f.hosts {
		h := &p.f.hosts[hi]
		if h.until == forever {
			continue
		}
		k := Kept{Node: h.node.ID, CPUMilli: h.keptCPU, MemMiB: h.keptMem, Until: cluster.Time(h.until), For: p.earlier}
		if p.head != nil && !h.foreign {
			k.For = p.head.id
		}
		for _, gi := range h.groups {
			for _, ci := range p.f.groups[gi].cards {
				if c := &p.f.cards[ci]; c.until < forever {
					k.GPUs = append(k.GPUs, c.use.ID)
				}
			}
		}
		out = append(out, k)
	}
	return out
}
