package scheduler

import (
	"fmt"
	"strconv"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// goalOf is what a job would take on a type of GPU in the measures that
// objectives go by; 0 is unknown.
type goalOf struct {
	us     int64 // predicted duration
	work   int64 // microseconds of whole cards
	joules int64
	milli  int64 // price, in thousandths of the currency
	// unpriced tells that nobody said what the type costs.
	unpriced bool
}

func (p *Policy) goal(job *cluster.Job, gpuType string, e *cluster.Estimate, n *need, sellable int64) goalOf {
	cards := int64(max(1, job.Spec.GPUs) * job.Spec.NodeCount())
	g := goalOf{us: n.dur, work: n.dur / cluster.WholeGPU * n.dominant(sellable) * cards}
	g.joules = e.PowerW * cards * (n.dur / 1_000_000)
	g.milli, g.unpriced = p.price(gpuType, g.work), p.Prices.of(gpuType) == 0
	return g
}

// price is that of so much GPU-time on a type. Who shares a card pays for the
// part it takes.
func (p *Policy) price(gpuType string, work int64) int64 {
	perHour := float64(p.Prices.of(gpuType))
	return int64(perHour * (float64(work) / float64(time.Hour/time.Microsecond)))
}

// beyond tells which of a job's limits a type exceeds. What is not known of
// a type, its power or its price, exceeds nothing.
func (p *Policy) beyond(job *cluster.Job, gpuType string, e *cluster.Estimate, n *need, sellable int64) veto {
	s := job.Spec
	if s.MaxPowerW == 0 && s.MaxCostMilli == 0 || n.way == wayNone {
		return vetoNone
	}
	g := p.goal(job, gpuType, e, n, sellable)
	switch {
	case s.MaxPowerW > 0 && e.PowerW*int64(max(1, s.GPUs)*s.NodeCount()) > s.MaxPowerW:
		return vetoPower
	case s.MaxCostMilli > 0 && g.milli > s.MaxCostMilli:
		return vetoCost
	}
	return vetoNone
}

// chooses returns the best of the classes by the job's objective: the least
// score, and of equals the sooner end and the first. ok is false for a job
// without an objective.
func (p *pass) chooses(it *item, among []int) (best int, ok bool) {
	if len(among) == 0 || !it.aims {
		return 0, false
	}
	return among[rate(it.job.Spec.Objective, p.goalsOf(it, among))], true
}

// goalsOf is what a job would take on each of the classes.
func (p *pass) goalsOf(it *item, among []int) []goalOf {
	goals := make([]goalOf, len(among), len(among)+1)
	for i, c := range among {
		k := &p.f.classes[c]
		e, _ := cluster.EstimateFor(it.job.Estimates, k.gpuType)
		goals[i] = p.pol.goal(it.job, k.gpuType, &e, &it.needs[c], k.sellable)
	}
	return goals
}

// rate returns which of the goals is the best for an objective: the least
// score, and of equals the sooner end and the first. What nobody knows counts
// as much as the worst from then on.
func rate(o cluster.Objective, goals []goalOf) int {
	var most goalOf
	for i := range goals {
		most.joules, most.milli = max(most.joules, goals[i].joules), max(most.milli, goals[i].milli)
	}
	least := goalOf{us: forever, work: forever, joules: forever, milli: forever}
	for i := range goals {
		g := &goals[i]
		if g.joules == 0 {
			g.joules = most.joules
		}
		if g.milli == 0 && g.unpriced {
			g.milli = most.milli
		}
		least.us, least.work = min(least.us, g.us), min(least.work, g.work)
		least.joules, least.milli = min(least.joules, g.joules), min(least.milli, g.milli)
	}
	at, score := 0, int64(forever)
	for i := range goals {
		s := goals[i].score(o, &least)
		if s < score || s == score && goals[i].us < goals[at].us {
			at, score = i, s
		}
	}
	return at
}

func (g *goalOf) score(o cluster.Objective, least *goalOf) int64 {
	part := func(v, least int64) int64 { // in thousandths of the least
		if least <= 0 {
			return min(v, 1) * 1000
		}
		return int64(float64(v) * 1000 / float64(least))
	}
	switch o {
	case cluster.ObjectiveLatency:
		return g.us
	case cluster.ObjectiveThroughput:
		return g.work
	case cluster.ObjectiveEnergy:
		return g.joules
	case cluster.ObjectiveCost:
		return g.milli
	}
	return part(g.us, least.us) + part(g.joules, least.joules) + part(g.milli, least.milli)
}

// goalWords say why a type was chosen, or what it exceeds.
func (p *Policy) goalWords(job *cluster.Job, gpuType string, e *cluster.Estimate, n *need, sellable int64) string {
	g := p.goal(job, gpuType, e, n, sellable)
	return g.words(e.PowerW*int64(max(1, job.Spec.GPUs)*job.Spec.NodeCount()), !g.unpriced)
}

func (g *goalOf) words(watts int64, priced bool) string {
	w := about(g.us)
	if watts > 0 {
		w += fmt.Sprintf(", %d W, %s kWh", watts, strconv.FormatFloat(float64(g.joules)/3.6e6, 'f', 2, 64))
	}
	if priced {
		w += ", price " + strconv.FormatFloat(float64(g.milli)/1000, 'f', 2, 64)
	}
	return w
}
