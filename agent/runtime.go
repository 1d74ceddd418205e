package agent

import (
	"context"
	"encoding/json"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/agent/proc"
	"github.com/berth-scheduler/berth/agent/ranks"
	"github.com/berth-scheduler/berth/cluster"
)

// Launch is all that a Runtime needs to run one attempt. It carries resolved,
// checked values: numeric ids, absolute paths, cards by UUID. Nothing in it
// was taken from an image.
type Launch struct {
	ID    cluster.AttemptID
	Token cluster.Token
	// UID, GID and Groups are what the process runs as. Groups come from the
	// node's own name service, never from a client.
	UID, GID uint32
	Groups   []uint32
	// Args is the argument vector; Args[0] is looked up in the job's PATH when
	// it has no slash. Env is complete: nothing is inherited from the agent.
	Args []string
	Env  []string
	// Dir is the absolute working directory inside the job's root.
	Dir string
	// Image is an image reference, or "" for a host job, whose root is the
	// node's own file system.
	Image string
	// Stdout and Stderr are absolute host paths, created as the user and
	// appended to; they may be equal. Stdin "" means /dev/null.
	Stdin, Stdout, Stderr string
	// Truncate empties the output files when the task starts.
	Truncate bool
	// MemBytes caps host memory with swap 0; 0 means no cap. CPUMilli is the
	// CPU weight in thousandths of a core; 0 means the default weight.
	MemBytes int64
	CPUMilli int64
	// Network is what the job sees of the node's, "" for the runtime's default.
	Network cluster.Network
	// ReadOnlyRoot keeps an image job from changing its root. TmpBytes and
	// ShmBytes are the sizes of its own /tmp and of /dev/shm, 0 for what the
	// runtime gives.
	ReadOnlyRoot       bool
	TmpBytes, ShmBytes int64
	// Mounts are bind mounts into an image job's root.
	Mounts []Mount
	// Ranks, when there, makes the first process one that runs Args several
	// times at once, see RankArgs.
	Ranks *ranks.Config
	// CDIDevices are fully qualified CDI device names for the assigned GPUs.
	CDIDevices []string
}

// RankArgs is the argument vector with which Berth's own program, called name,
// runs the ranks of l.
func (l *Launch) RankArgs(name string) []string { return ranks.Args(name, *l.Ranks, l.Args) }

// plainLaunch is a Launch without its methods.
type plainLaunch Launch

// launchJSON is a Launch on disk and on sockets. What is bytes to the kernel is
// bytes there too: JSON's strings would change what is not UTF-8.
type launchJSON struct {
	plainLaunch
	Args, Env                  [][]byte
	Dir, Stdin, Stdout, Stderr []byte
}

// MarshalJSON implements json.Marshaler; every byte of an argument, a variable
// and a path comes back.
func (l Launch) MarshalJSON() ([]byte, error) {
	return json.Marshal(launchJSON{
		plainLaunch: plainLaunch(l), Args: toBytes(l.Args), Env: toBytes(l.Env),
		Dir: []byte(l.Dir), Stdin: []byte(l.Stdin), Stdout: []byte(l.Stdout), Stderr: []byte(l.Stderr),
	})
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *Launch) UnmarshalJSON(data []byte) error {
	var j launchJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	*l = Launch(j.plainLaunch)
	l.Args, l.Env = toStrings(j.Args), toStrings(j.Env)
	l.Dir, l.Stdin, l.Stdout, l.Stderr = string(j.Dir), string(j.Stdin), string(j.Stdout), string(j.Stderr)
	return nil
}

func toBytes(list []string) [][]byte {
	var out [][]byte
	for _, s := range list {
		out = append(out, []byte(s))
	}
	return out
}

func toStrings(list [][]byte) []string {
	var out []string
	for _, b := range list {
		out = append(out, string(b))
	}
	return out
}

// Mount is one bind mount of a host path into an image job's root.
type Mount struct {
	Source, Target string
	ReadOnly       bool
	// Own is a mount that the agent chose and not the user: the node's policy on
	// what may be mounted does not count.
	Own bool
}

// TaskPhase is where the runtime's own record of an attempt stands.
type TaskPhase uint8

