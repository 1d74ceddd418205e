package containerdrt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-scheduler/berth/cluster"
)

// LetGo tells whether the first process of a task that is still known was let
// go: runc holds it back at a fifo, and removes that once it has read there what
// the process writes before its first step. A runc that is killed between the
// two, some microseconds, leaves the fifo of a process that began: false is
// therefore "nobody knows". The order is that of runc's start
// (libcontainer/container_linux.go, exec and handleFifoResult).
func (r *Runtime) LetGo(id cluster.AttemptID) bool {
	notes := filepath.Join(runcRoot, r.cfg.Namespace, id.String())
	if _, err := os.Stat(notes); err != nil {
		return false
	}
	_, err := os.Lstat(filepath.Join(notes, "exec.fifo"))
	return errors.Is(err, fs.ErrNotExist)
}
