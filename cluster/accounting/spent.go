package accounting

import (
	"math"

	"github.com/berth-scheduler/berth/cluster"
)

// Spent is what a holder was charged. Values are immutable; Add returns a new one.
type Spent struct {
	Holder Holder
	// GPU is the total GPU time, without decay and weights, and Core the total core
	// time, in microseconds of one core.
	GPU  cluster.GPUTime
	Core int64
	// Decayed is the decayed cost as of At.
	Decayed cluster.GPUTime
	At      cluster.Time
	// In is the cost in each of Periods that contained At.
	In [5]cluster.GPUTime
}

// Cost returns the cost of GPU time and core time, in microseconds of one core;
// cores count as the policy says.
func (p *AccountPolicy) Cost(gpu cluster.GPUTime, core int64) cluster.GPUTime {
	return gpu + cluster.GPUTime(core/1_000_000*p.CoreMicro+core%1_000_000*p.CoreMicro/1_000_000)
}

// weighted returns the GPU time of an attempt times the weight of the GPU type that
// it was placed on.
func (p *AccountPolicy) weighted(t cluster.GPUTime, a *cluster.Attempt) cluster.GPUTime {
	w := p.WeightMilli(a.Estimate.GPUType)
	if w == cluster.WholeGPU {
		return t
	}
	if w > 0 && t/1000 > math.MaxInt64/2/cluster.GPUTime(w) {
		return math.MaxInt64 / 2
	}
	return t/1000*cluster.GPUTime(w) + t%1000*cluster.GPUTime(w)/1000
}

// Left returns the decayed cost of s at now, which must not be before At.
func (s *Spent) Left(now cluster.Time, p *AccountPolicy) cluster.GPUTime {
	return cluster.GPUTime(Decay(int64(s.Decayed), now.Sub(s.At), p.HalfLife))
}

// Used returns what counts against a budget of a period at now.
func (s *Spent) Used(period Period, now cluster.Time, p *AccountPolicy) cluster.GPUTime {
	if period == Decaying {
		return s.Left(now, p)
	}
	for i, x := range Periods() {
		if x == period && x.Begin(s.At) == x.Begin(now) {
			return s.In[i]
		}
	}
	return 0
}

// Settled returns s as of now, under a policy that is about to end.
func (s *Spent) Settled(now cluster.Time, p *AccountPolicy) *Spent {
	c := *s
	c.Decayed = s.Left(now, p)
	for i, x := range Periods() {
		if x.Begin(s.At) != x.Begin(now) {
			c.In[i] = 0
		}
	}
	c.At = now
	return &c
}

// Add charges an attempt that ended. To the decayed cost it adds each moment of the
// run decayed from then to now; to a period it adds the whole cost if the period
// contains the attempt's end.
func (s *Spent) Add(a *cluster.Attempt, now cluster.Time, p *AccountPolicy) *Spent {
	c := s.Settled(now, p)
	charge := a.Charge(now)
	gpu, core := cluster.GPUTimeOf(charge.GPU), charge.Core.Microseconds()
	c.GPU += gpu
	c.Core += core
	c.Decayed += LeftOf(a, now, p)
	for i := range c.In {
		c.In[i] += p.Cost(p.weighted(gpu, a), core)
	}
	return c
}

// LeftOf returns the decayed cost of an attempt at now, whether it runs or has
// ended.
func LeftOf(a *cluster.Attempt, now cluster.Time, p *AccountPolicy) cluster.GPUTime {
	gpu, core := a.Rate()
	acc := Accrued(a.Ran(now), p.HalfLife)
	cost := p.Cost(p.weighted(cluster.GPUTimeOf(cluster.TimesMilli(acc, gpu)), a), cluster.TimesMilli(acc, core).Microseconds())
	if a.Ended == 0 {
		return cost
	}
	return cluster.GPUTime(Decay(int64(cost), now.Sub(a.Ended), p.HalfLife))
}

// CostOf returns the cost of an attempt as of now, without decay.
func CostOf(a *cluster.Attempt, now cluster.Time, p *AccountPolicy) cluster.GPUTime {
	c := a.Charge(now)
	return p.Cost(p.weighted(cluster.GPUTimeOf(c.GPU), a), c.Core.Microseconds())
}
