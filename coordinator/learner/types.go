package learner

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/model"
)

// GPUTypes lists the cluster's GPU types with their memory and what the largest
// node of each has besides, sorted by name.
func GPUTypes(nodes []*cluster.Node) []model.TypeInfo {
	types := map[string]model.TypeInfo{}
	for _, n := range nodes {
		for i := range n.GPUs {
			g := &n.GPUs[i]
			if i > 0 && n.GPUs[i-1].Type == g.Type && n.GPUs[i-1].MemMiB == g.MemMiB && n.GPUs[i-1].CapMode == g.CapMode {
				continue // as most are; it runs at each submit
			}
			t, seen := types[g.Type]
			types[g.Type] = model.TypeInfo{
				Name: g.Type, MemMiB: max(t.MemMiB, g.MemMiB),
				HostMiB: max(t.HostMiB, n.MemMiB), HostCPUMilli: max(t.HostCPUMilli, n.CPUMilli),
				Simulated: g.CapMode == "sim" && (t.Simulated || !seen),
				Drivers:   withWord(t.Drivers, n.Driver),
			}
		}
	}
	return slices.SortedFunc(maps.Values(types), func(a, b model.TypeInfo) int { return strings.Compare(a.Name, b.Name) })
}

// withWord adds a word to some that are sorted and separated by spaces.
func withWord(words, word string) string {
	all := strings.Fields(words)
	if i, there := slices.BinarySearch(all, word); !there && word != "" {
		return strings.Join(slices.Insert(all, i, word), " ")
	}
	return words
}

// typesMemo caches the last result of GPUTypes, and for which nodes: each submit
// asks, and nodes seldom change.
type typesMemo struct {
	mu    sync.Mutex
	nodes []*cluster.Node
	types []model.TypeInfo
}

// Types is GPUTypes for nodes as the state machine lists them, which are the same
// slice as long as none has changed. The result must not be modified.
func (l *Learner) Types(nodes []*cluster.Node) []model.TypeInfo {
	if len(nodes) == 0 {
		return nil
	}
	m := &l.types
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.nodes) != len(nodes) || &m.nodes[0] != &nodes[0] {
		m.nodes, m.types = nodes, GPUTypes(nodes)
	}
	return m.types
}
