package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Limits caps a group. A zero field means no cap.
type Limits struct {
	// MemBytes caps memory; swap is then 0.
	MemBytes int64
	// CPUMilli is a weight in thousandths of a core, 0 the default; CPUQuotaMilli is a cap,
	// enforced over periods of 100 ms.
	CPUMilli, CPUQuotaMilli int64
	// CPUSet lists the CPUs, such as "0-3,8".
	CPUSet string
	// Pids caps threads and processes where the kernel counts them.
	Pids int64
	// IO caps what the group reads and writes, by device.
	IO []IOLimit
}

// IOLimit caps the use of one block device per second. Version 1 sees only what bypasses
// the page cache.
type IOLimit struct {
	Device                                   string // "8:0", as in /proc/partitions
	ReadBytes, WriteBytes, ReadOps, WriteOps int64
}

// cpuPeriod is the kernel's default, in microseconds; minQuota is the smallest quota that
// it accepts.
const cpuPeriod, minQuota = 100_000, 1000

var (
	deviceNumber = pattern(`^[0-9]{1,4}:[0-9]{1,7}$`)
	processors   = pattern(`^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$`)
)

// pattern compiles lazily, not in every program that links this package.
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// Validate reports which limit the kernel cannot enforce.
func (l Limits) Validate() error {
	for _, n := range []struct {
		name string
		v    int64
	}{{"memory", l.MemBytes}, {"CPU weight", l.CPUMilli}, {"CPU quota", l.CPUQuotaMilli}, {"pids", l.Pids}} {
		if n.v < 0 {
			return fmt.Errorf("%s is %d, want 0 or more", n.name, n.v)
		}
	}
	if l.CPUSet != "" && !processors().MatchString(l.CPUSet) {
		return fmt.Errorf("processors are %q, want numbers and ranges as 0-3,8", l.CPUSet)
	}
	for _, io := range l.IO {
		if !deviceNumber().MatchString(io.Device) {
			return fmt.Errorf("device is %q, want its numbers as 8:0", io.Device)
		}
		if min(io.ReadBytes, io.WriteBytes, io.ReadOps, io.WriteOps) < 0 {
			return fmt.Errorf("limit of device %s is negative", io.Device)
		}
	}
	return nil
}

// Create creates the group with its limits, and reads them back: a cap that is not in force
// is an error.
func (g *Group) Create(l Limits) error {
	if err := l.Validate(); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	for _, d := range g.dirs() {
		err := unix.Mkdir(d, 0o755)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINTR) {
			err = os.MkdirAll(d, 0o755)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make control group: %w", err)
		}
	}
	set := g.limitV1
	if g.h.Unified != "" {
		set = g.limitUnified
	}
	if err := set(l); err != nil {
		return err
	}
	return g.Verify(l)
}

