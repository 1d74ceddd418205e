package agent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/launcher"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// signals are those that may be requested by name. Any other comes from a newer
// coordinator.
var signals = map[string]syscall.Signal{
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT,
	"TERM": syscall.SIGTERM, "ALRM": syscall.SIGALRM, "URG": syscall.SIGURG, "CONT": syscall.SIGCONT, "XCPU": syscall.SIGXCPU,
	"KILL": syscall.SIGKILL,
}

// running is an attempt whose process is running.
type running struct {
	*task
	meter meter
	idle  attempt.Idle
	saver saver
	said  bool // the leader has been told that it runs
}

// watch looks at a running attempt, ends it when it must end, and otherwise waits for news.
func (t *running) watch(ctx context.Context) error {
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	s, err := t.rt.Inspect(cctx, t.id)
	cancel()
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	t.meter.observed(s)
	switch s.Phase {
	case runtime.Stopped:
		return t.ended(t.verdict(ctx, s))
	case runtime.Lost, runtime.Absent:
		return t.ended(lost(cluster.ReasonRuntimeLost, "the runtime no longer knows how the process ended"))
	}
	if t.life.Started.IsZero() {
		t.life.Started = s.Started
	}
	if !t.said { // also after a restart: the agent that started it may have died before it could report
		t.said = true
		t.sayRunning()
	}
	next, err := t.enforce(ctx)
	if err != nil {
		return err
	}
	t.await(ctx, min(next, t.saver.look(ctx, t)))
	return nil
}

// enforce does what must be done about a running attempt, and returns when to look again.
func (t *running) enforce(ctx context.Context) (time.Duration, error) {
	for {
		s := t.seen(time.Now())
		do := t.life.Next(s)
		if err := t.carryOut(ctx, s.As, do); err != nil || do.Wait > 0 {
			return do.Wait, err
		}
	}
}

