package policies

import (
	"cmp"
	"math/bits"
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
