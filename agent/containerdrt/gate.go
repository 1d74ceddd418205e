package containerdrt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// runc holds the first process of a container back at a fifo. At the start it
// opens it for reading; the process writes one byte and becomes the job, and
// runc reads it and removes the fifo. (libcontainer/standard_init_linux.go and
// container_linux.go, exec and handleFifoResult.) A containerd, or an agent,
// that dies within a start takes runc with it. Then the process may find nobody
// who reads, and ends with code 1 having done nothing: as a job could that
// failed. Or it has begun, and runc and its shim believe that it has not.
//
// The kernel tells which it was: a write changes a fifo's time of modification.
// Before the first start that time is set to one that no write makes, and a
// second name of the fifo keeps it when runc's notes are gone.

// gate is what is known of the place where a first process is held back.
type gate uint8

const (
	gateUnknown gate = iota // also before a start
	gateShut                // it was never let through, and never will be once it is dead
	gateOpen                // it went through
)

// gatesDir holds the second names. It must be on the file system of runcRoot.
const gatesDir = "/run/berth-starts"

// unwritten is the time of modification of a fifo that nobody wrote to.
var unwritten = time.Unix(1, 0)

func (r *Runtime) fifo(name string) string {
	return filepath.Join(runcRoot, r.cfg.Namespace, name, "exec.fifo")
}

func (r *Runtime) gateFile(name string) string {
	return filepath.Join(gatesDir, r.cfg.Namespace+"."+name)
}

// markGate makes the fifo tell whether it was written to. It must be called
// before the first start of a task, and never again: the mark would hide that
// the process went through.
func (r *Runtime) markGate(id cluster.AttemptID) error {
	if err := os.MkdirAll(gatesDir, 0o700); err != nil {
		return err
	}
	name := r.name(id)
	if err := r.removeGate(name); err != nil { // of an agent that died before the start
		return err
	}
	if err := os.Chtimes(r.fifo(name), unwritten, unwritten); err != nil {
		return err
	}
	return os.Link(r.fifo(name), r.gateFile(name))
}

func (r *Runtime) removeGate(name string) error {
	if err := os.Remove(r.gateFile(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// gate tells of a task whether its first process went through.
func (r *Runtime) gate(id cluster.AttemptID) gate { return r.gateOf(r.name(id)) }

func (r *Runtime) gateOf(name string) gate {
	switch st, err := os.Lstat(r.gateFile(name)); {
	case err != nil:
		return gateUnknown
	case st.ModTime().Equal(unwritten):
		return gateShut
	}
	return gateOpen
}
