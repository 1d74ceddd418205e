package containerdrt

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/berth-scheduler/berth/agent/containerdrt/firsts"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// TestGreedyJobs has jobs run into each limit: they get an error or a clear
// end, and nothing of them is left.
func TestGreedyJobs(t *testing.T) {
	t.Parallel()
	require(t)
	b := newBench(t)
	image := b.load("berth.test/greedy:v1", recipe{shell: true})
	b.rt.cfg.Policy.Pids, b.rt.cfg.Policy.LogBytes, b.rt.cfg.Policy.TmpBytes = 24, 1<<20, 64<<20
	for _, c := range []struct {
		name string
		run  func(*testing.T, *bench, string)
	}{
		{"forks past its limit", testForks},
		{"fills its temporary files", testFills},
		{"writes without end", testLongLog},
		{"leaves daemons", testDaemons},
		{"exit codes and signals", testExitOrSignal},
		{"memory or a signal", testManyOOMs},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := *b
			sub.TB = t
			c.run(t, &sub, image)
		})
	}
}

func testForks(t *testing.T, b *bench, image string) {
	if b.rt.clearer.groups.Pids == "" && b.rt.clearer.groups.Unified == "" {
		t.Skip("this kernel counts no processes: no pids controller is mounted")
	}
	// A fork bomb that a shell survives: each of its children waits.
	const script = `i=0; while [ $i -lt 60 ]; do busybox sleep 1000 & i=$((i+1)); done; echo all`
	for i, img := range []string{image, ""} {
		l := b.job(500+i, img, "/bin/busybox", "sh", "-c", script)
		b.start(l)
		task := b.wait(l.ID)
		if task.Phase != runtime.Stopped || task.ExitCode == 0 || task.OOMKilled {
			t.Errorf("image %q: got %+v, want a failed fork", img, task)
		}
		if got := strings.Join(b.lines(l, 1), " "); !strings.Contains(got, "can't fork") {
			t.Errorf("image %q: printed %q", img, got)
		}
		if n := b.rt.group(l.ID).PidsRefused(); n == 0 {
			t.Errorf("image %q: no fork was refused", img)
		}
	}
}

func testFills(t *testing.T, b *bench, image string) {
	l := b.job(510, image, "/bin/busybox", "sh", "-c", `for d in /tmp /dev/shm; do
busybox dd if=/dev/zero of=$d/x bs=1M count=4000 2>&1 | busybox grep -o 'No space left on device'; busybox rm $d/x; done; echo alive`)
	l.MemBytes = 160 << 20
	if got := b.says(l); strings.Join(got, ",") != "No space left on device,No space left on device,alive" {
		t.Errorf("sizes within the cap: printed %q", got)
	}
	// What lies in memory counts: more than the cap is out of memory.
	l = b.job(511, image, "/bin/busybox", "dd", "if=/dev/zero", "of=/tmp/x", "bs=1M", "count=4000")
	l.MemBytes = 32 << 20
	b.start(l)
	if task := b.wait(l.ID); !task.OOMKilled || task.ExitCode != 137 {
		t.Errorf("past the cap: got %+v, want it out of memory", task)
	}
}

// testLongLog writes more than is kept, by way of the node's logger.
func testLongLog(t *testing.T, b *bench, image string) {
	l := b.job(520, image, "/bin/busybox", "sh", "-c", "busybox head -c 50000000 /dev/zero; echo error >&2")
	l.Stderr = l.Stdout + ".err"
	b.start(l)
	if task := b.wait(l.ID); task.ExitCode != 0 {
		t.Errorf("got %+v, want the job not to notice", task)
	}
	var text []byte
	b.until("word of the cut", func() bool {
		var err error
		text, err = os.ReadFile(l.Stdout)
		return err == nil && bytes.HasSuffix(text, []byte("what follows is lost\n"))
	})
	if n := len(text); n < 1<<20 || n > 1<<20+200 || !bytes.Contains(text, []byte("cut at 1 MiB")) {
		t.Errorf("the output has %d bytes and ends %q", n, text[max(0, n-100):])
	}
	b.until("the other file", func() bool {
		text, err := os.ReadFile(l.Stderr)
		return err == nil && string(text) == "error\n"
	})
}

