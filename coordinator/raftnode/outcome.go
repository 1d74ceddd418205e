package raftnode

import (
	"errors"
	"syscall"

	"github.com/hashicorp/raft"
)

// Outcome is what an error means for the proposed entry.
type Outcome uint8

const (
	// Unknown: it may have been applied, may be applied later, or never. The client
	// asks again with the same request id.
	Unknown Outcome = iota
	// Done: it was applied.
	Done
	// Refused: it certainly was not and will not be applied.
	Refused
)

// String returns the outcome's name.
func (o Outcome) String() string {
	switch o {
	case Done:
		return "done"
	case Refused:
		return "refused"
	default:
		return "unknown"
	}
}

// Errors of this package that callers branch on.
var (
	// ErrClosed means that the node is closed; nothing was proposed.
	ErrClosed = errors.New("raft node is closed")
	// ErrEntryTooLarge means that an entry is above Config.MaxEntryBytes; nothing
	// was proposed.
	ErrEntryTooLarge = errors.New("entry is too large")
	// ErrNotProposed means that the caller's context ended before the entry was
	// handed to Raft.
	ErrNotProposed = errors.New("gave up before the entry was proposed")
	// ErrNotLeader means that only the leader can do this.
	ErrNotLeader = raft.ErrNotLeader
)

// refused returns the errors after which an entry certainly is in no log: each is
// returned before Raft's leader loop writes it, and at no other moment.
func refused() []error {
	return []error{
		ErrClosed, ErrEntryTooLarge, ErrNotProposed,
		// A follower or candidate returns these without writing.
		raft.ErrNotLeader, raft.ErrNotVoter,
		// The loop did not take the entry in time: the channel is unbuffered, so
		// none of it is left behind.
		raft.ErrEnqueueTimeout,
		// The leader refuses new entries while it hands over.
		raft.ErrLeadershipTransferInProgress,
		// The rest never come from a proposal, and the operations that do
		// return them have changed nothing by then.
		raft.ErrLeader, raft.ErrCantBootstrap, raft.ErrNothingNewToSnapshot, raft.ErrUnsupportedProtocol,
		raft.ErrPipelineReplicationNotSupported,
	}
}

// Classify returns what err, as returned by Node's methods, means for the proposed
// entry. The table is closed: an error that is not in it, of a disk, a context or a
// later library, is Unknown. In particular ErrLeadershipLost, ErrRaftShutdown and
// ErrAbortedByRestore come after the entry may have reached other nodes' logs, and
// cannot be made stronger.
func Classify(err error) Outcome {
	if err == nil {
		return Done
	}
	for _, r := range refused() {
		if errors.Is(err, r) {
			return Refused
		}
	}
	return Unknown
}

// NoRoom reports whether an error means that a disk, or a quota, is full: then
// nothing is damaged, and a process that ended because of it may be started again.
func NoRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
