// Package gates finds out whether a container's first process ever began, even if
// everything that started it has died meanwhile.
package gates

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// runc holds the first process of a container at a fifo. To start it, runc opens the fifo
// for reading; the process writes one byte and becomes the job, and runc reads it and
// removes the fifo. (libcontainer/standard_init_linux.go and container_linux.go, exec and
// handleFifoResult.) If containerd or an agent dies during a start, runc dies with it. Then
// the process may find no reader and exit with code 1 without having done anything: just as
// a failed job could. Or it has begun, and runc and its shim believe that it has not.
//
// The kernel knows which it was: a write changes a fifo's modification time. Before the
// first start, that time is set to one that no write produces, and a second name keeps the
// fifo when runc's state is gone.

// Gate is what is known of the gate at which a first process is held.
type Gate uint8

// The values of Gate.
const (
	Unknown Gate = iota // also before a start
	Shut                // it was never let through, and once dead never will be
	Open                // it went through
)

// Gates are the gates of one containerd namespace.
type Gates struct {
	// Root is the directory of runc's state for the namespace.
	Root string
	// Namespace distinguishes the second names of several namespaces.
	Namespace string
}

// Dir holds the second names. It must be on the same file system as runc's state.
const Dir = "/run/berth-starts"

// unwritten is the modification time of a fifo that has not been written to.
var unwritten = time.Unix(1, 0)

// Fifo returns the path of the fifo at which runc holds a container's first process.
func (g Gates) Fifo(name string) string {
	return filepath.Join(g.Root, name, "exec.fifo")
}

func (g Gates) file(name string) string {
	return filepath.Join(Dir, g.Namespace+"."+name)
}

// Mark makes the fifo show whether it was written to. It must be called before the first
// start of a task, and never again: that would hide that the process went through.
func (g Gates) Mark(name string) error {
	if err := os.MkdirAll(Dir, 0o700); err != nil {
		return err
	}
	if err := g.Remove(name); err != nil { // left by an agent that died before the start
		return err
	}
	if err := os.Chtimes(g.Fifo(name), unwritten, unwritten); err != nil {
		return err
	}
	return os.Link(g.Fifo(name), g.file(name))
}

// Remove removes the gate of a deleted container.
func (g Gates) Remove(name string) error {
	if err := os.Remove(g.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Clear removes the gates of all containers of the namespace, which have ended.
func (g Gates) Clear() error {
	names, err := filepath.Glob(g.file("*"))
	for _, name := range names {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// Of reports whether the first process of a container went through.
func (g Gates) Of(name string) Gate {
	switch st, err := os.Lstat(g.file(name)); {
	case err != nil:
		return Unknown
	case st.ModTime().Equal(unwritten):
		return Shut
	}
	return Open
}
