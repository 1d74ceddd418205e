package runtimetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

func testIdempotent(h *harness) {
	ctx := h.Context()
	absent := cluster.AttemptID{Job: 999, No: 1}
	if err := h.rt.Delete(ctx, absent); err != nil {
		h.Errorf("delete of an absent task: %v", err)
	}
	if err := h.rt.Signal(ctx, absent, syscall.SIGKILL); err != nil {
		h.Errorf("signal to an absent task: %v", err)
	}
	if err := h.rt.Start(ctx, absent); err == nil {
		h.Error("start of an absent task: no error")
	}
	l := h.sh("echo began; while [ ! -e gate ]; do sleep 0.02; done; exit 3")
	for range 3 {
		if err := h.rt.Create(ctx, l); err != nil {
			h.Fatalf("create: %v", err)
		}
	}
	if task := h.inspect(l.ID); task.Phase != runtime.Created || task.Token != l.Token {
		h.Errorf("after create: got %+v", task)
	}
	for range 3 {
		if err := h.rt.Start(ctx, l.ID); err != nil {
			h.Fatalf("start: %v", err)
		}
	}
	h.printed(l.Stdout)
	if err := h.rt.Create(ctx, l); err != nil {
		h.Errorf("create of a running task: %v", err)
	}
	if err := h.rt.Delete(ctx, l.ID); err == nil {
		h.Error("delete of a running task: no error")
	}
	h.write("gate", "", 0o644)
	if task := h.wait(l.ID); task.ExitCode != 3 || task.Token != l.Token {
		h.Errorf("got %+v, want exit 3", task)
	}
	if err := h.rt.Start(ctx, l.ID); err != nil {
		h.Errorf("start of a stopped task: %v", err)
	}
	if got := h.printed(l.Stdout); len(got) != 1 {
		h.Errorf("the job ran %d times", len(got))
	}
	for range 3 {
		if err := h.rt.Delete(ctx, l.ID); err != nil {
			h.Errorf("delete: %v", err)
		}
	}
	if task := h.inspect(l.ID); task.Phase != runtime.Absent {
		h.Errorf("after delete: got %+v", task)
	}
	never := h.sh("exit 0")
	if err := h.rt.Create(ctx, never); err != nil {
		h.Fatal(err)
	}
	if err := h.rt.Delete(ctx, never.ID); err != nil {
		h.Errorf("delete of a task that never started: %v", err)
	}
}

