package place

import (
	"cmp"
	"math/bits"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// firstFit takes the first GPUs that hold the job, in the order of nodes and ids,
// all of one type on one node. Source: Johnson, "Near-optimal bin packing
// algorithms", MIT 1973, chapter 2, with one dimension for each resource. With the
// order "size" it is first fit decreasing.
type firstFit struct{ open }

func (firstFit) Choose(p *scene.Scene, t *scene.Task) []int32 {
	for gi := range p.Fleet.Groups {
		if p.MayHold(t, int32(gi)) {
			if cards := p.Pick(t, int32(gi), nil); cards != nil {
				return cards
			}
		}
	}
	return nil
}

// bestFit takes the node on which least is left, summed over the resources as
// fractions of the most that any node has, and there the GPUs with the least left.
// Source: the baseline "BestFit" of Weng et al., "Beware of Fragmentation" (USENIX
// ATC 2023), section 6.1. Ours adds GPU memory.
type bestFit struct{ open }

func (bestFit) Choose(p *scene.Scene, t *scene.Task) []int32 {
	var best []int32
	least := int64(rules.Forever)
	for gi := range p.Fleet.Groups {
		if !p.MayHold(t, int32(gi)) {
			continue
		}
		g := &p.Fleet.Groups[gi]
		h, need := &p.Fleet.Hosts[g.Host], &t.Needs[g.Class].Share
		taken := int64(t.GPUs) * (need.Milli + need.MemMiB*cluster.WholeGPU/max(1, p.Fleet.Classes[g.Class].Sellable))
		left := p.LeftOn(t, h, p.IdleGPUs(h)-taken)
		if left >= least {
			continue
		}
		if cards := p.Pick(t, int32(gi), p.Fuller); cards != nil {
			best, least = p.Keep(cards), left
		}
	}
	return best
}

// Plain takes the node with the least left of everything.
func (bestFit) Plain(p *scene.Scene, t *scene.Task, hi int32) int64 {
	h := &p.Fleet.Hosts[hi]
	return p.LeftOn(t, h, p.IdleGPUs(h))
}

// byChance takes one of the nodes that hold the job, each with the same
// probability, and GPUs of it likewise. Each place draws a number from the seed,
// the job and its own name, and the lowest wins (rendezvous hashing; Thaler and
// Ravishankar, IEEE/ACM ToN 1998), so the choice does not depend on the order in
// which places are tried. It is the baseline "Random" of Weng et al. (ATC 2023),
// section 6.1.
type byChance struct{ seed uint64 }

func (byChance) Admits(*scene.Scene, *scene.Task, *mirror.Card) bool { return true }
func (byChance) Tag(*scene.Task) int64                               { return 0 }
func (r byChance) Choose(p *scene.Scene, t *scene.Task) []int32 {
	var best []int32
	least := uint64(0)
	for gi := range p.Fleet.Groups {
		if !p.MayHold(t, int32(gi)) {
			continue
		}
		g := &p.Fleet.Groups[gi]
		lot := r.draw(t, string(p.Fleet.Hosts[g.Host].Node.ID), p.Fleet.Classes[g.Class].GPUType)
		if best != nil && lot >= least {
			continue
		}
		cards := p.Pick(t, int32(gi), func(a, b *mirror.Card) int {
			return cmp.Compare(r.draw(t, string(a.Use.ID), ""), r.draw(t, string(b.Use.ID), ""))
		})
		if cards != nil {
			best, least = p.Keep(cards), lot
		}
	}
	return best
}

// Plain draws among the nodes.
func (r byChance) Plain(p *scene.Scene, t *scene.Task, hi int32) int64 {
	return int64(r.draw(t, string(p.Fleet.Hosts[hi].Node.ID)) >> 1)
}

// draw returns FNV-1a of the names, mixed with the seed and the job by the
// finalizer of MurmurHash3.
func (r byChance) draw(t *scene.Task, names ...string) uint64 {
	h := uint64(14695981039346656037)
	for _, s := range names {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211
	}
	h ^= bits.RotateLeft64(r.seed*0x9e3779b97f4a7c15, 31) + uint64(t.ID)*0xbf58476d1ce4e5b9
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
