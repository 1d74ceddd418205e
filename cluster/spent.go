package cluster

import "math"

// Spent is what a holder was charged. Values are immutable; Add returns another.
type Spent struct {
	Holder Holder
	// GPU is all GPU time that it had, for good, without decay and weights, and
	// Core all core time, in microseconds of one core.
	GPU  GPUTime
	Core int64
	// Decayed is the cost that was left at At.
	Decayed GPUTime
	At      Time
	// In is the cost in each of Periods that held At.
	In [5]GPUTime
}

// Cost is what GPU time and core time, in microseconds of one core, cost: cores
// count as the policy says.
func (p *AccountPolicy) Cost(gpu GPUTime, core int64) GPUTime {
	return gpu + GPUTime(core/1_000_000*p.CoreMicro+core%1_000_000*p.CoreMicro/1_000_000)
}

// weighted is GPU time of an attempt by the weight of the type that it was placed on.
func (p *AccountPolicy) weighted(t GPUTime, a *Attempt) GPUTime {
	w := p.WeightMilli(a.Estimate.GPUType)
	if w == WholeGPU {
		return t
	}
	if w > 0 && t/1000 > math.MaxInt64/2/GPUTime(w) {
		return math.MaxInt64 / 2
	}
	return t/1000*GPUTime(w) + t%1000*GPUTime(w)/1000
}

// Left is what of s counts at a time, which is not before At.
func (s *Spent) Left(now Time, p *AccountPolicy) GPUTime {
	return GPUTime(Decay(int64(s.Decayed), now.Sub(s.At), p.HalfLife))
}

// Used is what of s counts against a budget of a period at a time.
func (s *Spent) Used(period Period, now Time, p *AccountPolicy) GPUTime {
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
func (s *Spent) Settled(now Time, p *AccountPolicy) *Spent {
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
func (s *Spent) Add(a *Attempt, now Time, p *AccountPolicy) *Spent {
	c := s.Settled(now, p)
	charge := a.Charge(now)
	gpu, core := GPUTimeOf(charge.GPU), charge.Core.Microseconds()
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
func LeftOf(a *Attempt, now Time, p *AccountPolicy) GPUTime {
	gpu, core := a.Rate()
	acc := Accrued(a.Ran(now), p.HalfLife)
	cost := p.Cost(p.weighted(GPUTimeOf(timesMilli(acc, gpu)), a), timesMilli(acc, core).Microseconds())
	if a.Ended == 0 {
		return cost
	}
	return GPUTime(Decay(int64(cost), now.Sub(a.Ended), p.HalfLife))
}

// CostOf is what an attempt costs as of a time, without decay.
func CostOf(a *Attempt, now Time, p *AccountPolicy) GPUTime {
	c := a.Charge(now)
	return p.Cost(p.weighted(GPUTimeOf(c.GPU), a), c.Core.Microseconds())
}
