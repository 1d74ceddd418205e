package rules

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// CoresNeed is what a job that prefers GPUs but can do without takes on cores
// instead.
type CoresNeed struct {
	CPU, Mem int64
	dur      int64 // predicted, in microseconds; 0 if unknown
	Est      cluster.Estimate
	Never    string // why it may not run there, "" if it may
}

// CoresOf returns nil for a job that may not run without GPUs. Its host memory is
// the larger of what was asked for and what is predicted, since parameters and
// activations reside there.
func CoresOf(job *cluster.Job, pol *Policy) *CoresNeed {
	s := job.Spec
	if !s.OrCPU || s.GPUs == 0 {
		return nil
	}
	c := &CoresNeed{}
	c.Est, _ = cluster.EstimateFor(job.Estimates, cluster.CPUType)
	c.CPU, c.Mem = HostOf(job, pol)
	c.Mem = max(c.Mem, c.Est.HostMemMiB)
	c.dur = c.Est.Duration.Microseconds()
	c.Est.GPUType = cluster.CPUType
	g := c.Goal(pol, 0)
	switch {
	case s.MaxPowerW > 0 && c.Est.PowerW > s.MaxPowerW:
		c.Never = fmt.Sprintf("is predicted to draw %d W on %s, at most %d W are allowed (--max-power)", c.Est.PowerW, say.Cores(c.CPU), s.MaxPowerW)
	case s.MaxCostMilli > 0 && g.milli > s.MaxCostMilli:
		c.Never = fmt.Sprintf("is predicted to take %s on %s, a price of at most %s is allowed (--max-cost)", c.Words(pol), say.Cores(c.CPU), say.Times(s.MaxCostMilli))
	}
	return c
}

// Plain returns the job as one without GPUs, for when none could ever run it.
func (c *CoresNeed) Plain(job *cluster.Job) *cluster.Job {
	s := *job.Spec
	s.GPUs, s.GPUType, s.GPUMemMiB, s.GPUMilli, s.Exclusive, s.OrCPU = 0, "", 0, 0, false, false
	s.CPUMilli, s.MemMiB, s.MaxPowerW, s.MaxCostMilli = c.CPU, c.Mem, 0, 0
	j := *job
	j.Spec = &s
	return &j
}

// Goal returns what a run on cores takes; part is the part of a node, in
// thousandths, as a share is of a GPU.
func (c *CoresNeed) Goal(pol *Policy, part int64) GoalOf {
	coreTime := int64(float64(c.dur) / 1000 * float64(c.CPU))
	return GoalOf{
		Us: c.dur, work: c.dur / cluster.WholeGPU * part, joules: c.Est.PowerW * (c.dur / 1_000_000),
		milli: pol.price(cluster.CPUType, coreTime), Unpriced: pol.Prices.of(cluster.CPUType) == 0,
	}
}

// Words says what a run on cores takes.
func (c *CoresNeed) Words(pol *Policy) string {
	if c.dur == 0 {
		return "a time that nobody can predict"
	}
	g := c.Goal(pol, 0)
	return g.Words(c.Est.PowerW, !g.Unpriced)
}

// Choosable says why the job's objective rules out cores whatever the GPUs do, ""
// if it does not.
func (c *CoresNeed) Choosable(job *cluster.Job, now int64) string {
	s := job.Spec
	switch end := cluster.Time(now + c.dur); {
	case c.Never != "":
		return c.Never
	case s.Objective == "":
		return "without an objective it runs on cores only if no GPU could ever run it (--objective)"
	case c.dur == 0:
		return "nobody can predict how long it takes there"
	case s.TimeLimit > 0 && c.dur > s.TimeLimit.Microseconds():
		return fmt.Sprintf("is predicted to take %s on %s, more than its time limit", say.About(c.dur), say.Cores(c.CPU))
	case s.Deadline > 0 && end > s.Deadline:
		return fmt.Sprintf("is predicted to take %s on %s and would miss its deadline", say.About(c.dur), say.Cores(c.CPU))
	}
	return ""
}