// seen returns what is known of a running attempt now.
func (t *running) seen(now time.Time) *attempt.Seen {
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

// sessionWatcher knows when users last typed something in an attempt, and can write to
// their sessions; package relay's server is one.
type sessionWatcher interface {
	LastInput(id cluster.AttemptID) time.Time
	Tell(id cluster.AttemptID, text string)
}

// idleFor reports whether a session has been idle for its limit, and otherwise when to ask
// again. It warns the session's users first.
func (t *running) idleFor(now time.Time) (over bool, wait time.Duration) {
	if t.idle.Limit == 0 {
		return false, attempt.LookEvery
	}
	a := attempt.Activity{CPU: -1}
	if at := t.computed.Load(); at != nil {
		a.Computed = *at
	}
	w, ok := t.agent.cfg.Visitors.(sessionWatcher)
	if ok {
		a.Typed = w.LastInput(t.id)
	}
	if g := groupOf(t.rt, t.id); g != nil {
		a.CPU = g.CPUTime()
	}
	over, wait, warning := t.idle.Look(now, a)
	if ok && warning != "" {
		w.Tell(t.id, warning)
	}
	return over, wait
}

// carryOut does what was decided about a running attempt. Once signalled, an attempt counts
// as signalled even if the journal cannot be written, and gets no second signal.
func (t *running) carryOut(ctx context.Context, as *nodev1.Assignment, do attempt.Do) error {
	if do.Signal != "" {
		switch err := t.signal(ctx, as, do); {
		case err == nil || do.Act == attempt.Stuck:
		case do.Act == attempt.Kill: // a group may report that what hangs has not ended
			t.life = do.Then
			fallthrough
		default:
			return fmt.Errorf("send SIG%s: %w", do.Signal, err)
		}
		if do.Act == attempt.Term {
			do.Then.KillAt = time.Now().Add(do.Grace)
		}
		t.life = do.Then
	}
	if do.Record {
		if err := t.note(as, do.Then); err != nil {
			return err
		}
	}
	t.life = do.Then
	switch b := t.life.Breach; do.Act {
	case attempt.NoteLimit:
		t.log.Info("time limit of an attempt changed", "dur", t.life.Limit)
	case attempt.NoteOver:
		t.log.Warn("attempt holds more GPU memory than its share and is ended", "gpu", b.Uuid, "held_mib", b.HeldMib, "cap_mib", b.CapMib, "urgent", b.Urgent)
	case attempt.Save:
		t.log.Info("attempt is to save its state and make room", "signal", do.Signal, "dur", do.Grace)
	case attempt.Warn:
		t.log.Info("attempt is warned of its time limit", "signal", do.Signal, "dur", as.Warning.Before.AsDuration())
	case attempt.Term:
		t.log.Info("ending attempt", "dur", do.Grace)
	case attempt.Stuck:
		t.unkillable(as)
	}
	return nil
}

func (t *running) signal(ctx context.Context, as *nodev1.Assignment, do attempt.Do) error {
	sig, known := signals[do.Signal]
	switch {
	case !known:
		t.log.Warn("this agent does not know the signal that is to warn a job; it is not sent", "signal", do.Signal)
		return nil
	case do.Act == attempt.Warn && !as.Warning.First:
		return t.rt.Broadcast(ctx, t.id, sig, audienceOf(as))
	}
	return t.rt.Signal(ctx, t.id, sig)
}

// unkillable handles an attempt that got SIGKILL long ago: a process that hangs in the
// kernel may hold its resources for ever. It is never reported as ended, its GPUs take no
// other attempt, and an administrator must look at the node.
func (t *running) unkillable(as *nodev1.Assignment) {
	process := t.hangs(t.life.KillAt)
	if process != "" {
		process = ", " + process + ","
	}
	why := fmt.Sprintf("a process of %s%s has not ended %s after SIGKILL: it waits in the kernel, for example for a file system that does not answer", t.id, process, t.agent.cfg.Health.Unkillable)
	t.agent.cards.States.Quarantine(as, why)
	t.agent.cards.States.SetProblem(t.id.String(), why)
	t.say(&nodev1.Report{State: nodev1.AttemptState_ATTEMPT_STATE_COMPLETING, Reason: string(cluster.ReasonUnkillable), Detail: why})
	t.log.Error("attempt cannot be ended", "err", why, "dur", time.Since(t.life.KillAt).Round(time.Second))
}

// verdict turns the end of a process into the end of its attempt. The exit code and signal
// are reported as they are, whatever the verdict.
func (t *running) verdict(ctx context.Context, s runtime.Task) *nodev1.Report {
	a := t.agent
	r := &nodev1.Report{Exit: &nodev1.Exit{Code: int32(s.ExitCode), Signal: int32(s.Signal)}, Usage: t.meter.usage(ctx, s), Steps: t.meter.progress.Steps(t.id)}
	if !s.Started.IsZero() {
		r.Started = timestamppb.New(s.Started)
	}
	if !s.Ended.IsZero() {
		r.Ended = timestamppb.New(s.Ended)
	}
	as, _ := t.wants()
	_, server, _ := t.blows()
	if server == nil && s.ExitCode != 0 && as != nil && a.cfg.MemCaps.Daemons != nil && a.cards.HeldBy(as, caps.MPS) != nil {
		a.checkDaemon(ctx, as.Gpus[0].Uuid) // it may have ended by a fault not yet known
		_, server, _ = t.blows()
	}
	e := &attempt.Ended{ID: t.id.String(), Task: s, As: as, Life: t.life, Server: server, Idle: t.idle.Limit, Rest: launcher.RestOfBatch(as)}
	if !e.Judge(r) && (len(as.GetGpus()) == 0 || !e.JudgeMemory(r, a.memoryOf(ctx, e, r.Usage.GpuOom))) {
		e.JudgeExit(r)
	}
	return r
}

// memoryOf gathers what is known about the GPU memory of a failed attempt. It does not read
// the output if the provider itself refused an allocation.
func (a *Agent) memoryOf(ctx context.Context, e *attempt.Ended, refused bool) *attempt.Memory {
	ended := e.Task.Ended
	if ended.IsZero() {
		ended = time.Now()
	}
	m := &attempt.Memory{}
	m.Held, _ = a.cards.Mem.Peak(e.ID, ended)
	m.By = a.cards.Mem.Blame(m.UUID, e.ID, ended)
	if !refused {
		m.Line = a.outputs.oomLine(ctx, e.As)
		m.AskedMiB = a.outputs.oomLog.Asked(m.Line)
	}
	return m
}

// outputs reads what jobs wrote about GPU memory.
type outputs struct {
	tail     func(ctx context.Context, l *launch.Launch, path string, bytes int64) ([]byte, error) // nil reads nothing
	launcher *launcher.Launcher
	oomLog   *caps.OOMLog
	log      *slog.Logger
}

// oomLine returns the line near the end of an attempt's output that reports that GPU memory
// ran out, or "".
func (o *outputs) oomLine(ctx context.Context, as *nodev1.Assignment) string {
	if o.tail == nil {
		return ""
	}
	l, err := o.launcher.Outline(as)
	if err != nil {
		return ""
	}
	for _, path := range slices.Compact([]string{l.Stderr, l.Stdout}) {
		tail, err := o.tail(ctx, l, path, caps.TailBytes)
		if err != nil {
			o.log.Debug("cannot read the end of a job's output", "job", cluster.JobID(as.Job).String(), "err", err)
			continue
		}
		if line := o.oomLog.Find(tail); line != "" {
			return line
		}
	}
	return ""
}
