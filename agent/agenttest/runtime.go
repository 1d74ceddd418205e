// Package agenttest has a Runtime for tests that runs nothing: tests decide when a task ends,
// and which call fails.
package agenttest

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// Runtime is a fake runtime.Runtime. It outlives agents, as real ones do.
type Runtime struct {
	exits chan cluster.AttemptID

	mu    sync.Mutex
	tasks map[cluster.AttemptID]*runtime.Task
	// launched keeps the argument of each Create.
	launched map[cluster.AttemptID]*launch.Launch
	calls    []string
	fail     map[string][]error
	ignored  map[syscall.Signal]bool
	doubted  bool
}

// New returns a runtime with no tasks.
func New() *Runtime {
	return &Runtime{
		exits: make(chan cluster.AttemptID, 100), tasks: map[cluster.AttemptID]*runtime.Task{},
		launched: map[cluster.AttemptID]*launch.Launch{}, fail: map[string][]error{}, ignored: map[syscall.Signal]bool{},
	}
}

// Fail makes the next calls of op ("list", "create", "start", "delete", "inspect") fail with
// errs in order. With "first step" a start is cut off before it, and with "answer of start"
// after it.
func (r *Runtime) Fail(op string, errs ...error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail[op] = append(r.fail[op], errs...)
}

// IgnoreTERM makes tasks end only by SIGKILL.
func (r *Runtime) IgnoreTERM() { r.Ignore(syscall.SIGTERM) }

// Ignore makes tasks ignore sig.
func (r *Runtime) Ignore(sig syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ignored[sig] = true
}

// Doubt makes it unknown from now on whether a task that ended began.
func (r *Runtime) Doubt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doubted = true
}

// Calls lists the calls that changed something, as "create j1-a1".
func (r *Runtime) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.calls...)
}

// Launch returns what Create was given for id.
func (r *Runtime) Launch(id cluster.AttemptID) *launch.Launch {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.launched[id]
}

// Exit ends a running task. tell says whether the runtime reports it.
func (r *Runtime) Exit(id cluster.AttemptID, code int, tell bool) {
	r.end(id, func(t *runtime.Task) { t.ExitCode = code }, tell)
}

// OOMKill ends a running task as the kernel does at its memory cap.
func (r *Runtime) OOMKill(id cluster.AttemptID) {
	r.end(id, func(t *runtime.Task) { t.OOMKilled, t.Signal, t.ExitCode = true, syscall.SIGKILL, 137 }, true)
}

func (r *Runtime) end(id cluster.AttemptID, how func(*runtime.Task), tell bool) {
	r.mu.Lock()
	t := r.tasks[id]
	if t == nil || t.Phase != runtime.Running {
		r.mu.Unlock()
		return
	}
	how(t)
	t.Phase, t.Ended, t.Doubtful = runtime.Stopped, time.Now(), r.doubted
	r.mu.Unlock()
	if tell {
		r.exits <- id
	}
}

// Phase returns the phase of a task.
func (r *Runtime) Phase(id cluster.AttemptID) runtime.Phase {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tasks[id]; t != nil {
		return t.Phase
	}
	return runtime.Absent
}

// begin records a call and returns the error that it should have.
func (r *Runtime) begin(op string, id cluster.AttemptID) error {
	if op != "inspect" {
		r.calls = append(r.calls, op+" "+id.String())
	}
	return r.failure(op)
}

// failure returns the error that the next call of op should have.
func (r *Runtime) failure(op string) error {
	if errs := r.fail[op]; len(errs) > 0 {
		r.fail[op] = errs[1:]
		return errs[0]
	}
	return nil
}

// Create implements runtime.Runtime.
func (r *Runtime) Create(_ context.Context, l *launch.Launch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.begin("create", l.ID); err != nil {
		return err
	}
	r.launched[l.ID] = l
	if r.tasks[l.ID] == nil {
		r.tasks[l.ID] = &runtime.Task{ID: l.ID, Token: l.Token, Phase: runtime.Created}
	}
	return nil
}

// Start implements runtime.Runtime.
func (r *Runtime) Start(_ context.Context, id cluster.AttemptID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.begin("start", id); err != nil {
		return err
	}
	t := r.tasks[id]
	if t == nil {
		return errors.New("start: no such task")
	}
	if errs := r.fail["first step"]; len(errs) > 0 {
		r.fail["first step"] = errs[1:]
		delete(r.tasks, id)
		return errs[0]
	}
	if t.Phase == runtime.Created {
		t.Phase, t.PID, t.Started = runtime.Running, 1000, time.Now()
	}
	// The answer may get lost.
	if errs := r.fail["answer of start"]; len(errs) > 0 {
		r.fail["answer of start"] = errs[1:]
		return errs[0]
	}
	return nil
}

// Signal implements runtime.Runtime.
func (r *Runtime) Signal(_ context.Context, id cluster.AttemptID, sig syscall.Signal) error {
	return r.signal(sig.String(), id, sig)
}

func (r *Runtime) signal(call string, id cluster.AttemptID, sig syscall.Signal) error {
	r.mu.Lock()
	err := r.begin(call, id)
	ignored := r.ignored[sig]
	r.mu.Unlock()
	if err != nil || ignored {
		return err
	}
	r.end(id, func(t *runtime.Task) { t.Signal, t.ExitCode = sig, 128+int(sig) }, true)
	return nil
}

// Broadcast implements runtime.Runtime: a task here is one process.
func (r *Runtime) Broadcast(_ context.Context, id cluster.AttemptID, sig syscall.Signal, to runtime.Audience) error {
	if to == runtime.ToAll {
		return r.signal("all-"+sig.String(), id, sig)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begin("others-"+sig.String(), id)
}

// Delete implements runtime.Runtime.
func (r *Runtime) Delete(_ context.Context, id cluster.AttemptID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.begin("delete", id); err != nil {
		return err
	}
	if t := r.tasks[id]; t != nil && t.Phase == runtime.Running {
		return errors.New("delete: task runs")
	}
	delete(r.tasks, id)
	return nil
}

// Name implements runtime.Runtime.
func (r *Runtime) Name() string { return "fake" }

// List implements runtime.Runtime.
func (r *Runtime) List(context.Context) ([]runtime.Task, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.failure("list"); err != nil {
		return nil, err
	}
	var out []runtime.Task
	for _, t := range r.tasks {
		out = append(out, *t)
	}
	return out, nil
}

// Inspect implements runtime.Runtime.
func (r *Runtime) Inspect(_ context.Context, id cluster.AttemptID) (runtime.Task, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.begin("inspect", id); err != nil {
		return runtime.Task{}, err
	}
	if t := r.tasks[id]; t != nil {
		return *t, nil
	}
	return runtime.Task{ID: id}, nil
}

// Exits implements runtime.Runtime.
func (r *Runtime) Exits() <-chan cluster.AttemptID { return r.exits }
