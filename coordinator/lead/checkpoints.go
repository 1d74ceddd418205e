package lead

import (
	"context"
	"time"

	"github.com/berth-scheduler/berth/cluster/wait"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// checkpoints commits the leader's state hash each time it was computed, so that
// every replica compares its own.
func (l *Leader) checkpoints(ctx context.Context) error {
	last, _ := l.fsm.LastCheckpoint()
	for {
		if err := l.fsm.WaitChange(ctx, l.fsm.Index()); err != nil {
			return err
		}
		index, hash := l.fsm.LastCheckpoint()
		if index == last {
			if !wait.Sleep(ctx, 100*time.Millisecond) {
				return ctx.Err()
			}
			continue
		}
		last = index
		_, err := l.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_Checkpoint{Checkpoint: &logv1.Checkpoint{Index: index, Hash: hash}}})
		if err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "checkpoint not committed", "index", index, "err", err)
		}
	}
}
