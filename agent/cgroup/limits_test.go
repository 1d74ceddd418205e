package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var all = Limits{
	MemBytes: 64 << 20, CPUMilli: 2500, CPUQuotaMilli: 1500, CPUSet: "0-1", Pids: 100,
	IO: []IOLimit{{Device: "8:0", ReadBytes: 1 << 20, WriteOps: 50}, {Device: "259:1", WriteBytes: 2 << 20}},
}

// holds compares files of a tree with what they should hold.
func holds(t *testing.T, root string, want map[string]string) {
	t.Helper()
	for name, text := range want {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || strings.TrimSpace(string(got)) != text {
			t.Errorf("%s holds %q (%v), want %q", name, got, err, text)
		}
	}
}

// TestLimitsUnified works on a tree of plain files as a kernel 6.1 shows it.
// Each write replaces the last, so that of several I/O limits the last is seen.
func TestLimitsUnified(t *testing.T) {
	root := t.TempDir()
	writeTree(t, root, map[string]string{
		"cgroup.subtree_control": "cpu memory pids\n", "berth/cgroup.subtree_control": "\n",
		"berth/j1-a1/memory.max": "max\n", "berth/j1-a1/cpu.max": "max 100000\n", "berth/j1-a1/cpuset.cpus": "\n", "berth/j1-a1/pids.max": "max\n",
	})
	g := Hierarchy{Unified: root}.Open("/berth/j1-a1")
	if got, err := g.Limits(); err != nil || !cmp.Equal(got, Limits{}) {
		t.Errorf("a new group: got %+v, %v, want no caps", got, err)
	}
	if err := g.Create(all); err != nil {
		t.Fatal(err)
	}
	holds(t, root, map[string]string{
		"berth/j1-a1/cpu.max": "150000 100000", "berth/j1-a1/cpuset.cpus": "0-1", "berth/j1-a1/io.max": "259:1 wbps=2097152",
		"cgroup.subtree_control": "+cpuset +io",
	})
	got, err := g.Limits()
	want := Limits{MemBytes: 64 << 20, CPUQuotaMilli: 1500, CPUSet: "0-1", Pids: 100}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("read back (-want +got, %v):\n%s", err, diff)
	}
	if got, want := all.IO[0].unified(), "8:0 rbps=1048576 wiops=50"; got != want {
		t.Errorf("line of io.max: got %q, want %q", got, want)
	}
}

// TestLimitsV1 works on plain files too; TestLimitsKernel on the kernel's.
func TestLimitsV1(t *testing.T) {
	root := t.TempDir()
	writeTree(t, root, map[string]string{
		"cpuset/cpuset.cpus": "0-7\n", "cpuset/cpuset.mems": "0\n", "blkio/x": "",
		"memory/berth/j1-a1/memory.limit_in_bytes": "9223372036854771712\n", "cpu/berth/j1-a1/cpu.cfs_quota_us": "-1\n",
		"cpu/berth/j1-a1/cpu.cfs_period_us": "100000\n", "pids/berth/j1-a1/pids.max": "max\n",
	})
	at := func(name string) string { return filepath.Join(root, name) }
	h := Hierarchy{Memory: at("memory"), CPU: at("cpu"), Pids: at("pids"), CPUSet: at("cpuset"), Block: at("blkio")}
	g := h.Open("/berth/j1-a1")
	if got, err := g.Limits(); err != nil || !cmp.Equal(got, Limits{}) {
		t.Errorf("a new group: got %+v, %v, want no caps", got, err)
	}
	if err := errors.Join(g.Create(all), g.Add(42)); err != nil {
		t.Fatal(err)
	}
	holds(t, root, map[string]string{
		"memory/berth/j1-a1/memory.limit_in_bytes": "67108864", "memory/berth/j1-a1/memory.memsw.limit_in_bytes": "67108864",
		"cpu/berth/j1-a1/cpu.shares": "2560", "cpu/berth/j1-a1/cpu.cfs_quota_us": "150000", "pids/berth/j1-a1/pids.max": "100",
		"cpuset/berth/cpuset.cpus": "0-7", "cpuset/berth/cpuset.mems": "0",
		"cpuset/berth/j1-a1/cpuset.cpus": "0-1", "cpuset/berth/j1-a1/cpuset.mems": "0", "cpuset/berth/j1-a1/cgroup.procs": "42",
		"blkio/berth/j1-a1/blkio.throttle.read_bps_device": "8:0 1048576", "blkio/berth/j1-a1/blkio.throttle.write_iops_device": "8:0 50",
		"blkio/berth/j1-a1/blkio.throttle.write_bps_device": "259:1 2097152", "blkio/berth/j1-a1/cgroup.procs": "42",
	})
	for name, text := range map[string]string{"cpu/berth/j1-a1/cpu.cfs_quota_us": "-1", "memory/berth/j1-a1/memory.limit_in_bytes": "1"} {
		writeTree(t, root, map[string]string{name: text})
		if err := g.Verify(all); err == nil {
			t.Errorf("a cap that does not hold passed: %s is %s", name, text)
		}
		if err := g.Create(all); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLimitsKernel has the machine's own kernel keep every limit but I/O.
func TestLimitsKernel(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to make control groups")
	}
	h, err := Detect()
	if err != nil {
		t.Skip("control groups cannot be used here: ", err)
	}
	g := h.Open("/berth-limits-test-" + strconv.Itoa(os.Getpid()) + "/j1-a1")
	want := Limits{MemBytes: 64 << 20, CPUQuotaMilli: 250, CPUSet: "0", Pids: 17}
	err = g.Create(want)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		t.Skip("control groups cannot be used here: ", err)
	}
	got, lerr := g.Limits()
	if err := errors.Join(err, lerr, g.RemoveUp()); err != nil {
		t.Fatal(err)
	}
	if h.Unified == "" { // version 1 shows only what is mounted
		if h.CPUSet == "" {
			want.CPUSet = ""
		}
		if h.Pids == "" {
			want.Pids = 0
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		l    Limits
		want string
	}{
		{"all", all, ""},
		{"nothing", Limits{}, ""},
		{"negative", Limits{Pids: -1}, "pids is -1"},
		{"processors", Limits{CPUSet: "0-"}, "processors are"},
		{"two lines", Limits{CPUSet: "0\n1"}, "processors are"},
		{"device", Limits{IO: []IOLimit{{Device: "/dev/sda"}}}, "device is"},
		{"negative rate", Limits{IO: []IOLimit{{Device: "8:0", ReadOps: -1}}}, "is negative"},
	} {
		err := c.l.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		if err != nil && (Hierarchy{Unified: t.TempDir()}).Open("/x").Create(c.l) == nil {
			t.Errorf("%s: a group was made", c.name)
		}
	}
}

// TestQuotaRoundTrip has each cap of the CPU come back as it was asked for.
func TestQuotaRoundTrip(t *testing.T) {
	root := t.TempDir()
	writeTree(t, root, map[string]string{"cgroup.subtree_control": "cpu memory", "x/memory.max": "max"})
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.Int64Range(10, 1<<20).Draw(rt, "milli")
		g := Hierarchy{Unified: root}.Open("/x")
		if err := g.Create(Limits{CPUQuotaMilli: want}); err != nil {
			rt.Fatal(err)
		}
		if got, err := g.Limits(); err != nil || got.CPUQuotaMilli != want {
			rt.Fatalf("got %+v, %v, want %d", got, err, want)
		}
	})
}
