package containerdrt

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/cluster"
)

// The shim tells how a task ended in one number, as a shell does: 137 is both
// an exit with 137 and a death by SIGKILL. The kernel knows better, and since
// Linux 6.15 tells whoever holds a descriptor of the process from before its
// end (pidfd_open(2), PIDFD_GET_INFO). Where it does not, or where the task
// ended while no agent ran, the shim's number has to do, and is taken as a
// signal.

// hold opens the first process of a task that has not ended.
func (r *Runtime) hold(id cluster.AttemptID, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // before Linux 5.3, or it ended: the shim's number has to do
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, ok := r.firsts[id]; ok {
		_ = unix.Close(old)
	}
	r.firsts[id] = fd
}

// letGo closes what hold opened, and forgets the task's shim.
func (r *Runtime) letGo(id cluster.AttemptID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.shims, id)
	delete(r.listened, id)
	if fd, ok := r.firsts[id]; ok {
		_ = unix.Close(fd)
		delete(r.firsts, id)
	}
}

// trueEnd asks the kernel how the first process of a task ended.
func (r *Runtime) trueEnd(id cluster.AttemptID) (syscall.WaitStatus, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fd, ok := r.firsts[id]
	if !ok {
		return 0, false
	}
	return endOf(fd)
}

func endOf(pidfd int) (syscall.WaitStatus, bool) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	if err := unix.IoctlPidfdInfo(pidfd, &info); err != nil || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return 0, false
	}
	return syscall.WaitStatus(info.Exit_code), true
}
