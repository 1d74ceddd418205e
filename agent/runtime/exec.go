package runtime

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Executor is a Runtime that runs further processes inside of a running task:
// with its user, groups, limits, environment and control group, with no
// privileges, and in its container if it has one. They are no part of what
// Inspect says of the task, do not keep it alive and do not outlive it.
type Executor interface {
	// Exec starts a process. It may be called at any time and from any
	// goroutine; that the task does not run is ErrNotRunning, that the command
	// cannot be run a *launch.Error. The caller must call Close.
	Exec(ctx context.Context, id cluster.AttemptID, x *Exec) (*Process, error)
}

// Exec is a command to run inside of a task.
type Exec struct {
	// Args is the command, looked up in the task's PATH; none is the user's
	// shell.
	Args []string
	// Env is added to the task's environment and wins.
	Env []string
	// Own makes Args those of Berth's own program, without its name.
	Own bool
	// Terminal gives it a terminal, whose size is Window's.
	Terminal bool
	Window   Window
}

// Window is the size of a terminal in characters; zeros mean 24 and 80.
type Window struct{ Rows, Columns uint16 }

// Process is what Exec started. The files are the near ends, whose reads can
// have deadlines; they are the caller's to close.
type Process struct {
	// With a terminal Stdin and Stdout may be one file, and Stderr is nil.
	Stdin, Stdout, Stderr *os.File
	ProcessControl
}

// ProcessControl is a runtime's hold of a process. It is safe for concurrent
// use.
type ProcessControl interface {
	// Signal sends sig to the process and its process group. A process that has
	// ended gets none.
	Signal(ctx context.Context, sig syscall.Signal) error
	Resize(ctx context.Context, w Window) error
	// Wait returns how the process ended, any number of times. An error means
	// that nobody knows.
	Wait(ctx context.Context) (ProcessEnd, error)
	// Close ends the process if it still runs, by SIGHUP and after HangUpGrace
	// by SIGKILL, along with its session, and forgets it. What a process still
	// writes that runs should be read meanwhile; what one has written that ended
	// is lost unless it was read before.
	Close() error
}

// ProcessEnd is how a process ended: Code is 128+Signal when Signal is not 0.
type ProcessEnd struct {
	Code   int
	Signal syscall.Signal
}

// HangUpGrace is the time between SIGHUP and SIGKILL for a process whose user
// went away, or whose job ended.
const HangUpGrace = 2 * time.Second

// ErrNotRunning says that a task's first process does not run (any more).
var ErrNotRunning = cluster.Errorf(cluster.CodeConflict, "the job does not run here (any more)")
