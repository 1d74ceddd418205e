// Package launch is what a runtime is given to run one attempt. It imports
// little: a job waits for the helpers of its container, which read it.
package launch

import (
	"encoding/json"

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
	// CPU weight in thousandths of a core; 0 means the default weight. WeighCores
	// keeps it from being a cap where the node caps cores.
	MemBytes   int64
	CPUMilli   int64
	WeighCores bool
	// Network is what the job sees of the node's, "" for the runtime's default.
	Network cluster.Network
	// ReadOnlyRoot keeps an image job from changing its root. TmpBytes and
	// ShmBytes are the sizes of its own /tmp and of /dev/shm, 0 for what the
	// runtime gives.
	ReadOnlyRoot       bool
	TmpBytes, ShmBytes int64
	// Mounts are bind mounts into an image job's root.
	Mounts []Mount
	// Commands are names of Berth's own commands that an image job finds, before
	// those of the image; with any its own program is there to be run. Host jobs
	// have what the node has.
	Commands []string
	// Ranks, when there, makes the first process one that runs Args several
	// times at once, see RankArgs.
	Ranks *Ranks
	// CDIDevices are fully qualified CDI device names for the assigned GPUs.
	CDIDevices []string
}

// RankArgs is the argument vector with which Berth's own program, called name,
// runs the ranks of l.
func (l *Launch) RankArgs(name string) []string { return l.Ranks.Args(name, l.Args) }

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

// Error says that an attempt can never start as asked. Code is the exit
// code a shell would give: 126 (found but cannot be executed), 127 (not
// found), or 125 for everything before the command.
type Error struct {
	Code   int
	Reason string // short and stable: "WORKDIR", "COMMAND", "IMAGE", "OUTPUT", "CDI"
	// Node says that the node is at fault: the attempt ends as with a node that
	// failed, and not as its user's failure.
	Node bool
	// Missing says that a directory is not there in which a file was to be made. It
	// may be in a moment: whoever submits a job often makes that directory next.
	Missing bool
	Err     error
}

// ReasonCDI is the Reason of an Error about device specifications.
const ReasonCDI = "CDI"

// Error implements error.
func (e *Error) Error() string { return e.Reason + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
