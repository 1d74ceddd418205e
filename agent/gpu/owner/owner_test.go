package owner

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent/gpu"
)

func TestAttemptOf(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text, parent, attempt string
		ours                        bool
	}{
		{"v2", "0::/berth/j12-a1\n", "/berth", "j12-a1", true},
		{"v2, a group within", "0::/berth/j12-a3/user/x\n", "/berth", "j12-a3", true},
		{"v1", "12:memory:/berth/j7-a1\n3:cpu,cpuacct:/berth/j7-a1\n1:name=systemd:/\n", "/berth", "j7-a1", true},
		{"hybrid", "5:memory:/berth/j7-a2\n0::/system.slice/x.service\n", "/berth", "j7-a2", true},
		{"a parent of several parts", "0::/system.slice/berth.slice/j1-a1\n", "/system.slice/berth.slice", "j1-a1", true},
		{"a container that was made again", "0::/berth/j1-a1.2\n", "/berth", "j1-a1", true},
		{"the root as parent", "0::/j1-a1\n", "/", "j1-a1", true},
		{"its group was removed", "0::/berth/j12-a1 (deleted)\n", "/berth", "j12-a1", true},
		{"ours, of no attempt", "0::/berth/mps-0\n", "/berth", "", true},
		{"elsewhere", "0::/user.slice/user-1000.slice/session-3.scope\n", "/berth", "", false},
		{"the parent itself", "0::/berth\n", "/berth", "", false},
		{"a name that begins alike", "0::/berthed/j1-a1\n", "/berth", "", false},
		{"an attempt of somebody else's tree", "0::/user.slice/berth/j1-a1\n", "/berth", "", false},
		{"above our root", "0::/../berth/j1-a1\n", "/berth", "", false},
		{"no canonical id", "0::/berth/j01-a1\n", "/berth", "", true},
		{"hierarchies that disagree", "3:memory:/berth/j1-a1\n2:pids:/berth/j2-a1\n", "/berth", "", true},
		{"a path with colons", "0::/berth/j1-a1/a:b\n", "/berth", "j1-a1", true},
		{"noise", "\n:\n0:\nx\n", "/berth", "", false},
		{"nothing", "", "/berth", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if a, ours := attemptOf(tc.text, tc.parent); a != tc.attempt || ours != tc.ours {
				t.Errorf("got %q, %v; want %q, %v", a, ours, tc.attempt, tc.ours)
			}
		})
	}
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	rest := " S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1"
	for _, tc := range []struct {
		name, in, command string
		start             uint64
		ok, zombie        bool
	}{
		{"plain", "7 (train)" + rest, "train", 4711, true, false},
		{"a zombie", "7 (train) Z" + rest[2:], "train", 4711, true, true},
		{"parentheses and spaces", "7 (a) S 1 (b))" + rest, "a) S 1 (b)", 4711, true, false},
		{"a newline", "7 (a\nb)" + rest, "a\nb", 4711, true, false},
		{"cut off", "7 (train) S 1 7", "", 0, false, false},
		{"no number", "7 (train)" + strings.Replace(rest, "4711", "x", 1), "", 0, false, false},
		{"nothing", "", "", 0, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			st, ok := parseStat([]byte(tc.in))
			if ok != tc.ok || ok && (st.command != tc.command || st.start != tc.start || st.zombie != tc.zombie) {
				t.Errorf("got %+v, %v", st, ok)
			}
		})
	}
}

func FuzzProc(f *testing.F) {
	f.Add("7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1", "0::/berth/j1-a1\n")
	f.Add("", "5:memory:/berth/j7-a2\n0::/x\n")
	f.Fuzz(func(t *testing.T, stat, group string) {
		parseStat([]byte(stat))
		if a, ours := attemptOf(group, "/berth"); a != "" && (!ours || !strings.Contains(group, "/berth/"+a)) {
			t.Errorf("found %q in %q", a, group)
		}
		if c := clean(stat); len(c) > 3*32 || strings.ContainsAny(c, "\n\x1b \t") {
			t.Errorf("not clean: %q", c)
		}
	})
}

// procfs is a recorded tree that a test changes.
type procfs struct {
	t   *testing.T
	dir string
}

