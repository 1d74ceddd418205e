package relay

import (
	"github.com/berth-scheduler/berth/agent/journal"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/agent/series"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// Visit is one user's request to see or enter one attempt.
type Visit struct {
	Ask *nodev1.Visit
	// Refused is why it cannot be granted; the fields below are then invalid.
	Refused error
	// Node is this one.
	Node cluster.NodeID
	// Series holds the samples of the node's GPUs, for the leader, which then requests nothing
	// else: the fields below are invalid.
	Series *series.Book
	// Launch has only the attempt's id, its user, its directory and its output files.
	Launch *launch.Launch
	// Runtime runs the attempt; nil when it is no longer here.
	Runtime runtime.Runtime
	// Journal remembers which of the attempt's requests must not be executed again.
	Journal *journal.Journal
	// Audience is the default audience of a signal to the attempt: neither a shell that runs a
	// script nor a process that starts several tasks and passes signals on.
	Audience runtime.Audience
	// Runs is closed when the attempt's first process runs, Over when it has ended and its end
	// is on disk. Both are closed for an attempt that is no longer here.
	Runs, Over <-chan struct{}
}
