package scheduler

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
)

// coresNeed is what a job that wants GPUs and can do without takes on cores in
// their place.
type coresNeed struct {
	cpu, mem int64
	dur      int64 // predicted, in microseconds; 0 where nobody knows
	est      cluster.Estimate
	never    string // why it may not run there, "" if it may
}

// coresOf returns nil for a job that may not run without GPUs. Its host memory
// is the larger of what was asked for and what is predicted, since parameters
// and activations lie there.
func coresOf(job *cluster.Job, pol *Policy) *coresNeed {
	s := job.Spec
	if !s.OrCPU || s.GPUs == 0 {
		return nil
	}
	c := &coresNeed{}
	c.est, _ = cluster.EstimateFor(job.Estimates, cluster.CPUType)
	c.cpu, c.mem = HostOf(job, pol)
	c.mem = max(c.mem, c.est.HostMemMiB)
	c.dur = c.est.Duration.Microseconds()
	c.est.GPUType = cluster.CPUType
	g := c.goal(pol, 0)
	switch {
	case s.MaxPowerW > 0 && c.est.PowerW > s.MaxPowerW:
		c.never = fmt.Sprintf("is predicted to draw %d W on %s, at most %d W are allowed (--max-power)", c.est.PowerW, cores(c.cpu), s.MaxPowerW)
	case s.MaxCostMilli > 0 && g.milli > s.MaxCostMilli:
		c.never = fmt.Sprintf("is predicted to take %s on %s, a price of at most %s is allowed (--max-cost)", c.words(pol), cores(c.cpu), times(s.MaxCostMilli))
	}
	return c
}

// plain is the job as one without GPUs, for when none could ever run it.
func (c *coresNeed) plain(job *cluster.Job) *cluster.Job {
	s := *job.Spec
	s.GPUs, s.GPUType, s.GPUMemMiB, s.GPUMilli, s.Exclusive, s.OrCPU = 0, "", 0, 0, false, false
	s.CPUMilli, s.MemMiB, s.MaxPowerW, s.MaxCostMilli = c.cpu, c.mem, 0, 0
	j := *job
	j.Spec = &s
	return &j
}

// goal is what a run on cores takes; part is the part of a node, in
// thousandths, as a share is that of a card.
func (c *coresNeed) goal(pol *Policy, part int64) goalOf {
	coreTime := int64(float64(c.dur) / 1000 * float64(c.cpu))
	return goalOf{
		us: c.dur, work: c.dur / cluster.WholeGPU * part, joules: c.est.PowerW * (c.dur / 1_000_000),
		milli: pol.price(cluster.CPUType, coreTime), unpriced: pol.Prices.of(cluster.CPUType) == 0,
	}
}

func (c *coresNeed) words(pol *Policy) string {
	if c.dur == 0 {
		return "a time that nobody can predict"
	}
	g := c.goal(pol, 0)
	return g.words(c.est.PowerW, !g.unpriced)
}

// choosable tells why the job's objective does not speak for cores whatever the
// GPUs do, "" when it may.
func (c *coresNeed) choosable(job *cluster.Job, now int64) string {
	s := job.Spec
	switch end := cluster.Time(now + c.dur); {
	case c.never != "":
		return c.never
	case s.Objective == "":
		return "without an objective it runs on cores only if no GPU could ever run it (--objective)"
	case c.dur == 0:
		return "nobody can predict how long it takes there"
	case s.TimeLimit > 0 && c.dur > s.TimeLimit.Microseconds():
		return fmt.Sprintf("is predicted to take %s on %s, more than its time limit", about(c.dur), cores(c.cpu))
	case s.Deadline > 0 && end > s.Deadline:
		return fmt.Sprintf("is predicted to take %s on %s and would miss its deadline", about(c.dur), cores(c.cpu))
	}
	return ""
}

// doWithout makes items of jobs that no GPU could ever run, were all nodes back
// and empty, ones without GPUs, where cores will do.
func (p *pass) doWithout(it *item) {
	c := coresOf(it.job, &p.pol)
	if c == nil {
		return
	}
	it.cores = c
	for k := range it.needs {
		if it.needs[k].way != wayNone && p.everOn(it, k) {
			return
		}
	}
	if neverOn(p.nodes, it.job, p.pol) == "" || c.never != "" {
		return
	}
	it.gpus, it.cpu, it.mem, it.kind = 0, c.cpu, c.mem, 0
	for k := range it.needs {
		it.needs[k] = need{dur: 1}
	}
}

