package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// Near knows which nodes have what jobs read, their images and their data sets, so
// that these need not come over the network. It is not safe for concurrent use.
type Near struct {
	images map[string][]cluster.NodeID
	nodes  []*cluster.Node
	data   map[string][]cluster.NodeID // made on first use
	tiers  map[string][]Tier           // of jobs with data sets, by what they read
}

// Tier is a set of nodes that have equally much of what a job reads.
type Tier struct {
	// Score is 2 for each of the job's data sets, which are large and read again
	// and again, and 1 for its image.
	Score int
	Nodes []cluster.NodeID // sorted
}

// NewNear reads a snapshot's images and the features of its nodes. It returns nil if
// no node is known to have anything that jobs read.
func NewNear(s *Snapshot) *Near {
	isData := func(feature string) bool { return strings.HasPrefix(feature, cluster.DataFeature) }
	if len(s.Images) == 0 && !slices.ContainsFunc(s.Nodes, func(n *cluster.Node) bool { return slices.ContainsFunc(n.Features, isData) }) {
		return nil
	}
	return &Near{images: s.Images, nodes: s.Nodes}
}

// Score returns how much of what j reads a node has, see Tier.
func (n *Near) Score(j *cluster.Job, node cluster.NodeID) (score int) {
	if n == nil {
		return 0
	}
	if j.Spec.Image != "" && has(n.images[j.Spec.Image], node) {
		score++
	}
	for _, name := range j.Spec.Data {
		if has(n.holders(name), node) {
			score += 2
		}
	}
	return score
}

// Tiers returns the nodes that have something of what j reads, those with most
// first.
func (n *Near) Tiers(j *cluster.Job) []Tier {
	switch {
	case n == nil:
		return nil
	case len(j.Spec.Data) == 0 && len(n.images[j.Spec.Image]) == 0:
		return nil
	case len(j.Spec.Data) == 0:
		return []Tier{{1, n.images[j.Spec.Image]}}
	}
	key := j.Spec.Image + "\x00" + strings.Join(j.Spec.Data, "\x00")
	if t, ok := n.tiers[key]; ok {
		return t
	}
	scores := map[cluster.NodeID]int{}
	for _, id := range n.images[j.Spec.Image] {
		scores[id]++
	}
	for _, name := range j.Spec.Data {
		for _, id := range n.holders(name) {
			scores[id] += 2
		}
	}
	var out []Tier
	for _, id := range slices.SortedFunc(maps.Keys(scores), func(a, b cluster.NodeID) int {
		return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b))
	}) {
		if len(out) == 0 || out[len(out)-1].Score != scores[id] {
			out = append(out, Tier{Score: scores[id]})
		}
		last := &out[len(out)-1]
		last.Nodes = append(last.Nodes, id)
	}
	if n.tiers == nil {
		n.tiers = map[string][]Tier{}
	}
	n.tiers[key] = out
	return out
}

// Words says what of that which j reads its nodes have, as ", on a node that has its
// image"; "" if they have none of it.
func (n *Near) Words(j *cluster.Job, nodes ...cluster.NodeID) string {
	if n == nil {
		return ""
	}
	all := func(holders []cluster.NodeID) bool {
		return !slices.ContainsFunc(nodes, func(id cluster.NodeID) bool { return !has(holders, id) })
	}
	var parts, data []string
	if j.Spec.Image != "" && all(n.images[j.Spec.Image]) {
		parts = append(parts, "its image")
	}
	for _, name := range j.Spec.Data {
		if all(n.holders(name)) {
			data = append(data, name)
		}
	}
	if len(data) > 0 {
		parts = append(parts, "its data "+strings.Join(data, ", "))
	}
	switch {
	case len(parts) == 0:
		return ""
	case len(nodes) > 1:
		return ", which all have " + strings.Join(parts, " and ")
	}
	return ", on a node that has " + strings.Join(parts, " and ")
}

// holders returns the nodes that have a data set, sorted.
func (n *Near) holders(name string) []cluster.NodeID {
	if n.data == nil {
		n.data = map[string][]cluster.NodeID{}
		for _, node := range n.nodes {
			for _, f := range node.Features {
				if d, ok := strings.CutPrefix(f, cluster.DataFeature); ok {
					n.data[d] = append(n.data[d], node.ID)
				}
			}
		}
		for _, ids := range n.data {
			slices.Sort(ids)
		}
	}
	return n.data[name]
}

func has(sorted []cluster.NodeID, id cluster.NodeID) bool {
	_, ok := slices.BinarySearch(sorted, id)
	return ok
}
