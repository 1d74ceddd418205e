package rules

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// Part is what a job over several nodes would take of one of them.
type Part struct {
	// Host is the node's place in the order of ids, Cards are the caller's own
	// numbers.
	Host  int32
	Cards []int32
	// Order says how good the node is; lower is better. Near goes before it: how much
	// of what the job reads the node has.
	Order int64
	Near  int

	named bool   // the job asks for the node by name
	path  string // the node's location in the network
	Late  bool   // the job was given up once because this node was not ready
}

// NewPart returns p with what j says of the node.
func NewPart(j *cluster.Job, n *cluster.Node, p Part) Part {
	w := j.Spec.Where
	p.Late, p.named, p.path = j.HeldUpBy(n.ID), w.Named() && w.Nodes.Holds(n.ID), n.SwitchPath()
	return p
}

// BestParts sorts the parts, each of another node, the best first: nodes that j
// asks for first, those that delayed an earlier attempt last. It returns as many as
// j needs; ok is false if there are too few, or a node that j asks for is missing.
func BestParts(j *cluster.Job, parts []Part) (best []Part, ok bool) {
	bestFirst(parts)
	n := j.Spec.NodeCount()
	if len(parts) < n {
		return nil, false
	}
	if w := j.Spec.Where; w.Named() {
		named := 0
		for i := range parts[:n] {
			if parts[i].named {
				named++
			}
		}
		if named != w.Nodes.Len() {
			return nil, false
		}
	}
	return parts[:n], true
}

// LastOrder is the greatest Order of parts.
func LastOrder(parts []Part) int64 {
	last := parts[0].Order
	for i := range parts {
		last = max(last, parts[i].Order)
	}
	return last
}

func bestFirst(parts []Part) {
	slices.SortFunc(parts, func(a, b Part) int {
		return cmp.Or(CompareBool(!a.named, !b.named), CompareBool(a.Late, b.Late), cmp.Compare(b.Near, a.Near), cmp.Compare(a.Order, b.Order), cmp.Compare(a.Host, b.Host))
	})
}
