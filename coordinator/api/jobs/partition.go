package jobs

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// explainPartition says how a job's partition affects its wait.
func explainPartition(snap *dispatch.Snapshot, part *cluster.Partition) []*apiv1.Explanation {
	switch {
	case part == nil:
		return nil
	case part.Down:
		return []*apiv1.Explanation{{Code: string(cluster.ReasonPartitionDown), Detail: "partition " + part.Name + " is down: nothing starts there until an administrator sets it to up"}}
	}
	own := len(site.NodesOf(snap.Nodes, part))
	switch {
	case own == 0:
		return []*apiv1.Explanation{{Code: string(cluster.ReasonPartition), Detail: fmt.Sprintf("no node of partition %s (%s) is registered; the cluster has %d others", part.Name, part.Nodes, len(snap.Nodes))}}
	case own < len(snap.Nodes):
		return []*apiv1.Explanation{{Code: string(cluster.ReasonPartition), Detail: fmt.Sprintf("only the nodes of partition %s count, %d of %d", part.Name, own, len(snap.Nodes))}}
	}
	return nil
}

// explainLoans says how loans between partitions affect a job's wait.
func explainLoans(snap *dispatch.Snapshot, j *cluster.Job) (out []*apiv1.Explanation) {
	for _, line := range site.WhyLoans(snap, j) {
		out = append(out, &apiv1.Explanation{Code: string(cluster.ReasonPartition), Detail: line})
	}
	return out
}
