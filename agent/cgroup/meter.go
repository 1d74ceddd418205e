package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Meter repeatedly reads the counters of one group: its files stay open, and a reading
// costs one system call and no garbage. It is not safe for concurrent use.
type Meter struct {
	g    *Group
	stat *os.File // memory.stat
	buf  []byte
}

// Meter returns a meter of the group, which must exist. Otherwise the error wraps
// fs.ErrNotExist.
func (g *Group) Meter() (*Meter, error) {
	mount := g.h.Memory
	if g.h.Unified != "" {
		mount = g.h.Unified
	}
	f, err := os.Open(filepath.Join(mount, g.path, "memory.stat"))
	if err != nil {
		return nil, fmt.Errorf("measure control group: %w", err)
	}
	return &Meter{g: g, stat: f, buf: make([]byte, 8<<10)}, nil
}

// Close closes the files. The group may be removed before or after.
func (m *Meter) Close() error { return m.stat.Close() }

// Resident returns the memory of the group that no file on a disk backs, in bytes:
// anonymous memory, shared memory, and files in memory. It excludes the page cache, which
// the kernel reclaims when it needs the memory.
func (m *Meter) Resident() (int64, error) {
	n, err := m.stat.ReadAt(m.buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("read memory.stat: %w", err)
	}
	keys := [2]string{"total_rss", "total_shmem"}
	if m.g.h.Unified != "" {
		keys = [2]string{"anon", "shmem"}
	}
	return sumKeys(m.buf[:n], keys)
}

// sumKeys adds the values of two keys of a flat keyed file. The first must exist; the
// second is missing on old kernels.
func sumKeys(data []byte, keys [2]string) (int64, error) {
	sum, first := int64(0), false
	for line := range bytes.Lines(data) {
		key, value, _ := bytes.Cut(line, []byte(" "))
		if string(key) != keys[0] && string(key) != keys[1] {
			continue
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
		if err != nil || n < 0 || n > 1<<60 {
			return 0, fmt.Errorf("memory.stat: %q is no amount", line)
		}
		sum, first = sum+n, first || string(key) == keys[0]
	}
	if !first {
		return 0, fmt.Errorf("memory.stat has no %s", keys[0])
	}
	return sum, nil
}

// CPUTime is as for Group.
func (m *Meter) CPUTime() time.Duration { return m.g.CPUTime() }

// Storage returns how many bytes the group read from and wrote to block devices, as far as
// the kernel can attribute requests to the group: under version 1 it cannot for writes
// through the page cache, and network file systems are not counted. ok is false where
// nothing is counted.
func (g *Group) Storage() (read, written int64, ok bool) {
	path, count := filepath.Join(g.h.Block, g.path, "blkio.throttle.io_service_bytes_recursive"), countV1
	switch {
	case g.h.Unified != "":
		path, count = filepath.Join(g.h.Unified, g.path, "io.stat"), countV2
	case g.h.Block == "":
		return 0, 0, false
	}
	data, err := readFile(path)
	if err != nil {
		return 0, 0, false
	}
	read, written = count(string(data), isStacked)
	return read, written, true
}

// isStacked reports whether a device, such as "253:0", is built on others, which count the
// same bytes again.
func isStacked(dev string) bool {
	slaves, err := os.ReadDir(filepath.Join("/sys/dev/block", filepath.Base(dev), "slaves"))
	return err == nil && len(slaves) > 0
}

// countV1 sums lines such as "8:0 Read 4096".
func countV1(text string, skip func(dev string) bool) (read, written int64) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 || skip(f[0]) {
			continue
		}
		n, err := strconv.ParseInt(f[2], 10, 64)
		switch {
		case err != nil || n < 0:
		case f[1] == "Read":
			read += n
		case f[1] == "Write":
			written += n
		}
	}
	return read, written
}

// countV2 sums lines such as "8:0 rbytes=4096 wbytes=0 rios=1 wios=0".
func countV2(text string, skip func(dev string) bool) (read, written int64) {
	for line := range strings.Lines(text) {
		dev, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if skip(dev) {
			continue
		}
		for f := range strings.FieldsSeq(rest) {
			key, value, _ := strings.Cut(f, "=")
			n, err := strconv.ParseInt(value, 10, 64)
			switch {
			case err != nil || n < 0:
			case key == "rbytes":
				read += n
			case key == "wbytes":
				written += n
			}
		}
	}
	return read, written
}

// Processes returns the pids of the group and of those below it, none when it is gone.
func (g *Group) Processes() ([]int, error) {
	var out []int
	err := filepath.WalkDir(g.dirs()[0], func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || !d.IsDir():
			return err
		}
		data, err := readFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return nil // it has gone meanwhile, or is threaded
		}
		for f := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
				out = append(out, pid)
			}
		}
		return nil
	})
	return out, err
}
