// Package cgroup caps and measures the processes of an attempt with the kernel's control
// groups, versions 1 and 2, each controller where it is mounted. It follows the kernel's
// documents admin-guide/cgroup-v1 and admin-guide/cgroup-v2.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Hierarchy is where a machine's controllers are mounted.
type Hierarchy struct {
	// Unified is the mount point of cgroup v2 if it has the memory controller, else "".
	// Memory, CPU, Account and Pids are the v1 mount points.
	Unified                    string
	Memory, CPU, Account, Pids string
	// CPUSet and Block are v1 mount points in which a group is created only for a limit
	// that needs it. They are among Others, too.
	CPUSet, Block string
	// Others are the mount points of the other v1 controllers, and of cgroup v2 in a hybrid
	// setup, in which an OCI runtime creates groups, too.
	Others []string
}

// Detect reads /proc/self/mountinfo.
func Detect() (Hierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return Hierarchy{}, fmt.Errorf("find control groups: %w", err)
	}
	defer f.Close()
	return detect(f)
}

func detect(mountinfo io.Reader) (Hierarchy, error) {
	var h Hierarchy
	sc := bufio.NewScanner(mountinfo)
	sc.Buffer(nil, 1<<20) // overlays have long lines
	for sc.Scan() {
		pre, post, ok := strings.Cut(sc.Text(), " - ")
		fields, super := strings.Fields(pre), strings.Fields(post)
		if !ok || len(fields) < 5 || len(super) < 3 {
			continue
		}
		switch point := fields[4]; super[0] {
		case "cgroup2":
			if c, err := readFile(filepath.Join(point, "cgroup.controllers")); err == nil && slices.Contains(strings.Fields(string(c)), "memory") {
				h.Unified = point
			} else {
				h.Others = append(h.Others, point) // a hybrid setup
			}
		case "cgroup":
			h.addV1(point, super[2])
		}
	}
	if err := sc.Err(); err != nil {
		return h, err
	}
	if h.Unified == "" && h.Memory == "" {
		return h, errors.New("no memory controller is mounted, neither cgroup v1 nor v2")
	}
	return h, nil
}

// Plain returns h for groups that never get limits other than memory, weight and pids: they
// have no directories elsewhere to look for.
func (h Hierarchy) Plain() Hierarchy {
	h.CPUSet, h.Block, h.Others = "", "", nil
	return h
}

func (h *Hierarchy) addV1(point, options string) {
	ours := false
	for opt := range strings.SplitSeq(options, ",") {
		switch opt {
		case "memory":
			h.Memory, ours = point, true
		case "cpu":
			h.CPU, ours = point, true
		case "cpuacct":
			h.Account, ours = point, true
		case "pids":
			h.Pids, ours = point, true
		case "cpuset":
			h.CPUSet = point
		case "blkio":
			h.Block = point
		}
	}
	if !ours {
		h.Others = append(h.Others, point)
	}
}

// Group is the control group of one attempt.
type Group struct {
	h    Hierarchy
	path string // below the mount points, "/berth/j1-a1"
}

// Open names a group without creating it.
func (h Hierarchy) Open(path string) *Group { return &Group{h: h, path: path} }

// everywhere returns where the group may have directories, whatever created them.
func (g *Group) everywhere() []string {
	out := g.dirs()
	for _, m := range g.h.Others {
		out = append(out, filepath.Join(m, g.path))
	}
	return out
}

func (g *Group) dirs() []string {
	var out []string
	if g.h.Unified != "" {
		return []string{filepath.Join(g.h.Unified, g.path)}
	}
	for _, m := range []string{g.h.Memory, g.h.CPU, g.h.Account, g.h.Pids} {
		if m != "" {
			d := filepath.Join(m, g.path)
			if len(out) == 0 || out[len(out)-1] != d {
				out = append(out, d)
			}
		}
	}
	return out
}

// ownFile is the mode of a file that is written and did not exist: never a kernel file,
// which the kernel creates itself, but a test's, which need not be root's.
const ownFile = 0o600

func write(dir, file string, v int64) error {
	if err := writeFile(filepath.Join(dir, file), strconv.AppendInt(nil, v, 10)); err != nil {
		return fmt.Errorf("set %s: %w", file, err)
	}
	return nil
}

