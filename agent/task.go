package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/outbox"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// phase is how far the worker has brought its attempt.
//
//	new ─▶ created ─▶ running ─▶ ended ─▶ (gone)
//
// Each step does one thing, and doing it again after a crash is safe.
type phase uint8

const (
	phaseNew phase = iota
	phaseCreated
	phaseRunning
	phaseEnded
)

const (
	defaultGrace   = 30 * time.Second
	firstRetryWait = 100 * time.Millisecond
	callTimeout    = 2 * time.Minute // of a runtime call that pulls nothing
)

// task drives one attempt. Its inbox is shared; the others of its fields belong to
// the worker, which is the one goroutine of the attempt.
type task struct {
	agent *Agent
	id    cluster.AttemptID
	log   *slog.Logger
	token cluster.Token

	rt      runtime.Runtime
	phase   phase
	adopted bool // from before this agent started: wait for the leader's word
	life    attempt.Life
	ready   bool // it said that it waits for the other nodes
	end     *nodev1.Report
	meter   meter
	failing time.Time // since when its launch fails for what may pass, zero when it does not
	unsure  error     // a start failed so that it may have happened all the same
	cuts    int       // how many starts were cut off before the first step

	drain  string      // why the node is to be drained, see prolog
	points *milestones // for visitors
	idle   attempt.Idle

	busySince time.Time   // since when it waits for memory, see awaitMemory
	leaving   returning   // how it gives its cards back, see returnCards
	resumed   atomic.Bool // one from before the agent's start was looked at
	inbox
}

func newTask(a *Agent, id cluster.AttemptID, as *nodev1.Assignment) *task {
	return &task{
		agent: a, id: id, token: cluster.Token(as.GetToken()), log: a.log.With("job", id.Job.String(), "attempt", id.No), points: newMilestones(),
		inbox: inbox{assignment: as, wake: make(chan struct{}, 1)},
		meter: meter{id: id, recorder: a.recorder, power: a.power, sampler: a.cards.Sampler, gpus: a.cfg.GPUs, log: a.log},
	}
}

// run brings the attempt to its end, step by step, until it is forgotten or
// ctx ends.
func (t *task) run(ctx context.Context) {
	if t.adopted && !t.resume(ctx) {
		return
	}
	wait := firstRetryWait
	for ctx.Err() == nil {
		done, err := t.step(ctx)
		switch {
		case done:
			t.agent.forget(t)
			return
		case err == nil:
			wait = firstRetryWait
		case ctx.Err() != nil:
			return
		default:
			t.log.Warn("step failed; will try again", "err", err, "dur", wait)
			if !pause(ctx, wait) {
				return
			}
			wait = min(2*wait, 10*time.Second)
		}
	}
}

// resume finds out where an attempt from before the agent's start stands. It
// reports false when ctx ended first.
func (t *task) resume(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-t.agent.synced:
	}
	t.agent.awaitHealth(ctx)
	as, _ := t.wants()
	if t.rt == nil {
		t.rt = t.agent.runtimeFor(as)
	}
	for wait := firstRetryWait; ; wait = min(2*wait, 10*time.Second) {
		s, err := t.rt.Inspect(ctx, t.id)
		if err == nil {
			t.resumeAt(ctx, s, as)
			return true
		}
		t.log.Warn("cannot inspect an adopted attempt; will try again", "err", err)
		if !pause(ctx, wait) {
			return false
		}
	}
}

func (t *task) resumeAt(ctx context.Context, s runtime.Task, as *nodev1.Assignment) {
	t.life.Started = s.Started
	switch s.Phase {
	case runtime.Absent:
		t.phase = phaseNew
	case runtime.Created:
		t.phase = phaseCreated
	default:
		t.phase = phaseRunning
		t.lives(as)
		t.agent.cards.Mem.Hold(as)
		if as.GetRanks() != nil && s.Phase == runtime.Running {
			t.sayRunning() // whoever started it may have died before it could
		}
	}
	if as != nil && t.phase != phaseNew {
		if _, err := t.agent.cards.Admit(ctx, as); err != nil {
			t.log.Warn("cannot grant an adopted attempt its GPUs again", "err", err)
		}
		if _, err := t.agent.shares.join(ctx, as); err != nil {
			t.log.Warn("cannot join an adopted attempt to its MPS daemon again", "err", err)
		}
	}
	t.resumed.Store(true)
	t.log.Info("attempt adopted", "phase", s.Phase.String(), "pid", s.PID)
}

// step moves the attempt by at most one phase. It reports done when nothing
// is left to do.
func (t *task) step(ctx context.Context) (done bool, err error) {
	switch t.phase {
	case phaseNew:
		return false, t.create(ctx)
	case phaseCreated:
		return false, t.start(ctx)
	case phaseRunning:
		return false, t.watch(ctx)
	default:
		return t.finish(ctx)
	}
}

// create journals the intent and prepares the attempt.
func (t *task) create(ctx context.Context) error {
	as, released := t.wants()
	if as == nil || released || as.Stop {
		return t.ended(&nodev1.Report{State: nodev1.AttemptState_ATTEMPT_STATE_CANCELLED})
	}
	if ready, err := t.awaitCards(ctx, as); !ready || err != nil {
		return err
	}
	if err := t.note(as, t.life); err != nil {
		return err
	}
	t.rt = t.agent.runtimeFor(as)
	if t.rt == nil {
		return t.launchFailed(&launch.Error{Code: 125, Reason: "IMAGE", Err: errors.New("this node runs no images: it has no containerd")})
	}
	if err := t.prolog(ctx, as); err != nil {
		return t.launchFailed(err)
	}
	l, err := t.agent.launch(ctx, as)
	if err != nil {
		return t.launchFailed(err)
	}
	if err := t.rt.Create(ctx, l); err != nil {
		return t.createFailed(ctx, err)
	}
	t.failing = time.Time{}
	t.phase = phaseCreated
	return nil
}

