package coordinator

import (
	"context"
	"fmt"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/fsm"
)

// agree raises the version of log entries to the highest that every coordinator has
// said it reads: one that does not would stop at the first such entry. What is
// already in the log stays, since all have read it. Coordinators that did not
// answer are asked again and again.
func (c *Coordinator) agree(ctx context.Context) error {
	for {
		v, behind := c.allRead(ctx)
		c.prop.SetVersion(max(v, c.prop.Version()), behind)
		if c.prop.Version() >= fsm.EntryVersion {
			return nil
		}
		if !wait.Sleep(ctx, c.cfg.Waits.Agree) {
			return ctx.Err()
		}
	}
}

// allRead asks every coordinator which entries it reads, and returns the highest
// version that all do, 0 if one does not answer, and which keep it from being
// higher: an older one does until it is upgraded, and one that does not answer may
// be about to start.
func (c *Coordinator) allRead(ctx context.Context) (least uint32, behind *cluster.Error) {
	members := c.raft.Members()
	if len(members) == 0 { // there are no others to ask
		return 0, nil
	}
	least = fsm.EntryVersion
	var silent, old []string
	for _, m := range members {
		r, err := c.members.Ask(ctx, m)
		if err != nil {
			silent = append(silent, m.ID)
			continue
		}
		v := max(1, r.EntryVersion)
		if v < fsm.EntryVersion {
			old = append(old, fmt.Sprintf("coordinator %s (berth %s) reads those up to %d", m.ID, r.Version, v))
		}
		least = min(least, v)
	}
	code := cluster.CodeConflict
	if len(old) == 0 {
		code = cluster.CodeUnavailable
	}
	if len(silent) > 0 {
		least = 0
		old = append(old, "coordinator "+strings.Join(silent, ", ")+" does not answer")
	}
	if len(old) == 0 {
		return least, nil
	}
	return least, &cluster.Error{Code: code, Msg: strings.Join(old, ", ")}
}