func (g *Group) limitV1(l Limits) error {
	mem := filepath.Join(g.h.Memory, g.path)
	if l.MemBytes > 0 {
		if err := write(mem, "memory.limit_in_bytes", l.MemBytes); err != nil {
			return err
		}
		// Swap accounting is off on some kernels; then the file does not exist.
		if err := write(mem, "memory.memsw.limit_in_bytes", l.MemBytes); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if cpu := filepath.Join(g.h.CPU, g.path); g.h.CPU != "" {
		if l.CPUMilli > 0 {
			if err := write(cpu, "cpu.shares", max(2, l.CPUMilli*1024/1000)); err != nil {
				return err
			}
		}
		if l.CPUQuotaMilli > 0 {
			if err := errors.Join(write(cpu, "cpu.cfs_period_us", cpuPeriod), write(cpu, "cpu.cfs_quota_us", quota(l))); err != nil {
				return err
			}
		}
	}
	if l.Pids > 0 && g.h.Pids != "" {
		if err := write(filepath.Join(g.h.Pids, g.path), "pids.max", l.Pids); err != nil {
			return err
		}
	}
	return errors.Join(g.setProcessorsV1(l), g.setIOV1(l))
}

func quota(l Limits) int64 { return max(minQuota, l.CPUQuotaMilli*cpuPeriod/1000) }

// setProcessorsV1 creates the group in the cpuset hierarchy. There a group begins without
// any CPU or memory node, and accepts no process.
func (g *Group) setProcessorsV1(l Limits) error {
	if l.CPUSet == "" || g.h.CPUSet == "" {
		return nil
	}
	at := g.h.CPUSet
	for name := range strings.SplitSeq(strings.Trim(filepath.Clean("/"+g.path), "/"), "/") {
		above := at
		at = filepath.Join(at, name)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return fmt.Errorf("make control group: %w", err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := inherit(above, at, file); err != nil {
				return err
			}
		}
	}
	return writeText(at, "cpuset.cpus", l.CPUSet)
}

// inherit fills an empty file of a group with its parent's value.
func inherit(above, at, file string) error {
	has, err := readFile(filepath.Join(at, file))
	if err == nil && strings.TrimSpace(string(has)) != "" {
		return nil
	}
	from, err := readFile(filepath.Join(above, file))
	if err != nil {
		return fmt.Errorf("processors of %s: %w", above, err)
	}
	return writeText(at, file, strings.TrimSpace(string(from)))
}

func (g *Group) setIOV1(l Limits) error {
	if len(l.IO) == 0 || g.h.Block == "" {
		return nil
	}
	dir := filepath.Join(g.h.Block, g.path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make control group: %w", err)
	}
	for _, io := range l.IO {
		for file, v := range map[string]int64{
			"blkio.throttle.read_bps_device": io.ReadBytes, "blkio.throttle.write_bps_device": io.WriteBytes,
			"blkio.throttle.read_iops_device": io.ReadOps, "blkio.throttle.write_iops_device": io.WriteOps,
		} {
			if v == 0 {
				continue
			}
			if err := writeText(dir, file, io.Device+" "+strconv.FormatInt(v, 10)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *Group) limitUnified(l Limits) error {
	dir := filepath.Join(g.h.Unified, g.path)
	// Controllers pass to children only where each level enables them, starting at the top:
	// a level can pass on only what it has.
	var above []string
	for d := filepath.Dir(filepath.Clean("/" + g.path)); ; d = filepath.Dir(d) {
		above = append(above, filepath.Join(g.h.Unified, d))
		if d == "/" {
			break
		}
	}
	for _, d := range slices.Backward(above) {
		if err := passOn(d, l); err != nil {
			return err
		}
	}
	if l.MemBytes > 0 {
		if err := write(dir, "memory.max", l.MemBytes); err != nil {
			return err
		}
		if err := write(dir, "memory.swap.max", 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if l.CPUMilli > 0 {
		if err := write(dir, "cpu.weight", min(10000, max(1, l.CPUMilli/10))); err != nil {
			return err
		}
	}
	if l.CPUQuotaMilli > 0 {
		if err := writeText(dir, "cpu.max", fmt.Sprintf("%d %d", quota(l), cpuPeriod)); err != nil {
			return err
		}
	}
	if l.CPUSet != "" {
		if err := writeText(dir, "cpuset.cpus", l.CPUSet); err != nil {
			return err
		}
	}
	if l.Pids > 0 {
		if err := write(dir, "pids.max", l.Pids); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	for _, io := range l.IO {
		if err := writeText(dir, "io.max", io.unified()); err != nil {
			return err
		}
	}
	return nil
}

// unified formats a line of io.max; the kernel keeps what a line does not name.
func (io IOLimit) unified() string {
	line := io.Device
	for _, f := range []struct {
		key string
		v   int64
	}{{"rbps", io.ReadBytes}, {"wbps", io.WriteBytes}, {"riops", io.ReadOps}, {"wiops", io.WriteOps}} {
		if f.v > 0 {
			line += fmt.Sprintf(" %s=%d", f.key, f.v)
		}
	}
	return line
}

// passOn enables the controllers that l needs for the children of a version 2 group.
func passOn(dir string, l Limits) error {
	text, err := readFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return fmt.Errorf("controllers of %s: %w", dir, err)
	}
	has := strings.Fields(string(text))
	want := []string{"memory", "cpu"}
	if l.CPUSet != "" {
		want = append(want, "cpuset")
	}
	if len(l.IO) > 0 {
		want = append(want, "io")
	}
	missing := ""
	for _, c := range want {
		if !slices.Contains(has, c) {
			missing += " +" + c
		}
	}
	if missing != "" {
		if err := writeFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(missing[1:])); err != nil {
			return fmt.Errorf("enable controllers in %s: %w", dir, err)
		}
	}
	if l.Pids > 0 && !slices.Contains(has, "pids") {
		// Some kernels do not count pids; then children lack the file.
		_ = writeFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+pids"))
	}
	return nil
}

func writeText(dir, file, text string) error {
	if err := writeFile(filepath.Join(dir, file), []byte(text)); err != nil {
		return fmt.Errorf("set %s to %q: %w", file, text, err)
	}
	return nil
}

// Limits reads back the limits in force, except weights and I/O. What the kernel does not
// count is 0.
func (g *Group) Limits() (l Limits, err error) {
	if l.MemBytes, err = g.memCap(); err != nil {
		return l, err
	}
	mount := g.h.Pids
	if g.h.Unified != "" {
		mount = g.h.Unified
	}
	l.Pids, _ = readCap(filepath.Join(mount, g.path, "pids.max")) // no file: not counted
	l.CPUQuotaMilli, l.CPUSet = g.cpuCap(), g.processors()
	return l, nil
}

func (g *Group) memCap() (int64, error) {
	if g.h.Unified != "" {
		return readCap(filepath.Join(g.h.Unified, g.path, "memory.max"))
	}
	return readCap(filepath.Join(g.h.Memory, g.path, "memory.limit_in_bytes"))
}

func (g *Group) cpuCap() int64 {
	if g.h.Unified != "" {
		text, _ := readFile(filepath.Join(g.h.Unified, g.path, "cpu.max"))
		q, period, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		return milli(q, period)
	}
	q, _ := readFile(filepath.Join(g.h.CPU, g.path, "cpu.cfs_quota_us"))
	period, _ := readFile(filepath.Join(g.h.CPU, g.path, "cpu.cfs_period_us"))
	return milli(strings.TrimSpace(string(q)), strings.TrimSpace(string(period)))
}

func (g *Group) processors() string {
	mount := g.h.CPUSet
	if g.h.Unified != "" {
		mount = g.h.Unified
	}
	text, _ := readFile(filepath.Join(mount, g.path, "cpuset.cpus"))
	return strings.TrimSpace(string(text))
}

// milli converts a quota per period into thousandths of a core; "max" and -1 are no cap.
func milli(quota, period string) int64 {
	q, err1 := strconv.ParseInt(quota, 10, 64)
	p, err2 := strconv.ParseInt(period, 10, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return 0
	}
	return q * 1000 / p
}

// unlimitedV1 is about what version 1 shows for no cap: the largest whole number of pages.
const unlimitedV1 = 1 << 62

func readCap(path string) (int64, error) {
	text, err := readFile(path)
	if err != nil {
		return 0, err
	}
	if s := strings.TrimSpace(string(text)); s != "max" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		if n < unlimitedV1 {
			return n, nil
		}
	}
	return 0, nil
}

// Verify reads back the memory cap, and the CPU quota and CPUs where requested: a cap that
// is not in force is an error.
func (g *Group) Verify(l Limits) error {
	bad := func(what string, got, want any) error {
		return fmt.Errorf("%s of %s is %v after %v was written", what, g.path, got, want)
	}
	if page := int64(os.Getpagesize()); l.MemBytes > 0 {
		got, err := g.memCap()
		if err != nil {
			return err
		}
		if got == 0 || got > l.MemBytes || got < l.MemBytes-page {
			return bad("memory cap", got, l.MemBytes)
		}
	}
	if l.CPUQuotaMilli > 0 {
		if got := g.cpuCap(); got != quota(l)*1000/cpuPeriod {
			return bad("CPU cap", got, l.CPUQuotaMilli)
		}
	}
	if l.CPUSet != "" && (g.h.Unified != "" || g.h.CPUSet != "") && g.processors() == "" {
		return bad("set of processors", "empty", l.CPUSet)
	}
	return nil
}
