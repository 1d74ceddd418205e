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

// Forker is an operating system's thread that forks processes which are in their
// control groups from their first instruction on. Only what runs in OnThread may make
// one, and use it.
//
// Moving a process afterwards (Group.Add) waits for a grace period of the kernel's
// RCU, 10 ms and more, in which no process of the machine can fork: the lock of
// thread groups is meant for few writers. Here nobody is moved but one thread by itself,
// which takes no such lock since Linux 5.12, and in version 2 nobody at all
// (CLONE_INTO_CGROUP, Linux 5.7).
type Forker struct {
	h     Hierarchy
	homes map[string]*os.File // by mount point: the file through which the thread goes back
}

// OnThread runs f on a thread of its own, which ends with it and is not the first of
// the process: where that is, the whole process is for whoever kills a group.
func OnThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			OnThread(f) // on another one, while this is held
			return
		}
		f()
	}()
	<-done
}

// NewForker makes one of the calling thread, for as long as the process lives.
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

// Enter has the process that the thread forks next with attr be in the group. leave
// must be called after the fork; a thread that cannot leave must end. In between the
// caller's process is listed as one of the group's: Kill, Signal and KillSession
// spare it.
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
		if err := write(d, "tasks", 0); err != nil { // 0 is the thread that writes
			return nil, errors.Join(err, leave())
		}
		entered++
	}
	return leave, nil
}

// pathIn is the group of a process in the hierarchy of a controller, by the text of
// its /proc/PID/cgroup, "" if the text does not say.
func pathIn(text, controller string) string {
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) {
			return f[2]
		}
	}
	return ""
}

// visits reports whether a process that is listed in the group lives in another
// one: a thread of it entered, to fork. Only root's processes can. One that is ending,
// or has ended in its first thread alone, is in "/" by what the kernel says, and no
// visitor: it still keeps the group from being removed.
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

// goesOn reports whether a process has not begun to end, by proc_pid_stat(5): the
// state, and the flags, the ninth field.
func goesOn(stat string) bool {
	_, alive := readSession(stat)
	f := strings.Fields(stat[max(0, strings.LastIndexByte(stat, ')')):])
	if !alive || len(f) < 8 {
		return false
	}
	flags, err := strconv.ParseUint(f[7], 10, 64)
	return err == nil && flags&exiting == 0
}
