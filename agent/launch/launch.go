// Package launch describes what a runtime needs to run one attempt. It imports little: a
// job waits for the helpers in its container, which read it.
package launch

import (
	"encoding/json"

	"github.com/berth-scheduler/berth/cluster"
)

// Launch is everything a Runtime needs to run one attempt. Its values are resolved and
// checked: numeric ids, absolute paths, GPUs by UUID. None was taken from an image.
type Launch struct {
	ID    cluster.AttemptID
	Token cluster.Token
	// UID, GID and Groups are the ids that the process runs with. Groups come from the
	// node's own name service, never from a client.
	UID, GID uint32
	Groups   []uint32
	// Args is the argument vector; Args[0] is looked up in the job's PATH if it contains no
	// slash. Env is complete: nothing is inherited from the agent.
	Args []string
	Env  []string
	// Dir is the absolute working directory inside the job's root.
	Dir string
	// Image is an image reference, or "" for a host job, whose root is the node's own file
	// system.
	Image string
	// Stdout and Stderr are absolute host paths, created as the user and
	// appended to; they may be equal. Stdin "" means /dev/null.
	Stdin, Stdout, Stderr string
	// Truncate empties the output files when the task starts.
	Truncate bool
	// MemBytes caps host memory with swap 0; 0 means no cap. CPUMilli is the CPU weight in
	// thousandths of a core; 0 means the default weight. WeighCores keeps it a weight where
	// the node caps cores.
	MemBytes   int64
	CPUMilli   int64
	WeighCores bool
	// Network is what the job sees of the node's network, "" for the runtime's default.
	Network cluster.Network
	// ReadOnlyRoot keeps an image job from changing its root. TmpBytes and ShmBytes are the
	// sizes of its own /tmp and of /dev/shm, 0 for the runtime's default.
	ReadOnlyRoot       bool
	TmpBytes, ShmBytes int64
	// Mounts are bind mounts into an image job's root.
	Mounts []Mount
	// Commands are names of Berth's own commands that an image job finds ahead of those of
	// the image; if there are any, Berth's program is in the container to run them. Host
	// jobs use the node's.
	Commands []string
	// Ranks, if set, makes the first process one that runs Args several times in parallel,
	// see RankArgs.
	Ranks *Ranks
	// CDIDevices are fully qualified CDI device names for the assigned GPUs.
	CDIDevices []string
}

// RankArgs returns the argument vector with which Berth's own program, called name, runs
// the ranks of l.
func (l *Launch) RankArgs(name string) []string { return l.Ranks.Args(name, l.Args) }

// plainLaunch is a Launch without its methods.
type plainLaunch Launch

// launchJSON is a Launch on disk and on sockets. What is bytes to the kernel is bytes
// there, too: JSON strings would alter what is not UTF-8.
type launchJSON struct {
	plainLaunch
	Args, Env                  [][]byte
	Dir, Stdin, Stdout, Stderr []byte
}

// MarshalJSON implements json.Marshaler; it preserves every byte of arguments, variables
// and paths.
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
	// Own marks a mount chosen by the agent and not by the user: the node's mount policy
	// does not apply.
	Own bool
}

// Error says that an attempt can never start as requested. Code is the exit code that a
// shell would give: 126 (found but cannot be executed), 127 (not found), or 125 for
// everything before the command.
type Error struct {
	Code   int
	Reason string // short and stable: "WORKDIR", "COMMAND", "IMAGE", "OUTPUT", "CDI"
	// Node says that the node is at fault: the attempt ends as on a node that failed, not
	// as its user's failure.
	Node bool
	// Missing says that the directory of a file to be created does not exist. It may appear
	// in a moment: users often create it right after submitting a job.
	Missing bool
	Err     error
}

// ReasonCDI is the Reason of an Error about device specifications.
const ReasonCDI = "CDI"

// Error implements error.
func (e *Error) Error() string { return e.Reason + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
