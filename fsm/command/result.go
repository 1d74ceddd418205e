package command

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// Entry is what holds for all commands of a log entry.
type Entry struct {
	Index uint64
	// Version says by which rules its commands are applied.
	Version uint32
	// Format is the highest version of an entry so far, 0 while it is 1.
	Format uint32
	// Now is the leader's clock; it never goes back.
	Now cluster.Time
}

// Change says that a job or a node changed at an index.
type Change struct {
	Index     uint64
	Job       cluster.JobID  // or 0
	Node      cluster.NodeID // or ""
	Partition string         // or ""
	// Reservation is the name of one that was changed, or "".
	Reservation string
	// New tells that the job began to wait.
	New bool
	// Released are the GPUs on which something was freed.
	Released []cluster.GPUID
}

// CancelOutcome is what a cancel did.
type CancelOutcome uint8

// The outcomes of a cancel.
const (
	NotFound CancelOutcome = iota
	Cancelled
	Finished // it had ended before
)

// TokenInfo is what a spent join token was for.
type TokenInfo struct{ Role, ID string }

// TaskCounts is what became of tasks of an array that were to change.
type TaskCounts struct {
	// Done were changed, or are so already; Finished had ended before; Refused
	// cannot, for Why, which is of one of them.
	Done, Finished, Refused int
	Why                     *cluster.Error
	// DoneRanks and RefusedRanks say which these are; not of a throttle, which is
	// the array's as a whole.
	DoneRanks, RefusedRanks []cluster.Span
}

// Result is what became of one command. Err is a refusal, the same on every
// replica, and then nothing was changed.
type Result struct {
	Index    uint64
	Err      *cluster.Error
	Jobs     []cluster.JobID // submitted
	Existing bool            // by an earlier request with the same id
	Plan     *dispatch.Result
	Cancel   CancelOutcome
	// Released tells that the reported attempt is over and may be forgotten.
	Released bool
	// Absurd tells that the reported figures cannot be, so that nothing was
	// learned from them.
	Absurd bool
	Token  *TokenInfo
	// Webhook is the id of the webhook that was added.
	Webhook uint64
	// Lost and Requeued are the jobs that a fence ended, or made wait again.
	Lost, Requeued []cluster.JobID
	// LacksBulk tells that a spec names an environment and script that are not in
	// the state, or not any more.
	LacksBulk bool
	// Tasks is what became of the tasks of an array that were to change.
	Tasks TaskCounts
}

// Refuse is the result of a command that is refused.
func Refuse(c cluster.Code, format string, args ...any) Result {
	return Result{Err: cluster.Errorf(c, format, args...)}
}
