package accounting

import (
	"math"
	"time"

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

// surelyTimed is the least confidence, in thousandths, with which a duration must be
// known to decide what a job is charged.
const surelyTimed = 500

// Timed returns how long a job is predicted to run on a GPU type; false if that is a
// guess, or what its user declared for all types alike.
func Timed(es []cluster.Estimate, gpuType string) (time.Duration, bool) {
	e, ok := cluster.EstimateFor(es, gpuType)
	return e.Duration, ok && e.Duration > 0 && e.TimeSure() >= surelyTimed && e.Source != "declared" && e.Source != "none"
}

// weight returns what an hour of a whole GPU of a type costs a job with these
// estimates, in thousandths: the weight of the type, or by speed that of the dearest type
// on which the job's time is predicted times how much of an hour there it is worth. That
// is never more than the dearest type's nor less than the cheapest's.
func (p *AccountPolicy) weight(gpuType string, es []cluster.Estimate) int64 {
	own := p.WeightMilli(gpuType)
	here, known := Timed(es, gpuType)
	if !p.BySpeed || !known {
		return own
	}
	least, most, on := own, own, here
	for i := range es {
		w := p.WeightMilli(es[i].GPUType)
		d, ok := Timed(es[i:i+1], es[i].GPUType)
		if !ok {
			continue
		}
		least = min(least, w)
		if w > most {
			most, on = w, d
		}
	}
	return min(max(most*on.Milliseconds()/max(here.Milliseconds(), 1), least), most)
}

// weighted returns the GPU time of an attempt of a job with these estimates times the
// weight of the GPU type that it was placed on.
func (p *AccountPolicy) weighted(t cluster.GPUTime, a *cluster.Attempt, es []cluster.Estimate) cluster.GPUTime {
	w := p.weight(a.Estimate.GPUType, es)
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

// Add charges an attempt that ended of a job with these estimates. To the decayed cost it adds each moment of the
// run decayed from then to now; to a period it adds the whole cost if the period
// contains the attempt's end.
func (s *Spent) Add(a *cluster.Attempt, es []cluster.Estimate, now cluster.Time, p *AccountPolicy) *Spent {
	c := s.Settled(now, p)
	charge := a.Charge(now)
	gpu, core := cluster.GPUTimeOf(charge.GPU), charge.Core.Microseconds()
	c.GPU += gpu
	c.Core += core
	c.Decayed += LeftOf(a, es, now, p)
	for i := range c.In {
		c.In[i] += p.Cost(p.weighted(gpu, a, es), core)
	}
	return c
}

// LeftOf returns the decayed cost at now of an attempt of a job with these estimates,
// whether it runs or has ended.
func LeftOf(a *cluster.Attempt, es []cluster.Estimate, now cluster.Time, p *AccountPolicy) cluster.GPUTime {
	gpu, core := a.Rate()
	acc := Accrued(a.Ran(now), p.HalfLife)
	cost := p.Cost(p.weighted(cluster.GPUTimeOf(cluster.TimesMilli(acc, gpu)), a, es), cluster.TimesMilli(acc, core).Microseconds())
	if a.Ended == 0 {
		return cost
	}
	return cluster.GPUTime(Decay(int64(cost), now.Sub(a.Ended), p.HalfLife))
}

// CostOf returns the cost as of now of an attempt of a job with these estimates,
// without decay.
func CostOf(a *cluster.Attempt, es []cluster.Estimate, now cluster.Time, p *AccountPolicy) cluster.GPUTime {
	c := a.Charge(now)
	return p.Cost(p.weighted(cluster.GPUTimeOf(c.GPU), a, es), c.Core.Microseconds())
}
