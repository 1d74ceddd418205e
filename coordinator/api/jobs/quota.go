package jobs

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
)

// quotaRoom is when quotas are expected to let a job start; snap is of the whole
// cluster, since others count wherever they run.
func (c *Jobs) quotaRoom(snap *cluster.Snapshot, j *cluster.Job, nodes []*cluster.Node, pol scheduler.Policy) (scheduler.Room, bool) {
	if snap.Limits == nil {
		return scheduler.Room{}, true
	}
	half := c.fsm.AccountPolicy().HalfLife
	return scheduler.LimitRoom(snap, j, scheduler.LeastMilli(nodes, j, pol), half, pol)
}
