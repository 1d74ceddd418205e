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

// Forecast configures a site's forecast of demand. The rule follows the Cluster
// Energy Saving service of Helios (Hu et al., SC 2021): as many nodes stay up as
// will be needed, plus some spare.
type Forecast struct {
	// Every is the interval between forecasts of demand, and Horizon how far they
	// look ahead.
	Every, Horizon time.Duration
	// Learn is for how long demand must be known. Until then idle nodes are powered
	// down as if nothing were forecast.
	Learn time.Duration
	// SparePercent is how many nodes beyond the forecast stay up, in percent of
	// all, rounded up.
	SparePercent int
}

// part returns how many of some nodes are spare.
func (f *Forecast) part(nodes int) int { return (nodes*f.SparePercent + 99) / 100 }

// Outlook is why nodes of one kind, among those that a rule covers, are up.
type Outlook struct {
	Kind Kind
	// Nodes counts those that jobs may have once they are up, Up those of them that
	// are up or coming up, Needed those that jobs hold or would start on.
	Nodes, Up, Needed int
	// Known reports whether enough is known for a forecast. Peak is the forecast of
	// the most needed, How its method; Spare is how many more stay up, and Keep how
	// many in all.
	Known       bool
	Peak        int
	By          Method
	Spare, Keep int
	// Gang is how many nodes the largest waiting multi-node job wants; 0 is none.
	// While one waits no node is powered down.
	Gang int
	// Horizon is that of the forecast, Idle how long a node is idle before it is
	// powered down.
	Horizon, Idle time.Duration
}

// String describes the outlook in words.
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

// Ahead is the forecast. The zero value knows nothing.
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

// Recall learns which jobs held nodes from since until now, as Demand.Recall does.
// The kinds are those that the rule covers.
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

// KindsOf returns the kinds of the nodes that a rule covers, with those beyond
// MaxKinds combined.
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

// Look records what is needed now: nodes that jobs hold, or wait for in a queue of
// their GPUs, and those in used, on which a job would start.
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
			continue // it is up only for those
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
	for k, o := range out { // independent of each other
		a.demand.Observe(k, snap.Now, o.Needed)
		a.foresee(o, f)
	}
	a.outlooks = out
}

// foresee sets how many nodes of a kind should stay up.
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
	const almost = 0.01 // less than that of a node is none
	o.By, o.Peak = p.by, min(o.Nodes, int(math.Ceil(p.nodes-almost)))
	o.Spare = max(f.part(o.Nodes), o.Gang)
	o.Keep = min(o.Nodes, max(o.Peak, o.Needed)+o.Spare)
}

// waitingGang returns how many nodes the largest waiting multi-node job wants.
func waitingGang(snap *dispatch.Snapshot) int {
	most := 0
	for _, j := range snap.Waiting {
		if n := j.Spec.NodeCount(); n > 1 {
			most = max(most, n)
		}
	}
	return most
}

// Wake returns the powered-down nodes that are forecast to be needed: if fewer are
// up than are needed now, or than the forecast less half of the spare part, enough
// to have all the spare ones up as well. So a forecast that is slightly off wakes
// none, and boots come together.
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

// spares returns a function that reports for one node after another whether it may
// be powered down in addition to those before it.
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

// Of returns the outlook of a node's kind, nil for none.
func (a *Ahead) Of(id cluster.NodeID) *Outlook { return a.outlooks[a.kinds[id]] }

// Outlooks returns those of all kinds, by kind.
func (a *Ahead) Outlooks() []*Outlook {
	var out []*Outlook
	for _, k := range slices.Sorted(maps.Keys(a.outlooks)) {
		out = append(out, a.outlooks[k])
	}
	return out
}

// Next returns the time of the next forecast after now.
func (f *Forecast) Next(now cluster.Time) cluster.Time {
	every := f.Every.Microseconds()
	return cluster.Time((int64(now)/every + 1) * every)
}
