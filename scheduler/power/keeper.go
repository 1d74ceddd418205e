package power

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// Keeper decides by a rule which nodes are powered down and up, look after look:
// both the leader of a cluster and a simulation use it. The zero value has seen
// nothing.
type Keeper struct {
	idle     Idle
	ahead    Ahead
	down, up Paced
}

// Recall learns which jobs held nodes from since until now, for a forecast: nodes
// of the kinds that KindsOf returns.
func (k *Keeper) Recall(snap *dispatch.Snapshot, r *Rule, spans []Span, since cluster.Time) {
	if r.Forecast != nil {
		k.ahead.Recall(snap, r, spans, since)
	}
}

// Look records a snapshot, and on which nodes a job would start.
func (k *Keeper) Look(snap *dispatch.Snapshot, r *Rule, used map[cluster.NodeID]struct{}) {
	k.idle.Look(snap, r, used)
	if r.Forecast != nil {
		k.ahead.Look(snap, r, used)
	}
}

// Up returns the nodes to power up now, as of the last Look: first those that
// waiting jobs need or whose reservation opens, then those that are forecast to be
// needed.
func (k *Keeper) Up(snap *dispatch.Snapshot, r *Rule, wake []cluster.NodeID) []cluster.NodeID {
	most := k.up.Room(r.AtOnce, snap.Now)
	out := Up(snap, r, wake, most)
	if r.Forecast == nil {
		return out
	}
	for _, id := range k.ahead.Wake(snap, r) {
		if len(out) < most && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// Down returns the nodes to power down now, as of the last Look.
func (k *Keeper) Down(snap *dispatch.Snapshot, r *Rule) []cluster.NodeID {
	may := func(*cluster.Node) bool { return true }
	if r.Forecast != nil {
		may = k.ahead.spares()
	}
	return k.idle.Down(snap, r, k.down.Room(r.AtOnce, snap.Now), may)
}

// WentUp records that a node was powered up.
func (k *Keeper) WentUp(now cluster.Time) { k.up.Did(now) }

// WentDown records that a node was powered down.
func (k *Keeper) WentDown(now cluster.Time) { k.down.Did(now) }

// Full reports whether no more may be powered down in this minute.
func (k *Keeper) Full(r *Rule, now cluster.Time) bool { return k.down.Room(r.AtOnce, now) == 0 }

// Next returns when after now another answer may be due although nothing changed; 0
// for never.
func (k *Keeper) Next(r *Rule, now cluster.Time) cluster.Time {
	at := k.idle.Next(r, now)
	if r.Forecast == nil {
		return at
	}
	if t := r.Forecast.Next(now); at == 0 || t < at {
		return t
	}
	return at
}

// Why returns since when a node that is up has been idle, and says why it is up
// nevertheless; false for one that is not, or that the rule does not cover.
func (k *Keeper) Why(n *cluster.Node, snap *dispatch.Snapshot, r *Rule) (since cluster.Time, why string, idle bool) {
	since, idle = k.idle.since[n.ID]
	if !idle || !r.Governs(n, snap.Partitions) {
		return 0, "", false
	}
	why = fmt.Sprintf("powered down after %s", r.Idle)
	if r.KeepIdle > 0 {
		why += fmt.Sprintf(", but for %d that are idle", r.KeepIdle)
	}
	if o := k.ahead.Of(n.ID); r.Forecast != nil && o != nil {
		why = o.String()
	}
	return since, why, true
}

// Outlook returns why nodes of a node's kind are up; nil if nothing is forecast.
func (k *Keeper) Outlook(id cluster.NodeID) *Outlook { return k.ahead.Of(id) }

// Outlooks returns those of all kinds.
func (k *Keeper) Outlooks() []*Outlook { return k.ahead.Outlooks() }