func testDaemons(t *testing.T, b *bench, image string) {
	for i, img := range []string{image, ""} {
		gate := filepath.Join(b.out, "daemons") // of the host's files
		if img != "" {
			gate = "/tmp/daemons"
		}
		l := b.job(530+i, img, "/bin/busybox", "sh", "-c", "busybox setsid busybox sh -c 'trap \"\" TERM HUP; busybox sleep 1000 & busybox sleep 1000' </dev/null >/dev/null 2>&1 & until [ -e "+gate+" ]; do busybox sleep 0.01; done; exit 3")
		b.start(l)
		group := "berth-test/" + filepath.Base(b.dir) + "/" + l.ID.String()
		var pids []int
		b.until("daemons", func() bool {
			pids = slices.DeleteFunc(groupPIDs(t, group), func(pid int) bool {
				cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				return err != nil || !bytes.Contains(cmdline, []byte("1000"))
			})
			return len(pids) >= 4 // two shells, and two that sleep
		})
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/root%s", pids[0], gate), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if task := b.wait(l.ID); task.ExitCode != 3 {
			t.Errorf("image %q: got %+v", img, task)
		}
		for _, pid := range pids {
			b.until(fmt.Sprint("the end of process ", pid), func() bool {
				stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				return err != nil || strings.Contains(string(stat), ") Z ")
			})
		}
	}
}

// kernelTells says whether this kernel tells ends apart for us.
func kernelTells(t *testing.T) bool {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "read x; exit 137")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	held, id := firsts.New(), cluster.AttemptID{Job: 1, No: 1}
	defer held.Close()
	held.Hold(id, cmd.Process.Pid)
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says 137
	ws, ok := held.End(id)
	if ok && (!ws.Exited() || ws.ExitStatus() != 137) {
		t.Errorf("the kernel says %#x of an exit with 137", ws)
	}
	return ok
}

// testExitOrSignal has the codes that a shell gives to signals mean what they
// are, also to an agent that began later.
func testExitOrSignal(t *testing.T, b *bench, image string) {
	tells := kernelTells(t)
	n := 540
	for _, img := range []string{image, ""} {
		for _, c := range []struct {
			script string
			code   int
			sig    syscall.Signal
		}{
			{"exit 137", 137, 0}, {"exit 143", 143, 0}, {"exit 129", 129, 0}, {"exit 255", 255, 0},
			{"kill -9 $$", 137, syscall.SIGKILL}, {"kill -11 $$", 139, syscall.SIGSEGV},
		} {
			if img != "" && c.sig != 0 {
				continue // the first process of a pid namespace cannot kill itself
			}
			n++
			l := b.job(n, img, "/bin/busybox", "sh", "-c", c.script)
			b.start(l)
			want := c.sig
			if !tells && c.code > 128 && c.code < 192 {
				want = syscall.Signal(c.code - 128)
			}
			if task := b.wait(l.ID); task.ExitCode != c.code || task.Signal != want || task.OOMKilled {
				t.Errorf("image %q, %s: got %+v, want code %d signal %d", img, c.script, task, c.code, want)
			}
		}
	}
	if !tells {
		t.Log("before Linux 6.15 the shim's number is all there is: exits above 128 read as signals")
	}
	gate := filepath.Join(b.out, "gate")
	l := b.job(560, "", "/bin/busybox", "sh", "-c", "until [ -e "+gate+" ]; do busybox sleep 0.01; done; exit 137")
	b.start(l)
	later := openTest(t, b.d.Socket(), b.dir)
	defer later.Close()
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.until("the end", func() bool {
		task, err := later.Inspect(t.Context(), l.ID)
		if err == nil && task.Phase == runtime.Stopped && (task.ExitCode != 137 || tells && task.Signal != 0) {
			t.Errorf("seen by a later agent: got %+v", task)
		}
		return err == nil && task.Phase == runtime.Stopped
	})
}

// testManyOOMs mixes jobs that the kernel kills for their memory with jobs
// under the same cap that die of a plain SIGKILL.
func testManyOOMs(t *testing.T, b *bench, image string) {
	const jobs = 12
	var wg sync.WaitGroup
	room := make(chan struct{}, 4)
	for i := range jobs {
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			args, img := []string{"/bin/busybox", "tail", "/dev/zero"}, ""
			if i%2 == 1 {
				args = []string{"/bin/busybox", "sh", "-c", "busybox head -c 20000000 /dev/zero | busybox tail -c 5 >/dev/null; echo; busybox sleep 1000"}
			}
			if i%4 < 2 {
				img = image
			}
			l := b.job(570+i, img, args...)
			l.MemBytes = 48 << 20
			b.start(l)
			if i%2 == 1 {
				b.lines(l, 1)
				if err := b.rt.Signal(b.Context(), l.ID, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			}
			task := b.wait(l.ID)
			if task.ExitCode != 137 || task.Signal != syscall.SIGKILL || task.OOMKilled != (i%2 == 0) || task.MemPeakBytes == 0 {
				t.Errorf("job %d: got %+v, want out of memory: %v", i, task, i%2 == 0)
			}
		})
	}
	wg.Wait()
}
