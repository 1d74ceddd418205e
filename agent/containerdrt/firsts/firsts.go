// Package firsts is what a node knows of the first processes of containers while it
// holds them: a descriptor of each, from which the kernel tells how it ended, and
// what its shim had counted of storage before the job was let go.
package firsts

import (
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/proc"
	"github.com/berth-scheduler/berth/cluster"
)

// The shim tells how a task ended in one number, as a shell does: 137 is both
// an exit with 137 and a death by SIGKILL. The kernel knows better, and since
// Linux 6.15 tells whoever holds a descriptor of the process from before its
// end (pidfd_open(2), PIDFD_GET_INFO). Where it does not, or where the task
// ended while no agent ran, the shim's number has to do, and is taken as a
// signal.

// Processes are the first processes that are held, by attempt. It is safe for
// concurrent use.
type Processes struct {
	mu    sync.Mutex
	fds   map[cluster.AttemptID]int // descriptors of the processes
	shims map[cluster.AttemptID]shim
	// listened names the attempts whose out-of-memory kills somebody looks after.
	listened map[cluster.AttemptID]struct{}
}

// New holds none.
func New() *Processes {
	return &Processes{fds: map[cluster.AttemptID]int{}, shims: map[cluster.AttemptID]shim{}, listened: map[cluster.AttemptID]struct{}{}}
}

// Hold opens the first process of a task that has not ended.
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

// LetGo closes what Hold opened, and forgets all else of the attempt.
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

// endOf asks the kernel of one descriptor.
func endOf(pidfd int) (syscall.WaitStatus, bool) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	if err := unix.IoctlPidfdInfo(pidfd, &info); err != nil || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return 0, false
	}
	return syscall.WaitStatus(info.Exit_code), true
}

// shim is the parent of a first process. The kernel adds to its counts those
// of every process that it waited for, and so, once the task has stopped, all
// that the job read and wrote.
type shim struct {
	pid  int
	base proc.IO // before the job was let go
}

// HoldShim remembers what the parent of a created first process has counted so
// far. For tasks of an earlier agent nobody does: their I/O is what was seen
// while they ran.
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

// Storage is what a task that has stopped read and wrote, zero when it is not
// known. The shim is there until the task is deleted.
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

// Listen notes that somebody looks after the out-of-memory kills of an attempt.
func (p *Processes) Listen(id cluster.AttemptID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listened[id] = struct{}{}
}

// Listened reports whether somebody did since it is held.
func (p *Processes) Listened(id cluster.AttemptID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.listened[id]
	return ok
}

// Close lets go of all.
func (p *Processes) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, fd := range p.fds {
		_ = unix.Close(fd)
		delete(p.fds, id)
	}
}
