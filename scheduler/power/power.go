// Package power decides which idle nodes are powered down, and which powered-down
// ones are powered up again: as few as waiting jobs need, and never a node that a
// job holds or is planned on. Decisions depend on values alone; the leader of a
// cluster carries them out.
package power

import (
	"cmp"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// Minute is the time over which Rule.AtOnce counts.
const Minute = time.Minute

// Rule is a site's rule for idle nodes.
type Rule struct {
	// Idle is for how long a node must hold no job, with none planned on it.
	Idle time.Duration
	// ResumeTimeout is how long a node may take from off to ready: its nodes are up
	// that long before a reservation opens.
	ResumeTimeout time.Duration
	// KeepIdle is how many idle nodes stay up, AtOnce how many nodes may be powered
	// down in a minute, and how many up.
	KeepIdle, AtOnce int
	// Exclude are never powered down automatically; Partitions are those whose
	// nodes are, empty for all.
	Exclude    cluster.HostList
	Partitions []string
	// Forecast keeps those up that are forecast to be needed; nil uses Idle alone.
	Forecast *Forecast
}

// Governs reports whether the rule covers n.
func (r *Rule) Governs(n *cluster.Node, parts []*cluster.Partition) bool {
	if r.Exclude.Holds(n.ID) {
		return false
	}
	return len(r.Partitions) == 0 || slices.ContainsFunc(parts, func(p *cluster.Partition) bool {
		return slices.Contains(r.Partitions, p.Name) && p.Nodes.Holds(n.ID)
	})
}

// Concerns reports whether some node is idle or off: otherwise waiting jobs' needs
// are irrelevant.
func Concerns(snap *dispatch.Snapshot) bool {
	busy := busy(snap)
	return slices.ContainsFunc(snap.Nodes, func(n *cluster.Node) bool {
		_, has := busy[n.ID]
		return n.Wakeable() || n.Schedulable() && !has
	})
}

// Idle is since when nodes have been idle. The zero value has seen none.
type Idle struct {
	since map[cluster.NodeID]cluster.Time
}

// Look records which nodes of a snapshot are idle: up, without jobs on them or in
// the queues of their GPUs, without a reservation that is open or opens soon, and
// not in used.
func (i *Idle) Look(snap *dispatch.Snapshot, r *Rule, used map[cluster.NodeID]struct{}) {
	busy := busy(snap)
	since := map[cluster.NodeID]cluster.Time{}
	for _, n := range snap.Nodes {
		_, has := busy[n.ID]
		_, planned := used[n.ID]
		if has || planned || !n.Schedulable() || awaited(snap, n) || reserved(snap, n.ID, r.ResumeTimeout) {
			continue
		}
		if since[n.ID] = snap.Now; i.since[n.ID] != 0 {
			since[n.ID] = i.since[n.ID]
		}
	}
	i.since = since
}

// Down returns the nodes to power down now, at most so many of those that may
// allows, the longest idle first, as of the last Look.
func (i *Idle) Down(snap *dispatch.Snapshot, r *Rule, most int, may func(*cluster.Node) bool) []cluster.NodeID {
	var idle, ripe []*cluster.Node
	for _, n := range snap.Nodes {
		since, ok := i.since[n.ID]
		if !ok || !r.Governs(n, snap.Partitions) {
			continue
		}
		idle = append(idle, n)
		if snap.Now.Sub(since) >= r.Idle && n.Power.NotBefore <= snap.Now {
			ripe = append(ripe, n)
		}
	}
	slices.SortStableFunc(ripe, func(a, b *cluster.Node) int {
		return cmp.Or(cmp.Compare(i.since[a.ID], i.since[b.ID]), cmp.Compare(a.ID, b.ID))
	})
	ripe = slices.DeleteFunc(ripe, func(n *cluster.Node) bool { return !may(n) })
	return ids(ripe, min(most, len(idle)-r.KeepIdle))
}

// Next returns when after now another node may have been idle for long enough; 0
// for never.
func (i *Idle) Next(r *Rule, now cluster.Time) (at cluster.Time) {
	for _, since := range i.since { // the least does not depend on the order
		if t := since.Add(r.Idle); t > now && (at == 0 || t < at) {
			at = t
		}
	}
	return at
}

// Up returns the nodes to power up now, at most so many: those that waiting jobs
// need, and those whose reservation opens within the time they take.
func Up(snap *dispatch.Snapshot, r *Rule, wake []cluster.NodeID, most int) []cluster.NodeID {
	var out []*cluster.Node
	for _, n := range snap.Nodes {
		if n.Power.State == cluster.PoweredDown && n.Wakeable() && (slices.Contains(wake, n.ID) || reserved(snap, n.ID, r.ResumeTimeout)) {
			out = append(out, n)
		}
	}
	return ids(out, most)
}

func ids(nodes []*cluster.Node, most int) []cluster.NodeID {
	var out []cluster.NodeID
	for _, n := range nodes[:min(max(0, most), len(nodes))] {
		out = append(out, n.ID)
	}
	return out
}

// busy returns the nodes where a job holds something.
func busy(snap *dispatch.Snapshot) map[cluster.NodeID]struct{} {
	out := map[cluster.NodeID]struct{}{}
	for _, j := range snap.Running {
		if a := j.Live(); a != nil {
			for _, id := range a.NodeIDs() {
				out[id] = struct{}{}
			}
		}
	}
	return out
}

// awaited reports whether jobs are in the queue of a GPU of n.
func awaited(snap *dispatch.Snapshot, n *cluster.Node) bool {
	return slices.ContainsFunc(n.GPUs, func(g cluster.GPU) bool { return len(snap.Queues[g.ID]) > 0 })
}

// reserved reports whether a job reservation holds something of a node and is open,
// or opens within a time.
func reserved(snap *dispatch.Snapshot, id cluster.NodeID, within time.Duration) bool {
	return slices.ContainsFunc(snap.Reservations, func(r *dispatch.Reservation) bool {
		if r.Maint || !r.Nodes.Holds(id) {
			return false
		}
		start, _, ok := r.Window(snap.Now)
		return ok && start <= snap.Now.Add(within)
	})
}

// Paced bounds how many times something is done per minute.
type Paced struct{ at []cluster.Time }

// Room returns how many more times it may be done by now.
func (p *Paced) Room(most int, now cluster.Time) int {
	p.at = slices.DeleteFunc(p.at, func(t cluster.Time) bool { return now.Sub(t) >= Minute })
	return max(0, most-len(p.at))
}

// Did records that it was done.
func (p *Paced) Did(now cluster.Time) { p.at = append(p.at, now) }
