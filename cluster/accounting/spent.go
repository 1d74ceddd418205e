package accounting

import (
	"math"

	"github.com/berth-scheduler/berth/cluster"
)

// Spent is what a holder was charged. Values are immutable; Add returns another.
type Spent struct {
	Holder Holder
	// GPU is all GPU time that it had, for good, without decay and weights, and
	// Core all core time, in microseconds of one core.
	GPU  cluster.GPUTime
	Core int64
	// Decayed is the cost that was left at At.
	Decayed cluster.GPUTime
	At      cluster.Time
	// In is the cost in each of Periods that held At.
	In [5]cluster.GPUTime
}

// Cost is what GPU time and core time, in microseconds of one core, cost: cores
// count as the policy says.
func (p *AccountPolicy) Cost(gpu cluster.GPUTime, core int64) cluster.GPUTime {
	return gpu + cluster.GPUTime(core/1_000_000*p.CoreMicro+core%1_000_000*p.CoreMicro/1_000_000)
}

// weighted is GPU time of an attempt by the weight of the type that it was placed on.
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

// Left is what of s counts at a time, which is not before At.
func (s *Spent) Left(now cluster.Time, p *AccountPolicy) cluster.GPUTime {
	return cluster.GPUTime(Decay(int64(s.Decayed), now.Sub(s.At), p.HalfLife))
}

// Used is what of s counts against a budget of a period at a time.
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

// Settled is s as of a later time, by a policy that ends then.
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

// Add charges an attempt that ended. Of its cost that is left which has not
// decayed since, each moment of its run for itself; to a period it counts whole
// that holds its end.
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

// LeftOf is what of the cost of an attempt has not decayed at a time, whether it
// runs or ended.
func LeftOf(a *cluster.Attempt, now cluster.Time, p *AccountPolicy) cluster.GPUTime {
	gpu, core := a.Rate()
	acc := Accrued(a.Ran(now), p.HalfLife)
	cost := p.Cost(p.weighted(cluster.GPUTimeOf(cluster.TimesMilli(acc, gpu)), a), cluster.TimesMilli(acc, core).Microseconds())
	if a.Ended == 0 {
		return cost
	}
	return cluster.GPUTime(Decay(int64(cost), now.Sub(a.Ended), p.HalfLife))
}

// CostOf is what an attempt costs as of a time, without decay.
func CostOf(a *cluster.Attempt, now cluster.Time, p *AccountPolicy) cluster.GPUTime {
	c := a.Charge(now)
	return p.Cost(p.weighted(cluster.GPUTimeOf(c.GPU), a), c.Core.Microseconds())
}
