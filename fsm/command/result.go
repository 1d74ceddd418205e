package command

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// Entry holds what all commands of a log entry have in common.
type Entry struct {
	Index uint64
	// Version selects the rules by which its commands are applied.
	Version uint32
	// Format is the highest version of an entry so far, 0 while that is 1.
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
	// Reservation is the name of a changed reservation, or "".
	Reservation string
	// New means that the job began to wait.
	New bool
	// Released are the GPUs on which something was freed.
	Released []cluster.GPUID
}

// CancelOutcome is the effect of a cancel.
type CancelOutcome uint8

// The outcomes of a cancel.
const (
	NotFound CancelOutcome = iota
	Cancelled
	Finished // it had already ended
)

// TokenInfo is what a spent join token was for.
type TokenInfo struct{ Role, ID string }

// TaskCounts says what happened to the array tasks that a command was to change.
type TaskCounts struct {
	// Done tasks were changed, or already in the wanted state; Finished had already
	// ended; Refused cannot be changed, for the reason Why of one of them.
	Done, Finished, Refused int
	Why                     *cluster.Error
	// DoneRanks and RefusedRanks list these; not for a throttle, which applies to
	// the array as a whole.
	DoneRanks, RefusedRanks []cluster.Span
}

// Result is the result of one command. Err is a refusal, the same on every replica,
// after which nothing has changed.
type Result struct {
	Index    uint64
	Err      *cluster.Error
	Jobs     []cluster.JobID // submitted
	Existing bool            // by an earlier request with the same id
	Plan     *dispatch.Result
	Cancel   CancelOutcome
	// Released means that the reported attempt is over and may be forgotten.
	Released bool
	// Absurd means that the reported figures are impossible, so that nothing was
	// learned from them.
	Absurd bool
	Token  *TokenInfo
	// Webhook is the id of the added webhook.
	Webhook uint64
	// Lost and Requeued are the jobs that a fence ended or requeued.
	Lost, Requeued []cluster.JobID
	// LacksBulk means that a spec names an environment and script that are not in
	// the state, or no longer.
	LacksBulk bool
	// Tasks says what happened to the array tasks that were to change.
	Tasks TaskCounts
}

// Refuse returns the result of a refused command.
func Refuse(c cluster.Code, format string, args ...any) Result {
	return Result{Err: cluster.Errorf(c, format, args...)}
}
