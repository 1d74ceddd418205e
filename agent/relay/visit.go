package relay

import (
	"github.com/berth-scheduler/berth/agent/journal"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/agent/series"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// Visit is one user's wish to see or enter one attempt.
type Visit struct {
	Ask *nodev1.Visit
	// Refused says why it cannot be granted; then nothing below holds.
	Refused error
	// Node is this one.
	Node cluster.NodeID
	// Series is what the node's cards showed, for the leader, who asks for nothing else
	// then: nothing below holds.
	Series *series.Book
	// Launch has the attempt's id, its user, its directory and its output
	// files, and nothing else.
	Launch *launch.Launch
	// Runtime has the attempt; nil when it is not here any more.
	Runtime runtime.Runtime
	// Journal remembers which of the attempt's requests must not be done again.
	Journal *journal.Journal
	// Audience is whom a signal to the attempt reaches when nothing else is said:
	// not a shell that runs a script, nor what starts several tasks and passes
	// signals on.
	Audience runtime.Audience
	// Runs closes when the attempt's first process runs, Over when it has
	// ended and how is on disk. Both are closed of one that is not here any more.
	Runs, Over <-chan struct{}
}
