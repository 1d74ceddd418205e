package sim

import (
	"math"
	"time"
)

// durations counts spans of time by size, in buckets 2 % apart, so that a
// quantile of any number of them takes little memory.
type durations struct {
	n     int
	count [spanBuckets]int
}

const (
	spanBuckets = 1400 // up to 1.02^1400 ns, longer than any run
	spanStep    = 1.02
)

func (d *durations) add(v time.Duration) {
	i := 0
	if v > 1 {
		i = min(spanBuckets-1, int(math.Log(float64(v))/math.Log(spanStep)))
	}
	d.count[i]++
	d.n++
}

// quantile is the nearest rank, to within 2 %.
func (d *durations) quantile(q float64) time.Duration {
	rank := int(math.Ceil(q * float64(d.n)))
	for i, n := range d.count {
		if rank -= n; rank <= 0 {
			return time.Duration(math.Pow(spanStep, float64(i)+0.5))
		}
	}
	return 0
}

// took records how long the planner was asked for one decision.
func (s *sums) took(d time.Duration) {
	s.planned += d
	s.asked.add(d)
}

// speeds fills in how fast the run went, and how long a call of the planner took.
func (s *sums) speeds(r *Result, decisions int) {
	if s.wall > 0 {
		r.EventsPerS = figure(float64(s.events) / s.wall.Seconds())
	}
	if s.planned <= 0 {
		return
	}
	r.DecisionsPerS = figure(float64(decisions) / s.planned.Seconds())
	if s.asked.n > 0 {
		r.DecisionP50 = figure(s.asked.quantile(0.5).Seconds() * 1e6)
		r.DecisionP99 = figure(s.asked.quantile(0.99).Seconds() * 1e6)
	}
}