// start runs the process and says so.
func (t *task) start(ctx context.Context) error {
	if t.unsure != nil {
		if known, err := t.learnStart(ctx); !known || err != nil {
			return err
		}
	}
	as, released := t.wants()
	if as == nil || released || as.Stop {
		return t.ended(&nodev1.Report{State: nodev1.AttemptState_ATTEMPT_STATE_CANCELLED})
	}
	if wait, err := t.barrier(ctx, as); wait || err != nil {
		return err
	}
	t.agent.cards.Mem.Hold(as)
	if err := t.agent.shares.limit(ctx, t.rt, t.id, as); err != nil {
		return t.launchFailed(err)
	}
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := t.rt.Start(cctx, t.id); err != nil {
		return t.startFailed(ctx, err)
	}
	t.runs(as, time.Now())
	return nil
}

// runs takes note that the process was let go.
func (t *task) runs(as *nodev1.Assignment, since time.Time) {
	t.life.Started, t.failing = since, time.Time{}
	t.phase = phaseRunning
	t.lives(as)
	t.sayRunning()
}

// lives begins what is kept of a process while it lives.
func (t *task) lives(as *nodev1.Assignment) {
	t.points.running()
	t.meter.begin(t.rt, as, t.life.Started)
	t.idle = attempt.Idle{Limit: attempt.IdleLimit(as, t.agent.cfg.IdleLimit)}
}

func (t *task) sayRunning() {
	t.say(&nodev1.Report{State: nodev1.AttemptState_ATTEMPT_STATE_RUNNING, Started: timestamppb.New(t.life.Started)})
}

// of makes r a report of the attempt.
func (t *task) of(r *nodev1.Report) *nodev1.Report {
	r.Job, r.Attempt, r.Token = uint64(t.id.Job), t.id.No, uint64(t.token)
	return r
}

// say reports how far the attempt is.
func (t *task) say(r *nodev1.Report) { t.agent.out.Put(t.of(r)) }

// launchFailed ends an attempt whose process never ran. When ctx ended the
// next agent will know better.
func (t *task) launchFailed(err error) error {
	if t.agent.ctx.Err() != nil {
		return err
	}
	code, detail := int32(125), err.Error()
	r := &nodev1.Report{State: nodev1.AttemptState_ATTEMPT_STATE_FAILED, Reason: string(cluster.ReasonLaunch)}
	var le *launch.Error
	if errors.As(err, &le) {
		code = int32(le.Code)
	}
	if le != nil && le.Node {
		r.State, r.Reason = nodev1.AttemptState_ATTEMPT_STATE_LOST, string(cluster.ReasonNodeFault)
	}
	t.log.Info("attempt did not start", "err", err)
	r.Exit, r.Detail = &nodev1.Exit{Code: code}, detail
	return t.ended(r)
}

// watch looks at a running attempt, ends it when it must end, and otherwise
// waits for news.
func (t *task) watch(ctx context.Context) error {
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	s, err := t.rt.Inspect(cctx, t.id)
	cancel()
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	t.meter.observed(s)
	switch s.Phase {
	case runtime.Stopped:
		return t.ended(t.agent.verdict(ctx, t, s))
	case runtime.Lost, runtime.Absent:
		return t.ended(&nodev1.Report{
			State: nodev1.AttemptState_ATTEMPT_STATE_LOST, Reason: string(cluster.ReasonRuntimeLost),
			Detail: "the runtime no longer knows how the process ended",
		})
	}
	if t.life.Started.IsZero() {
		t.life.Started = s.Started
	}
	next, err := t.enforce(ctx)
	if err != nil {
		return err
	}
	t.await(ctx, next)
	return nil
}

// ended journals how the attempt ended, frees its GPUs and reports it.
func (t *task) ended(r *nodev1.Report) error {
	if t.of(r); r.Ended == nil {
		r.Ended = timestamppb.Now()
	}
	if r.Started == nil && !t.life.Started.IsZero() {
		r.Started = timestamppb.New(t.life.Started)
	}
	r.Drain = t.drain
	outbox.AsText(r)
	if err := t.agent.journal.End(r); err != nil {
		return err
	}
	t.end, t.phase = r, phaseEnded
	t.points.ended()
	t.endLogins()
	t.meter.end(r.Ended.AsTime())
	return nil
}

// finish cleans up after an attempt whose end is on disk, reports it, and is
// done when the leader has committed the report or wants none.
func (t *task) finish(ctx context.Context) (done bool, err error) {
	if err := t.epilog(ctx); err != nil {
		return false, err
	}
	if back, err := t.returnCards(ctx); !back || err != nil {
		return false, err
	}
	if g := t.agent.cfg.GPUs; g != nil {
		if err := g.Retire(ctx, t.id.String()); err != nil {
			return false, fmt.Errorf("retire GPUs: %w", err)
		}
	}
	t.agent.cards.Mem.Drop(t.id.String())
	_, released := t.wants()
	if !released || t.end.Drain != "" {
		t.agent.out.Put(t.end)
	}
	if t.runtime() != nil {
		if err := t.rt.Delete(ctx, t.id); err != nil {
			return false, fmt.Errorf("delete: %w", err)
		}
	}
	as, _ := t.wants()
	if err := errors.Join(t.agent.launcher.Remove(t.id), t.agent.shares.leave(ctx, t.id, as)); err != nil {
		return false, err
	}
	for !released {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-t.wake:
			_, released = t.wants()
		}
	}
	if err := t.drained(ctx); err != nil {
		return false, err
	}
	t.agent.out.Drop(t.id)
	return true, nil
}
