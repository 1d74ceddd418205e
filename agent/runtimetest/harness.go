// Package runtimetest tests what every runtime.Runtime must do, with real processes of a user
// who is not root.
package runtimetest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// Runtime is the interface under test.
type Runtime interface {
	runtime.Runtime
	// Close releases the tasks, which continue.
	Close() error
}

// Open opens a runtime on a state directory with a short path. It is called again with the same
// directory to find earlier tasks, also by a second process that runs the same test. The test
// that calls Run must clean up what outlives Close.
type Open = func(t *testing.T, dir string) Runtime

const (
	testUID   = 65534
	testGID   = 65534
	testGroup = 4711
	patience  = 10 * time.Minute // containers get small shares of a busy machine
	pollEvery = 5 * time.Millisecond
)

// Require skips a test that lacks what it needs, and fails it where nothing may be missing: if
// the environment has CI, or BERTH_REQUIRE_CONTAINERD=1.
func Require(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if env("CI") != "" || env("BERTH_REQUIRE_CONTAINERD") == "1" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// env reads a switch of the test. The suite is part of no program that could pass it.
func env(name string) string {
	v, _ := syscall.Getenv(name)
	return v
}

// Root returns an error unless the process may run jobs as other users.
func Root() error {
	if os.Getuid() != 0 {
		return errors.New("needs root: jobs run as their users, in control groups")
	}
	return nil
}

// harness is one runtime with a directory for its jobs' files.
type harness struct {
	*testing.T
	open Open
	rt   Runtime
	// dir belongs to the runtime; out belongs to the user.
	dir, out string
	ids      *atomic.Uint64
}

func newHarness(t *testing.T, open Open) *harness {
	t.Helper()
	h := &harness{T: t, open: open, dir: tempDir(t), out: tempDir(t), ids: new(atomic.Uint64)}
	if err := errors.Join(os.Chmod(h.out, 0o755), os.Chown(h.out, testUID, testGID)); err != nil {
		t.Fatal(err)
	}
	h.rt = open(t, h.dir)
	t.Cleanup(h.close)
	return h
}

// tempDir returns a directory with a path short enough for sockets, unlike t.TempDir, which may
// be opened to others.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "rt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// close ends and deletes every task, so that nothing outlives the test.
func (h *harness) close() {
	ctx := h.T.Context()
	if h.rt == nil {
		return
	}
	if ctx.Err() != nil { // cleanups run after the test's context ended
		ctx = backgroundOf(h.T)
	}
	tasks, err := h.rt.List(ctx)
	if err != nil {
		h.Error(err)
	}
	for _, task := range tasks {
		if task.Phase == runtime.Running {
			if err := h.rt.Signal(ctx, task.ID, syscall.SIGKILL); err != nil {
				h.Error(err)
			}
			h.until("the end of "+task.ID.String(), func() bool {
				got, err := h.rt.Inspect(ctx, task.ID)
				return err == nil && got.Phase != runtime.Running
			})
		}
		if err := h.rt.Delete(ctx, task.ID); err != nil {
			h.Error(err)
		}
	}
	if err := h.rt.Close(); err != nil {
		h.Error(err)
	}
}

// reopen closes the runtime and opens another on the same directory.
func (h *harness) reopen() {
	h.Helper()
	if err := h.rt.Close(); err != nil {
		h.Fatal(err)
	}
	h.rt = h.open(h.T, h.dir)
}

// job returns a launch of args as the test's user, with its output in a file.
func (h *harness) job(args ...string) *launch.Launch {
	id := cluster.AttemptID{Job: cluster.JobID(h.ids.Add(1)), No: 1}
	out := h.path(id.String() + ".out")
	return &launch.Launch{
		ID: id, Token: 7, UID: testUID, GID: testGID, Groups: []uint32{testGID, testGroup},
		Args: args, Env: []string{"PATH=/usr/bin:/bin"}, Dir: h.out, Stdout: out, Stderr: out,
	}
}

// sh returns a job that runs a shell script.
func (h *harness) sh(script string) *launch.Launch { return h.job("/bin/sh", "-c", script) }

func (h *harness) path(name string) string { return filepath.Join(h.out, name) }

func (h *harness) start(l *launch.Launch) {
	h.Helper()
	if err := h.rt.Create(h.Context(), l); err != nil {
		h.Fatalf("create %q: %v", l.Args, err)
	}
	if err := h.rt.Start(h.Context(), l.ID); err != nil {
		h.Fatalf("start %q: %v", l.Args, err)
	}
}

// run starts a job and returns how it ended.
func (h *harness) run(l *launch.Launch) runtime.Task {
	h.Helper()
	h.start(l)
	return h.wait(l.ID)
}

// wait waits for a task to end in any way, and returns it.
func (h *harness) wait(id cluster.AttemptID) runtime.Task {
	h.Helper()
	var task runtime.Task
	h.until("the end of "+id.String(), func() bool {
		task = h.inspect(id)
		return task.Phase == runtime.Stopped || task.Phase == runtime.Lost
	})
	return task
}

func (h *harness) inspect(id cluster.AttemptID) runtime.Task {
	h.Helper()
	task, err := h.rt.Inspect(h.Context(), id)
	if err != nil {
		h.Fatal(err)
	}
	return task
}

func (h *harness) signal(id cluster.AttemptID, sig syscall.Signal) {
	h.Helper()
	if err := h.rt.Signal(h.Context(), id, sig); err != nil {
		h.Fatalf("signal %v: %v", sig, err)
	}
}

// refused runs a job that can never start and returns the resulting error.
func (h *harness) refused(l *launch.Launch) *launch.Error {
	h.Helper()
	err := h.rt.Create(h.Context(), l)
	if err == nil {
		err = h.rt.Start(h.Context(), l.ID)
	}
	le, ok := errors.AsType[*launch.Error](err)
	if !ok {
		h.Fatalf("launch of %q in %s: got error %v, want a *launch.Error", l.Args, l.Dir, err)
	}
	if err := h.rt.Delete(h.Context(), l.ID); err != nil {
		h.Errorf("delete what could not start: %v", err)
	}
	return le
}

// until polls a condition that real processes bring about.
func (h *harness) until(what string, cond func() bool) {
	h.Helper()
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			h.Fatalf("waited %s for %s", patience, what)
		}
		time.Sleep(pollEvery)
	}
}

// printed waits until a file contains a line, and returns its lines.
func (h *harness) printed(path string) []string {
	h.Helper()
	var text string
	h.until("a line in "+path, func() bool {
		b, err := os.ReadFile(path)
		text = string(b)
		return err == nil && strings.HasSuffix(text, "\n")
	})
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

func (h *harness) write(name, text string, mode os.FileMode) string {
	h.Helper()
	p := h.path(name)
	if err := errors.Join(os.WriteFile(p, []byte(text), mode), os.Chmod(p, mode)); err != nil {
		h.Fatal(err)
	}
	return p
}

// alive reports whether a process is running; a zombie is not.
func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest != "" && rest[0] != 'Z' && rest[0] != 'X'
}

// childJob is the id of the job that the killed child leaves.
const childJob = 501

func childIDs() *atomic.Uint64 {
	n := new(atomic.Uint64)
	n.Store(childJob - 1)
	return n
}
