package containerdrt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/cluster"
)

// List implements agent.Runtime.
func (r *Runtime) List(ctx context.Context) ([]agent.Task, error) {
	cs, err := r.client.Containers(r.with(ctx))
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	out := make([]agent.Task, 0, len(cs))
	for _, c := range cs {
		id, _, err := parseName(c.ID())
		if err != nil || r.name(id) != c.ID() {
			continue // not ours, or of an earlier try
		}
		t, err := r.Inspect(ctx, id)
		if err != nil {
			return nil, err
		}
		if t.Phase != agent.TaskAbsent {
			out = append(out, t)
		}
	}
	return out, nil
}

// Inspect implements agent.Runtime.
func (r *Runtime) Inspect(ctx context.Context, id cluster.AttemptID) (agent.Task, error) {
	t, _, err := r.inspect(ctx, id)
	return t, err
}

// inspect returns containerd's task as well; nil where there is none, or its
// exit was read before.
func (r *Runtime) inspect(ctx context.Context, id cluster.AttemptID) (agent.Task, containerd.Task, error) {
	ctx, cancel := context.WithTimeout(r.with(ctx), callDeadline)
	defer cancel()
	t := agent.Task{ID: id}
	c, err := r.client.LoadContainer(ctx, r.name(id))
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
	if ok, err := r.readExit(id, &t); ok || err != nil {
		return t, nil, err
	}
	task, err := taskOf(ctx, c)
	if err == nil || errdefs.IsNotFound(err) {
		err = r.observe(ctx, &t, task)
	}
	if started := r.startedAt(id); errors.Is(err, errSilent) && !started.IsZero() && r.gate(id) == gateOpen {
		t.Phase, t.Started, err = agent.TaskRunning, started, nil // or it ran, as will be told
		r.await(id)
	}
	return t, task, err
}

// observe fills in what containerd's task, nil where it knows none, tells of t.
func (r *Runtime) observe(ctx context.Context, t *agent.Task, task containerd.Task) error {
	id := t.ID
	started := r.startedAt(id)
	if task == nil {
		// Without a task it was never created whole, or its shim is gone.
		if !started.IsZero() && r.gate(id) != gateShut {
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
		t.Phase = agent.TaskCreated
		if !started.IsZero() && r.gate(id) == gateOpen {
			t.Phase = agent.TaskRunning // runc died before it could say so
		}
	case containerd.Stopped:
		if r.neverBegan(id, started, st) {
			*t = agent.Task{ID: id, Token: t.Token} // absent: it can be made again
			return nil
		}
		return r.stopped(id, t, st)
	default:
		t.Phase = agent.TaskRunning
	}
	if t.Phase == agent.TaskRunning {
		r.await(id) // its start may have failed to say that it is one
	}
	return nil
}

// neverBegan tells of a first process that ended whether it did so before its
// first step, when nobody meant it to end.
func (r *Runtime) neverBegan(id cluster.AttemptID, started time.Time, st containerd.Status) bool {
	if started.IsZero() {
		return true // nobody of ours let it go
	}
	return st.ExitStatus <= 128 && r.gate(id) == gateShut
}

// lost is a task that may have run and of whose end nobody knows. Its shim
// may have left processes, and nobody else ends them.
func (r *Runtime) lost(t *agent.Task, started time.Time) {
	t.Phase, t.Started = agent.TaskLost, started
	if err := r.group(t.ID).Kill(); err != nil {
		r.cfg.Log.Error("cannot kill what is left of a lost task", "task", t.ID.String(), "err", err)
	}
}

func (r *Runtime) startedAt(id cluster.AttemptID) time.Time {
	data, err := os.ReadFile(r.file(id, kindStarted))
	if err != nil {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, string(data))
	if err != nil {
		return time.Time{}
	}
	return t
}

// stopped takes down how a task ended, while its control group is there.
func (r *Runtime) stopped(id cluster.AttemptID, t *agent.Task, st containerd.Status) error {
	t.Phase, t.ExitCode, t.Ended = agent.TaskStopped, int(st.ExitStatus), st.ExitTime
	t.Doubtful = r.gate(id) == gateUnknown
	if ws, ok := r.trueEnd(id); ok {
		// Both say the same of every end; but the kernel's word has no two meanings.
		if ws.Signaled() {
			t.Signal = ws.Signal()
		}
	} else if t.ExitCode > 128 && t.ExitCode <= 128+64 {
		t.Signal = syscall.Signal(t.ExitCode - 128)
	}
	g := r.group(id)
	if n, err := g.OOMKills(); err == nil && n > 0 {
		// What ended by itself just before it could be ended as a whole was out of
		// memory too: a shell, say, whose pipeline the kernel broke.
		r.mu.Lock()
		_, listened := r.listened[id]
		r.mu.Unlock()
		t.OOMKilled = listened || t.ExitCode == 128+int(syscall.SIGKILL)
	}
	if sig, ok := r.actedFor(id); ok && t.Signal == syscall.SIGKILL && !t.OOMKilled {
		t.Signal, t.ExitCode = sig, 128+int(sig)
	}
	if n := g.PidsRefused(); n > 0 {
		r.cfg.Log.Info("a job ran into its limit of processes", "task", id.String(), "limit", r.cfg.Policy.Pids, "count", n)
	}
	t.MemPeakBytes, t.CPUTime, t.IO = g.MemPeak(), g.CPUTime(), r.storage(id)
	return r.writeExit(id, t)
}

// writeExit records an exit on disk before anybody may delete the task.
func (r *Runtime) writeExit(id cluster.AttemptID, t *agent.Task) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	tmp := r.file(id, kindExit+".new")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("record exit: %w", err)
	}
	if err := os.Rename(tmp, r.file(id, kindExit)); err != nil {
		return fmt.Errorf("record exit: %w", err)
	}
	d, err := os.Open(r.cfg.Dir)
	if err != nil {
		return fmt.Errorf("record exit: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

func (r *Runtime) readExit(id cluster.AttemptID, t *agent.Task) (bool, error) {
	data, err := os.ReadFile(r.file(id, kindExit))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(data, t); err != nil {
		return false, fmt.Errorf("exit record of %s: %w", id, err)
	}
	return true, nil
}
