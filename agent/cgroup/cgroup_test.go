package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

func TestDetect(t *testing.T) {
	unified := t.TempDir()
	writeTree(t, unified, map[string]string{"cgroup.controllers": "cpuset cpu io memory pids\n"})
	hybrid := t.TempDir()
	writeTree(t, hybrid, map[string]string{"cgroup.controllers": "\n"})
	v1 := func(n int, controllers string) string {
		return fmt.Sprintf("%d 25 0:%d / /sys/fs/cgroup/%s rw,nosuid shared:9 - cgroup cgroup rw,%s\n", n, n, controllers, controllers)
	}
	for _, c := range []struct {
		name, mounts string
		want         Hierarchy
		fails        bool
	}{
		{
			name:   "v2",
			mounts: "20 1 8:1 / / rw - ext4 /dev/root rw\n30 20 0:26 / " + unified + " rw,nosuid - cgroup2 cgroup2 rw\n",
			want:   Hierarchy{Unified: unified},
		},
		{
			name:   "v1, controllers together",
			mounts: v1(31, "cpu,cpuacct") + v1(32, "memory") + v1(33, "pids") + v1(34, "freezer"),
			want: Hierarchy{
				Memory: "/sys/fs/cgroup/memory", CPU: "/sys/fs/cgroup/cpu,cpuacct", Account: "/sys/fs/cgroup/cpu,cpuacct",
				Pids: "/sys/fs/cgroup/pids", Others: []string{"/sys/fs/cgroup/freezer"},
			},
		},
		{
			name:   "v1, what is made only when needed",
			mounts: v1(31, "memory") + v1(32, "cpuset") + v1(33, "blkio"),
			want: Hierarchy{
				Memory: "/sys/fs/cgroup/memory", CPUSet: "/sys/fs/cgroup/cpuset", Block: "/sys/fs/cgroup/blkio",
				Others: []string{"/sys/fs/cgroup/cpuset", "/sys/fs/cgroup/blkio"},
			},
		},
		{
			name:   "hybrid",
			mounts: v1(31, "memory") + "34 25 0:34 / " + hybrid + " rw - cgroup2 cgroup2 rw\n",
			want:   Hierarchy{Memory: "/sys/fs/cgroup/memory", Others: []string{hybrid}},
		},
		{name: "no memory controller", mounts: v1(31, "cpu"), want: Hierarchy{CPU: "/sys/fs/cgroup/cpu"}, fails: true},
		{name: "nothing", fails: true},
		{name: "damaged lines", mounts: "1\n - \n1 2 3 4 5\n - cgroup cgroup memory\n", fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := detect(strings.NewReader(c.mounts))
			if (err != nil) != c.fails {
				t.Fatalf("got error %v, want one: %v", err, c.fails)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("hierarchy (-want +got):\n%s", diff)
			}
		})
	}
}

func writeTree(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnified works on a tree of plain files, as recorded from a kernel 6.1.
func TestUnified(t *testing.T) {
	root := t.TempDir()
	writeTree(t, root, map[string]string{
		"cgroup.subtree_control": "cpuset cpu memory pids\n", "berth/cgroup.subtree_control": "pids\n",
		"berth/j1-a1/memory.events":   "low 0\nhigh 0\nmax 1824\noom 3\noom_kill 2\noom_group_kill 0\n",
		"berth/j1-a1/memory.peak":     "104857600\n",
		"berth/j1-a1/cpu.stat":        "usage_usec 1234567\nuser_usec 1000000\nsystem_usec 234567\n",
		"berth/j1-a1/memory.swap.max": "max\n",
	})
	g := Hierarchy{Unified: root}.Open("/berth/j1-a1")
	if err := g.Create(Limits{MemBytes: 64 << 20, CPUMilli: 2500, Pids: 100}); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(42); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"cgroup.subtree_control": "cpuset cpu memory pids", "berth/cgroup.subtree_control": "+memory +cpu",
		"berth/j1-a1/pids.max":   "100",
		"berth/j1-a1/memory.max": "67108864", "berth/j1-a1/memory.swap.max": "0",
		"berth/j1-a1/cpu.weight": "250", "berth/j1-a1/cgroup.procs": "42",
	} {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s holds %q (%v), want %q", name, got, err, want)
		}
	}
	if n, err := g.OOMKills(); err != nil || n != 2 {
		t.Errorf("OOM kills: got %d, %v, want 2", n, err)
	}
	if n := g.MemPeak(); n != 100<<20 {
		t.Errorf("peak: got %d", n)
	}
	if d := g.CPUTime(); d != 1234567*time.Microsecond {
		t.Errorf("cpu time: got %v", d)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(root, "berth/j1-a1/cgroup.kill")); err != nil || string(got) != "1" {
		t.Errorf("cgroup.kill holds %q (%v)", got, err)
	}
	if err := g.Verify(Limits{MemBytes: 32 << 20}); err == nil {
		t.Error("a cap twice as large as asked for passed")
	}
	gone := Hierarchy{Unified: root}.Open("/berth/j2-a1")
	if n, err := gone.OOMKills(); err == nil {
		t.Errorf("OOM kills of an absent group: got %d", n)
	}
	if gone.MemPeak() != 0 || gone.CPUTime() != 0 {
		t.Error("an absent group has figures")
	}
	if err := gone.Remove(); err != nil {
		t.Errorf("remove of an absent group: %v", err)
	}
}

