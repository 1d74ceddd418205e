package coordinator

import (
	"context"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// keepGiven has no card of n sell less than is given of it, where processes
// that nobody started through Berth hold what was sold: their memory is taken
// from what is still free, now and when shares end. It reports whether a card
// sells more than h says.
func (c *Coordinator) keepGiven(n *cluster.Node, h *nodev1.Hello) bool {
	whole := map[cluster.GPUID]int64{}
	for _, g := range h.Gpus {
		if g.StrayMib > 0 {
			whole[cluster.GPUID(g.Uuid)] = conv.WithoutStrays(g, c.cfg.HeadroomMiB)
		}
	}
	if len(whole) == 0 {
		return false
	}
	kept := false
	c.fsm.Read(func(st *fsm.State) {
		for i := range n.GPUs {
			g := &n.GPUs[i]
			u, ok := st.Ledger().GPU(g.ID)
			if !ok {
				continue
			}
			if given := min(u.UsedMiB, whole[g.ID]); given > g.SellableMiB {
				g.SellableMiB, kept = given, true
			}
		}
	})
	return kept
}

// again registers the node once more when its newest hello could not be taken
// as it was.
func (ss *session) again(ctx context.Context) error {
	switch {
	case ss.late != nil && ss.c.prop.version.Load() >= fsm.EntryVersion:
		return ss.register(ctx, ss.late)
	case ss.kept != nil:
		return ss.register(ctx, ss.kept)
	}
	return nil
}
