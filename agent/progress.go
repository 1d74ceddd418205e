package agent

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/agent/runtime"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// note journals an attempt with all that the worker must not forget of it: how
// far it is with making room, with being ended for its memory, with its
// warning and with the node's hooks. An attempt that the journal never knew,
// for which as is nil, stays unknown.
func (t *task) note(as *nodev1.Assignment) error {
	if as == nil {
		return nil
	}
	as = proto.CloneOf(as)
	if p := as.Preempt; p != nil && !t.saving.IsZero() {
		p.At, p.Sent = timestamppb.New(t.saving), !t.signaled.IsZero()
	}
	as.Breach, as.Progress = proto.CloneOf(t.breach), nil
	if proto.Size(&t.progress) > 0 {
		as.Progress = proto.CloneOf(&t.progress)
	}
	if err := t.agent.journal.Begin(as); err != nil {
		return err
	}
	t.limit = as.GetTimeLimit().AsDuration()
	return nil
}

// minded takes a time limit that was changed while the attempt runs into the
// journal before anything is done by it: an agent that starts again keeps to it.
// When there is more time again, the warning before its end comes again, too.
func (t *task) minded(now time.Time) error {
	as, released := t.wants()
	limit := as.GetTimeLimit().AsDuration()
	if as == nil || released || limit == t.limit {
		return nil
	}
	was := t.progress.Warned
	if limit == 0 || limit-as.GetWarning().GetBefore().AsDuration() > now.Sub(t.started) {
		t.progress.Warned = false
	}
	if err := t.note(as); err != nil {
		t.progress.Warned = was
		return err
	}
	t.log.Info("time limit of an attempt changed", "dur", limit)
	return nil
}

// remember takes over from the journal what note put there.
func (t *task) remember(as *nodev1.Assignment) {
	t.limit = as.GetTimeLimit().AsDuration()
	if p := as.GetProgress(); p != nil {
		proto.Merge(&t.progress, p)
	}
	if t.breach = as.GetBreach(); t.breach != nil {
		t.stopping = stopOverCap
	}
	if p := as.GetPreempt(); p.GetAt() != nil {
		t.saving = p.At.AsTime()
		if t.breach == nil {
			t.stopping = stopRoom
		}
		if p.Sent {
			t.signaled = t.saving
		}
	}
}

// signalNumber is the signal of a name without SIG, and false for one that
// only a newer coordinator knows.
func signalNumber(name string) (syscall.Signal, bool) {
	sig, ok := map[string]syscall.Signal{
		"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT,
		"TERM": syscall.SIGTERM, "ALRM": syscall.SIGALRM, "URG": syscall.SIGURG, "CONT": syscall.SIGCONT, "XCPU": syscall.SIGXCPU,
	}[name]
	return sig, ok
}

// warn sends an attempt the signal that comes before its time limit, once,
// and returns when to look again. An agent that is killed between the signal
// and its record sends a second one: that a job saves its state twice costs
// less than that it never does. One that an agent was away for comes late.
func (t *task) warn(ctx context.Context, now time.Time) (next time.Duration, err error) {
	next = inspectEvery
	as, _ := t.wants()
	w, limit := as.GetWarning(), as.GetTimeLimit().AsDuration()
	if w == nil || limit <= 0 || t.progress.Warned || t.stopping != stopNone {
		return next, nil
	}
	if left := limit - w.Before.AsDuration() - now.Sub(t.started); left > 0 {
		return min(next, left), nil
	}
	sig, known := signalNumber(w.Signal)
	switch {
	case !known:
		t.log.Warn("this agent does not know the signal that is to warn a job; it is not sent", "signal", w.Signal)
	case w.First:
		err = t.rt.Signal(ctx, t.id, sig)
	case len(as.Script) > 0 || as.GetRanks().GetTasks() > 1: // not the shell, nor who runs the ranks and passes signals on
		err = t.rt.Broadcast(ctx, t.id, sig, runtime.ToOthers)
	default:
		err = t.rt.Broadcast(ctx, t.id, sig, runtime.ToAll)
	}
	if err != nil {
		return next, fmt.Errorf("send %s: %w", w.Signal, err)
	}
	t.log.Info("attempt is warned of its time limit", "signal", w.Signal, "dur", w.Before.AsDuration())
	t.progress.Warned = true
	return next, t.note(as)
}
