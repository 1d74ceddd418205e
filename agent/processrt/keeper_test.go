package processrt

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/agent/runtimetest"
	"github.com/berth-scheduler/berth/cluster"
)

// newTest opens a runtime in a directory of its own.
func newTest(t testing.TB) (rt *Runtime, dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "kp")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	rt = openTest(t, dir)
	t.Cleanup(func() {
		if err := errors.Join(rt.Close(), StopKeeper(dir), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return rt, dir
}

func newLaunch(n uint64, args ...string) *launch.Launch {
	return &launch.Launch{
		ID: cluster.AttemptID{Job: cluster.JobID(n), No: 1}, Token: 3, UID: 65534, GID: 65534,
		Args: args, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/", Stdout: os.DevNull, Stderr: os.DevNull,
	}
}

func start(t testing.TB, rt *Runtime, l *launch.Launch) runtime.Task {
	t.Helper()
	if err := errors.Join(rt.Create(t.Context(), l), rt.Start(t.Context(), l.ID)); err != nil {
		t.Fatal(err)
	}
	task, err := rt.Inspect(t.Context(), l.ID)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// until polls what another process brings about.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// listenerPID asks the socket who listens on it.
func listenerPID(t testing.TB, dir string) int {
	t.Helper()
	c, err := net.Dial("unix", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := errors.Join(raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}), credErr); err != nil {
		t.Fatal(err)
	}
	return int(cred.Pid)
}

// TestKeeperKilled loses the only parent that knows the exits: what ran is
// lost and ended, what had stopped keeps its exit code, what was created can
// still start.
func TestKeeperKilled(t *testing.T) {
	runtimetest.Require(t, runtimetest.Root())
	rt, dir := newTest(t)
	running := start(t, rt, newLaunch(1, "sh", "-c", "sleep 1000 & sleep 1000"))
	start(t, rt, newLaunch(2, "sh", "-c", "exit 6"))
	stopped := cluster.AttemptID{Job: 2, No: 1}
	until(t, "the exit", func() bool {
		task, err := rt.Inspect(t.Context(), stopped)
		return err == nil && task.Phase == runtime.Stopped
	})
	if err := rt.Create(t.Context(), newLaunch(3, "true")); err != nil {
		t.Fatal(err)
	}
	group, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", running.PID))
	if err != nil || !strings.Contains(string(group), filepath.Base(dir)+"/j1-a1") {
		t.Fatalf("the job's groups: %s (%v)", group, err)
	}
	if err := syscall.Kill(listenerPID(t, dir), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[cluster.AttemptID]runtime.Phase{
		running.ID: runtime.Lost, stopped: runtime.Stopped, {Job: 3, No: 1}: runtime.Created,
	} {
		var task runtime.Task
		until(t, "the next keeper", func() bool {
			task, err = rt.Inspect(t.Context(), id)
			return err == nil
		})
		if task.Phase != want || task.Token != 3 {
			t.Errorf("%s: got %+v, want %v", id, task, want)
		}
		if want == runtime.Stopped && task.ExitCode != 6 {
			t.Errorf("%s: got %+v, want exit 6", id, task)
		}
	}
	until(t, "the end of the lost job", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", running.PID))
		return errors.Is(err, fs.ErrNotExist) || strings.Contains(string(stat), ") Z ")
	})
	if err := rt.Start(t.Context(), cluster.AttemptID{Job: 3, No: 1}); err != nil {
		t.Errorf("start of a task that an earlier keeper created: %v", err)
	}
	until(t, "its end", func() bool {
		task, err := rt.Inspect(t.Context(), cluster.AttemptID{Job: 3, No: 1})
		return err == nil && task.Phase == runtime.Stopped
	})
	if err := rt.Delete(t.Context(), running.ID); err != nil {
		t.Errorf("delete of a lost task: %v", err)
	}
}

// TestTwoKeepers has the second one leave the first alone.
func TestTwoKeepers(t *testing.T) {
	_, dir := newTest(t)
	if err := KeeperMain(t.Context(), dir, "/berth-test/second", ""); err == nil {
		t.Error("a second keeper served the same directory")
	}
}

// TestOOMScore checks that a job does not inherit the agent's shield.
func TestOOMScore(t *testing.T) {
	runtimetest.Require(t, runtimetest.Root())
	const file = "/proc/self/oom_score_adj"
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("-500"), 0); err != nil {
		t.Skip("may not lower its own badness for the kernel: ", err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(file, old, 0); err != nil {
			t.Error(err)
		}
	})
	rt, _ := newTest(t) // the keeper inherits it
	task := start(t, rt, newLaunch(1, "sleep", "1000"))
	got, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", task.PID))
	if err != nil || strings.TrimSpace(string(got)) != "0" {
		t.Errorf("oom_score_adj of a job is %q (%v), want 0", got, err)
	}
}

// TestTimers: a job's timers are the kernel's own, whatever those of the daemons are.
func TestTimers(t *testing.T) {
	runtimetest.Require(t, runtimetest.Root())
	goruntime.LockOSThread() // never unlocked: no other goroutine gets this thread
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 4*timerSlack, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	rt, dir := newTest(t) // the keeper inherits it
	task := start(t, rt, newLaunch(1, "sleep", "1000"))
	for pid, want := range map[int]int{listenerPID(t, dir): 4 * timerSlack, task.PID: timerSlack} {
		got, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", pid))
		if err != nil || strings.TrimSpace(string(got)) != strconv.Itoa(want) {
			t.Errorf("process %d has %s (%v), want %d", pid, got, err, want)
		}
	}
}

// TestEndsOfDeletedTasks: an end that the keeper tells of late is not that of the next task.
func TestEndsOfDeletedTasks(t *testing.T) {
	rt, _ := newTest(t)
	l := newLaunch(1, "true")
	start(t, rt, l)
	var end runtime.Task
	until(t, "the end", func() bool {
		var err error
		end, err = rt.Inspect(t.Context(), l.ID)
		return err == nil && end.Phase == runtime.Stopped
	})
	if err := rt.Delete(t.Context(), l.ID); err != nil {
		t.Fatal(err)
	}
	rt.noteEnd(end)
	if got, err := rt.Inspect(t.Context(), l.ID); err != nil || got.Phase != runtime.Absent {
		t.Errorf("got %+v (%v), want it absent", got, err)
	}
}

// TestStartTwice calls Start of one task from many callers, as an agent does
// that gave up on the first call.
func TestStartTwice(t *testing.T) {
	rt, dir := newTest(t)
	out := filepath.Join(dir, "out")
	if err := os.WriteFile(out, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	l := newLaunch(1, "sh", "-c", "echo ran")
	l.UID, l.GID = uint32(os.Getuid()), uint32(os.Getgid())
	l.Stdout = out
	if err := rt.Create(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var ok atomic.Int32
	for range 16 {
		wg.Go(func() {
			if rt.Start(t.Context(), l.ID) == nil {
				ok.Add(1)
			}
		})
	}
	wg.Wait()
	if ok.Load() == 0 {
		t.Error("no start succeeded")
	}
	until(t, "the exit", func() bool {
		task, err := rt.Inspect(t.Context(), l.ID)
		return err == nil && task.Phase == runtime.Stopped
	})
	if got, err := os.ReadFile(out); err != nil || string(got) != "ran\n" {
		t.Errorf("output %q (%v), want one run", got, err)
	}
}

// TestEndsOfEarlierTasks has an id come again after its task was deleted: the
// old end, which may still be in the log, is not that of the new task.
func TestEndsOfEarlierTasks(t *testing.T) {
	rt, dir := newTest(t)
	first := newLaunch(1, "true")
	start(t, rt, first)
	until(t, "the exit", func() bool {
		task, err := rt.Inspect(t.Context(), first.ID)
		return err == nil && task.Phase == runtime.Stopped
	})
	again := newLaunch(1, "true")
	again.Token = first.Token + 1
	if err := errors.Join(rt.Delete(t.Context(), first.ID), rt.Create(t.Context(), again)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(listenerPID(t, dir), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the next keeper", func() bool {
		task, err := rt.Inspect(t.Context(), again.ID)
		if err != nil {
			return false
		}
		if task.Phase != runtime.Created || task.Token != again.Token {
			t.Fatalf("got %+v, want it created and never started", task)
		}
		return true
	})
}

// withoutGroups opens a runtime whose control groups cannot be made: their
// parent is a file.
func withoutGroups(t *testing.T, allow bool) (rt *Runtime, out string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "kp")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(dir)
	cfg.CgroupParent, cfg.AllowUncapped = "/cgroup.procs", allow
	if rt, err = Open(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(rt.Close(), StopKeeper(dir), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	out = filepath.Join(dir, "out")
	if err := errors.Join(os.WriteFile(out, nil, 0o666), os.Chmod(out, 0o666)); err != nil {
		t.Fatal(err)
	}
	return rt, out
}

func TestWithoutControlGroups(t *testing.T) {
	runtimetest.Require(t, runtimetest.Root())
	rt, out := withoutGroups(t, false)
	capped := newLaunch(1, "true")
	capped.MemBytes = 64 << 20
	le, ok := errors.AsType[*launch.Error](rt.Create(t.Context(), capped))
	if !ok || le.Reason != "MEMORY" || le.Code != 125 {
		t.Fatalf("a cap that cannot be kept: got %v, want a launch error MEMORY", le)
	}
	free := newLaunch(2, "sh", "-c", "sleep 1000 & echo $!; wait")
	free.Stdout = out
	task := start(t, rt, free)
	var left int
	until(t, "the job's own child", func() bool {
		b, err := os.ReadFile(out)
		if err != nil || !strings.HasSuffix(string(b), "\n") {
			return false
		}
		left, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	if err := rt.Signal(t.Context(), free.ID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the exit", func() bool {
		got, err := rt.Inspect(t.Context(), free.ID)
		return err == nil && got.Phase == runtime.Stopped && got.Signal == syscall.SIGKILL
	})
	until(t, "the end of all processes", func() bool { return gone(task.PID) && gone(left) })
}

// TestDeleteOfWhatRuns: a task that runs is not forgotten, with control groups or
// without: nobody would ever end it, nor know how it ended.
func TestDeleteOfWhatRuns(t *testing.T) {
	runtimetest.Require(t, runtimetest.Root())
	for name, open := range map[string]func() *Runtime{
		"capped":   func() *Runtime { rt, _ := newTest(t); return rt },
		"uncapped": func() *Runtime { rt, _ := withoutGroups(t, true); return rt },
	} {
		t.Run(name, func(t *testing.T) {
			rt := open()
			l := newLaunch(1, "sleep", "1000")
			start(t, rt, l)
			if err := rt.Delete(t.Context(), l.ID); err == nil {
				t.Error("it was deleted while it ran")
			}
			if got, err := rt.Inspect(t.Context(), l.ID); err != nil || got.Phase != runtime.Running {
				t.Fatalf("after that it is %v, %v", got.Phase, err)
			}
			if err := rt.Signal(t.Context(), l.ID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			until(t, "its end", func() bool {
				got, err := rt.Inspect(t.Context(), l.ID)
				return err == nil && got.Phase == runtime.Stopped
			})
			if err := rt.Delete(t.Context(), l.ID); err != nil {
				t.Errorf("delete after its end: %v", err)
			}
		})
	}
}

func TestAllowUncapped(t *testing.T) {
	runtimetest.Require(t, runtimetest.Root())
	rt, _ := withoutGroups(t, true)
	capped := newLaunch(1, "sh", "-c", "exit 6")
	capped.MemBytes = 64 << 20
	start(t, rt, capped)
	until(t, "exit 6", func() bool {
		task, err := rt.Inspect(t.Context(), capped.ID)
		return err == nil && task.Phase == runtime.Stopped && task.ExitCode == 6
	})
}

// gone reports whether no process of this number runs; a zombie does not.
func gone(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

// TestInherited has jobs not depend on how the service was started.
func TestInherited(t *testing.T) {
	old := syscall.Umask(0o077)
	rt, dir := newTest(t)
	syscall.Umask(old)
	out := filepath.Join(dir, "out")
	if err := errors.Join(os.WriteFile(out, nil, 0o666), os.Chmod(out, 0o666)); err != nil {
		t.Fatal(err)
	}
	l := newLaunch(1, "sh", "-c", "umask; ulimit -S -c")
	l.UID, l.GID = uint32(os.Getuid()), uint32(os.Getgid())
	l.Stdout = out
	start(t, rt, l)
	until(t, "the exit", func() bool {
		task, err := rt.Inspect(t.Context(), l.ID)
		return err == nil && task.Phase == runtime.Stopped
	})
	if got, err := os.ReadFile(out); err != nil || string(got) != "0022\n0\n" {
		t.Errorf("umask and limit of core dumps: got %q (%v), want 0022 and 0", got, err)
	}
}
