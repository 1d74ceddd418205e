package power

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// Keeper decides by a rule who is powered down and up, look after look: the leader of a
// cluster and a simulation both ask it. The zero value has seen nothing.
type Keeper struct {
	idle     Idle
	ahead    Ahead
	down, up Paced
}

// Recall takes over who held nodes from since until now, for a forecast: of nodes of the kinds
// that KindsOf tells.
func (k *Keeper) Recall(snap *dispatch.Snapshot, r *Rule, spans []Span, since cluster.Time) {
	if r.Forecast != nil {
		k.ahead.Recall(snap, r, spans, since)
	}
}

// Look takes over what a snapshot holds, and on which nodes somebody would start.
func (k *Keeper) Look(snap *dispatch.Snapshot, r *Rule, used map[cluster.NodeID]struct{}) {
	k.idle.Look(snap, r, used)
	if r.Forecast != nil {
		k.ahead.Look(snap, r, used)
	}
}

// Up are the nodes to power up now, as Look saw them last: first those that who waits needs or
// whose reservation opens, then those that are forecast to be needed.
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

// Down are the nodes to power down now, as Look saw them last.
func (k *Keeper) Down(snap *dispatch.Snapshot, r *Rule) []cluster.NodeID {
	may := func(*cluster.Node) bool { return true }
	if r.Forecast != nil {
		may = k.ahead.spares()
	}
	return k.idle.Down(snap, r, k.down.Room(r.AtOnce, snap.Now), may)
}

// WentUp counts that a node was powered up at a moment.
func (k *Keeper) WentUp(now cluster.Time) { k.up.Did(now) }

// WentDown counts that a node was powered down at a moment.
func (k *Keeper) WentDown(now cluster.Time) { k.down.Did(now) }

// Full reports whether no more may be powered down in this minute.
func (k *Keeper) Full(r *Rule, now cluster.Time) bool { return k.down.Room(r.AtOnce, now) == 0 }

// Next is when after now another answer may be due though nothing has changed; 0 for never.
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

// Why says since when a node that is up has been idle, and why it is up nevertheless; false of
// one that is not, or that the rule is not about.
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

// Outlook is why nodes of a node's kind are up; nil where nothing is forecast.
func (k *Keeper) Outlook(id cluster.NodeID) *Outlook { return k.ahead.Of(id) }

// Outlooks are those of all kinds.
func (k *Keeper) Outlooks() []*Outlook { return k.ahead.Outlooks() }
