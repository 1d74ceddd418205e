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
	"github.com/berth-scheduler/berth/agent/outbox"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// phase is how far the worker has brought its attempt.
//
//	new ─▶ created ─▶ running ─▶ ended ─▶ (gone)
//
// An attempt that predates this agent is first adopted, in any of these phases but the
// last. Each step does one thing, and may safely be repeated after a crash.
type phase uint8

const (
	phaseNew     phase = iota
	phaseAdopted       // it predates this agent: wait for the leader's word
	phaseCreated
	phaseRunning
	phaseEnded
)

// String names the step that follows a phase.
func (p phase) String() string {
	return [...]string{"prepare a job", "take up a job", "start a job", "follow a job", "clear up after a job"}[p]
}

const (
	firstRetryWait = 100 * time.Millisecond
	callTimeout    = 2 * time.Minute // for a runtime call that pulls nothing
)

// task drives one attempt. Its inbox is shared; its other fields belong to the worker, the
// attempt's only goroutine.
type task struct {
	agent *Agent
	id    cluster.AttemptID
	log   *slog.Logger
	token cluster.Token
	// next is the assignment to take up once this task is forgotten: the attempt has come
	// back. The agent's mu guards it.
	next *nodev1.Assignment
	inbox

	rt      runtime.Runtime
	phase   phase
	adopted atomic.Bool // predates this agent, and not looked at yet
	life    attempt.Life
	drain   string      // why to drain the node, see prolog
	points  *milestones // for visitors
	power   []*nodev1.CardPower
	search  *nodev1.CapSearch
	end     *nodev1.Report
	hung    hung // processes that SIGKILL does not end

	// State of a single phase.
	launching launching
	running   running
	leaving   leaving
}

func newTask(a *Agent, id cluster.AttemptID, as *nodev1.Assignment) *task {
	t := &task{
		agent: a, id: id, token: cluster.Token(as.GetToken()), log: a.log.With("job", id.Job.String(), "attempt", id.No), points: newMilestones(),
		inbox: inbox{assignment: as, wake: make(chan struct{}, 1)},
	}
	t.launching.task, t.leaving.task = t, t
	t.running = running{task: t, meter: meter{id: id, recorder: a.recorder, progress: a.progress, prober: a.prober, says: a.launcher.ProgressFile(id), power: a.power, sampler: a.cards.Sampler, gpus: a.cfg.GPUs, log: a.log}}
	return t
}

// adopt marks an attempt as one that predates this agent.
func (t *task) adopt() {
	t.phase = phaseAdopted
	t.adopted.Store(true)
}

// run brings the attempt to its end, step by step, until it is forgotten or ctx ends.
func (t *task) run(ctx context.Context) {
	pause, recovered := firstRetryWait, func() {}
	defer func() { recovered(); t.hung.over() }()
	for ctx.Err() == nil {
		phase := t.phase
		done, err := t.step(ctx)
		switch {
		case done:
			t.agent.forget(t)
			return
		case err == nil:
			pause = firstRetryWait
			recovered()
		case ctx.Err() != nil:
			return
		default:
			t.log.Warn("step failed; will try again", "err", err, "dur", pause)
			if pause == firstRetryWait {
				recovered = t.agent.cfg.Underway.Begin(phase.String())
			}
			if !wait.Sleep(ctx, pause) {
				return
			}
			pause = min(2*pause, 10*time.Second)
		}
	}
}

// resume finds out the state of an attempt that predates this agent.
func (t *task) resume(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.agent.synced:
	}
	t.agent.awaitHealth(ctx)
	as, _ := t.wants()
	rt := t.runtime()
	if rt == nil { // containerd was removed from the configuration while a job ran in it
		return errors.New("inspect an adopted attempt: it runs an image, and this node has no runtime for images any more")
	}
	s, err := rt.Inspect(ctx, t.id)
	if err != nil {
		return fmt.Errorf("inspect an adopted attempt: %w", err)
	}
	t.resumeAt(ctx, s, as)
	return nil
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
		t.power = powerToNode(t.agent.tuned.Of(t.id.String()))
	}
	if as != nil && t.phase != phaseNew {
		if _, err := t.agent.cards.Admit(ctx, as); err != nil {
			t.log.Warn("cannot grant an adopted attempt its GPUs again", "err", err)
		}
		if _, err := t.agent.shares.join(ctx, as); err != nil {
			t.log.Warn("cannot join an adopted attempt to its MPS daemon again", "err", err)
		}
	}
	t.adopted.Store(false)
	t.log.Info("attempt adopted", "phase", s.Phase.String(), "pid", s.PID)
}

// step advances the attempt by at most one phase. It reports done when nothing is left to
// do.
func (t *task) step(ctx context.Context) (done bool, err error) {
	switch t.phase {
	case phaseAdopted:
		return false, t.resume(ctx)
	case phaseNew:
		return false, t.launching.create(ctx)
	case phaseCreated:
		return false, t.launching.start(ctx)
	case phaseRunning:
		return false, t.running.watch(ctx)
	default:
		return t.leaving.finish(ctx)
	}
}

// runs records that the process was started.
func (t *task) runs(as *nodev1.Assignment, since time.Time) {
	t.life.Started, t.phase = since, phaseRunning
	t.lives(as)
}

// lives sets up what is kept while a process is alive.
func (t *task) lives(as *nodev1.Assignment) {
	t.points.running()
	t.running.meter.begin(t.rt, as, t.life.Started)
	t.running.idle = attempt.Idle{Limit: attempt.IdleLimit(as, t.agent.cfg.IdleLimit)}
}

func (t *task) sayRunning() {
	t.say(&nodev1.Report{State: nodev1.AttemptState_ATTEMPT_STATE_RUNNING, Started: timestamppb.New(t.life.Started)})
}

// of addresses r as a report of this attempt.
func (t *task) of(r *nodev1.Report) *nodev1.Report {
	r.Job, r.Attempt, r.Token, r.Power = uint64(t.id.Job), t.id.No, uint64(t.token), t.power
	r.Search = t.search
	return r
}

// say reports the attempt's progress to the leader.
func (t *task) say(r *nodev1.Report) { t.agent.out.Put(t.of(r)) }

// ended journals how the attempt ended, frees its GPUs and reports its end.
func (t *task) ended(r *nodev1.Report) error {
	t.searchEnds(r.Steps != nil)
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
	t.hung.over()
	t.end, t.phase = r, phaseEnded
	t.points.ended()
	t.endLogins()
	t.running.meter.end(r.Ended.AsTime())
	return nil
}

// runtime returns the runtime of the attempt, nil when there is none for it.
func (t *task) runtime() runtime.Runtime {
	if t.rt == nil {
		as, _ := t.wants()
		t.rt = t.agent.runtimeFor(as)
	}
	return t.rt
}

// note journals an attempt with all that its worker must not forget, before that takes
// effect. An attempt that the journal never knew, for which as is nil, stays unknown.
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

// lost returns a report of an attempt that did not end by itself.
func lost(why cluster.ReasonCode, detail string) *nodev1.Report {
	return &nodev1.Report{State: nodev1.AttemptState_ATTEMPT_STATE_LOST, Reason: string(why), Detail: detail}
}
