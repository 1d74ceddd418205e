package coordinator

import (
	"context"
	"time"

	"github.com/berth-scheduler/berth/fsm"
)

// agreeEvery is how often members that did not answer are asked again.
const agreeEvery = time.Second

// agree raises the version of log entries once every coordinator has said that
// it reads it: one that does not would stop at the first. What is in the log
// once stays, since all have read it.
func (c *Coordinator) agree(ctx context.Context) error {
	for c.prop.version.Load() < fsm.EntryVersion {
		if c.allRead(ctx, fsm.EntryVersion) {
			c.prop.version.Store(fsm.EntryVersion)
			return nil
		}
		if !sleep(ctx, agreeEvery) {
			return ctx.Err()
		}
	}
	return nil
}

// allRead asks every coordinator which entries it reads.
func (c *Coordinator) allRead(ctx context.Context, version uint32) bool {
	members := c.raft.Members()
	for _, m := range members {
		r, err := c.ask(ctx, m)
		if err != nil || max(1, r.EntryVersion) < version {
			return false
		}
	}
	return len(members) > 0
}
