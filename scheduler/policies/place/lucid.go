package place

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// lucid lets two jobs share a GPU if their sharing classes add up to at most two.
// Source: Hu et al., "Lucid: A Non-intrusive, Scalable and Interpretable Scheduler
// for Deep Learning Training Jobs" (ASPLOS 2023), section 3.3: a job is tiny (0),
// medium (1) or jumbo (2); at most two per GPU, with the same number of GPUs and on
// the same ones; the newcomer may be predicted to take at most twice as long as the
// resident; and packing is indolent, only if no GPU is empty. Its own order is the
// shortest predicted GPU time.
//
// The paper learns the classes by a decision tree on utilization, memory and mixed
// precision; ours are two limits on utilization and one on memory, which give 38 of
// the 49 labels of the artefact. The snapshot's estimates stand in for its
// profiler, and sharing is not switched off when few jobs arrive. Jobs over several
// nodes do not share.
type lucid struct{}

// Limits of the classes, in thousandths.
const (
	tinyBelow   = 250
	jumboFrom   = 660
	jumboMemory = 500 // of the GPU
)

// lucidClass returns 0 for tiny, 1 for medium, 2 for jumbo.
func lucidClass(milli, mem, sellable int64) int {
	switch {
	case milli >= jumboFrom || sellable > 0 && mem*cluster.WholeGPU >= jumboMemory*sellable:
		return 2
	case milli < tinyBelow:
		return 0
	}
	return 1
}

func (lucid) Admits(p *scene.Scene, t *scene.Task, c *mirror.Card) bool {
	n := &t.Needs[p.Fleet.Groups[c.Group].Class]
	if len(c.On) != 1 || c.Use.Shares != 1 || n.Share.Exclusive || t.Spans() || p.Fleet.Runs[c.On[0].Run].Job.Spec.NodeCount() > 1 {
		return false
	}
	o := &c.On[0]
	r := &p.Fleet.Runs[o.Run]
	length := rules.DurationOf(r.Job, &r.Est, p.Pol)
	return r.Job.Spec.GPUs == t.GPUs && n.Dur <= 2*length &&
		lucidClass(n.Share.Milli, n.Share.MemMiB, c.Use.SellableMiB)+lucidClass(o.Share.Milli, o.Share.MemMiB, c.Use.SellableMiB) <= 2
}

func (lucid) Tag(*scene.Task) int64 { return 0 }

// Choose takes empty GPUs of the node with the fewest, and shares GPUs only if
// there are none.
func (l lucid) Choose(p *scene.Scene, t *scene.Task) []int32 {
	var best, shared []int32
	fewest := int(rules.Forever)
	for gi := range p.Fleet.Groups {
		if !p.MayHold(t, int32(gi)) {
			continue
		}
		g := &p.Fleet.Groups[gi]
		if g.Empty >= t.GPUs && g.Empty < fewest {
			cards := p.Pick(t, int32(gi), emptyFirst)
			if cards != nil && p.Fleet.Cards[cards[len(cards)-1]].Use.Shares == 0 {
				best, fewest = append([]int32(nil), cards...), g.Empty
			}
		}
		if best == nil && shared == nil {
			shared = l.beside(p, t, int32(gi))
		}
	}
	if best != nil {
		return best
	}
	return shared
}

func emptyFirst(a, b *mirror.Card) int { return rules.CompareBool(a.Use.Shares > 0, b.Use.Shares > 0) }

// beside returns all GPUs of one job of the group, if t fits on each.
func (lucid) beside(p *scene.Scene, t *scene.Task, gi int32) []int32 {
	for _, ci := range p.Fleet.Groups[gi].Cards {
		c := &p.Fleet.Cards[ci]
		if len(c.On) != 1 || !p.Fits(t, ci) {
			continue
		}
		var cards []int32
		for _, gs := range p.Fleet.Runs[c.On[0].Run].Berth.GPUs {
			if o, ok := p.Fleet.CardAt[gs.GPU]; ok && p.Fleet.Cards[o].Group == gi && p.Fits(t, o) {
				cards = append(cards, o)
			}
		}
		if len(cards) == t.GPUs {
			return cards
		}
	}
	return nil
}
