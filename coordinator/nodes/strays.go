package nodes

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// emptied returns nodes with what their GPUs would sell without use outside Berth:
// stray processes come and go, and a job that fits when they are gone is not one
// that never fits. Nodes are immutable; those that differ are copies.
func (l *liveness) emptied(nodes []*cluster.Node) []*cluster.Node {
	l.mu.Lock()
	strayed := len(l.strayed)
	l.mu.Unlock()
	if strayed == 0 { // nearly always, and this runs for each job
		return nodes
	}
	out := slices.Clone(nodes)
	for i, n := range out {
		detail := l.details(n.ID)
		held := func(g *cluster.GPU) int64 { return detail[g.ID].GetStrayMib() }
		if !slices.ContainsFunc(n.GPUs, func(g cluster.GPU) bool { return held(&g) > 0 }) {
			continue
		}
		whole := *n
		whole.GPUs = slices.Clone(n.GPUs)
		for k := range whole.GPUs {
			g := &whole.GPUs[k]
			g.SellableMiB = min(g.MemMiB, g.SellableMiB+held(g))
		}
		out[i] = &whole
	}
	return out
}
