package power

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// Forecast is what a site wants of a forecast of demand. The rule follows the Cluster Energy
// Saving service of Helios (Hu et al., SC 2021): as many nodes stay up as will be needed, and
// some to spare.
type Forecast struct {
	// Every is how often demand is forecast anew, and Horizon for how long.
	Every, Horizon time.Duration
	// Learn is of how long a time demand must be known. Until then idle nodes are powered
	// down as if nothing were forecast.
	Learn time.Duration
	// SparePercent is how many nodes more than forecast stay up, in percent of all, rounded up.
	SparePercent int
}

// part is how many of some nodes are to spare.
func (f *Forecast) part(nodes int) int { return (nodes*f.SparePercent + 99) / 100 }

// Outlook is why nodes of one kind are up, of those that a rule is about.
type Outlook struct {
	Kind Kind
	// Nodes are those that jobs may have, once they are up. Up are those of them that are, or
	// are coming up, Needed those that jobs hold or would start on.
	Nodes, Up, Needed int
	// Known reports whether enough is known for a forecast. Peak is the most that is forecast
	// to be needed, By how; Spare is how many more stay up, and Keep how many in all.
	Known       bool
	Peak        int
	By          Method
	Spare, Keep int
	// Gang is how many nodes the largest job wants that waits for several; 0 is none. While one
	// waits no node is powered down.
	Gang int
	// Horizon is that of the forecast, Idle after what time idle nodes go.
	Horizon, Idle time.Duration
}

// String says it in words.
func (o *Outlook) String() string {
	s := fmt.Sprintf("of %d nodes with %s, %d are up and %d needed", o.Nodes, o.Kind, o.Up, o.Needed)
	switch {
	case o.Gang > 0:
		return s + fmt.Sprintf("; none is powered down while a job waits for %d nodes", o.Gang)
	case !o.Known:
		return s + fmt.Sprintf("; too little is known of demand for a forecast, and idle ones are powered down after %s", o.Idle)
	}
	return s + fmt.Sprintf("; %d stay up: at most %d are forecast to be needed within %s, and %d are to spare", o.Keep, o.Peak, o.Horizon, o.Spare)
}

// Ahead is what is forecast. The zero value knows nothing.
type Ahead struct {
	demand   Demand
	outlooks map[Kind]*Outlook
	kinds    map[cluster.NodeID]Kind
	peaks    map[Kind]peak
}

// peak is a forecast of the time after a slot.
type peak struct {
	after int64
	nodes float64
	by    Method
}

