package agent

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// signals are those that may be asked for by name. Others only a newer coordinator
// knows.
var signals = map[string]syscall.Signal{
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT,
	"TERM": syscall.SIGTERM, "ALRM": syscall.SIGALRM, "URG": syscall.SIGURG, "CONT": syscall.SIGCONT, "XCPU": syscall.SIGXCPU,
}

// note journals an attempt with all that its worker must not forget of it, before
// that is so. An attempt that the journal never knew, for which as is nil, stays unknown.
func (t *task) note(as *nodev1.Assignment, l attempt.Life) error {
	if as != nil {
		if err := t.agent.journal.Begin(l.Record(as)); err != nil {
			return err
		}
		l.Limit = as.GetTimeLimit().AsDuration()
	}
	t.life = l
	return nil
}

// enforce does what is to be done about an attempt that runs, and returns when to
// look again.
func (t *task) enforce(ctx context.Context) (time.Duration, error) {
	for {
		s := t.seen(time.Now())
		do := t.life.Next(s)
		if err := t.carryOut(ctx, s.As, do); err != nil || do.Wait > 0 {
			return do.Wait, err
		}
	}
}

// seen is what is known of a running attempt now.
func (t *task) seen(now time.Time) *attempt.Seen {
	as, released := t.wants()
	over, server, faults := t.blows()
	t.life = t.life.Over(over)
	s := &attempt.Seen{
		Now: now, As: as, Released: released, Cards: faults.Cause(t.life, server), Grace: t.agent.cfg.Grace,
		OverGrace: t.agent.cfg.MemCaps.Grace, Unkillable: t.agent.cfg.Health.Unkillable,
	}
	if as != nil && t.life.KillAt.IsZero() {
		s.Idle, s.IdleWait = t.idleFor(now)
	}
	return s
}

// carryOut does what was decided about a running attempt.
func (t *task) carryOut(ctx context.Context, as *nodev1.Assignment, do attempt.Do) error {
	var err error
	switch name := do.Signal; do.Act {
	case attempt.LookAgain:
	case attempt.NoteLimit, attempt.NoteRoom, attempt.NoteOver:
		err = t.note(as, do.Then)
	case attempt.Save, attempt.Tell:
		err = t.signal(ctx, signals[name])
	case attempt.Warn:
		sig, known := signals[name]
		switch {
		case !known:
			t.log.Warn("this agent does not know the signal that is to warn a job; it is not sent", "signal", name)
		case as.Warning.First:
			err = t.signal(ctx, sig)
		default:
			if err = t.rt.Broadcast(ctx, t.id, sig, audienceOf(as)); err != nil {
				err = fmt.Errorf("send %s: %w", sig, err)
			}
		}
	case attempt.Term:
		t.log.Info("ending attempt", "dur", do.Grace)
		err = t.signal(ctx, syscall.SIGTERM)
		do.Then.KillAt = time.Now().Add(do.Grace)
	case attempt.Kill, attempt.Stuck:
		err = t.signal(ctx, syscall.SIGKILL)
	}
	if err != nil {
		return err
	}
	t.life = do.Then
	return t.done(as, do)
}

func (t *task) signal(ctx context.Context, sig syscall.Signal) error {
	if err := t.rt.Signal(ctx, t.id, sig); err != nil {
		return fmt.Errorf("send %s: %w", sig, err)
	}
	return nil
}

// done says what was done about a running attempt, and journals which signals it has had.
func (t *task) done(as *nodev1.Assignment, do attempt.Do) error {
	switch b := do.Then.Breach; do.Act {
	case attempt.NoteLimit:
		t.log.Info("time limit of an attempt changed", "dur", do.Then.Limit)
	case attempt.NoteOver:
		t.log.Warn("attempt holds more GPU memory than its share and is ended", "gpu", b.Uuid, "held_mib", b.HeldMib, "cap_mib", b.CapMib, "urgent", b.Urgent)
	case attempt.Save:
		t.log.Info("attempt is to save its state and make room", "signal", do.Signal, "dur", do.Grace)
		return t.note(as, t.life)
	case attempt.Tell:
		return t.note(as, t.life)
	case attempt.Warn:
		t.log.Info("attempt is warned of its time limit", "signal", do.Signal, "dur", as.Warning.Before.AsDuration())
		return t.note(as, t.life)
	case attempt.Stuck:
		t.unkillable()
	}
	return nil
}

// unkillable is for an attempt that got SIGKILL long ago: what a process that waits
// in the kernel holds may be held for ever. It is never said to have ended, its
// cards take nobody, and somebody has to look at the node.
func (t *task) unkillable() {
	why := fmt.Sprintf("a process of %s does not end %s after SIGKILL: it waits in the kernel, as for a file system that does not answer", t.id, t.agent.cfg.Health.Unkillable)
	as, _ := t.wants()
	t.agent.cards.States.Quarantine(t.id, as.GetGpus(), why)
	t.agent.cards.States.Unkillable(t.id, why)
	t.completing(cluster.ReasonUnkillable, why)
	t.log.Error("attempt cannot be ended", "dur", time.Since(t.life.KillAt).Round(time.Second))
}
