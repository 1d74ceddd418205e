package nodes

import (
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// maxHeld is how many names and digests of images are kept per node.
const maxHeld = 512

// holds records which images a node says that it holds.
func (l *liveness) holds(node cluster.NodeID, names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[node]
	if n == nil {
		return
	}
	names = slices.DeleteFunc(slices.Clone(names[:min(len(names), maxHeld)]), func(s string) bool { return len(s) > cluster.MaxPathLen })
	slices.Sort(names)
	names = slices.Compact(names)
	for _, s := range n.images {
		if _, still := slices.BinarySearch(names, s); still {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(l.held[s]), func(id cluster.NodeID) bool { return id == node })
		if l.held[s] = others; len(others) == 0 {
			delete(l.held, s)
		}
	}
	for _, s := range names {
		if at, is := slices.BinarySearch(l.held[s], node); !is {
			l.held[s] = slices.Insert(slices.Clip(l.held[s]), at, node)
		}
	}
	n.images = names
}

// images returns how many images a node holds, by name.
func (l *liveness) images(node cluster.NodeID) (names int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[node]
	if n == nil {
		return 0
	}
	for _, s := range n.images {
		if !strings.HasPrefix(s, "sha256:") {
			names++
		}
	}
	return names
}

// holders returns the nodes that hold images which jobs run in, sorted, by the
// jobs' name for each; an image that no node holds is left out.
func (l *liveness) holders(jobs []*cluster.Job) map[string][]cluster.NodeID {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held) == 0 {
		return nil
	}
	var out map[string][]cluster.NodeID
	for _, j := range jobs {
		name := j.Spec.Image
		if name == "" || out[name] != nil {
			continue
		}
		as := name
		if _, digest, pinned := strings.Cut(name, "@"); pinned {
			as = digest // whatever it is called there
		}
		if at := l.held[as]; len(at) > 0 {
			if out == nil {
				out = map[string][]cluster.NodeID{}
			}
			out[name] = at
		}
	}
	return out
}

// Holders returns the nodes that hold images which jobs run in, sorted, by the
// jobs' name for each, as the nodes reported in this term; an image that no node
// holds has no entry.
func (n *Nodes) Holders(jobs []*cluster.Job) map[string][]cluster.NodeID { return n.live.holders(jobs) }
