package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// forecastSpan is the forecast of a job on several nodes: when the last of as many
// as it needs is free for its part, on cards of one type, those taken together
// that are so soonest. A node that is free before is taken to be kept for it, as
// passes do once it has waited for a while.
func (x *explainer) forecastSpan(live map[cluster.NodeID][]*cluster.Job) (f Forecast, ok bool) {
	type place struct {
		*clearing
		early, late int64
	}
	want, free, all := x.job.Spec.NodeCount(), 0, 0
	byType := map[string][]place{}
	for _, n := range sortedNodes(x.snap.Nodes) {
		c := &clearing{x: x, node: n, running: live[n.ID]}
		if !n.Schedulable() || !x.job.Spec.Allows(n) || !c.find() {
			continue
		}
		typ := ""
		if len(c.cards) > 0 {
			typ = n.GPUs[c.cards[0]].Type
		}
		byType[typ] = append(byType[typ], place{c, c.play(middle), c.play(tail)})
	}
	now := int64(x.snap.Now)
	for _, typ := range sortedTypes(byType) {
		ps := byType[typ]
		if len(ps) < want {
			continue
		}
		slices.SortStableFunc(ps, func(a, b place) int { return cmp.Compare(a.early, b.early) })
		early := max(now, ps[want-1].early)
		late := early
		for _, p := range ps[:want] {
			late = max(late, p.late)
		}
		if ok && early >= int64(f.P50) {
			continue
		}
		last := ps[want-1]
		f = Forecast{Node: last.node.ID, Missing: last.missing(), P50: cluster.Time(early), P90: cluster.Time(late), Ahead: last.before()}
		ok, all, free = true, len(ps), 0
		for _, p := range ps {
			if p.ends == 0 {
				free++
			}
		}
	}
	if ok {
		f.Missing = fmt.Sprintf("%d of %s with room, needs %d at once; the last to come free is %s", free, nodes(all), want, f.Missing)
	}
	return f, ok
}

func sortedTypes[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// before is how many stand before the job at the place.
func (c *clearing) before() int {
	_, all := c.ahead()
	return all
}
