// Package gates tells of a container whether its first process ever began, also
// when everything that started it died meanwhile.
package gates

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
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

// Gate is what is known of the place where a first process is held back.
type Gate uint8

// What may be known.
const (
	Unknown Gate = iota // also before a start
	Shut                // it was never let through, and never will be once it is dead
	Open                // it went through
)

// Gates are those of one namespace of containerd's.
type Gates struct {
	// Root is the folder of runc's notes on the namespace.
	Root string
	// Namespace keeps the second names of several apart.
	Namespace string
}

// Dir holds the second names. It must be on the file system of runc's notes.
const Dir = "/run/berth-starts"

// unwritten is the time of modification of a fifo that nobody wrote to.
var unwritten = time.Unix(1, 0)

// Fifo is where runc holds the first process of a container back.
func (g Gates) Fifo(name string) string {
	return filepath.Join(g.Root, name, "exec.fifo")
}

func (g Gates) file(name string) string {
	return filepath.Join(Dir, g.Namespace+"."+name)
}

// Mark makes the fifo tell whether it was written to. It must be called
// before the first start of a task, and never again: the mark would hide that
// the process went through.
func (g Gates) Mark(name string) error {
	if err := os.MkdirAll(Dir, 0o700); err != nil {
		return err
	}
	if err := g.Remove(name); err != nil { // of an agent that died before the start
		return err
	}
	if err := os.Chtimes(g.Fifo(name), unwritten, unwritten); err != nil {
		return err
	}
	return os.Link(g.Fifo(name), g.file(name))
}

// Remove forgets the gate of a container that is no more.
func (g Gates) Remove(name string) error {
	if err := os.Remove(g.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Of tells whether the first process of a container went through.
func (g Gates) Of(name string) Gate {
	switch st, err := os.Lstat(g.file(name)); {
	case err != nil:
		return Unknown
	case st.ModTime().Equal(unwritten):
		return Shut
	}
	return Open
}
