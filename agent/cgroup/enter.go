package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Forker is an OS thread that forks processes which are in their control groups from their
// first instruction on. Only code that runs in OnThread may create and use one.
//
// Moving a process afterwards (Group.Add) waits for an RCU grace period, 10 ms and more,
// during which no process of the machine can fork: the lock of thread groups is designed
// for few writers. Here only a thread moves, and only itself, which since Linux 5.12 takes
// no such lock; in version 2 nothing moves (CLONE_INTO_CGROUP, Linux 5.7).
type Forker struct {
	h     Hierarchy
	homes map[string]*os.File // by mount point: the file through which the thread returns
}

// OnThread runs f on a dedicated thread, which ends with f and is not the first of the
// process: the group of that thread counts as the group of the whole process, which could
// be killed with it.
func OnThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			OnThread(f) // on another thread, while this one is occupied
			return
		}
		f()
	}()
	<-done
}

// NewForker returns a Forker for the calling thread, for the lifetime of the process.
func NewForker(h Hierarchy) (*Forker, error) {
	if unix.Gettid() == unix.Getpid() {
		return nil, errors.New("the first thread of a process does not fork into control groups")
	}
	f := &Forker{h: h, homes: map[string]*os.File{}}
	if h.Unified != "" {
		return f, nil
	}
	own, err := readFile("/proc/thread-self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find this thread's control groups: %w", err)
	}
	for _, c := range []struct{ mount, name string }{
		{h.Memory, "memory"}, {h.CPU, "cpu"}, {h.Account, "cpuacct"}, {h.Pids, "pids"}, {h.CPUSet, "cpuset"}, {h.Block, "blkio"},
	} {
		if c.mount == "" || f.homes[c.mount] != nil {
			continue
		}
		home := filepath.Join(c.mount, pathIn(string(own), c.name))
		if !isDir(home) {
			home = c.mount // a container sees its own group there
		}
		if f.homes[c.mount], err = os.OpenFile(filepath.Join(home, "tasks"), os.O_WRONLY, 0); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Enter makes the process that the thread forks next with attr start in the group. leave
// must be called after the fork; a thread that cannot leave must end. In between, the
// caller's process is listed in the group: Kill, Signal and KillSession spare it.
func (f *Forker) Enter(g *Group, attr *syscall.SysProcAttr) (leave func() error, err error) {
	if f.h.Unified != "" {
		fd, err := unix.Open(g.dirs()[0], unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open control group: %w", err)
		}
		attr.UseCgroupFD, attr.CgroupFD = true, fd
		return func() error { return unix.Close(fd) }, nil
	}
	dirs := slices.Concat(g.dirs(), g.extra())
	var entered int
	leave = func() error {
		var errs []error
		for _, d := range dirs[:entered] {
			_, err := f.homes[strings.TrimSuffix(d, filepath.Clean("/"+g.path))].WriteString("0")
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	for _, d := range dirs {
		if err := write(d, "tasks", 0); err != nil { // 0 is the writing thread
			return nil, errors.Join(err, leave())
		}
		entered++
	}
	return leave, nil
}

// pathIn returns the group of a process in a controller's hierarchy, from the text of its
// /proc/PID/cgroup, or "" if it is not listed.
func pathIn(text, controller string) string {
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) {
			return f[2]
		}
	}
	return ""
}

// visits reports whether a process listed in the group belongs to another one: one of its
// threads entered, to fork. Only root's processes can do so. A process that is ending, or
// whose first thread has ended, is in "/" according to the kernel, but is no visitor: it
// still keeps the group from being removed.
func (g *Group) visits(pid int) bool {
	if g.h.Unified != "" {
		return false
	}
	text, err := readFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false // it has ended
	}
	if at := pathIn(string(text), "memory"); at == "" || strings.HasSuffix(at, filepath.Clean("/"+g.path)) {
		return false
	}
	stat, err := readFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && goesOn(string(stat))
}

// exiting is PF_EXITING of the kernel's include/linux/sched.h.
const exiting = 0x4

// goesOn reports whether a process has not begun to end, by proc_pid_stat(5): the state,
// and the flags, the ninth field.
func goesOn(stat string) bool {
	_, alive := readSession(stat)
	f := strings.Fields(stat[max(0, strings.LastIndexByte(stat, ')')):])
	if !alive || len(f) < 8 {
		return false
	}
	flags, err := strconv.ParseUint(f[7], 10, 64)
	return err == nil && flags&exiting == 0
}
