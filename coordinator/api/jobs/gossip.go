package jobs

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// mostHeard is for how many nodes and GPUs gossip is reported.
const mostHeard = 3

// snapshot returns what the planner sees now, with what is known of the running
// jobs and of those j would share with.
func (c *Jobs) snapshot(j *cluster.Job) *dispatch.Snapshot {
	snap, _ := c.fsm.SchedulerSnapshotAt(cluster.TimeOf(c.clock()))
	view := *c.lead.Wary(snap)
	view.Running = c.learn.Known(view.Running, view.Nodes)
	view.Interference = c.learn.Company.ForScheduler(view.Nodes, view.Running, []*cluster.Job{j})
	return &view
}

// heard says what is known only by gossip about a job's wait, or its silence: nodes
// that are cut off from this leader, and memory that stray processes hold.
func (c *Jobs) heard(nodes []*cluster.Node, waits bool) []*apiv1.Explanation {
	var out []*apiv1.Explanation
	say := func(code cluster.ReasonCode, format string, args ...any) {
		if len(out) < mostHeard {
			out = append(out, &apiv1.Explanation{Code: string(code), Detail: fmt.Sprintf(format, args...), Count: 1})
		}
	}
	for _, n := range nodes {
		if why := c.nodes.CutOff(n.ID); why != "" {
			say(cluster.ReasonNodeDown, "node %s is cut off: %s", n.ID, why)
		}
		for i := range n.GPUs {
			if mib := c.nodes.StrayMiB(n.ID, n.GPUs[i].ID); waits && mib > 0 {
				say(cluster.ReasonGPUMem, "GPU %d of node %s: processes not started through Berth hold %d MiB, as the node gossips; it will tell the leader shortly", n.GPUs[i].Index, n.ID, mib)
			}
		}
	}
	return out
}

// nodesOf returns the nodes of the live attempt of a job.
func (c *Jobs) nodesOf(j *cluster.Job) []*cluster.Node {
	var out []*cluster.Node
	a := j.Live()
	if a == nil {
		return nil
	}
	for _, b := range a.Berths() {
		if n, ok := c.fsm.Node(b.Node); ok {
			out = append(out, n)
		}
	}
	return out
}
