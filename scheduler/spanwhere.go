package scheduler

import (
	"iter"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// spanGroups are the nodes with cards like those of class c on which a job may
// lie, wherever they are, each once.
func (ft *fitter) spanGroups(it *item, c int) iter.Seq2[*class, *group] {
	return func(yield func(*class, *group) bool) {
		lo, hi := ft.f.family(c)
		var seen map[int32]struct{}
		if hi-lo > 1 {
			seen = map[int32]struct{}{}
		}
		for o := lo; o < hi; o++ {
			k := &ft.f.classes[o]
			for i := range k.groups {
				g := &k.groups[i]
				if it.needs[o].Way == rules.WayNone || it.bounds.single && !it.job.Spec.Allows(ft.f.hosts[g.host].node) {
					continue
				}
				if _, twice := seen[g.host]; twice {
					continue
				}
				if seen != nil && int(g.hi-g.lo) >= it.gpus {
					seen[g.host] = struct{}{}
				}
				if !yield(k, g) {
					return
				}
			}
		}
	}
}

// leads tells of a class that it is the first of its family on which the job
// may lie, so that each family is looked at once.
func (ft *fitter) leads(it *item, c int) bool {
	lo, _ := ft.f.family(c)
	for ; lo < c; lo++ {
		if it.needs[lo].Way != rules.WayNone {
			return false
		}
	}
	return it.needs[c].Way != rules.WayNone
}

// partCards are the cards that a job would take of a node now, none when it has
// not enough. A job that wants whole nodes takes them all, of one that is empty.
func (ft *fitter) partCards(it *item, c int, k *class, g *group, want *room) []int32 {
	h := &ft.f.hosts[g.host]
	if it.whole {
		if !ft.f.isEmpty(h) || h.use.MemMiB < it.mem || h.use.CPUMilli < it.cpu || h.keptCPU > 0 || int(g.hi-g.lo) > cluster.MaxGPUsPerJob {
			return nil
		}
		for _, i := range k.cards[g.lo:g.hi] {
			if !ft.f.cards[i].open(want) {
				return nil
			}
		}
		return append([]int32(nil), k.cards[g.lo:g.hi]...)
	}
	if it.needs[c].Way == rules.WayWhole {
		return ft.takeEmpty(k, it, g, want, nil)
	}
	each := *want
	each.cpu, each.host = -1, -1 // of the node, which is asked itself
	return ft.spreadOn(it, int(ft.f.cards[k.cards[g.lo]].class), g, &each, nil)
}

// isEmpty reports whether nobody is on a node.
func (f *fleet) isEmpty(h *host) bool {
	if h.use.UsedCPU > 0 || h.use.UsedMem > 0 {
		return false
	}
	for i := h.lo; i < h.hi; i++ {
		if f.cards[i].use.Shares > 0 {
			return false
		}
	}
	return true
}

// coresOn is how many cores of a node a job takes, in thousandths.
func (kp *keeper) coresOn(it *item, h *host) int64 {
	if it.whole {
		return h.use.CPUMilli
	}
	return it.cpu
}

func (ft *fitter) partOn(it *item, host int32, cards []int32, order int64) rules.Part {
	return rules.NewPart(it.job, ft.f.hosts[host].node.ID, rules.Part{Host: host, Cards: cards, Order: order})
}
