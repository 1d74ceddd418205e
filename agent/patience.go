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

// launchPatience is how long a runtime that answers, and cannot launch an
// attempt for a reason that may pass, is asked again. One that does not answer
// is asked for as long as it takes: what it does not say nobody can know.
const launchPatience = 2 * time.Minute

// outputPatience is how long an attempt waits for the directory of its output, which
// is often made just after the submit, under a name that has the job's id.
const outputPatience = 10 * time.Second

const diedInStart = "the container runtime died while the job was being started; nobody knows whether it ran"

// createFailed decides what becomes of an attempt that could not be prepared.
// A launch.Error is final, unless it may pass; all else is tried again, see run.
func (t *task) createFailed(ctx context.Context, err error) error {
	if t.awaitsOutput(err) {
		return err
	}
	if _, final := errors.AsType[*launch.Error](err); final {
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

// patient reports whether a launch that fails is to be tried again.
func (t *task) patient() bool {
	if t.failing.IsZero() {
		t.failing = time.Now()
	}
	return time.Since(t.failing) < launchPatience
}

// awaitsOutput reports whether a launch fails for want of a directory for the output,
// and is to be tried again.
func (t *task) awaitsOutput(err error) bool {
	le, ok := errors.AsType[*launch.Error](err)
	if !ok || !le.Missing {
		return false
	}
	if t.failing.IsZero() {
		t.failing = time.Now()
	}
	return time.Since(t.failing) < outputPatience
}

// startFailed decides what becomes of an attempt whose start failed. Unless the
// runtime knows that nothing ran, the process may be there all the same: the
// answer may have been lost on its way, as when containerd was restarted.
func (t *task) startFailed(err error) error {
	if t.awaitsOutput(err) {
		return err
	}
	if _, final := errors.AsType[*launch.Error](err); final {
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
	switch attempt.Settle(s, t.cuts, s.Phase != runtime.Created || t.patient()) {
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
