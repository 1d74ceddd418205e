// Package runtime defines what an agent needs from whatever runs its jobs: the interface
// that runtimes implement, what they report of a task, and how an additional process is run
// inside one. Package launch defines what they are given to run. Implementations import
// this package and launch, and nothing of the agent itself.
package runtime

import (
	"context"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/proc"
	"github.com/berth-scheduler/berth/cluster"
)

// Phase is the state of an attempt in the runtime's own record.
type Phase uint8

// The phases of a task, in order.
const (
	Absent  Phase = iota // the runtime does not know it
	Created              // prepared, never started
	Running              // its first process is alive
	Stopped              // its first process ended and the exit is known
	Lost                 // it was started and its exit can no longer be known
)

// String returns the phase in lower case.
func (p Phase) String() string {
	return [...]string{"absent", "created", "running", "stopped", "lost"}[p]
}

// Task is what a runtime observes of one attempt. Exit fields are valid only in phase
// Stopped.
type Task struct {
	ID    cluster.AttemptID
	Token cluster.Token
	Phase Phase
	// PID is the host pid of the first process, in phases running and stopped.
	PID int
	// ExitCode is 0–255 when Signal is 0, and 128+Signal otherwise.
	ExitCode int
	Signal   syscall.Signal
	// OOMKilled reports that the kernel's memory controller killed a process of this task,
	// according to its cgroup, and that the first process died of SIGKILL or, like a shell
	// whose program died so, exited with code 137; or ended by itself before the runtime
	// could kill it.
	OOMKilled bool
	// Doubtful reports that it is unknown whether the first process began: if its start was
	// cut off, it may have exited with 1 without having done anything.
	Doubtful bool
	// MemPeakBytes is the cgroup's memory high-water mark, 0 when unknown.
	MemPeakBytes int64
	// CPUTime is user plus system time of the whole cgroup, 0 when unknown.
	CPUTime time.Duration
	// IO is what its processes read from and wrote to storage, where the runtime knows
	// better than by sampling them while they run.
	IO proc.IO
	// Started and Ended are zero when unknown.
	Started, Ended time.Time
}

// Audience is the set of processes that a Broadcast reaches.
type Audience uint8

// The audiences.
const (
	ToAll    Audience = iota
	ToOthers          // all but the first process
)

// Runtime starts and ends the processes of attempts. Every call is idempotent and safe for
// concurrent use on different ids; calls on one id come from one goroutine. Tasks outlive
// the process that started them: a new Runtime on the same state directory finds them again
// with their true exit code.
//
// Errors that no retry fixes (the command does not exist, the image is unknown, the working
// directory is not permitted) are *launch.Error.
type Runtime interface {
	// Create prepares l without starting it.
	Create(ctx context.Context, l *launch.Launch) error
	// Start runs the first process of a created task.
	Start(ctx context.Context, id cluster.AttemptID) error
	// Signal sends sig to the first process, and with SIGKILL to every process
	// of the task. Signalling a stopped or absent task does nothing.
	Signal(ctx context.Context, id cluster.AttemptID, sig syscall.Signal) error
	// Broadcast sends sig, which is not SIGKILL, to every process of the task,
	// with or without its first one. It and Signal may be called from any goroutine.
	Broadcast(ctx context.Context, id cluster.AttemptID, sig syscall.Signal, to Audience) error
	// Delete forgets a stopped or never started task and releases its resources. Deleting
	// an absent task does nothing; deleting a running one is an error.
	Delete(ctx context.Context, id cluster.AttemptID) error
	Observer
}

// Puller is implemented by a Runtime that pulls images from registries.
type Puller interface {
	// Pulls returns the progress of the images being pulled, by the attempts that need
	// them. It may be called from any goroutine.
	Pulls(ctx context.Context) map[cluster.AttemptID]cluster.Pull
	// Held returns the names and digests of the images on the node, sorted. It may be
	// called from any goroutine.
	Held(ctx context.Context) ([]string, error)
}

// Observer is the read side of a Runtime.
type Observer interface {
	// Name returns "containerd" or "process".
	Name() string
	// List returns every task of this runtime, in no particular order.
	List(ctx context.Context) ([]Task, error)
	// Inspect returns one task; an unknown one has phase Absent.
	Inspect(ctx context.Context, id cluster.AttemptID) (Task, error)
	// Exits delivers the id of a task soon after it stopped. Ids may be missed or repeated:
	// they only say where to look. The channel is never closed while the Runtime is open.
	Exits() <-chan cluster.AttemptID
}