// Recall takes over who held nodes from since until now, as Demand.Recall does. The kinds are
// those that the rule is about.
func (a *Ahead) Recall(snap *dispatch.Snapshot, r *Rule, spans []Span, since cluster.Time) {
	a.demand.Slot, a.peaks = r.Forecast.Every, nil
	var kinds []Kind
	for _, k := range kindsOf(snap, r) {
		if !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	slices.Sort(kinds)
	a.demand.Recall(kinds, spans, since, snap.Now)
}

// KindsOf are the kinds of the nodes that a rule is about, those beyond MaxKinds taken together.
func KindsOf(snap *dispatch.Snapshot, r *Rule) map[cluster.NodeID]Kind { return kindsOf(snap, r) }

func kindsOf(snap *dispatch.Snapshot, r *Rule) map[cluster.NodeID]Kind {
	out, seen := map[cluster.NodeID]Kind{}, map[Kind]struct{}{}
	for _, n := range snap.Nodes { // sorted
		if !r.Governs(n, snap.Partitions) {
			continue
		}
		k := KindOf(n, snap.Partitions)
		if _, known := seen[k]; !known && len(seen) >= MaxKinds {
			k = otherKinds
		}
		seen[k] = struct{}{}
		out[n.ID] = k
	}
	return out
}

// Look takes over what is needed now: nodes that jobs hold, or wait for in a queue of their cards,
// and those among used, on which somebody would start.
func (a *Ahead) Look(snap *dispatch.Snapshot, r *Rule, used map[cluster.NodeID]struct{}) {
	f := r.Forecast
	a.demand.Slot, a.kinds = f.Every, kindsOf(snap, r)
	busy, gang := busy(snap), waitingGang(snap)
	out := map[Kind]*Outlook{}
	for _, n := range snap.Nodes {
		k, governed := a.kinds[n.ID]
		if !governed {
			continue
		}
		o := out[k]
		if o == nil {
			o = &Outlook{Kind: k, Gang: gang, Horizon: f.Horizon, Idle: r.Idle}
			out[k] = o
		}
		_, held := busy[n.ID]
		if _, planned := used[n.ID]; held || planned || awaited(snap, n) {
			o.Needed++
		}
		if reserved(snap, n.ID, r.ResumeTimeout) {
			continue // it is up for those alone
		}
		up := n.Schedulable() || n.Power.State == cluster.PoweringUp && n.Wakeable()
		if up {
			o.Up++
		}
		if up || n.Wakeable() {
			o.Nodes++
		}
	}
	a.demand.keep(out)
	for k, o := range out { // none depends on another
		a.demand.Observe(k, snap.Now, o.Needed)
		a.foresee(o, f)
	}
	a.outlooks = out
}

// foresee fills in how many nodes of a kind are to stay up.
func (a *Ahead) foresee(o *Outlook, f *Forecast) {
	y := a.demand.Slots(o.Kind)
	if o.Known = len(y) > 0 && time.Duration(len(y))*f.Every >= f.Learn; !o.Known {
		return
	}
	open := a.demand.kinds[o.Kind].open()
	p, there := a.peaks[o.Kind]
	if !there || p.after != open {
		p.after = open
		p.nodes, p.by = SeasonsOf(f.Every, f.Horizon).Peak(y, ByRegression)
		if a.peaks == nil {
			a.peaks = map[Kind]peak{}
		}
		a.peaks[o.Kind] = p
	}
	const almost = 0.01 // of a node is none
	o.By, o.Peak = p.by, min(o.Nodes, int(math.Ceil(p.nodes-almost)))
	o.Spare = max(f.part(o.Nodes), o.Gang)
	o.Keep = min(o.Nodes, max(o.Peak, o.Needed)+o.Spare)
}

// waitingGang is on how many nodes the largest job wants to be that waits for several.
func waitingGang(snap *dispatch.Snapshot) int {
	most := 0
	for _, j := range snap.Waiting {
		if n := j.Spec.NodeCount(); n > 1 {
			most = max(most, n)
		}
	}
	return most
}

// Wake are the nodes that are powered down and are forecast to be needed: where fewer are up
// than are needed now, or than are forecast less half of the part that is to spare, so many that
// all to spare are up as well. So a forecast that is off by little wakes nobody, and boots
// come together.
func (a *Ahead) Wake(snap *dispatch.Snapshot, r *Rule) (out []cluster.NodeID) {
	lack := map[Kind]int{}
	for k, o := range a.outlooks {
		if o.Known && o.Up < min(o.Nodes, max(o.Peak-r.Forecast.part(o.Nodes)/2, o.Needed)) {
			lack[k] = o.Keep - o.Up
		}
	}
	for _, n := range snap.Nodes {
		k := a.kinds[n.ID]
		if n.Power.State == cluster.PoweredDown && n.Wakeable() && lack[k] > 0 && !reserved(snap, n.ID, r.ResumeTimeout) {
			lack[k]--
			out = append(out, n.ID)
		}
	}
	return out
}

// spares reports of nodes, one after the other, whether each may be powered down besides those
// before it.
func (a *Ahead) spares() func(*cluster.Node) bool {
	gone := map[Kind]int{}
	return func(n *cluster.Node) bool {
		k := a.kinds[n.ID]
		o := a.outlooks[k]
		if o == nil || o.Gang > 0 || o.Known && o.Up-gone[k] <= o.Keep {
			return false
		}
		gone[k]++
		return true
	}
}

// Of is the outlook of a node's kind, nil for none.
func (a *Ahead) Of(id cluster.NodeID) *Outlook { return a.outlooks[a.kinds[id]] }

// Outlooks are those of all kinds, by kind.
func (a *Ahead) Outlooks() []*Outlook {
	var out []*Outlook
	for _, k := range slices.Sorted(maps.Keys(a.outlooks)) {
		out = append(out, a.outlooks[k])
	}
	return out
}

// Next is when demand is forecast anew after now.
func (f *Forecast) Next(now cluster.Time) cluster.Time {
	every := f.Every.Microseconds()
	return cluster.Time((int64(now)/every + 1) * every)
}
