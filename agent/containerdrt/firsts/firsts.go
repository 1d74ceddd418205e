// Package firsts tracks the first processes of a node's containers: it holds a descriptor
// of each, from which the kernel tells how it ended, and what its shim had counted of
// storage before the job was released.
package firsts

import (
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/proc"
	"github.com/berth-scheduler/berth/cluster"
)

// The shim reports how a task ended as one number, as a shell does: 137 is both an exit
// with 137 and a death by SIGKILL. The kernel is precise, and since Linux 6.15 tells the
// holder of a descriptor opened before the process ended (pidfd_open(2), PIDFD_GET_INFO).
// Where it does not, or where the task ended while no agent was running, the shim's number
// has to do, and is taken as a signal.

// Processes holds first processes by attempt. It is safe for concurrent use.
type Processes struct {
	mu    sync.Mutex
	fds   map[cluster.AttemptID]int // descriptors of the processes
	shims map[cluster.AttemptID]shim
	// listened names the attempts whose out-of-memory kills are being handled.
	listened map[cluster.AttemptID]struct{}
}

// New returns a Processes that holds none.
func New() *Processes {
	return &Processes{fds: map[cluster.AttemptID]int{}, shims: map[cluster.AttemptID]shim{}, listened: map[cluster.AttemptID]struct{}{}}
}

// Hold opens the first process of a running task.
func (p *Processes) Hold(id cluster.AttemptID, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // before Linux 5.3, or it ended: the shim's number has to do
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, ok := p.fds[id]; ok {
		_ = unix.Close(old)
	}
	p.fds[id] = fd
}

// LetGo closes what Hold opened, and forgets everything else about the attempt.
func (p *Processes) LetGo(id cluster.AttemptID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.shims, id)
	delete(p.listened, id)
	if fd, ok := p.fds[id]; ok {
		_ = unix.Close(fd)
		delete(p.fds, id)
	}
}

// End asks the kernel how the first process of a task ended.
func (p *Processes) End(id cluster.AttemptID) (syscall.WaitStatus, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fd, ok := p.fds[id]
	if !ok {
		return 0, false
	}
	return endOf(fd)
}

// endOf asks the kernel about one descriptor.
func endOf(pidfd int) (syscall.WaitStatus, bool) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	if err := unix.IoctlPidfdInfo(pidfd, &info); err != nil || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return 0, false
	}
	return syscall.WaitStatus(info.Exit_code), true
}

// shim is the parent of a first process. The kernel adds to its counters those of every
// process that it waited for, and so, once the task has stopped, all that the job read and
// wrote.
type shim struct {
	pid  int
	base proc.IO // before the job was released
}

// HoldShim records what the parent of a created first process has counted so far. This is
// not done for tasks of an earlier agent: their I/O is what was seen while they ran.
func (p *Processes) HoldShim(id cluster.AttemptID, first int) {
	pid, err := proc.Parent(first)
	if err != nil || pid <= 1 {
		return
	}
	base, err := proc.ReadIO(pid)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shims[id] = shim{pid, base}
}

// Storage returns what a stopped task read and wrote, zero when unknown. The shim exists
// until the task is deleted.
func (p *Processes) Storage(id cluster.AttemptID) proc.IO {
	p.mu.Lock()
	s, ok := p.shims[id]
	p.mu.Unlock()
	if !ok {
		return proc.IO{}
	}
	io, err := proc.ReadIO(s.pid)
	if err != nil {
		return proc.IO{}
	}
	return io.Sub(s.base)
}

// Listen records that out-of-memory kills of an attempt are being handled.
func (p *Processes) Listen(id cluster.AttemptID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listened[id] = struct{}{}
}

// Listened reports whether Listen was called since the attempt is held.
func (p *Processes) Listened(id cluster.AttemptID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.listened[id]
	return ok
}

// Close closes all descriptors.
func (p *Processes) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, fd := range p.fds {
		_ = unix.Close(fd)
		delete(p.fds, id)
	}
}
