package coordinator

import (
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// enter gives a job the partition and the time limit that it runs under, or
// refuses it. part is nil where there are no partitions; then a partition that
// the job names is left out, with a warning, so that scripts written for
// another cluster run.
func enter(spec *cluster.Spec, parts []*cluster.Partition) (part *cluster.Partition, warning string, err error) {
	if len(parts) == 0 {
		if spec.Partition != "" {
			warning = "partition " + spec.Partition + ": this cluster has no partitions; any node that suits is taken"
			spec.Partition = ""
		}
		return nil, warning, nil
	}
	i := slices.IndexFunc(parts, func(p *cluster.Partition) bool {
		return p.Name == spec.Partition || spec.Partition == "" && p.Default
	})
	switch {
	case i < 0 && spec.Partition == "":
		return nil, "", cluster.Errorf(cluster.CodeInvalid, "partition: is missing, and none is the default; name one with --partition: %s", partitionNames(parts))
	case i < 0:
		return nil, "", cluster.Errorf(cluster.CodeInvalid, "partition %q is not known; the partitions are %s", spec.Partition, partitionNames(parts))
	}
	part = parts[i]
	spec.Partition = part.Name
	for _, id := range namedNodes(spec) {
		if !part.Nodes.Holds(id) {
			return nil, "", cluster.Errorf(cluster.CodeInvalid, "node %s is not in partition %s, which has %s; name another node or partition", id, part.Name, part.Nodes)
		}
	}
	if spec.Node != "" && !part.Nodes.Holds(spec.Node) {
		return nil, "", cluster.Errorf(cluster.CodeInvalid, "node %s is not in partition %s, which has %s; name another node or partition", spec.Node, part.Name, part.Nodes)
	}
	if spec.TimeLimit, err = part.Limit(spec.TimeLimit); err != nil {
		return nil, "", err
	}
	if spec.Container.Network, err = part.Net(spec.Container.Network); err != nil {
		return nil, "", err
	}
	if part.Down {
		warning = "partition " + part.Name + ": is down; the job waits until an administrator sets it up"
	}
	return part, warning, nil
}

func partitionNames(parts []*cluster.Partition) string {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.Name
		if p.Default {
			names[i] += " (default)"
		}
	}
	return strings.Join(names, ", ")
}

// partNodes is what of nodes belongs to a partition, all for nil.
func partNodes(nodes []*cluster.Node, p *cluster.Partition) []*cluster.Node {
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

// within is the snapshot as somebody sees it who may use a partition only: its
// nodes, who runs there, who waits for it, and all of the queues there. A nil
// partition is the whole cluster.
func within(snap *cluster.Snapshot, p *cluster.Partition) *cluster.Snapshot {
	if p == nil {
		return snap
	}
	out := *snap
	out.Nodes = partNodes(snap.Nodes, p)
	at := make(map[cluster.NodeID]struct{}, len(out.Nodes))
	out.Queues = map[cluster.GPUID][]cluster.Waiter{}
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

// partitionOf finds the partition of a job in a snapshot, nil for none.
func partitionOf(snap *cluster.Snapshot, j *cluster.Job) *cluster.Partition {
	for _, p := range snap.Partitions {
		if p.Name == j.Spec.Partition {
			return p
		}
	}
	return nil
}
