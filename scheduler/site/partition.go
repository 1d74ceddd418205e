package site

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// NodesOf returns what of nodes belongs to a partition, all for nil.
func NodesOf(nodes []*cluster.Node, p *cluster.Partition) []*cluster.Node {
	if p == nil {
		return nodes
	}
	var out []*cluster.Node
	for _, n := range nodes {
		if part := p.Part(n); part != nil {
			out = append(out, part)
		}
	}
	return out
}

// Within returns the snapshot seen by a user confined to a partition: its nodes,
// the jobs that run there or wait for it, and all of the queues there. A nil
// partition is the whole cluster.
func Within(snap *dispatch.Snapshot, p *cluster.Partition) *dispatch.Snapshot {
	if p == nil {
		return snap
	}
	out := *snap
	out.Nodes = NodesOf(snap.Nodes, p)
	at := make(map[cluster.NodeID]struct{}, len(out.Nodes))
	out.Queues = map[cluster.GPUID][]dispatch.Waiter{}
	for _, n := range out.Nodes {
		at[n.ID] = struct{}{}
		for i := range n.GPUs {
			if q := snap.Queues[n.GPUs[i].ID]; len(q) > 0 {
				out.Queues[n.GPUs[i].ID] = q
			}
		}
	}
	out.Running, out.Waiting = nil, nil
	for _, j := range snap.Running {
		if a := j.Live(); a != nil {
			for _, b := range a.Held() {
				if _, ok := at[b.Node]; ok {
					out.Running = append(out.Running, j)
					break
				}
			}
		}
	}
	for _, j := range snap.Waiting {
		if j.Spec.Partition == p.Name {
			out.Waiting = append(out.Waiting, j)
		}
	}
	return &out
}

// PartitionOf finds the partition of a job in a snapshot, nil for none.
func PartitionOf(snap *dispatch.Snapshot, j *cluster.Job) *cluster.Partition {
	for _, p := range snap.Partitions {
		if p.Name == j.Spec.Partition {
			return p
		}
	}
	return nil
}

// overlaps returns the most partitions that a node of part belongs to: each of them
// promises its part of what deadlines may claim, and no GPU is promised twice.
func overlaps(snap *dispatch.Snapshot, part *cluster.Partition) int {
	most := 1
	if part == nil {
		return most
	}
	for _, n := range snap.Nodes {
		if !part.Nodes.Holds(n.ID) {
			continue
		}
		of := 0
		for _, p := range snap.Partitions {
			if p.Nodes.Holds(n.ID) {
				of++
			}
		}
		most = max(most, of)
	}
	return most
}
