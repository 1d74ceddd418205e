package rules

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// Links counts which links of the network jobs on several nodes communicate over: the
// uplinks of their nodes and, if they are below several switches, those of the lowest
// ones (Wang et al., Communication Contention Aware Scheduling of Multiple Deep Learning
// Training Jobs, Ada-SRSF, 2020). Every such job is taken to communicate.
type Links struct {
	nodes map[int32]int // by Part.Host
	above map[string]int
}

// JobsPerSwitch is how many jobs on nodes of several switches the uplink of one carries
// before they count as slowing each other down; that of a node carries one.
const JobsPerSwitch = 2

// Take counts a job that runs on the parts.
func (l *Links) Take(parts []Part) {
	if l.nodes == nil {
		l.nodes, l.above = map[int32]int{}, map[string]int{}
	}
	var seen []string
	across := Scattered(parts, 1)
	for i := range parts {
		l.nodes[parts[i].Host]++
		if p := parts[i].path; across && !slices.Contains(seen, p) {
			l.above[p]++
			seen = append(seen, p)
		}
	}
}

// NearParts is the function NearParts, but on nodes that no other such job has and, if
// they are below several switches, below those whose uplinks carry fewer than
// JobsPerSwitch; each where that leaves enough: no job waits for it. freer reports
// whether that made a difference.
func (l *Links) NearParts(j *cluster.Job, parts []Part, now cluster.Time) (best []Part, freer, ok bool) {
	best, ok = NearParts(j, parts, now)
	if !ok || l.nodes == nil || j.Spec.GPUs == 0 || j.Spec.NodeCount() < 2 {
		return best, false, ok
	}
	best = slices.Clone(best)
	without := func(busy func(Part) bool) {
		left := slices.DeleteFunc(slices.Clone(parts), func(p Part) bool { return busy(p) || p.Late })
		if some, ok := NearParts(j, left, now); ok {
			freer = freer || slices.ContainsFunc(best, busy)
			best, parts = slices.Clone(some), left
		}
	}
	without(func(p Part) bool { return l.nodes[p.Host] > 0 })
	if Scattered(best, 1) {
		without(func(p Part) bool { return l.above[p.path] >= JobsPerSwitch })
	}
	return best, freer, true
}
