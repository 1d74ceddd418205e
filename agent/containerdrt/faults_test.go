package containerdrt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
)

// TestContainerdRestarts kills containerd while jobs run and end: no job may
// notice, and no lost connection may count as an exit.
func TestContainerdRestarts(t *testing.T) {
	require(t)
	b := newBench(t)
	const jobs = 8
	var ls []*launch.Launch
	for i := range jobs {
		image := ""
		if i%2 == 1 {
			image = b.image
		}
		gate := filepath.Join(b.out, "gate"+strconv.Itoa(i))
		l := b.job(i+1, image, "/bin/sh", "-c", fmt.Sprintf("echo began; while [ ! -e %s ]; do sleep 0.02; done; echo done; exit %d", gate, i))
		l.Env = []string{"PATH=/usr/bin:/bin"}
		if image != "" {
			l.Mounts = []launch.Mount{{Source: b.out, Target: b.out, ReadOnly: true}}
		}
		b.start(l)
		ls = append(ls, l)
	}
	open := func(i int) {
		if err := os.WriteFile(filepath.Join(b.out, "gate"+strconv.Itoa(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := range jobs {
		if err := b.d.Kill(); err != nil {
			t.Fatal(err)
		}
		if i%4 < 2 {
			open(i) // ends while containerd is away
			b.lines(ls[i], 2)
		}
		if err := b.d.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i%4 >= 2 {
			open(i)
		}
	}
	told := map[string]bool{}
	deadline := time.After(10 * time.Minute)
	for len(told) < jobs {
		select {
		case id := <-b.rt.Exits():
			told[id.String()] = true
		case <-deadline:
			t.Fatalf("announced only %v", told)
		}
	}
	for i, l := range ls {
		if task := b.wait(l.ID); task.Phase != runtime.Stopped || task.ExitCode != i {
			t.Errorf("job %d: got %+v", i, task)
		}
		if got := strings.Join(b.lines(l, 2), " "); got != "began done" {
			t.Errorf("job %d printed %q", i, got)
		}
	}
}

// TestAbsentContainerd has calls fail instead of hang with it.
func TestAbsentContainerd(t *testing.T) {
	require(t)
	b := newBench(t)
	l := b.job(1, "", "sleep", "1000")
	l.Env = []string{"PATH=/usr/bin:/bin"}
	b.start(l)
	if err := b.d.Kill(); err != nil {
		t.Fatal(err)
	}
	if task, err := b.rt.Inspect(t.Context(), l.ID); err == nil {
		t.Errorf("inspect without containerd: got %+v and no error", task)
	}
	if err := b.rt.Delete(t.Context(), l.ID); err == nil {
		t.Error("delete without containerd: no error")
	}
	if err := b.d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.until("the task", func() bool {
		task, err := b.rt.Inspect(t.Context(), l.ID)
		return err == nil && task.Phase == runtime.Running
	})
}

// TestShimKilled loses the only parent that knows the exit: the task is lost,
// and none of its processes goes on.
func TestShimKilled(t *testing.T) {
	require(t)
	b := newBench(t)
	for i, image := range []string{"", b.image} {
		l := b.job(i+1, image, "/bin/sh", "-c", "sleep 1000 & sleep 1000 & echo began; wait")
		l.Env = []string{"PATH=/usr/bin:/bin"}
		b.start(l)
		b.lines(l, 1)
		task, err := b.rt.Inspect(t.Context(), l.ID)
		if err != nil {
			t.Fatal(err)
		}
		pids := groupPIDs(t, "berth-test/"+filepath.Base(b.dir)+"/"+l.ID.String())
		if len(pids) < 3 {
			t.Fatalf("the job has processes %v, want at least 3", pids)
		}
		if err := syscall.Kill(parentOf(t, task.PID), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if task := b.wait(l.ID); task.Phase != runtime.Lost || task.ExitCode != 0 {
			t.Errorf("got %+v, want it lost", task)
		}
		for _, pid := range pids {
			b.until("the end of process "+strconv.Itoa(pid), func() bool {
				stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				return err != nil || strings.Contains(string(stat), ") Z ")
			})
		}
		if err := b.rt.Delete(t.Context(), l.ID); err != nil {
			t.Errorf("delete of a lost task: %v", err)
		}
	}
}

// TestShimSilent has a shim that does not answer, as on a very busy machine:
// nothing is concluded from that, a task that has not started least of all that
// it runs.
func TestShimSilent(t *testing.T) {
	t.Parallel()
	require(t)
	b := newBench(t)
	l := b.job(1, "", "sh", "-c", "exit 3")
	l.Env = []string{"PATH=/usr/bin:/bin"}
	if err := b.rt.Create(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	task, err := b.rt.Inspect(t.Context(), l.ID)
	if err != nil || task.Phase != runtime.Created {
		t.Fatalf("created: got %+v, %v", task, err)
	}
	shim := parentOf(t, task.PID)
	if err := syscall.Kill(shim, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(shim, syscall.SIGCONT) })
	b.until("every thread of the shim to have stopped", func() bool { return frozen(t, shim) })
	if task, err := b.rt.Inspect(t.Context(), l.ID); !errors.Is(err, errSilent) {
		t.Fatalf("inspect: got %+v, %v", task, err)
	}
	if err := b.rt.Start(t.Context(), l.ID); !errors.Is(err, errSilent) {
		t.Errorf("start: got %v", err)
	}
	if err := b.rt.Delete(t.Context(), l.ID); !errors.Is(err, errSilent) {
		t.Errorf("delete: got %v", err)
	}
	if err := syscall.Kill(shim, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.until("a start", func() bool { return b.rt.Start(t.Context(), l.ID) == nil })
	if task := b.wait(l.ID); task.Phase != runtime.Stopped || task.ExitCode != 3 {
		t.Errorf("got %+v, want code 3", task)
	}
}

func groupPIDs(t *testing.T, name string) []int {
	t.Helper()
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/memory"} {
		data, err := os.ReadFile(filepath.Join(dir, name, "cgroup.procs"))
		if err != nil {
			continue
		}
		var pids []int
		for _, f := range strings.Fields(string(data)) {
			pid, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		return pids
	}
	t.Fatalf("no control group %s", name)
	return nil
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, "PPid:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(v))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("process %d has no parent", pid)
	return 0
}

// frozen reports whether a stop signal has reached all of the process's threads:
// until then one of them may still answer.
func frozen(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d has no threads (%v)", pid, err)
	}
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(stat), ") T ") {
			return false
		}
	}
	return true
}

func TestLaunchError(t *testing.T) {
	const runc = "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: "
	for _, c := range []struct {
		text, want string
		code       int
	}{
		{runc + `exec: "x": executable file not found in $PATH: unknown`, "COMMAND: x: command not found in the image's PATH", 127},
		{runc + `exec: "/x": stat /x: no such file or directory: unknown`, "COMMAND: /x: no such file in the image", 127},
		{runc + `exec: "/a \"b\"": permission denied: unknown`, `COMMAND: /a "b": permission denied`, 126},
		{runc + `exec: "/x": is a directory: unknown`, "COMMAND: /x: is a directory", 126},
		{runc + `exec: what nobody knows: unknown`, "COMMAND: what nobody knows", 126},
		{runc + `chdir to cwd ("/x") set in config.json failed: permission denied: unknown`, `WORKDIR: chdir to cwd ("/x") set in config.json failed: permission denied`, 125},
		{runc + `error during container init: error mounting "/no" to rootfs: no such file or directory`, "", 0},
		{"exec: permission denied", "", 0}, // not runc's
	} {
		err := launchError(fmt.Errorf("%s", c.text))
		le, ok := err.(*launch.Error)
		if ok != (c.want != "") || ok && (le.Code != c.code || le.Error() != c.want) {
			t.Errorf("%s: got %v, want %s (%d)", c.text, err, c.want, c.code)
		}
	}
}

func TestReadSignalState(t *testing.T) {
	for _, c := range []struct {
		name, status string
		first, fails bool
		taken        uint64
	}{
		{"own process", "NSpid:\t12\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000004000\n", false, false, 0x4001},
		{"first of a namespace", "NSpid:\t12\t1\nSigIgn:\t0\nSigCgt:\t0\n", true, false, 0},
		{"second of a namespace", "NSpid:\t12\t2\nSigIgn:\t0\nSigCgt:\t0\n", false, false, 0},
		{"no signals", "NSpid:\t12\t1\n", false, true, 0},
		{"not a number", "NSpid:\t1\nSigIgn:\tx\nSigCgt:\t0\n", false, true, 0},
	} {
		first, taken, err := readSignalState([]byte(c.status))
		if first != c.first || taken != c.taken || (err != nil) != c.fails {
			t.Errorf("%s: got %v %x %v", c.name, first, taken, err)
		}
	}
}
