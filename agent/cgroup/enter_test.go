package cgroup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// enterIn has a thread of its own fork a program in a group, and call meanwhile
// before it leaves. It returns the process and its standard input.
func enterIn(t *testing.T, g *Group, meanwhile func(), name string, args ...string) (*exec.Cmd, io.WriteCloser) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	OnThread(func() {
		err = func() error {
			f, err := NewForker(g.h)
			if err != nil {
				return err
			}
			leave, err := f.Enter(g, cmd.SysProcAttr)
			if err != nil {
				return err
			}
			err = cmd.Start()
			meanwhile()
			if lerr := leave(); lerr != nil {
				return lerr
			}
			own, rerr := os.ReadFile("/proc/thread-self/cgroup")
			if rerr != nil || strings.Contains(string(own), g.path) {
				return fmt.Errorf("the thread is in %s (%v)", own, rerr)
			}
			return err
		}()
	})
	if err != nil {
		t.Fatal(err)
	}
	return cmd, in
}

func freshGroup(t *testing.T, name string, l Limits) *Group {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to make control groups")
	}
	h, err := Detect()
	if err != nil {
		t.Skip(err)
	}
	g := h.Open("/berth-test/" + name + "-" + strconv.Itoa(os.Getpid()))
	if err := g.Create(l); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := g.RemoveUp(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// TestBornInAGroup has a process say where it is, and one with processors of its
// own.
func TestBornInAGroup(t *testing.T) {
	for name, l := range map[string]Limits{"born": {MemBytes: 64 << 20, CPUMilli: 500, Pids: 20}, "processors": {CPUSet: "0"}} {
		g := freshGroup(t, name, l)
		var out strings.Builder
		cmd := exec.Command("cat", "/proc/self/cgroup")
		cmd.Stdout = &out
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		var err error
		OnThread(func() {
			err = func() error {
				f, err := NewForker(g.h)
				if err != nil {
					return err
				}
				leave, err := f.Enter(g, cmd.SysProcAttr)
				if err != nil {
					return err
				}
				return errors.Join(cmd.Run(), leave())
			}()
		})
		if err != nil {
			t.Fatal(err)
		}
		want := 1
		if g.h.Unified == "" {
			want = len(g.dirs()) + len(g.extra())
		}
		if n := strings.Count(out.String(), g.path+"\n"); n != want {
			t.Errorf("%s: born in %d of %d groups:\n%s", name, n, want, out.String())
		}
	}
}

// TestVisitorIsSpared kills and signals a group while a thread of this process is
// in it: the kernel lists the whole process then.
func TestVisitorIsSpared(t *testing.T) {
	g := freshGroup(t, "visitor", Limits{})
	if g.h.Unified != "" {
		t.Skip("threads enter no group in version 2")
	}
	cmd, in := enterIn(t, g, func() {
		listed, err := os.ReadFile(filepath.Join(g.dirs()[0], "cgroup.procs"))
		if err != nil || !strings.Contains(string(listed), strconv.Itoa(os.Getpid())+"\n") {
			t.Errorf("the group lists %q (%v), and not this process: nothing is shown here", listed, err)
		}
		if g.Has(os.Getpid()) {
			t.Error("this process counts as one of the group's")
		}
		if err := g.Signal(syscall.SIGKILL, 0); err != nil {
			t.Error(err)
		}
		if err := g.Kill(); err != nil {
			t.Error(err)
		}
	}, "cat")
	defer in.Close()
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process of the group: %v, want it killed", err)
	}
}

