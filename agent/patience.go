package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

const diedInStart = "the container runtime died while the job was being started; nobody knows whether it ran"

// createFailed decides what becomes of an attempt that could not be prepared. What
// is tried again is so by run.
func (t *task) createFailed(ctx context.Context, err error) error {
	switch attempt.Failed(err, t.failsSince()) {
	case attempt.TryAgain:
		return err
	case attempt.Final:
		return t.launchFailed(err)
	}
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, silent := t.rt.Inspect(cctx, t.id); silent != nil {
		return errors.Join(err, silent)
	}
	return t.launchFailed(err)
}

// failsSince is for how long a launch fails, from now on.
func (t *task) failsSince() time.Duration {
	if t.failing.IsZero() {
		t.failing = time.Now()
	}
	return time.Since(t.failing)
}

// startFailed decides what becomes of an attempt whose start failed. Unless the
// runtime knows that nothing ran, the process may be there all the same: the
// answer may have been lost on its way, as when containerd was restarted.
func (t *task) startFailed(ctx context.Context, err error) error {
	if _, nothingRan := errors.AsType[*launch.Error](err); nothingRan {
		return t.createFailed(ctx, err)
	}
	t.unsure = err
	return err
}

// learnStart asks the runtime what became of a start that failed, before anything
// else is done. It reports true when the start is to be tried again, or given
// up, as any other.
func (t *task) learnStart(ctx context.Context) (known bool, err error) {
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, err := t.rt.Inspect(cctx, t.id)
	if err != nil {
		return false, fmt.Errorf("inspect after a start that failed: %w", err)
	}
	failed := t.unsure
	t.unsure = nil
	as, _ := t.wants()
	switch attempt.Settle(s, t.cuts, s.Phase != runtime.Created || t.failsSince() < attempt.LaunchPatience) {
	case attempt.StartAgain:
		return true, nil
	case attempt.GiveUp:
		return false, t.launchFailed(failed)
	case attempt.NodeBroken:
		t.cuts++
		return false, t.launchFailed(&launch.Error{Code: 125, Reason: "RUNTIME", Node: true, Err: fmt.Errorf("cut off %d times before its first step: %w", t.cuts, failed)})
	case attempt.MakeAgain:
		t.cuts++
		t.phase = phaseNew
	case attempt.Unknowable:
		t.log.Warn("the runtime died while an attempt was being started", "err", failed)
		return false, t.ended(&nodev1.Report{
			State: nodev1.AttemptState_ATTEMPT_STATE_LOST, Reason: string(cluster.ReasonRuntimeLost), Detail: diedInStart,
		})
	case attempt.Ran:
		since := s.Started
		if since.IsZero() && s.Phase != runtime.Stopped {
			since = time.Now()
		}
		t.runs(as, since)
	}
	t.log.Info("a start that failed is settled", "phase", s.Phase.String(), "err", failed)
	return false, nil
}
