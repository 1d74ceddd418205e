package agent

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/agent/runtime"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// saveSignal is the signal of a checkpoint hook; TERM stands in for one that
// only a newer coordinator knows.
func saveSignal(name string) syscall.Signal {
	switch name {
	case "USR1":
		return syscall.SIGUSR1
	case "USR2":
		return syscall.SIGUSR2
	case "HUP":
		return syscall.SIGHUP
	case "INT":
		return syscall.SIGINT
	}
	return syscall.SIGTERM
}

// save tells an attempt that makes room to save its state, and returns how
// much of its grace is left. The journal knows when the grace began before the
// signal is sent, and that it was sent after it: an agent that starts again
// goes on with what is left, and does not disturb who is saving with a second
// signal.
func (t *task) save(ctx context.Context, as *nodev1.Assignment) (left time.Duration, err error) {
	if t.saving.IsZero() {
		t.saving = time.Now()
		if err := t.note(as); err != nil {
			t.saving = time.Time{}
			return 0, err
		}
	}
	if t.signaled.IsZero() {
		sig, now := saveSignal(as.Preempt.Signal), time.Now()
		if err := t.rt.Signal(ctx, t.id, sig); err != nil {
			return 0, fmt.Errorf("send %s: %w", sig, err)
		}
		t.signaled, t.stopping = now, stopRoom
		t.log.Info("attempt is to save its state and make room", "signal", as.Preempt.Signal, "dur", t.saveGrace(as))
		if err := t.note(as); err != nil {
			return 0, err
		}
	}
	return t.saveGrace(as) - time.Since(t.saving), nil
}

// saveGrace is how long an attempt may take to save its state. One without a
// hook, which is requeued, gets TERM and what an ending attempt has.
func (t *task) saveGrace(as *nodev1.Assignment) time.Duration {
	if !saves(as) {
		return t.agent.cfg.Grace
	}
	return as.Preempt.Grace.AsDuration()
}

// saves reports whether the attempt has a hook of its own.
func saves(as *nodev1.Assignment) bool {
	return saveSignal(as.Preempt.Signal) != syscall.SIGTERM || as.Preempt.Grace.AsDuration() > 0
}

// madeRoom reports whether an attempt that ended was on its way out to make
// room. What had ended before it was told came to its own end.
func (t *task) madeRoom(s runtime.Task) bool {
	return t.stopping == stopRoom && (s.Ended.IsZero() || !s.Ended.Before(t.signaled))
}
