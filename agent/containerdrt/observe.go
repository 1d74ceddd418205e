package containerdrt

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"github.com/berth-scheduler/berth/agent/containerdrt/gates"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// List implements runtime.Runtime.
func (r *Runtime) List(ctx context.Context) ([]runtime.Task, error) {
	cs, err := r.client.Containers(r.with(ctx))
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	out := make([]runtime.Task, 0, len(cs))
	for _, c := range cs {
		id, _, err := parseName(c.ID())
		if err != nil || r.tries.name(id) != c.ID() {
			continue // not ours, or of an earlier try
		}
		t, err := r.Inspect(ctx, id)
		if err != nil {
			return nil, err
		}
		if t.Phase != runtime.Absent {
			out = append(out, t)
		}
	}
	return out, nil
}

// Inspect implements runtime.Runtime.
func (r *Runtime) Inspect(ctx context.Context, id cluster.AttemptID) (runtime.Task, error) {
	t, _, err := r.inspect(ctx, id)
	return t, err
}

// inspect also returns containerd's task; nil if there is none, or its exit was read
// before.
func (r *Runtime) inspect(ctx context.Context, id cluster.AttemptID) (runtime.Task, containerd.Task, error) {
	ctx, cancel := context.WithTimeout(r.with(ctx), callDeadline)
	defer cancel()
	t := runtime.Task{ID: id}
	c, err := r.client.LoadContainer(ctx, r.tries.name(id))
	if errdefs.IsNotFound(err) {
		return t, nil, nil
	}
	if err != nil {
		return t, nil, err
	}
	if info, err := c.Info(ctx, containerd.WithoutRefreshedMetadata); err == nil {
		n, _ := strconv.ParseUint(info.Labels[labelToken], 10, 64)
		t.Token = cluster.Token(n)
	}
	if ok, err := r.records.readExit(id, &t); ok || err != nil {
		return t, nil, err
	}
	task, err := taskOf(ctx, c)
	if err == nil || errdefs.IsNotFound(err) {
		err = r.observe(ctx, &t, task)
	}
	if started := r.records.startedAt(id); errors.Is(err, errSilent) && !started.IsZero() && r.gate(id) == gates.Open {
		t.Phase, t.Started, err = runtime.Running, started, nil // or it ran, as is reported next
		r.await(id)
	}
	return t, task, err
}

// observe fills in t from containerd's task, which is nil if containerd knows none.
func (r *Runtime) observe(ctx context.Context, t *runtime.Task, task containerd.Task) error {
	id := t.ID
	started := r.records.startedAt(id)
	if task == nil {
		// Without a task, it was never fully created, or its shim has gone.
		if !started.IsZero() && r.gate(id) != gates.Shut {
			r.lost(t, started)
		}
		return nil
	}
	st, err := statusOf(ctx, task)
	if err != nil {
		return err
	}
	t.PID, t.Started = int(task.Pid()), started
	switch st.Status {
	case containerd.Created:
		t.Phase = runtime.Created
		if !started.IsZero() && r.gate(id) == gates.Open {
			t.Phase = runtime.Running // runc died before it could report it
		}
	case containerd.Stopped:
		if r.neverBegan(id, started, st) {
			*t = runtime.Task{ID: id, Token: t.Token} // absent: it can be created again
			return nil
		}
		return r.stopped(id, t, st)
	default:
		t.Phase = runtime.Running
	}
	if t.Phase == runtime.Running {
		r.await(id) // its start may have failed to record it
	}
	return nil
}

// neverBegan reports whether a first process that ended without being asked to did so
// before its first step.
func (r *Runtime) neverBegan(id cluster.AttemptID, started time.Time, st containerd.Status) bool {
	if started.IsZero() {
		return true // we did not release it
	}
	return st.ExitStatus <= 128 && r.gate(id) == gates.Shut
}

// lost marks a task that may have run and whose end is unknown. Its shim may have left
// processes, which nothing else ends.
func (r *Runtime) lost(t *runtime.Task, started time.Time) {
	t.Phase, t.Started = runtime.Lost, started
	if err := r.group(t.ID).Kill(); err != nil {
		r.cfg.Log.Error("cannot kill what is left of a lost task", "task", t.ID.String(), "err", err)
	}
}

// stopped records how a task ended, while its control group still exists.
func (r *Runtime) stopped(id cluster.AttemptID, t *runtime.Task, st containerd.Status) error {
	t.Phase, t.ExitCode, t.Ended = runtime.Stopped, int(st.ExitStatus), st.ExitTime
	t.Doubtful = r.gate(id) == gates.Unknown
	if ws, ok := r.firsts.End(id); ok {
		// Both report every end the same way; but the kernel's status is unambiguous.
		if ws.Signaled() {
			t.Signal = ws.Signal()
		}
	} else if t.ExitCode > 128 && t.ExitCode <= 128+64 {
		t.Signal = syscall.Signal(t.ExitCode - 128)
	}
	g := r.group(id)
	if n, err := g.OOMKills(); err == nil && n > 0 {
		// A task that ended by itself just before it could be killed as a whole was out of
		// memory too: for example a shell whose pipeline the kernel broke.
		t.OOMKilled = r.firsts.Listened(id) || t.ExitCode == 128+int(syscall.SIGKILL)
	}
	if sig, ok := r.records.actedFor(id); ok && t.Signal == syscall.SIGKILL && !t.OOMKilled {
		t.Signal, t.ExitCode = sig, 128+int(sig)
	}
	if n := g.PidsRefused(); n > 0 {
		r.cfg.Log.Info("a job ran into its limit of processes", "task", id.String(), "limit", r.cfg.Policy.Pids, "count", n)
	}
	t.MemPeakBytes, t.CPUTime, t.IO = g.MemPeak(), g.CPUTime(), r.firsts.Storage(id)
	return r.records.writeExit(id, t)
}

// containerd gives a shim two seconds to report its task's state. On a very busy machine a
// shim may need longer. containerd then answers all the same, with an unknown state and
// process 0 (services/tasks, getProcessState); neither may be taken literally.

// errSilent is returned when a shim did not answer silentTries times.
var errSilent = errors.New("its shim does not answer")

const silentTries = 3

// taskOf returns containerd's task of a container, with its real pid.
func taskOf(ctx context.Context, c containerd.Container) (containerd.Task, error) {
	for range silentTries {
		task, err := c.Task(ctx, nil)
		if err != nil || task.Pid() != 0 {
			return task, err
		}
	}
	return nil, fmt.Errorf("task %s: %w", c.ID(), errSilent)
}

// statusOf returns a known state.
func statusOf(ctx context.Context, task containerd.Task) (containerd.Status, error) {
	for range silentTries {
		st, err := task.Status(ctx)
		if err != nil || st.Status != containerd.Unknown {
			return st, err
		}
	}
	return containerd.Status{}, fmt.Errorf("task %s: %w", task.ID(), errSilent)
}

// gate returns whether the first process of a task passed its gate.
func (r *Runtime) gate(id cluster.AttemptID) gates.Gate { return r.gates.Of(r.tries.name(id)) }
