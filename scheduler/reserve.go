package scheduler

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// resident is a share of a card and when it ends at the latest.
type resident struct {
	end   int64
	share cluster.Share
}

// newcomer is a share that this pass gave away.
type newcomer struct {
	card int32
	load int64
	resident
}

func (p *pass) needResidents() {
	if p.residents != nil {
		return
	}
	p.residents = make([][]resident, len(p.f.cards))
	for _, j := range p.running {
		a := j.Live()
		if a == nil {
			continue
		}
		_, latest := rules.EndsAt(j, a, p.now, &p.pol)
		for _, gs := range a.HeldGPUs() {
			if i, ok := p.f.cardAt[gs.GPU]; ok {
				p.residents[i] = append(p.residents[i], resident{latest, gs.Share})
			}
		}
	}
	for _, s := range p.started {
		p.residents[s.card] = append(p.residents[s.card], s.resident)
	}
}

// cardsAKeep is for how many cards of the fleet one job that is not old has
// cards kept for it.
const cardsAKeep = 64

// reserve keeps cards for a job that did not start: for each that is old, and
// for the first in the pass that do not fit, as EASY backfill does (Lifka,
// JSSPP 1995). Those are few: what is kept for one, others go without.
func (p *pass) reserve(it *item) {
	switch {
	case it.kept && !it.old: // by a promise
	case it.old:
		p.keep(it)
	case it.gpus > 0 && p.reserved <= len(p.f.cards)/cardsAKeep && p.now >= int64(it.job.Eligible.Add(p.pol.ReserveAge)) && p.keep(it):
		it.kept = true
		p.reserved++
	}
}

// keep keeps cards for a job until it starts: whoever comes later in this pass
// may lie on them only if it is predicted to end before the job could start
// there, and leaves it the cores and the memory of the node. This is EASY
// backfill for each queue: the job's start counts by the time limits of those
// before it, the others by prediction. It reports whether it kept any: one job
// for each queue is enough.
func (p *pass) keep(it *item) bool {
	if it.spans() {
		return p.keepSpan(it)
	}
	if it.gpus == 0 {
		p.keepNode(it)
		return true
	}
	if it.queue < 0 || p.f.cards[it.queue].kept || !p.queueHolds(it) {
		return false
	}
	cd := &p.f.cards[it.queue]
	cd.kept = true
	p.needResidents()
	cards, shadow := p.shadow(it, it.queue, int(cd.class))
	if it.old && p.now-int64(it.job.Eligible)-p.oldAge(it) >= p.pol.HoldAge.Microseconds() {
		// Predictions have misled us long enough: nobody passes any more.
		shadow = p.now
	}
	for _, i := range cards {
		p.f.cards[i].until = min(p.f.cards[i].until, shadow)
	}
	h := &p.f.hosts[cd.host]
	h.keptCPU += it.cpu
	h.keptMem += it.mem
	h.keptFor = cmp.Or(h.keptFor, it.job.ID)
	p.f.keeps(cd.host, cards)
	return true
}

// shadow returns the cards that a job waits for and when it could start
// there at the latest, if nobody new came.
func (p *pass) shadow(it *item, at int32, c int) ([]int32, int64) {
	k := &p.f.classes[c]
	g := &k.groups[p.f.cards[at].group]
	if it.gpus == 1 {
		return []int32{at}, p.clears(at, &it.needs[c])
	}
	all := p.clearsOn(k, g, &it.needs[c])
	n := min(it.gpus, len(all))
	cards := make([]int32, 0, n)
	for _, c := range all[:n] {
		cards = append(cards, c.card)
	}
	return cards, all[n-1].at
}

// freeing tells when a card has room.
type freeing struct {
	card int32
	at   int64
}

// clearsOn lists the cards of a group by when they have room for a need. For
// whole cards it does not depend on who asks, and is kept until the next start.
func (p *pass) clearsOn(k *class, g *group, n *rules.Need) []freeing {
	if n.Way == rules.WayWhole && g.clears != nil {
		return g.clears
	}
	all := make([]freeing, 0, g.hi-g.lo)
	for _, i := range k.cards[g.lo:g.hi] {
		all = append(all, freeing{i, p.clears(i, n)})
	}
	slices.SortFunc(all, func(a, b freeing) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.card, b.card)) })
	if n.Way == rules.WayWhole {
		g.clears = all
	}
	return all
}

// clears is when so many of those on a card have ended that n fits.
func (p *pass) clears(i int32, n *rules.Need) int64 {
	use := p.f.cards[i].use
	rs := slices.Clone(p.residents[i])
	slices.SortFunc(rs, func(a, b resident) int { return cmp.Compare(a.end, b.end) })
	at := p.now
	for _, r := range rs {
		if n.Way == rules.WayShare && n.Mem <= use.FreeMiB() && n.Milli <= use.FreeMilli() && use.FreeShares() > 0 {
			return at
		}
		use.UsedMiB -= r.share.MemMiB
		use.UsedMilli -= r.share.Milli
		use.Shares--
		use.Exclusive = false
		at = r.end
	}
	return at
}

// keepNode keeps what is free of one node for the oldest job without GPUs
// that waited too long: the node that has most of what it needs, so that what
// is kept only grows from pass to pass.
func (p *pass) keepNode(it *item) {
	if p.keptPlain {
		return
	}
	best, most := int32(-1), int64(-1)
	for _, i := range p.f.order {
		h := &p.f.hosts[i]
		if h.use.CPUMilli < it.cpu || h.use.MemMiB < it.mem || it.node != "" && it.node != h.node.ID || p.refused(it, i) {
			continue
		}
		has := int64(1000)
		if it.cpu > 0 {
			has = min(has, max(0, h.freeCPU())*1000/it.cpu)
		}
		if it.mem > 0 {
			has = min(has, max(0, h.freeMem())*1000/it.mem)
		}
		if has > most {
			best, most = i, has
		}
	}
	if best < 0 {
		return
	}
	p.keptPlain = true
	p.f.hosts[best].keptCPU += it.cpu
	p.f.hosts[best].keptMem += it.mem
	p.f.refresh(best)
}
