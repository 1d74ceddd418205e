package agent

import (
	"context"
	"time"

	"github.com/berth-scheduler/berth/agent/attempt"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// pause waits for d; it reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// barrier holds back the start of an attempt on several nodes: it says that this
// node is ready, and waits for the word that all are. Saying so again, after a
// restart, changes nothing. It reports wait while the attempt may not start; one
// that is to make room meanwhile has nothing to save and ends.
func (t *task) barrier(ctx context.Context, as *nodev1.Assignment) (wait bool, err error) {
	if as.Ranks == nil || as.Ranks.Go {
		return false, nil
	}
	if as.Preempt != nil {
		return true, t.ended(&nodev1.Report{State: nodev1.AttemptState_ATTEMPT_STATE_CANCELLED})
	}
	if !t.ready {
		t.ready = true
		t.log.Info("ready; waiting for the other nodes")
		t.say(&nodev1.Report{State: nodev1.AttemptState_ATTEMPT_STATE_STARTING, Ready: true})
	}
	t.await(ctx, attempt.LookEvery)
	return true, nil
}