// The phases of a task, in the order they are passed.
const (
	TaskAbsent  TaskPhase = iota // the runtime knows nothing of it
	TaskCreated                  // prepared, never started
	TaskRunning                  // its first process is alive
	TaskStopped                  // its first process ended and the exit is known
	TaskLost                     // it was started and its exit can no longer be known
)

// String returns the phase in lower case.
func (p TaskPhase) String() string {
	return [...]string{"absent", "created", "running", "stopped", "lost"}[p]
}

// Task is what a runtime observes of one attempt. Exit fields hold only in
// phase TaskStopped.
type Task struct {
	ID    cluster.AttemptID
	Token cluster.Token
	Phase TaskPhase
	// PID is the host pid of the first process, in phases running and stopped.
	PID int
	// ExitCode is 0–255 when Signal is 0, and 128+Signal otherwise.
	ExitCode int
	Signal   syscall.Signal
	// OOMKilled tells that the kernel's memory controller killed a process of
	// this task, as read from its cgroup, and that the first process died of
	// SIGKILL or, as a shell does whose program died so, ended with code 137.
	OOMKilled bool
	// Doubtful tells that nobody knows whether the first process began: had its
	// start been cut off, it might have ended with 1 having done nothing.
	Doubtful bool
	// MemPeakBytes is the cgroup's memory high-water mark, 0 when unknown.
	MemPeakBytes int64
	// CPUTime is user plus system time of the whole cgroup, 0 when unknown.
	CPUTime time.Duration
	// IO is what its processes read from and wrote to storage, as far as the
	// runtime can tell better than by looking at them while they run.
	IO proc.IO
	// Started and Ended are zero when unknown.
	Started, Ended time.Time
}

// Audience is whom a Broadcast reaches.
type Audience uint8

// The audiences.
const (
	ToAll    Audience = iota
	ToOthers          // all but the first process
)

// Runtime starts and ends the processes of attempts. Every call is idempotent
// and safe for concurrent use on different ids; calls on one id come from one
// goroutine. Tasks outlive the process that started them: a new Runtime on
// the same state directory finds them again with their true exit code.
//
// Errors that no retry mends (the command does not exist, the image is
// unknown, the working directory is not permitted) are *LaunchError.
type Runtime interface {
	// Create prepares l without starting it.
	Create(ctx context.Context, l *Launch) error
	// Start runs the first process of a created task.
	Start(ctx context.Context, id cluster.AttemptID) error
	// Signal sends sig to the first process, and with SIGKILL to every process
	// of the task. Signalling a stopped or absent task does nothing.
	Signal(ctx context.Context, id cluster.AttemptID, sig syscall.Signal) error
	// Broadcast sends sig, which is not SIGKILL, to every process of the task,
	// with or without its first one.
	Broadcast(ctx context.Context, id cluster.AttemptID, sig syscall.Signal, to Audience) error
	// Delete forgets a stopped or never started task and frees what it held.
	// Deleting an absent task does nothing; a running one is an error.
	Delete(ctx context.Context, id cluster.AttemptID) error
	Observer
}

// Observer is the read side of a Runtime.
type Observer interface {
	// Name is "containerd" or "process".
	Name() string
	// List returns every task of this runtime, in no order.
	List(ctx context.Context) ([]Task, error)
	// Inspect returns one task; an unknown one has phase TaskAbsent.
	Inspect(ctx context.Context, id cluster.AttemptID) (Task, error)
	// Exits delivers the id of a task soon after it stopped. Ids may be
	// missed or repeated: it only says where to look. It is never closed
	// while the Runtime is open.
	Exits() <-chan cluster.AttemptID
}

// LaunchError says that an attempt can never start as asked. Code is the exit
// code a shell would give: 126 (found but cannot be executed), 127 (not
// found), or 125 for everything before the command.
type LaunchError struct {
	Code   int
	Reason string // short and stable: "WORKDIR", "COMMAND", "IMAGE", "OUTPUT", "CDI"
	// Node says that the node is at fault: the attempt ends as with a node that
	// failed, and not as its user's failure.
	Node bool
	Err  error
}

// ReasonCDI is the Reason of a LaunchError about device specifications.
const ReasonCDI = "CDI"

// Error implements error.
func (e *LaunchError) Error() string { return e.Reason + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *LaunchError) Unwrap() error { return e.Err }
