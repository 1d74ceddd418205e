package policies

import (
	"cmp"
	"math/bits"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/company"
)

// open is a placer that lets everybody lie beside everybody.
type open struct{}

func (open) admits(*pass, *task, *card) bool { return true }
func (open) tag(*task) int64                 { return 0 }

// firstFit takes the first cards that hold the job, in the order of nodes and
// ids, all of one type on one node. Source: Johnson, "Near-optimal bin packing
// algorithms", MIT 1973, chapter 2, with one dimension for each resource.
// With the order "size" it is first fit decreasing.
type firstFit struct{ open }

func (firstFit) choose(p *pass, t *task) []int32 {
	for gi := range p.f.groups {
		if p.mayHold(t, int32(gi)) {
			if cards := p.pick(t, int32(gi), nil); cards != nil {
				return cards
			}
		}
	}
	return nil
}

// bestFit takes the node on which least is left, summed over the resources as
// fractions of the most that any node has, and there the cards with the least left.
// Source: the baseline "BestFit" of Weng et al., "Beware of Fragmentation"
// (USENIX ATC 2023), section 6.1. Ours adds the memory of the cards.
type bestFit struct{ open }

func (bestFit) choose(p *pass, t *task) []int32 {
	var best []int32
	least := int64(forever)
	for gi := range p.f.groups {
		if !p.mayHold(t, int32(gi)) {
			continue
		}
		g := &p.f.groups[gi]
		h, need := &p.f.hosts[g.host], &t.needs[g.class].share
		taken := int64(t.gpus) * (need.Milli + need.MemMiB*whole/max(1, p.f.classes[g.class].sellable))
		left := p.leftOn(t, h, p.idleGPUs(h)-taken)
		if left >= least {
			continue
		}
		if cards := p.pick(t, int32(gi), p.fuller); cards != nil {
			best, least = p.keep(cards), left
		}
	}
	return best
}

// fuller orders cards by what they have left: the sum of the fractions of
// memory and compute.
func (p *pass) fuller(a, b *card) int { return cmp.Compare(leftOf(a), leftOf(b)) }

func leftOf(c *card) int64 {
	return c.use.FreeMilli() + c.use.FreeMiB()*whole/max(1, c.use.SellableMiB)
}

// plain takes the node with the least left of everything.
func (bestFit) plain(p *pass, t *task, hi int32) int64 {
	h := &p.f.hosts[hi]
	return p.leftOn(t, h, p.idleGPUs(h))
}

// leftOn is what a node would have left of its cards, cores and memory with t
// on it, each as thousandths of the most that any node has, summed.
func (p *pass) leftOn(t *task, h *host, cards int64) int64 {
	return cards/max(1, 2*p.f.mostGPUs) + (h.use.CPUMilli-h.use.UsedCPU-t.cpu)*whole/max(1, p.f.mostCPU) +
		(h.use.MemMiB-h.use.UsedMem-t.mem)*whole/max(1, p.f.mostMem)
}

// byChance takes one of the nodes that hold the job, each with the same
// chance, and cards of it likewise. Each place draws a number from the seed,
// the job and its own name, and the least wins (rendezvous hashing; Thaler
// and Ravishankar, IEEE/ACM ToN 1998), so that the choice does not depend on
// the order in which places are looked at. It is the baseline "Random" of
// Weng et al. (ATC 2023), section 6.1.
type byChance struct{ seed uint64 }

func (byChance) admits(*pass, *task, *card) bool { return true }
func (byChance) tag(*task) int64                 { return 0 }

func (r byChance) choose(p *pass, t *task) []int32 {
	var best []int32
	least := uint64(0)
	for gi := range p.f.groups {
		if !p.mayHold(t, int32(gi)) {
			continue
		}
		g := &p.f.groups[gi]
		lot := r.draw(t, string(p.f.hosts[g.host].node.ID), p.f.classes[g.class].gpuType)
		if best != nil && lot >= least {
			continue
		}
		cards := p.pick(t, int32(gi), func(a, b *card) int {
			return cmp.Compare(r.draw(t, string(a.use.ID), ""), r.draw(t, string(b.use.ID), ""))
		})
		if cards != nil {
			best, least = p.keep(cards), lot
		}
	}
	return best
}

// plain draws among the nodes.
func (r byChance) plain(p *pass, t *task, hi int32) int64 {
	return int64(r.draw(t, string(p.f.hosts[hi].node.ID)) >> 1)
}

