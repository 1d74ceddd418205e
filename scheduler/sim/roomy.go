package sim

import "github.com/berth-scheduler/berth/cluster"

// roomy counts what nobodyFits needs to know: the cards of each node that take
// one more job, and how many jobs of each width wait.
type roomy struct {
	on     bool
	open   []int32 // by node
	widths []int32 // by number of cards, those beyond the last counted there
}

// maxWidth is the widest job that is told apart from wider ones.
const maxWidth = 64

func newRoomy(e *engine) roomy {
	p, ok := e.opt.Planner.(Starter)
	r := roomy{on: ok && p.StartsOnly() && !e.opt.NoZoom, open: make([]int32, len(e.nodes)), widths: make([]int32, maxWidth+1)}
	for i := range e.slots {
		r.open[e.slots[i].node]++
	}
	return r
}

// gave follows what is given away of a card.
func (r *roomy) gave(s *slot, was int64) {
	switch before, after := was < cluster.WholeGPU, s.alloc < cluster.WholeGPU; {
	case before && !after:
		r.open[s.node]--
	case after && !before:
		r.open[s.node]++
	}
}

// wait counts a job in or out of those who wait.
func (r *roomy) wait(j *Job, n int32) { r.widths[min(j.GPUs, maxWidth)] += n }

// nobodyFits tells that no job that waits can start, whatever the policy
// thinks of it: every job needs some of each of its cards, and no node has so
// many that are not given away as the narrowest of them asks for. The ledger
// would refuse every start, so that the plan of a policy that only starts
// would be empty.
func (e *engine) nobodyFits() bool {
	if !e.roomy.on {
		return false
	}
	least := int32(0)
	for int(least) <= maxWidth && e.roomy.widths[least] == 0 {
		least++
	}
	for _, n := range e.roomy.open {
		if n >= least {
			return false
		}
	}
	return true
}
