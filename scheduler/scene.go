package scheduler

import (
	"github.com/berth-scheduler/berth/cluster"
)

// scene is what all parts of a pass look at: the fleet as it is after the starts so far,
// who waits and who runs. Of it the fleet, the items, the company on cards, the quotas
// and the plan change while the pass goes on.
type scene struct {
	pol     Policy
	now     int64
	nodes   []*cluster.Node
	f       *fleet
	items   []item
	byID    []int32 // item+1 by job id less firstID
	firstID cluster.JobID
	running []*cluster.Job
	more    map[cluster.JobID]int // see Snapshot.More
	crowd   *crowd
	// reservations are those of the snapshot.
	reservations cluster.Reservations
	realms       *realms // nil where every job may lie everywhere
	standing     *cluster.Standing
	niced        bool             // somebody steps back or forward
	unseen       bool             // somebody stands in a queue whom the snapshot does not hold
	limits       *cluster.Limiter // ours, nil without quotas
	plan         cluster.Plan
}
