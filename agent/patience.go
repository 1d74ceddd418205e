package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// launchPatience is how long a runtime that answers, and cannot launch an
// attempt for a reason that may pass, is asked again. One that does not answer
// is asked for as long as it takes: what it does not say nobody can know.
const launchPatience = 2 * time.Minute

// mostCuts is how many starts of an attempt may be cut off before its first
// step until the node is taken to be broken.
const mostCuts = 20

const diedInStart = "the container runtime died while the job was being started; nobody knows whether it ran"

// createFailed decides what becomes of an attempt that could not be prepared.
// A LaunchError is final; all else is tried again, see run.
func (t *task) createFailed(ctx context.Context, err error) error {
	if _, final := errors.AsType[*LaunchError](err); final {
		return t.launchFailed(err)
	}
	if t.patient() {
		return err
	}
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, silent := t.rt.Inspect(cctx, t.id); silent != nil {
		return errors.Join(err, silent)
	}
	return t.launchFailed(err)
}

// patient tells whether a launch that fails is to be tried again.
func (t *task) patient() bool {
	if t.failing.IsZero() {
		t.failing = time.Now()
	}
	return time.Since(t.failing) < launchPatience
}

// startFailed decides what becomes of an attempt whose start failed. Unless the
// runtime knows that nothing ran, the process may be there all the same: the
// answer may have been lost on its way, as when containerd was restarted.
func (t *task) startFailed(err error) error {
	if _, final := errors.AsType[*LaunchError](err); final {
		return t.launchFailed(err)
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
	switch s.Phase {
	case TaskCreated:
		if !t.patient() {
			return false, t.launchFailed(failed)
		}
		return true, nil
	case TaskAbsent: // and it never ran, or it would be lost
		if t.cuts++; t.cuts >= mostCuts {
			return false, t.launchFailed(&LaunchError{Code: 125, Reason: "RUNTIME", Node: true, Err: fmt.Errorf("cut off %d times before its first step: %w", t.cuts, failed)})
		}
		t.phase = phaseNew
	case TaskStopped:
		// A runtime that dies within a start takes the one with it that lets the
		// process go, which then ends with 1 before the job's first step. Where
		// the runtime can tell, the task is absent; else the job, which may end with
		// 1 as well, is blamed only if it is sure to have begun.
		if s.ExitCode == 1 && s.Signal == 0 && s.Doubtful {
			t.log.Warn("the runtime died while an attempt was being started", "err", failed)
			return false, t.ended(&nodev1.Report{
				State: nodev1.AttemptState_ATTEMPT_STATE_LOST, Reason: string(cluster.ReasonRuntimeLost), Detail: diedInStart,
			})
		}
		t.runs(as, s.Started)
	default:
		since := s.Started
		if since.IsZero() {
			since = time.Now()
		}
		t.runs(as, since)
	}
	t.log.Info("a start that failed is settled", "phase", s.Phase.String(), "err", failed)
	return false, nil
}
