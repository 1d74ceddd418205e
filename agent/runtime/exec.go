package runtime

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Executor is a Runtime that runs additional processes inside a running task: with its
// user, groups, limits, environment and control group, without privileges, and in its
// container if it has one. They do not affect what Inspect reports, do not keep the task
// alive and do not outlive it.
type Executor interface {
	// Exec starts a process. It may be called at any time and from any goroutine. If the
	// task is not running, the error is ErrNotRunning; if the command cannot be run, a
	// *launch.Error. The caller must call Close.
	Exec(ctx context.Context, id cluster.AttemptID, x *Exec) (*Process, error)
}

// Exec is a command to run inside a task.
type Exec struct {
	// Args is the command, looked up in the task's PATH; empty means the user's shell.
	Args []string
	// Env is added to the task's environment and wins.
	Env []string
	// Own makes Args the arguments of Berth's own program, without its name.
	Own bool
	// Terminal gives it a terminal of size Window.
	Terminal bool
	Window   Window
}

// Window is the size of a terminal in characters; zeros mean 24 and 80.
type Window struct{ Rows, Columns uint16 }

// Process is what Exec started. The files are the near ends, which support read deadlines;
// the caller must close them.
type Process struct {
	// With a terminal, Stdin and Stdout may be the same file, and Stderr is nil.
	Stdin, Stdout, Stderr *os.File
	ProcessControl
}

// ProcessControl is a runtime's handle on a process. It is safe for concurrent use.
type ProcessControl interface {
	// Signal sends sig to the process and its process group. If the process has ended, it
	// does nothing.
	Signal(ctx context.Context, sig syscall.Signal) error
	Resize(ctx context.Context, w Window) error
	// Wait returns how the process ended; it may be called repeatedly. An error means that
	// this is unknown.
	Wait(ctx context.Context) (ProcessEnd, error)
	// Close ends the process if it is still running, by SIGHUP and after HangUpGrace by
	// SIGKILL, along with its session, and forgets it. The output of a running process
	// should be read meanwhile; that of an ended one is lost unless it was read before.
	Close() error
}

// ProcessEnd is how a process ended: Code is 128+Signal when Signal is not 0.
type ProcessEnd struct {
	Code   int
	Signal syscall.Signal
}

// HangUpGrace is the time between SIGHUP and SIGKILL for a process whose user has gone, or
// whose job has ended.
const HangUpGrace = 2 * time.Second

// ErrNotRunning says that a task's first process is not running, or no longer.
var ErrNotRunning = cluster.Errorf(cluster.CodeConflict, "the job does not run here (any more)")