// startOnCores starts a job that wants GPUs on cores, where one would serve its
// objective better than the GPUs on which it fits now, or, if there is none,
// than those for which it would wait, the wait included. It takes nothing that
// idle GPUs need.
func (p *pass) startOnCores(it *item, fits []int) bool {
	c := it.cores
	if c == nil || c.choosable(it.job, p.now) != "" {
		return false
	}
	place, where := p.coresPlace(it)
	if place < 0 {
		return false
	}
	host := p.f.order[place]
	h := &p.f.hosts[host]
	among, wait := fits, []int64(nil)
	if len(fits) == 0 {
		among, wait = p.awaited(it)
	}
	goals := p.goalsOf(it, among)
	for i := range wait {
		goals[i].us += wait[i]
	}
	part := cluster.WholeGPU * max(c.cpu*1000/max(1, h.use.CPUMilli), c.mem*1000/max(1, h.use.MemMiB)) / 1000
	goals = append(goals, c.goal(&p.pol, part))
	best := rate(it.job.Spec.Objective, goals)
	if best < len(among) {
		return false
	}
	p.commit(it, &cluster.Start{
		Job: it.job.ID, Attempt: uint32(len(it.job.Attempts)) + 1, Estimate: c.est, Why: p.coresWhy(it, among, goals, wait != nil) + where,
		Berth: cluster.Berth{Node: h.node.ID, CPUMilli: c.cpu, MemMiB: c.mem},
	}, host)
	if p.loaded && it.queue >= 0 {
		p.addQueued(it, -1)
	}
	return true
}

// awaited are the classes that could ever run a job, and how long it would wait
// for a card of each.
func (p *pass) awaited(it *item) (able []int, wait []int64) {
	wait = []int64{}
	for c := range it.needs {
		if it.needs[c].way == wayNone {
			continue
		}
		w, ok := p.waitOn(it, c)
		if i, least := p.leastLoaded(it, c); !ok && i >= 0 {
			w, ok = least, true
		}
		if ok {
			able, wait = append(able, c), append(wait, w)
		}
	}
	return able, wait
}

// coresPlace is where the job would run without GPUs, -1 for nowhere.
func (p *pass) coresPlace(it *item) (int, string) {
	c := it.cores
	want := room{mem: -1, milli: -1, slots: -1, cpu: c.cpu, host: c.mem, until: -1}
	if !p.f.plain.may(&want) {
		return -1, ""
	}
	without := item{job: it.job, node: it.node, bounds: it.bounds, cpu: c.cpu, mem: c.mem}
	place, why := p.plainPlace(&without, &want)
	if place < 0 || p.mild != nil && !p.mild.tree.leaf(place).holds(&want) {
		return -1, ""
	}
	return place, why
}

// coresWhy says why cores were chosen, beside the best that GPUs promise.
func (p *pass) coresWhy(it *item, among []int, goals []goalOf, waited bool) string {
	c, o := it.cores, it.job.Spec.Objective
	w := fmt.Sprintf("%s in place of %s, the best for %s (%s)", cores(c.cpu), gpus(it.gpus), o, c.words(&p.pol))
	if len(among) > 0 {
		best := rate(o, goals[:len(among)])
		k := &p.f.classes[among[best]]
		e, _ := cluster.EstimateFor(it.job.Estimates, k.gpuType)
		wait := ""
		if waited {
			wait = ", the wait included,"
		}
		w += fmt.Sprintf("; on %s%s %s", k.gpuType, wait, goals[best].words(e.PowerW*int64(max(1, it.gpus)), !goals[best].unpriced))
	}
	return w + "; "
}

// coresExplain says why a job that may run on cores does not.
func (x *explainer) coresExplain(c *coresNeed) {
	now := int64(x.snap.Now)
	why := c.choosable(x.job, now)
	if why != "" {
		x.tallyOn(cluster.CPUType, cluster.ReasonCPU, 1, 0, func() string { return "on cores: " + why })
		return
	}
	room := 0
	for _, n := range x.snap.Nodes {
		u, ok := x.snap.Ledger.Node(n.ID)
		if ok && n.Schedulable() && u.CPUMilli-u.UsedCPU >= c.cpu && u.MemMiB-u.UsedMem >= c.mem && x.job.Spec.Allows(n) {
			room++
		}
	}
	x.tallyOn(cluster.CPUType, cluster.ReasonCPU, 1, 0, func() string {
		if room == 0 {
			return fmt.Sprintf("on cores: no node has %s and %s of host memory free", cores(c.cpu), gib(c.mem))
		}
		gpu := ""
		if est := x.job.EstStart.Sub(x.snap.Now); est > 0 {
			gpu = fmt.Sprintf("; on a GPU it is expected to start in %s", about(est.Microseconds()))
		}
		return fmt.Sprintf("on cores: %s have room for %s; it would take %s there, not better for %s than to wait%s, or idle GPUs need what is free",
			nodesOf(room), cores(c.cpu), c.words(&x.pol), x.job.Spec.Objective, gpu)
	})
}

func nodesOf(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}