func readInt(path string) (int64, error) {
	b, err := readFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// Add moves a process into the group.
func (g *Group) Add(pid int) error {
	for _, d := range slices.Concat(g.dirs(), g.extra()) {
		if err := write(d, "cgroup.procs", int64(pid)); err != nil {
			return err
		}
	}
	return nil
}

// extra returns the v1 directories that were created for a single limit.
func (g *Group) extra() []string {
	var out []string
	for _, m := range []string{g.h.CPUSet, g.h.Block} {
		if d := filepath.Join(m, g.path); m != "" && isDir(d) {
			out = append(out, d)
		}
	}
	return out
}

// OOMKills returns how many processes of the group the kernel killed at its cap.
func (g *Group) OOMKills() (int64, error) {
	path := filepath.Join(g.h.Memory, g.path, "memory.oom_control")
	if g.h.Unified != "" {
		path = filepath.Join(g.h.Unified, g.path, "memory.events")
	}
	return keyed(path, "oom_kill")
}

func keyed(path, key string) (int64, error) {
	b, err := readFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			return strconv.ParseInt(f[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, key)
}

// PidsRefused returns how many processes and threads were refused at the group's cap, 0
// when the kernel does not count them.
func (g *Group) PidsRefused() int64 {
	mount := g.h.Pids
	if g.h.Unified != "" {
		mount = g.h.Unified
	}
	n, err := keyed(filepath.Join(mount, g.path, "pids.events"), "max")
	if err != nil {
		return 0
	}
	return n
}

// MemPeak returns the high-water mark of the group's memory in bytes, 0 when the kernel
// keeps none.
func (g *Group) MemPeak() int64 {
	path := filepath.Join(g.h.Memory, g.path, "memory.max_usage_in_bytes")
	if g.h.Unified != "" {
		path = filepath.Join(g.h.Unified, g.path, "memory.peak")
	}
	n, err := readInt(path)
	if err != nil {
		return 0
	}
	return n
}

// CPUTime returns the user plus system time of the group, 0 when unknown.
func (g *Group) CPUTime() time.Duration {
	if g.h.Unified != "" {
		us, err := keyed(filepath.Join(g.h.Unified, g.path, "cpu.stat"), "usage_usec")
		if err != nil {
			return 0
		}
		return time.Duration(us) * time.Microsecond
	}
	if g.h.Account == "" {
		return 0
	}
	ns, err := readInt(filepath.Join(g.h.Account, g.path, "cpuacct.usage"))
	if err != nil {
		return 0
	}
	return time.Duration(ns)
}

// Kill sends SIGKILL to every process of the group, including those forked meanwhile.
func (g *Group) Kill() error {
	// A zombie's group reads as "/": the machine's root group must never be killed.
	if filepath.Clean("/"+g.path) == "/" {
		return errors.New("refusing to kill the processes of the root control group")
	}
	if g.h.Unified != "" {
		if err := writeFile(filepath.Join(g.h.Unified, g.path, "cgroup.kill"), []byte("1")); err == nil {
			return nil
		}
	}
	for n := range 100 { // 2 s in all
		pids, err := g.procs()
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
		time.Sleep(time.Duration(min(n+1, 20)) * time.Millisecond)
	}
	return fmt.Errorf("processes of %s do not end", g.path)
}

// Signal sends sig to every process of the group except pid spare. It may miss processes
// forked meanwhile.
func (g *Group) Signal(sig syscall.Signal, spare int) error {
	if filepath.Clean("/"+g.path) == "/" {
		return errors.New("refusing to signal the processes of the root control group")
	}
	pids, err := g.procs()
	if err != nil {
		return err
	}
	var errs []error
	for batch := range slices.Chunk(pids, signalBatch) {
		errs = append(errs, g.signalSome(batch, sig, spare))
	}
	return errors.Join(errs...)
}

// signalBatch bounds how many processes are held open at a time.
const signalBatch = 128

// signalSome holds processes open and checks again whether they belong to the group before
// it signals them: a pid may be reused.
func (g *Group) signalSome(pids []int, sig syscall.Signal, spare int) error {
	held := map[int]int{}
	defer func() {
		for _, fd := range held {
			_ = unix.Close(fd) // nothing is written through it
		}
	}()
	for _, pid := range pids {
		if pid == spare {
			continue
		}
		switch fd, err := unix.PidfdOpen(pid, 0); {
		case err == nil:
			held[pid] = fd
		case errors.Is(err, syscall.ESRCH), errors.Is(err, syscall.EINVAL): // gone, or not the first thread
		default:
			return fmt.Errorf("hold process %d: %w", pid, err)
		}
	}
	still, err := g.procs()
	if err != nil {
		return err
	}
	var errs []error
	for _, pid := range still {
		fd, ok := held[pid]
		if !ok {
			continue
		}
		if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("signal process %d: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}

// procs returns the processes in the group itself.
func (g *Group) procs() ([]int, error) {
	b, err := readFile(filepath.Join(g.dirs()[0], "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []int
	for _, f := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		if pid != 0 && !g.visits(pid) {
			out = append(out, pid)
		}
	}
	return out, nil
}

// Remove deletes the group; its processes must have ended. The kernel releases a group a
// moment after its last process.
func (g *Group) Remove() error {
	if filepath.Clean("/"+g.path) == "/" {
		return errors.New("refusing to remove the root control group")
	}
	for _, d := range g.everywhere() {
		var err error
		for range 50 {
			if err = rmdir(d); err == nil || errors.Is(err, fs.ErrNotExist) {
				err = nil
				break
			}
			if !errors.Is(err, syscall.EBUSY) {
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
		if err != nil {
			return fmt.Errorf("remove control group: %w", err)
		}
	}
	return nil
}

// RemoveUp deletes the group and every empty group above it.
func (g *Group) RemoveUp() error {
	err := g.Remove()
	for p := filepath.Dir(g.path); err == nil && p != "/" && p != "."; p = filepath.Dir(p) {
		for _, d := range g.h.Open(p).everywhere() {
			if rmErr := rmdir(d); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
				return nil // not empty: in use by others
			}
		}
	}
	return err
}