// draw is FNV-1a of the names, mixed with the seed and the job by the
// finalizer of MurmurHash3.
func (r byChance) draw(t *task, names ...string) uint64 {
	h := uint64(14695981039346656037)
	for _, s := range names {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211
	}
	h ^= bits.RotateLeft64(r.seed*0x9e3779b97f4a7c15, 31) + uint64(t.id)*0xbf58476d1ce4e5b9
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// plainer is a placer with a rule of its own for jobs that need no GPU: the
// host with the least number that it gives is taken, of equals the first.
type plainer interface {
	plain(p *pass, t *task, hi int32) int64
}

// startPlain places a job that needs no GPU on the host that plainHost takes.
func (p *pass) startPlain(t *task) bool {
	if p.gangs.plainFailed(t) {
		return false
	}
	hi := p.gangs.plainHost(t)
	if hi < 0 {
		p.failed[t.plainShape()] = t.dur
		return false
	}
	e, _ := cluster.EstimateFor(t.job.Estimates, cluster.CPUType)
	p.commit(t, cluster.Start{
		Job: t.id, Attempt: uint32(len(t.job.Attempts)) + 1, Estimate: e, Why: p.label + ": a node with room, those without GPUs first",
		Berth: cluster.Berth{Node: p.f.hosts[hi].node.ID, CPUMilli: t.cpu, MemMiB: t.mem},
	}, t.dur)
	return true
}

// plainShape is what the choice for a job without GPUs depends on.
func (t *task) plainShape() shape {
	return shape{class: -1, cpu: t.cpu, host: t.mem, node: t.job.Spec.Node, nodes: int16(t.nodes), whole: t.whole}
}

func (p *gangs) plainFailed(t *task) bool {
	dur, ok := p.failed[t.plainShape()]
	return ok && t.dur >= dur
}

// plainHost chooses the host for a job that needs no GPU, -1 where none has room:
// one without GPUs, else by the placer's rule, else the one whose GPUs have least
// left, so that cores are not taken from GPUs that could be used.
func (p *gangs) plainHost(t *task) int32 {
	rule, ruled := p.placer.(plainer)
	end := p.now + t.dur
	best, least := int32(-1), int64(forever)
	for hi := range p.f.hosts {
		h := &p.f.hosts[hi]
		if t.cpu > h.freeCPU(end) || t.mem > h.freeMem(end) || t.job.Spec.Node != "" && t.job.Spec.Node != h.node.ID ||
			p.spread != nil && !p.takes(t, int32(hi), -1) {
			continue
		}
		cost := int64(0)
		switch {
		case len(h.node.GPUs) == 0:
			cost = -forever
		case ruled:
			cost = rule.plain(p.pass, t, int32(hi))
		default:
			cost = p.idleGPUs(h)
		}
		if cost < least {
			best, least = int32(hi), cost
		}
	}
	return best
}

// idleGPUs is what the cards of a host have left, see leftOf.
func (p *pass) idleGPUs(h *host) int64 {
	sum := int64(0)
	for _, gi := range h.groups {
		for _, ci := range p.f.groups[gi].cards {
			sum += leftOf(&p.f.cards[ci])
		}
	}
	return sum
}

// mateOf is a job on a card, for what was learned of sharing.
func mateOf(j *cluster.Job, milli int64) company.Mate {
	return company.Mate{Job: j.ID, Signature: j.Spec.Signature, Owner: &j.Owner, Milli: milli}
}

// bears asks the scheduler's own rule whether t may lie on a card beside those
// on it: their owners share it, and nobody is predicted to be slowed down beyond the limit. It binds every
// placement, beside its own rules.
func (p *pass) bears(t *task, c *card) bool {
	if len(c.on) == 0 || c.gpu.Scope == cluster.ScopeAnyone && (p.snap.Interference == nil || p.opt.Base.MaxSlowdownMilli <= 0) {
		return true
	}
	on := make([]company.Mate, 0, 8)
	for _, o := range c.on {
		on = append(on, mateOf(p.runs[o.run].job, o.share.Milli))
	}
	share := t.needs[p.f.groups[c.group].class].share
	return company.Bears(p.snap.Interference, c.gpu, on, mateOf(t.job, share.Milli), &p.opt.Base)
}

// temper is what was learned of a job, by which its kind is told from others of
// the same needs.
func (p *pass) temper(j *cluster.Job) cluster.Temper {
	if p.snap.Interference == nil {
		return cluster.Temper{}
	}
	return p.snap.Interference.Jobs[j.Spec.Signature]
}

// bearsAll is bears for one who would join a group on cards like gpu.
func (p *pass) bearsAll(gpu *cluster.GPU, group []member, one *member) bool {
	if gpu.Scope == cluster.ScopeAnyone && (p.snap.Interference == nil || p.opt.Base.MaxSlowdownMilli <= 0) {
		return true
	}
	on := make([]company.Mate, len(group))
	for i := range group {
		on[i] = mateOf(group[i].job, group[i].share.Milli)
	}
	return company.Bears(p.snap.Interference, gpu, on, mateOf(one.job, one.share.Milli), &p.opt.Base)
}