func testList(h *harness) {
	created, running, stopped := h.sh("exit 0"), h.job("sleep", "1000"), h.sh("exit 5")
	if err := h.rt.Create(h.Context(), created); err != nil {
		h.Fatal(err)
	}
	h.start(running)
	h.run(stopped)
	want := map[cluster.AttemptID]runtime.Phase{
		created.ID: runtime.Created, running.ID: runtime.Running, stopped.ID: runtime.Stopped,
	}
	tasks, err := h.rt.List(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	if len(tasks) != len(want) {
		h.Errorf("listed %d tasks, want %d", len(tasks), len(want))
	}
	for _, task := range tasks {
		if task.Phase != want[task.ID] || task.Token != 7 {
			h.Errorf("listed %+v, want phase %v and token 7", task, want[task.ID])
		}
		if task.Phase == runtime.Running && !alive(task.PID) {
			h.Errorf("pid %d of the running task is not alive", task.PID)
		}
	}
}

func testExits(h *harness) {
	l := h.sh("exit 0")
	h.start(l)
	timeout := time.After(patience)
	for {
		select {
		case id := <-h.rt.Exits():
			if id != l.ID {
				continue
			}
			if task := h.inspect(id); task.Phase != runtime.Stopped {
				h.Errorf("announced with %+v", task)
			}
			return
		case <-timeout:
			h.Fatalf("the exit was not announced within %s", patience)
		}
	}
}

// testLeftBehind forks twice, so that no parent waits for the remaining process.
func testLeftBehind(h *harness) {
	l := h.sh("(setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!); exit 3")
	h.start(l)
	left, err := strconv.Atoi(h.printed(l.Stdout)[0])
	if err != nil {
		h.Fatal(err)
	}
	if task := h.wait(l.ID); task.ExitCode != 3 {
		h.Errorf("got %+v, want exit 3", task)
	}
	h.until("the end of the process that was left", func() bool { return !alive(left) })
	// SIGKILL reaches all processes, not only the first.
	l = h.sh("(setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!); sleep 1000")
	h.start(l)
	if left, err = strconv.Atoi(h.printed(l.Stdout)[0]); err != nil {
		h.Fatal(err)
	}
	h.signal(l.ID, syscall.SIGKILL)
	h.wait(l.ID)
	h.until("the end of the second process that was left", func() bool { return !alive(left) })
}

const gated = "echo $$; while [ ! -e gate ]; do sleep 0.02; done; echo done; exit 42"

func testReopen(h *harness) {
	l := h.sh(gated)
	h.start(l)
	h.printed(l.Stdout)
	h.reopen()
	if task := h.inspect(l.ID); task.Phase != runtime.Running || task.Token != l.Token {
		h.Fatalf("after opening again: got %+v, want it running", task)
	}
	h.write("gate", "", 0o644)
	h.ended(l)
	h.reopen()
	if task := h.inspect(l.ID); task.ExitCode != 42 {
		h.Errorf("after opening once more: got %+v", task)
	}
}

// ended checks the end of a gated job whose keeper has changed.
func (h *harness) ended(l *launch.Launch) {
	h.Helper()
	if task := h.wait(l.ID); task.Phase != runtime.Stopped || task.ExitCode != 42 || task.OOMKilled {
		h.Errorf("got %+v, want exit 42", task)
	}
	h.until("the last line", func() bool {
		lines := h.printed(l.Stdout)
		return lines[len(lines)-1] == "done"
	})
}

func testExitWhileClosed(h *harness) {
	l := h.sh(gated)
	h.start(l)
	pid := h.inspect(l.ID).PID
	h.printed(l.Stdout)
	if err := h.rt.Close(); err != nil {
		h.Fatal(err)
	}
	h.write("gate", "", 0o644)
	h.until("the end of the job", func() bool { return !alive(pid) })
	h.rt = h.open(h.T, h.dir)
	h.ended(l)
}

// childEnv tells a process of the same test to open a runtime, start a job and wait to be
// killed: "runtime's directory:jobs' directory".
const childEnv = "BERTH_RUNTIMETEST_CHILD"

func runChild(t *testing.T, open Open) {
	dir, out, _ := strings.Cut(env(childEnv), ":")
	h := &harness{T: t, open: open, dir: dir, out: out, ids: childIDs()}
	h.rt = open(t, dir)
	h.start(h.sh(gated))
	if err := os.WriteFile(filepath.Join(dir, "child.ready"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-t.Context().Done() // the parent kills us
}

func testOpenerKilled(h *harness) {
	if err := h.rt.Close(); err != nil {
		h.Fatal(err)
	}
	h.rt = nil
	top, _, _ := strings.Cut(h.Name(), "/")
	self, err := os.Executable()
	if err != nil {
		h.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^"+top+"$", "-test.timeout=2m")
	cmd.Env = append(cmd.Environ(), childEnv+"="+h.dir+":"+h.out)
	cmd.Stdout, cmd.Stderr = h.Output(), h.Output()
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	killed := false
	defer func() {
		if !killed {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	h.until("the child's job", func() bool {
		_, err := os.Stat(filepath.Join(h.dir, "child.ready"))
		return err == nil
	})
	if err := cmd.Process.Kill(); err != nil {
		h.Fatal(err)
	}
	killed = true
	_ = cmd.Wait() // says "killed"
	h.rt = h.open(h.T, h.dir)
	id := cluster.AttemptID{Job: childJob, No: 1}
	l := &launch.Launch{ID: id, Stdout: h.path(id.String() + ".out")}
	h.printed(l.Stdout)
	if task := h.inspect(id); task.Phase != runtime.Running || !alive(task.PID) {
		h.Fatalf("after the opener was killed: got %+v, want it running", task)
	}
	h.write("gate", "", 0o644)
	h.ended(l)
}