func (p procfs) put(pid int, start uint64, state, command, group string, uid int) {
	p.t.Helper()
	dir := filepath.Join(p.dir, strconv.Itoa(pid))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	for name, text := range map[string]string{
		"stat":   fmt.Sprintf("%d (%s) %s 1 7 7 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 %d 1 1\n", pid, command, state, start),
		"cgroup": group, "status": fmt.Sprintf("Name:\t%s\nUid:\t%d\t%d\t%d\t%d\n", command, uid, uid, uid, uid),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
}

func newProcfs(t *testing.T) procfs { return procfs{t, t.TempDir()} }

func newFinder(p procfs) *Finder {
	return New(Config{Parent: "berth", Proc: p.dir, User: func(uid uint32) string {
		return map[uint32]string{1000: "anna"}[uid]
	}})
}

func usage(procs ...gpu.Process) []gpu.Usage {
	return []gpu.Usage{{UUID: "GPU-a", UsedMiB: 10_000, Processes: procs}}
}

func TestNames(t *testing.T) {
	t.Parallel()
	p := newProcfs(t)
	p.put(10, 5, "S", "train", "0::/berth/j1-a1\n", 1000)
	p.put(11, 5, "S", "evil\x1b[31m", "0::/user.slice\n", 1000)
	p.put(12, 5, "S", "Xorg", "0::/\n", 77)
	p.put(13, 5, "S", "nvidia-cuda-mps", "0::/berth/mps\n", 0)
	p.put(14, 5, "Z", "gone", "0::/\n", 1000)
	f := newFinder(p)
	ask := func() []gpu.Process {
		u := usage(gpu.Process{PID: 10}, gpu.Process{PID: 11}, gpu.Process{PID: 12}, gpu.Process{PID: 13}, gpu.Process{PID: 14}, gpu.Process{PID: 99})
		f.Mark()(u)
		return u[0].Processes
	}
	ask()
	for end := time.Now().Add(2 * time.Minute); ask()[1].User != "anna" && time.Now().Before(end); { // it is looked up aside
		time.Sleep(time.Millisecond)
	}
	want := []gpu.Process{
		{PID: 10, Attempt: "j1-a1"}, {PID: 11, Stray: true, User: "anna", Command: "evil_[31m"}, {PID: 12, Stray: true, User: "77", Command: "Xorg"},
		{PID: 13}, {PID: 14}, {PID: 99},
	}
	if d := cmp.Diff(want, ask()); d != "" {
		t.Errorf("names (-want +got):\n%s", d)
	}
}

// A pid says whose a process is only together with its start.
func TestPIDsThatAreUsedAgain(t *testing.T) {
	t.Parallel()
	p := newProcfs(t)
	p.put(10, 5, "S", "train", "0::/berth/j1-a1\n", 1000)
	f := newFinder(p)
	attempt := func() string {
		u := usage(gpu.Process{PID: 10})
		f.Mark()(u)
		return u[0].Processes[0].Attempt
	}
	if got := attempt(); got != "j1-a1" {
		t.Fatalf("attempt %q", got)
	}
	// It is dying: its group is gone, its memory is not.
	p.put(10, 5, "Z", "train", "0::/\n", 1000)
	if got := attempt(); got != "j1-a1" {
		t.Errorf("attempt of a process that dies: %q", got)
	}
	p.put(10, 6, "S", "other", "0::/berth/j2-a1\n", 1000)
	if got := attempt(); got != "j2-a1" {
		t.Errorf("attempt of its successor: %q", got)
	}
	// One that began after the driver looked is not whom the driver meant.
	name := f.Mark()
	p.put(10, bootTicks()+1000, "S", "late", "0::/berth/j3-a1\n", 1000)
	u := usage(gpu.Process{PID: 10})
	name(u)
	if got := u[0].Processes[0]; got.Attempt != "" || got.Stray {
		t.Errorf("a process of after the look is named: %+v", got)
	}
	// Who no longer uses a card is forgotten.
	f.Mark()(usage())
	if len(f.known) != 0 {
		t.Errorf("%d processes are remembered", len(f.known))
	}
}

// A stray that is found in an attempt's group a moment later was on its way.
func TestOnItsWay(t *testing.T) {
	t.Parallel()
	p := newProcfs(t)
	p.put(10, 5, "S", "sh", "0::/\n", 1000)
	f := newFinder(p)
	u := usage(gpu.Process{PID: 10})
	f.Mark()(u)
	if !u[0].Processes[0].Stray {
		t.Fatal("not a stray")
	}
	p.put(10, 5, "S", "train", "0::/berth/j1-a1\n", 1000)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		u = usage(gpu.Process{PID: 10})
		f.Mark()(u)
		if u[0].Processes[0].Attempt == "j1-a1" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still %+v", u[0].Processes[0])
		}
	}
}

// When the driver tells the memory of no process of an attempt, their sum is
// what the others leave.
func TestDifferenceOfAnAttempt(t *testing.T) {
	t.Parallel()
	p := newProcfs(t)
	for pid, group := range map[int]string{10: "j1-a1", 11: "j1-a1", 12: "j2-a1", 13: "j3-a1"} {
		p.put(pid, 5, "S", "train", "0::/berth/"+group+"\n", 1000)
	}
	u := usage(gpu.Process{PID: 10, MemMiB: -1}, gpu.Process{PID: 11, MemMiB: -1}, gpu.Process{PID: 12, MemMiB: 4000})
	newFinder(p).Mark()(u)
	if got := u[0].Processes; got[0].MemMiB != 6000 || got[1].MemMiB != 0 {
		t.Errorf("one attempt: %+v", got)
	}
	u = usage(gpu.Process{PID: 10, MemMiB: -1}, gpu.Process{PID: 13, MemMiB: -1}, gpu.Process{PID: 12, MemMiB: 4000})
	newFinder(p).Mark()(u)
	if got := u[0].Processes; got[0].MemMiB != -1 || got[1].MemMiB != -1 {
		t.Errorf("two attempts: %+v", got)
	}
}

// The kernel's own files: a process of ours outside of every group of Berth's.
func TestRealProcess(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/cgroup"); err != nil {
		t.Skip("SKIPPED: no procfs here")
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Skipf("SKIPPED: no sleep here: %v", err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	f := New(Config{Parent: "/berth-of-nobody"})
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		u := usage(gpu.Process{PID: cmd.Process.Pid})
		f.Mark()(u)
		if got := u[0].Processes[0]; got.Stray && got.Command == "sleep" && got.User == strconv.Itoa(os.Getuid()) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still %+v", u[0].Processes[0])
		}
	}
}
