package rules

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// GoalOf is what a job would take on a type of GPU in the measures that objectives
// use; 0 is unknown.
type GoalOf struct {
	Us     int64 // predicted duration
	work   int64 // microseconds of whole GPUs
	joules int64
	milli  int64 // price, in thousandths of the currency
	// Unpriced means that the site set no price for the type.
	Unpriced bool
}

// Goal returns what a job would take by its need on a type of GPU that sells so
// much.
func (p *Policy) Goal(job *cluster.Job, gpuType string, e *cluster.Estimate, n *Need, sellable int64) GoalOf {
	cards := int64(max(1, job.Spec.GPUs) * job.Spec.NodeCount())
	g := GoalOf{Us: n.Dur, work: n.Dur / cluster.WholeGPU * n.Dominant(sellable) * cards}
	g.joules = e.PowerW * cards * (n.Dur / 1_000_000)
	g.milli, g.Unpriced = p.price(gpuType, g.work), p.Prices.of(gpuType) == 0
	return g
}

// price returns the price of an amount of GPU time on a type. A job that shares a
// GPU pays for the part it takes.
func (p *Policy) price(gpuType string, work int64) int64 {
	perHour := float64(p.Prices.of(gpuType))
	return int64(perHour * (float64(work) / float64(time.Hour/time.Microsecond)))
}

// beyond says which of a job's limits a type exceeds. An unknown power or price
// exceeds nothing, nor does what is only assumed of a job of which nothing is known.
func (p *Policy) beyond(job *cluster.Job, gpuType string, e *cluster.Estimate, n *Need, sellable int64) Veto {
	s := job.Spec
	if s.MaxPowerW == 0 && s.MaxCostMilli == 0 || n.Way == WayNone {
		return VetoNone
	}
	g := p.Goal(job, gpuType, e, n, sellable)
	timed := e.Duration > 0 || s.Duration > 0 || s.TimeLimit > 0 || s.Service != nil
	switch {
	case s.MaxPowerW > 0 && e.Source != "none" && e.PowerW*int64(max(1, s.GPUs)*s.NodeCount()) > s.MaxPowerW:
		return vetoPower
	case s.MaxCostMilli > 0 && timed && g.milli > s.MaxCostMilli:
		return vetoCost
	}
	return VetoNone
}

// Rate returns which of the goals is best for an objective: the lowest score, then
// the earlier end, then the first. Unknown values are set to the worst known one.
func Rate(o cluster.Objective, goals []GoalOf) int {
	var most GoalOf
	for i := range goals {
		most.joules, most.milli = max(most.joules, goals[i].joules), max(most.milli, goals[i].milli)
	}
	least := GoalOf{Us: Forever, work: Forever, joules: Forever, milli: Forever}
	for i := range goals {
		g := &goals[i]
		g.joules = cmp.Or(g.joules, most.joules)
		if g.milli == 0 && g.Unpriced {
			g.milli = most.milli
		}
		least.Us, least.work = min(least.Us, g.Us), min(least.work, g.work)
		least.joules, least.milli = min(least.joules, g.joules), min(least.milli, g.milli)
	}
	at, score := 0, int64(Forever)
	for i := range goals {
		s := goals[i].score(o, &least)
		if s < score || s == score && goals[i].Us < goals[at].Us {
			at, score = i, s
		}
	}
	return at
}

func (g *GoalOf) score(o cluster.Objective, least *GoalOf) int64 {
	part := func(v, least int64) int64 { // in thousandths of the least
		if least <= 0 {
			return min(v, 1) * 1000
		}
		return int64(float64(v) * 1000 / float64(least))
	}
	switch o {
	case cluster.ObjectiveLatency:
		return g.Us
	case cluster.ObjectiveThroughput:
		return g.work
	case cluster.ObjectiveEnergy:
		return g.joules
	case cluster.ObjectiveCost:
		return g.milli
	}
	return part(g.Us, least.Us) + part(g.joules, least.joules) + part(g.milli, least.milli)
}

// GoalWords says why a type was chosen, or what it exceeds.
func (p *Policy) GoalWords(job *cluster.Job, gpuType string, e *cluster.Estimate, n *Need, sellable int64) string {
	g := p.Goal(job, gpuType, e, n, sellable)
	return g.Words(e.PowerW*int64(max(1, job.Spec.GPUs)*job.Spec.NodeCount()), !g.Unpriced)
}

// Words gives its time and, where known, its power, energy and price.
func (g *GoalOf) Words(watts int64, priced bool) string {
	w := say.About(g.Us)
	if watts > 0 {
		w += fmt.Sprintf(", %d W, %s kWh", watts, strconv.FormatFloat(float64(g.joules)/3.6e6, 'f', 2, 64))
	}
	if priced {
		w += ", price " + strconv.FormatFloat(float64(g.milli)/1000, 'f', 2, 64)
	}
	return w
}
