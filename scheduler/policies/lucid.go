package policies

// lucid lets two jobs share a card if their sharing classes add up to at most
// two. Source: Hu et al., "Lucid: A Non-intrusive, Scalable and Interpretable
// Scheduler for Deep Learning Training Jobs" (ASPLOS 2023), section 3.3: a job
// is tiny (0), medium (1) or jumbo (2); at most two to a card, of the same
// number of GPUs and on the same ones; the newcomer may be predicted to take at most twice
// as long as who is there; and packing is indolent, only when no card is
// empty. Its own order is the shortest predicted GPU time.
//
// The paper learns the classes by a decision tree on utilization, memory and
// mixed precision; ours are two limits on utilization and one on memory, which
// give 38 of the 49 labels of the artefact. Its profiler is whoever made the
// estimates, and sharing is not switched off when few jobs arrive. Jobs over
// several nodes share with nobody.
type lucid struct{}

// Limits of the classes, in thousandths.
const (
	tinyBelow   = 250
	jumboFrom   = 660
	jumboMemory = 500 // of the card
)

// lucidClass is 0 for tiny, 1 for medium, 2 for jumbo.
func lucidClass(milli, mem, sellable int64) int {
	switch {
	case milli >= jumboFrom || sellable > 0 && mem*whole >= jumboMemory*sellable:
		return 2
	case milli < tinyBelow:
		return 0
	}
	return 1
}

func (lucid) admits(p *pass, t *task, c *card) bool {
	n := &t.needs[p.f.groups[c.group].class]
	if len(c.on) != 1 || c.use.Shares != 1 || n.share.Exclusive || t.spans() || p.runs[c.on[0].run].job.Spec.NodeCount() > 1 {
		return false
	}
	o := &c.on[0]
	r := &p.runs[o.run]
	length := durationOf(r.job, &r.est, &p.opt.Base)
	return r.job.Spec.GPUs == t.gpus && n.dur <= 2*length &&
		lucidClass(n.share.Milli, n.share.MemMiB, c.use.SellableMiB)+lucidClass(o.share.Milli, o.share.MemMiB, c.use.SellableMiB) <= 2
}

func (lucid) tag(*task) int64 { return 0 }

// choose takes empty cards of the node with the fewest, and a place beside
// others only when there are none.
func (l lucid) choose(p *pass, t *task) []int32 {
	var best, shared []int32
	fewest := int(forever)
	for gi := range p.f.groups {
		if !p.mayHold(t, int32(gi)) {
			continue
		}
		g := &p.f.groups[gi]
		if g.empty >= t.gpus && g.empty < fewest {
			cards := p.pick(t, int32(gi), emptyFirst)
			if cards != nil && p.f.cards[cards[len(cards)-1]].use.Shares == 0 {
				best, fewest = append([]int32(nil), cards...), g.empty
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

func emptyFirst(a, b *card) int { return boolInt(a.use.Shares > 0) - boolInt(b.use.Shares > 0) }

// beside returns all cards of one job of the group, if t fits on each.
func (lucid) beside(p *pass, t *task, gi int32) []int32 {
	for _, ci := range p.f.groups[gi].cards {
		c := &p.f.cards[ci]
		if len(c.on) != 1 || !p.fits(t, ci) {
			continue
		}
		var cards []int32
		for _, gs := range p.runs[c.on[0].run].berth.GPUs {
			if o, ok := p.f.cardAt[gs.GPU]; ok && p.f.cards[o].group == gi && p.fits(t, o) {
				cards = append(cards, o)
			}
		}
		if len(cards) == t.gpus {
			return cards
		}
	}
	return nil
}
