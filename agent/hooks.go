package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/berth-scheduler/berth/agent/hooks"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Hooks runs an operator's programs before and after each attempt. Calls are
// safe for concurrent use on different attempts.
type Hooks interface {
	// Has reports whether there is a hook of a kind.
	Has(hooks.Kind) bool
	// Run runs it to its end; without one it does nothing. The error says in
	// one line what is wrong.
	Run(ctx context.Context, kind hooks.Kind, job *hooks.Job) error
}

func hookJob(node cluster.NodeID, kind hooks.Kind, as *nodev1.Assignment, end *nodev1.Report) *hooks.Job {
	j := &hooks.Job{
		Hook: kind, Job: as.Job, Attempt: conv.AttemptOf(as).String(), Name: as.Name, User: as.User, UID: as.Uid, GID: as.Gid,
		Node: string(node), Restarts: max(1, as.Attempt) - 1, Partition: as.Partition, Image: as.Image,
		CPUMilli: as.CpuMilli, MemMiB: as.MemMib, GPUs: []hooks.GPU{},
	}
	for _, g := range as.Gpus {
		j.GPUs = append(j.GPUs, hooks.GPU{UUID: g.Uuid, MemMiB: g.MemMib, Milli: g.Milli, Exclusive: g.Exclusive})
	}
	if end != nil {
		j.End = &hooks.End{
			State:    strings.TrimPrefix(end.State.String(), "ATTEMPT_STATE_"),
			ExitCode: end.GetExit().GetCode(), Signal: end.GetExit().GetSignal(), Reason: end.Reason,
		}
	}
	return j
}

// prolog prepares the node for an attempt. The journal says that it began
// before it does, so that an epilog follows whatever happens, and that it
// ended; an agent that is killed between runs it again. When it fails the node
// is at fault: the job waits again, and the node takes no more.
func (t *task) prolog(ctx context.Context, as *nodev1.Assignment) error {
	h := t.agent.cfg.Hooks
	if h == nil || t.life.Progress.GetProlog() == nodev1.HookState_HOOK_STATE_ENDED || !h.Has(hooks.Prolog) && !h.Has(hooks.Epilog) {
		return nil
	}
	at := func(s nodev1.HookState) error {
		return t.note(as, t.life.With(func(p *nodev1.Progress) { p.Prolog = s }))
	}
	if err := at(nodev1.HookState_HOOK_STATE_BEGUN); err != nil {
		return err
	}
	if err := h.Run(ctx, hooks.Prolog, hookJob(t.agent.cfg.Node, hooks.Prolog, as, nil)); err != nil {
		if ctx.Err() == nil {
			t.drain = drainReason(fmt.Sprintf("prolog failed before job %s: %v", t.id.Job, err))
			t.log.Error("prolog failed; the node is drained", "err", err)
		}
		return &launch.Error{Code: 125, Reason: "PROLOG", Node: true, Err: err}
	}
	return at(nodev1.HookState_HOOK_STATE_ENDED)
}

// epilog clears up the node after an attempt whose prolog began. It comes
// after the end of its processes and before its cards and its end are given
// out, so that who comes next finds the node clear. When it fails the node is
// drained; the job's end stays what it was.
func (t *task) epilog(ctx context.Context) error {
	h := t.agent.cfg.Hooks
	as, _ := t.wants()
	if h == nil || as == nil || t.life.Progress.GetProlog() == nodev1.HookState_HOOK_STATE_UNSPECIFIED ||
		t.life.Progress.GetEpilog() == nodev1.HookState_HOOK_STATE_ENDED || !h.Has(hooks.Epilog) {
		return nil
	}
	if rt := t.runtime(); rt != nil {
		if err := rt.Delete(ctx, t.id); err != nil {
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

// runtime returns the runtime of the attempt, nil when there is none for it.
func (t *task) runtime() runtime.Runtime {
	if t.rt == nil {
		as, _ := t.wants()
		t.rt = t.agent.runtimeFor(as)
	}
	return t.rt
}

// drained makes sure that the leader hears that the node is to be drained,
// also when it wants nothing else of the attempt.
func (t *task) drained(ctx context.Context) error {
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

// maxDrainReason is what coordinators take.
const maxDrainReason = 256

// drainReason is clipped to what coordinators take.
func drainReason(s string) string {
	if len(s) > maxDrainReason {
		s = s[:maxDrainReason-3] + "..."
	}
	return strings.ToValidUTF8(s, "")
}
