package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/hooks"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// leaving is an attempt that has ended.
type leaving struct {
	*task
	cards   attempt.Leaving // how it returns its GPUs, see returnCards
	deleted bool            // what the runtime kept of it is deleted
	judged  bool
	back    bool   // its GPUs are back
	release func() // releases the sampler's fast rate
}

// finish cleans up after an attempt whose end is on disk and reports it. It is done when
// the leader has committed the report or wants none.
func (t *leaving) finish(ctx context.Context) (done bool, err error) {
	if err := t.epilog(ctx); err != nil {
		return false, err
	}
	if back, err := t.returnCards(ctx); !back || err != nil {
		return false, err
	}
	if t.agent.tuned.Leave(ctx, t.id.String()) {
		t.agent.cards.States.Again() // so that the limits are reported
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
		if err := t.delete(ctx, t.rt); err != nil {
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

// epilog cleans up the node after an attempt whose prolog began. It runs after the end of
// its processes and before its GPUs and its end are released, so that the next attempt
// finds the node clean. When it fails, the node is drained; the job's end stays as it was.
func (t *leaving) epilog(ctx context.Context) error {
	h := t.agent.cfg.Hooks
	as, _ := t.wants()
	if h == nil || as == nil || t.life.Progress.GetProlog() == nodev1.HookState_HOOK_STATE_UNSPECIFIED ||
		t.life.Progress.GetEpilog() == nodev1.HookState_HOOK_STATE_ENDED || !h.Has(hooks.Epilog) {
		return nil
	}
	if rt := t.runtime(); rt != nil {
		if err := t.delete(ctx, rt); err != nil {
			return fmt.Errorf("end the processes before the epilog: %w", err)
		}
	}
	if !t.life.Started.IsZero() {
		t.say(&nodev1.Report{State: nodev1.AttemptState_ATTEMPT_STATE_COMPLETING, Started: t.end.Started})
	}
	err := h.Run(ctx, hooks.Epilog, hookJob(t.agent.cfg.Node, hooks.Epilog, as, t.end))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	t.life = t.life.With(func(p *nodev1.Progress) { p.Epilog = nodev1.HookState_HOOK_STATE_ENDED })
	if err != nil {
		t.log.Error("epilog failed; the node is drained", "err", err)
		if t.end.Drain == "" {
			t.end.Drain = drainReason(fmt.Sprintf("epilog failed after job %s: %v", t.id.Job, err))
		}
	}
	if err := t.note(as, t.life); err != nil {
		return err
	}
	return t.agent.journal.End(t.end)
}

// returnCards waits until the GPUs of an ended attempt are free of it. back is false when
// the worker must look again.
func (t *leaving) returnCards(ctx context.Context) (back bool, err error) {
	as, released := t.wants()
	if t.agent.cfg.GPUs == nil || len(as.GetGpus()) == 0 || t.end.Started == nil || t.back {
		return true, nil
	}
	if t.cards.Since.IsZero() {
		t.cards.Since, t.release = time.Now(), t.agent.cards.Sampler.Hold()
	}
	held := t.held(ctx, as)
	var do attempt.Leave
	do, t.cards = t.cards.Next(attempt.Cards{
		Now: time.Now(), Ended: t.end.Ended.AsTime(), Held: held, Released: released, Quiet: t.settle(), Within: t.agent.cfg.Health.Within,
	})
	switch do {
	case attempt.Back:
		return true, t.returned(ctx, as)
	case attempt.Overdue:
		t.overdue(as, held, released)
	case attempt.Say:
		t.say(&nodev1.Report{
			State: nodev1.AttemptState_ATTEMPT_STATE_COMPLETING, Reason: string(cluster.ReasonGPUReturning), Detail: held, Exit: t.end.Exit, Started: t.end.Started,
		})
	}
	t.await(ctx, t.cards.Wait)
	return false, nil
}

// settle returns how long the attempt must have nothing on its GPUs. A failed one waits for
// the driver's explanation, unless there is one already.
func (t *leaving) settle() time.Duration {
	h := &t.agent.cfg.Health
	if _, watches := t.agent.cfg.GPUs.(gpu.EventSource); t.end.State == nodev1.AttemptState_ATTEMPT_STATE_FAILED && (h.Kmsg != "" || watches) {
		if _, _, faults := t.blows(); faults.Culprit(t.end, t.life) == nil {
			return max(h.Quiet, h.Blame)
		}
	}
	return h.Quiet
}

// returned reopens the GPUs, and settles whose fault the end was.
func (t *leaving) returned(ctx context.Context, as *nodev1.Assignment) error {
	t.release()
	if t.cards.Reported {
		t.log.Info("GPU memory of an attempt that ended is back", "dur", time.Since(t.cards.Since).Round(time.Millisecond))
	}
	t.agent.cards.States.Quarantine(as, "")
	t.agent.cards.States.SetProblem(t.id.String(), "")
	t.agent.checks.After(ctx, t.id, as)
	err := t.judge(as)
	t.back = err == nil
	return err
}

// judge amends the end by the faults of the GPUs, before it is reported.
func (t *leaving) judge(as *nodev1.Assignment) error {
	if t.judged {
		return nil
	}
	t.judged = true
	r := proto.CloneOf(t.end)
	if _, _, faults := t.blows(); !faults.Blame(r, t.life, len(as.Gpus)) {
		return nil
	}
	if err := t.agent.journal.End(r); err != nil {
		return err
	}
	t.end = r
	return nil
}

// overdue quarantines the GPUs and reports the end.
func (t *leaving) overdue(as *nodev1.Assignment, held string, released bool) {
	if err := t.judge(as); err != nil {
		t.log.Error("cannot write the journal", "err", err)
		return
	}
	t.agent.cards.States.Quarantine(as, fmt.Sprintf("%s ended but has not released it: %s", t.id, held))
	if t.cards.Reported {
		return
	}
	t.cards.Reported = true
	t.log.Warn("GPU memory of an attempt that ended is not back; its GPUs are quarantined until it is", "held", held)
	if !released {
		t.agent.out.Put(t.end)
	}
}

// held removes what the runtime keeps, with every remaining process: they may hold the
// memory. It returns what is in the way, or still on the GPUs.
func (t *leaving) held(ctx context.Context, as *nodev1.Assignment) string {
	if rt := t.runtime(); rt != nil && !t.deleted {
		cctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if err := t.delete(cctx, rt); err != nil {
			return "its processes are not gone: " + err.Error()
		}
		t.deleted = true
	}
	return t.agent.cards.Left(ctx, t.cards.Since, as, t.life.Progress.GetGpuBaselineMib(), t.agent.cfg.Health.SlackMiB)
}

// drained makes sure that the leader hears that the node must be drained, even when it
// wants nothing else of the attempt.
func (t *leaving) drained(ctx context.Context) error {
	if t.end.GetDrain() == "" {
		return nil
	}
	for t.agent.out.Has(t.id) {
		t.await(ctx, t.agent.cfg.Heartbeat)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
