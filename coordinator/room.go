package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
	"github.com/berth-scheduler/berth/coordinator/space"
)

// yieldEvery is the time between two checks for a coordinator with more room.
const yieldEvery = time.Second

// yieldWhenFull hands over leadership while there is no room here for the log and
// another coordinator has some, until ctx ends.
func (c *Coordinator) yieldWhenFull(ctx context.Context) error {
	for {
		if c.space.State().Level == space.Full {
			if to, ok := c.roomiest(ctx); ok {
				c.log.WarnContext(ctx, "the disk is full; another coordinator is to lead", "to", to.ID)
				if err := c.raft.TransferTo(ctx, to); err != nil && !errors.Is(err, context.Canceled) {
					c.log.WarnContext(ctx, "leadership not handed over", "to", to.ID, "err", err)
				}
			}
		}
		if !wait.Sleep(ctx, yieldEvery) {
			return ctx.Err()
		}
	}
}

// roomiest returns the other voter with the most room, of those that report how
// much they have and are not full.
func (c *Coordinator) roomiest(ctx context.Context) (best raftnode.Server, found bool) {
	most := uint64(0)
	for _, m := range c.raft.Members() {
		if !m.Voter || m.ID == c.cfg.ID {
			continue
		}
		r, err := c.members.Ask(ctx, m)
		if err != nil || r.DiskSize == 0 || r.DiskFull || r.DiskFree <= most {
			continue
		}
		best, most, found = raftnode.Server{ID: m.ID, Addr: m.Addr}, r.DiskFree, true
	}
	return best, found
}
