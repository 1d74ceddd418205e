package admission

import (
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// enter gives a job the partition and the time limit that it runs under, or refuses
// it. part is nil if there are no partitions; then a partition that the job names
// is ignored, with a warning, so that scripts written for another cluster run.
func enter(spec *cluster.Spec, parts []*cluster.Partition) (part *cluster.Partition, warning string, err error) {
	if len(parts) == 0 {
		if spec.Partition != "" {
			warning = "partition " + spec.Partition + ": this cluster has no partitions; any suitable node is used"
			spec.Partition = ""
		}
		return nil, warning, nil
	}
	i := slices.IndexFunc(parts, func(p *cluster.Partition) bool {
		return p.Name == spec.Partition || spec.Partition == "" && p.Default
	})
	switch {
	case i < 0 && spec.Partition == "":
		return nil, "", cluster.Errorf(cluster.CodeInvalid, "no partition is named, and none is the default: name one of %s with --partition (-p); an administrator can make one the default with berth partition set %s --default", partitionNames(parts), parts[0].Name)
	case i < 0:
		return nil, "", cluster.Errorf(cluster.CodeInvalid, "partition %q is not known; the partitions are %s", spec.Partition, partitionNames(parts))
	}
	part = parts[i]
	spec.Partition = part.Name
	for _, id := range NamedNodes(spec) {
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
	if err := part.CheckSize(spec); err != nil {
		return nil, "", err
	}
	if spec.Container.Network, err = part.Net(spec.Container.Network); err != nil {
		return nil, "", err
	}
	if spec.Host = (cluster.HostTerms{}); spec.GPUs > 0 {
		spec.Host = part.Host
	}
	if part.Down {
		warning = "partition " + part.Name + ": is down; the job waits until an administrator sets it to up"
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
