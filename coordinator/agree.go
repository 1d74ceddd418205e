package coordinator

import (
	"context"
	"time"

	"github.com/berth-scheduler/berth/fsm"
)

// agreeEvery is how often members that did not answer are asked again.
const agreeEvery = time.Second

// agree raises the version of log entries to the highest that every coordinator
// has said it reads: one that does not would stop at the first. What is in the
// log once stays, since all have read it.
func (c *Coordinator) agree(ctx context.Context) error {
	for {
		if v := c.allRead(ctx); v > c.prop.Version() {
			c.prop.SetVersion(v)
		}
		if c.prop.Version() >= fsm.EntryVersion {
			return nil
		}
		if !sleep(ctx, agreeEvery) {
			return ctx.Err()
		}
	}
}

// allRead asks every coordinator which entries it reads, and returns the
// highest version that all do; 0 when one does not answer.
func (c *Coordinator) allRead(ctx context.Context) uint32 {
	members, least := c.raft.Members(), uint32(fsm.EntryVersion)
	if len(members) == 0 { // they could not be told
		return 0
	}
	for _, m := range members {
		r, err := c.ask(ctx, m)
		if err != nil {
			return 0
		}
		least = min(least, max(1, r.EntryVersion))
	}
	return least
}
