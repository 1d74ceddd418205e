package scheduler

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// doWithout makes items of jobs that no GPU could ever run, were all nodes back
// and empty, ones without GPUs, where cores will do.
func (s *scene) doWithout(it *item) {
	c := rules.CoresOf(it.job, &s.pol)
	if c == nil {
		return
	}
	it.cores = c
	for k := range it.needs {
		if it.needs[k].Way != rules.WayNone && s.f.everOn(it, k) {
			return
		}
	}
	if rules.NeverOn(s.nodes, it.job, s.pol) == "" || c.Never != "" {
		return
	}
	it.gpus, it.cpu, it.mem, it.kind = 0, c.CPU, c.Mem, 0
	for k := range it.needs {
		it.needs[k] = rules.Need{Dur: 1}
	}
}

// startOnCores starts a job that wants GPUs on cores, where one would serve its
// objective better than the GPUs on which it fits now, or, if there is none,
// than those for which it would wait, the wait included. It takes nothing that
// idle GPUs need.
func (p *pass) startOnCores(it *item, fits []int) bool {
	c := it.cores
	if c == nil || c.Choosable(it.job, p.now) != "" {
		return false
	}
	place, where := p.plains.coresPlace(it)
	if place < 0 {
		return false
	}
	host := p.f.order[place]
	h := &p.f.hosts[host]
	among, wait := fits, []int64(nil)
	if len(fits) == 0 {
		among, wait = p.lines.awaited(it)
	}
	goals := p.goalsOf(it, among)
	for i := range wait {
		goals[i].Us += wait[i]
	}
	part := cluster.WholeGPU * max(c.CPU*1000/max(1, h.use.CPUMilli), c.Mem*1000/max(1, h.use.MemMiB)) / 1000
	goals = append(goals, c.Goal(&p.pol, part))
	best := rules.Rate(it.job.Spec.Objective, goals)
	if best < len(among) {
		return false
	}
	p.commit(it, &cluster.Start{
		Job: it.job.ID, Attempt: uint32(len(it.job.Attempts)) + 1, Estimate: c.Est, Why: p.coresWhy(it, among, goals, wait != nil) + where,
		Berth: cluster.Berth{Node: h.node.ID, CPUMilli: c.CPU, MemMiB: c.Mem},
	}, host)
	if p.lines.loaded && it.queue >= 0 {
		p.lines.addQueued(it, -1)
	}
	return true
}

// awaited are the classes that could ever run a job, and how long it would wait
// for a card of each.
func (ls *lines) awaited(it *item) (able []int, wait []int64) {
	wait = []int64{}
	for c := range it.needs {
		if it.needs[c].Way == rules.WayNone {
			continue
		}
		w, ok := ls.waitOn(it, c)
		if i, least := ls.leastLoaded(it, c); !ok && i >= 0 {
			w, ok = least, true
		}
		if ok {
			able, wait = append(able, c), append(wait, w)
		}
	}
	return able, wait
}

// coresPlace is where the job would run without GPUs, -1 for nowhere.
func (pl *plains) coresPlace(it *item) (int, string) {
	c := it.cores
	want := room{mem: -1, milli: -1, slots: -1, cpu: c.CPU, host: c.Mem, until: -1}
	if !pl.f.plain.may(&want) {
		return -1, ""
	}
	without := item{job: it.job, node: it.node, bounds: it.bounds, cpu: c.CPU, mem: c.Mem}
	place, why := pl.plainPlace(&without, &want)
	if place < 0 || pl.mild != nil && !pl.mild.tree.leaf(place).holds(&want) {
		return -1, ""
	}
	return place, why
}

// coresWhy says why cores were chosen, beside the best that GPUs promise.
func (p *pass) coresWhy(it *item, among []int, goals []rules.GoalOf, waited bool) string {
	c, o := it.cores, it.job.Spec.Objective
	w := fmt.Sprintf("%s in place of %s, the best for %s (%s)", say.Cores(c.CPU), say.GPUs(it.gpus), o, c.Words(&p.pol))
	if len(among) > 0 {
		best := rules.Rate(o, goals[:len(among)])
		k := &p.f.classes[among[best]]
		e, _ := cluster.EstimateFor(it.job.Estimates, k.GPUType)
		wait := ""
		if waited {
			wait = ", the wait included,"
		}
		w += fmt.Sprintf("; on %s%s %s", k.GPUType, wait, goals[best].Words(e.PowerW*int64(max(1, it.gpus)), !goals[best].Unpriced))
	}
	return w + "; "
}

// chooses returns the best of the classes by the job's objective: the least
// score, and of equals the sooner end and the first. ok is false for a job
// without an objective.
func (s *scene) chooses(it *item, among []int) (best int, ok bool) {
	if len(among) == 0 || !it.aims {
		return 0, false
	}
	return among[rules.Rate(it.job.Spec.Objective, s.goalsOf(it, among))], true
}

// goalsOf is what a job would take on each of the classes.
func (s *scene) goalsOf(it *item, among []int) []rules.GoalOf {
	goals := make([]rules.GoalOf, len(among), len(among)+1)
	for i, c := range among {
		k := &s.f.classes[c]
		e, _ := cluster.EstimateFor(it.job.Estimates, k.GPUType)
		goals[i] = s.pol.Goal(it.job, k.GPUType, &e, &it.needs[c], k.Sellable)
	}
	return goals
}
