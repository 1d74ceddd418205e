package jobs

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/explain"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// quotaRoom returns when quotas are expected to let a job start; snap is of the
// whole cluster, since other jobs count wherever they run.
func (c *Jobs) quotaRoom(snap *dispatch.Snapshot, j *cluster.Job, nodes []*cluster.Node, pol scheduler.Policy) (explain.Room, bool) {
	if snap.Limits == nil {
		return explain.Room{}, true
	}
	half := c.fsm.AccountPolicy().HalfLife
	return explain.LimitRoom(snap, j, rules.LeastMilli(nodes, j, pol), half, pol)
}
