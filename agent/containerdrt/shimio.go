package containerdrt

import (
	"github.com/berth-scheduler/berth/agent/proc"
	"github.com/berth-scheduler/berth/cluster"
)

// shim is the parent of a first process. The kernel adds to its counts those
// of every process that it waited for, and so, once the task has stopped, all
// that the job read and wrote.
type shim struct {
	pid  int
	base proc.IO // before the job was let go
}

// holdShim remembers what the parent of a created first process has counted so
// far. For tasks of an earlier agent nobody does: their I/O is what was seen
// while they ran.
func (r *Runtime) holdShim(id cluster.AttemptID, first int) {
	pid, err := proc.Parent(first)
	if err != nil || pid <= 1 {
		return
	}
	base, err := proc.ReadIO(pid)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shims[id] = shim{pid, base}
}

// storage is what a task that has stopped read and wrote, zero when it is not
// known. The shim is there until the task is deleted.
func (r *Runtime) storage(id cluster.AttemptID) proc.IO {
	r.mu.Lock()
	s, ok := r.shims[id]
	r.mu.Unlock()
	if !ok {
		return proc.IO{}
	}
	io, err := proc.ReadIO(s.pid)
	if err != nil {
		return proc.IO{}
	}
	return io.Sub(s.base)
}