// TestDeadFirstThreadIsNoVisitor kills a process whose first thread has ended while
// another goes on: its own group reads "/".
func TestDeadFirstThreadIsNoVisitor(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	g := freshGroup(t, "headless", Limits{})
	cmd, in := enterIn(t, g, func() {}, "python3", "-c", `
import ctypes, sys, threading
def rest():
    main.join(0.1)
    sys.stdin.readline()
main = threading.main_thread()
threading.Thread(target=rest).start()
print(flush=True)
ctypes.CDLL(None).syscall(60, 0)  # exit of this thread alone
`)
	for !headless(cmd.Process.Pid) {
		time.Sleep(time.Millisecond)
	}
	if !g.Has(cmd.Process.Pid) {
		t.Error("it does not count as one of the group's")
	}
	if err := g.Kill(); err != nil {
		t.Error(err)
	}
	in.Close() // if it was not killed it ends now
	_ = cmd.Wait()
}

// TestFirstThreadForksNowhere asks for threads until the first one has been held.
func TestFirstThreadForksNowhere(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to open the machine's control groups")
	}
	h, err := Detect()
	if err != nil {
		t.Skip(err)
	}
	var deeper func(n int)
	deeper = func(n int) { // each holds its thread while the next one looks for another
		OnThread(func() {
			if unix.Gettid() == unix.Getpid() {
				t.Error("a thread of its own is the first of the process")
			}
			if n > 0 {
				deeper(n - 1)
			}
		})
	}
	deeper(20)
	for range 50 { // and whoever asks without OnThread may be on it
		done := make(chan error, 1)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if _, err := NewForker(h); (err != nil) != (unix.Gettid() == unix.Getpid()) {
				done <- fmt.Errorf("thread %d of %d: %v", unix.Gettid(), unix.Getpid(), err)
				return
			}
			done <- nil
		}()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func headless(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true // and the test fails
	}
	_, alive := readSession(string(stat))
	return !alive
}

// TestBornInVersion2 forks into a group of version 2, wherever that is mounted.
func TestBornInVersion2(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to make control groups")
	}
	mount := unifiedMount(t)
	g := Hierarchy{Unified: mount}.Open("/berth-test-v2-" + strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(g.dirs()[0], 0o755); err != nil {
		t.Skip(err)
	}
	defer func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}()
	cmd, in := enterIn(t, g, func() {}, "cat")
	if !g.Has(cmd.Process.Pid) {
		t.Error("the process is not in its group")
	}
	if err := g.Kill(); err != nil {
		t.Error(err)
	}
	in.Close() // if it was not killed it ends now
	_ = cmd.Wait()
}

func unifiedMount(t *testing.T) string {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if pre, post, _ := strings.Cut(line, " - "); strings.HasPrefix(post, "cgroup2 ") {
			return strings.Fields(pre)[4]
		}
	}
	t.Skip("no cgroup v2 is mounted")
	return ""
}

func TestGoesOn(t *testing.T) {
	t.Parallel()
	for stat, want := range map[string]bool{
		"12 (sh) S 1 12 10 34816 13 4194304 0":  true,
		"12 (sh) R 1 12 10 34816 13 4194308 0":  false, // it is ending
		"12 (a) Z) R 1 12 10 0 -1 4194304 0":    true,
		"12 (sh) Z 1 12 10 34816 13 4194304 0":  false,
		"12 (sh) S 1 12 10 34816 13":            false,
		"":                                      false,
		"12 (sh) S 1 12 10 34816 13 4194304x 0": false,
	} {
		if got := goesOn(stat); got != want {
			t.Errorf("%q: %v", stat, got)
		}
	}
	own, err := os.ReadFile("/proc/self/stat")
	if err != nil || !goesOn(string(own)) {
		t.Errorf("this process does not go on: %s (%v)", own, err)
	}
}

func TestPathIn(t *testing.T) {
	t.Parallel()
	text := "12:cpu,cpuacct:/a:b\n3:memory:/m\n1:name=systemd:/s\n0::/u\n"
	for controller, want := range map[string]string{"cpu": "/a:b", "cpuacct": "/a:b", "memory": "/m", "pids": "", "systemd": ""} {
		if got := pathIn(text, controller); got != want {
			t.Errorf("%s: %q, want %q", controller, got, want)
		}
	}
}
