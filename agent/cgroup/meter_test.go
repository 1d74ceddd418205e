package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// Trees as recorded: version 2 of a kernel 6.1, version 1 of a kernel 6.18.
const (
	statV2 = "anon 104857600\nfile 83886080\nkernel 1404928\nkernel_stack 98304\npagetables 372736\nshmem 52428800\nfile_mapped 4096\n" +
		"inactive_anon 157286400\nactive_anon 0\n"
	statV1 = "cache 83886080\nrss 1048576\nshmem 0\ninactive_anon 0\nhierarchical_memory_limit 268435456\n" +
		"total_cache 136314880\ntotal_rss 104857600\ntotal_rss_huge 0\ntotal_shmem 52428800\ntotal_mapped_file 0\n"
	ioV2    = "254:0 rbytes=1048576 wbytes=31457280 rios=12 wios=30 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=2 rios=1 wios=1 dbytes=0 dios=0\n"
	blockV1 = "254:0 Read 1048576\n254:0 Write 31457280\n254:0 Sync 0\n254:0 Total 32505856\n8:16 Read 1\n8:16 Write 2\n8:16 Total 3\nTotal 32505859\n"
)

func TestMeter(t *testing.T) {
	root := t.TempDir()
	writeTree(t, root, map[string]string{
		"v2/g/memory.stat": statV2, "v2/g/io.stat": ioV2,
		"mem/g/memory.stat": statV1, "blk/g/blkio.throttle.io_service_bytes_recursive": blockV1,
		"old/g/memory.stat": "total_rss 4096\n", "bad/g/memory.stat": "anon x\n", "none/g/memory.stat": "anon_thp 5\n",
	})
	v1 := Hierarchy{Memory: filepath.Join(root, "mem"), Block: filepath.Join(root, "blk")}
	for _, c := range []struct {
		name          string
		h             Hierarchy
		resident      int64 // -1: an error
		read, written int64
		io            bool
	}{
		{"v2", Hierarchy{Unified: filepath.Join(root, "v2")}, 150 << 20, 1<<20 + 1, 30<<20 + 2, true},
		{"v1", v1, 150 << 20, 1<<20 + 1, 30<<20 + 2, true},
		{"v1 without blkio", Hierarchy{Memory: v1.Memory}, 150 << 20, 0, 0, false},
		{"old kernel, no group of blkio", Hierarchy{Memory: filepath.Join(root, "old"), Block: filepath.Join(root, "old")}, 4096, 0, 0, false},
		{"no number", Hierarchy{Unified: filepath.Join(root, "bad")}, -1, 0, 0, false},
		{"no such key", Hierarchy{Unified: filepath.Join(root, "none")}, -1, 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := c.h.Open("/g").Meter()
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if n, err := m.Resident(); n != max(0, c.resident) || (err != nil) != (c.resident < 0) {
					t.Errorf("resident: got %d, %v, want %d", n, err, c.resident)
				}
			}
			if r, w, ok := c.h.Open("/g").Storage(); r != c.read || w != c.written || ok != c.io {
				t.Errorf("storage: got %d, %d, %v, want %d, %d, %v", r, w, ok, c.read, c.written, c.io)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := v1.Open("/absent").Meter(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a group that is not there: %v", err)
	}
	if r, w := countV1(blockV1, func(dev string) bool { return dev == "8:16" }); r != 1<<20 || w != 30<<20 {
		t.Errorf("a stacked device counted: %d, %d", r, w)
	}
}

func FuzzCounts(f *testing.F) {
	for _, s := range []string{statV1, statV2, ioV2, blockV1, "anon 9223372036854775807\nshmem 9223372036854775807\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := sumKeys([]byte(text), [2]string{"anon", "shmem"}); err == nil && len(text) < 1000 && n < 0 {
			t.Errorf("%q: %d bytes", text, n)
		}
		no := func(string) bool { return false }
		countV1(text, no)
		countV2(text, no)
	})
}

// TestMeterOfTheKernel measures a process of the machine's own groups, and
// what it must not count: a file's pages in the cache.
func TestMeterOfTheKernel(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to make control groups")
	}
	h, err := Detect()
	if err != nil {
		t.Skip("control groups cannot be used here: ", err)
	}
	g := h.Open("/berth-cgroup-meter-" + strconv.Itoa(os.Getpid()) + "/j1-a1")
	if err := g.Create(Limits{MemBytes: 256 << 20}); err != nil {
		t.Skip("control groups cannot be used here: ", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Kill(), g.RemoveUp()); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	// The shell joins the group only when told to, and then fills the page
	// cache and its own memory.
	cmd := exec.Command("/bin/sh", "-c", `while [ ! -e go ]; do sleep 0.01; done
		dd if=/dev/zero of=file bs=1M count=60 2>/dev/null; x=$(head -c 20000000 /dev/zero | tr '\0' x); echo >done; sleep 1000`)
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	if err := errors.Join(g.Add(cmd.Process.Pid), os.WriteFile(filepath.Join(dir, "go"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	m, err := g.Meter()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "done")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the shell is not done within ten minutes")
		}
	}
	n, err := m.Resident()
	if err != nil || n < 19<<20 || n > 50<<20 {
		t.Errorf("resident: got %d MiB, %v, want what the shell holds, about 20 MiB", n>>20, err)
	}
	if peak := g.MemPeak(); peak < 60<<20 {
		t.Errorf("the kernel's own mark: got %d MiB, want the file's pages in it", peak>>20)
	}
	if pids, err := g.Processes(); err != nil || !slices.Contains(pids, cmd.Process.Pid) {
		t.Errorf("processes: got %v, %v, want %d among them", pids, err, cmd.Process.Pid)
	}
	if m.CPUTime() <= 0 {
		t.Error("no CPU time")
	}
}

func BenchmarkResident(b *testing.B) {
	h, err := Detect()
	if err != nil {
		b.Skip(err)
	}
	m, err := h.Open("/").Meter()
	if err != nil {
		b.Skip(err)
	}
	defer m.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Resident(); err != nil {
			b.Fatal(err)
		}
	}
}