func TestKeyed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		keys := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z_]{1,12}`), 1, 8, rapid.ID[string]).Draw(rt, "keys")
		want := map[string]int64{}
		var text strings.Builder
		for _, k := range keys {
			want[k] = rapid.Int64Min(0).Draw(rt, k)
			fmt.Fprintf(&text, "%s %d\n", k, want[k])
		}
		path := filepath.Join(t.TempDir(), "events")
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			rt.Fatal(err)
		}
		for k, n := range want {
			if got, err := keyed(path, k); err != nil || got != n {
				rt.Fatalf("%s: got %d, %v, want %d", k, got, err, n)
			}
		}
		if _, err := keyed(path, "NONE"); err == nil {
			rt.Fatal("found a key that is not there")
		}
	})
}

// TestKernel works with the machine's own control groups.
func TestKernel(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to make control groups")
	}
	h, err := Detect()
	if err != nil {
		t.Skip("control groups cannot be used here: ", err)
	}
	g := h.Open("/berth-cgroup-test-" + strconv.Itoa(os.Getpid()) + "/j1-a1")
	if err := g.Create(Limits{MemBytes: 64<<20 + 5, CPUMilli: 500}); errors.Is(err, fs.ErrPermission) || errors.Is(err, os.ErrInvalid) {
		t.Skip("control groups cannot be used here: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	var cmds []*exec.Cmd
	for range 3 {
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
		if err := g.Add(cmd.Process.Pid); err != nil {
			t.Error(err)
		}
	}
	if pids, err := g.procs(); err != nil || len(pids) != len(cmds) {
		t.Errorf("processes: got %v, %v", pids, err)
	}
	reaped := make(chan struct{})
	go func() {
		defer close(reaped)
		for _, cmd := range cmds {
			_ = cmd.Wait() // says "killed"
		}
	}()
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	<-reaped
	if n, err := g.OOMKills(); err != nil || n != 0 {
		t.Errorf("OOM kills: got %d, %v, want none", n, err)
	}
	if err := g.RemoveUp(); err != nil {
		t.Fatal(err)
	}
	for _, d := range append(g.everywhere(), h.Open(filepath.Dir(g.path)).everywhere()...) {
		if _, err := os.Stat(d); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", d, err)
		}
	}
}

// TestRootIsSafe has no fault elsewhere turn against the whole machine.
func TestRootIsSafe(t *testing.T) {
	root := t.TempDir()
	writeTree(t, root, map[string]string{"cgroup.kill": ""})
	for _, path := range []string{"", "/", "//", "/..", "/a/.."} {
		g := Hierarchy{Unified: root}.Open(path)
		if err := g.Kill(); err == nil {
			t.Errorf("kill of %q: no error", path)
		}
		if err := g.Remove(); err == nil {
			t.Errorf("remove of %q: no error", path)
		}
	}
	if b, err := os.ReadFile(filepath.Join(root, "cgroup.kill")); err != nil || len(b) > 0 {
		t.Errorf("cgroup.kill holds %q (%v)", b, err)
	}
}
