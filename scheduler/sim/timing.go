package sim

import (
	"math"
	"time"
)

// durations counts durations by size, in buckets 2 % apart, so that a quantile of
// any number of them takes little memory.
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

// quantile returns the nearest rank, to within 2 %.
func (d *durations) quantile(q float64) time.Duration {
	rank := int(math.Ceil(q * float64(d.n)))
	for i, n := range d.count {
		if rank -= n; rank <= 0 {
			return time.Duration(math.Pow(spanStep, float64(i)+0.5))
		}
	}
	return 0
}

// took records the duration of one call of the planner.
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

// MeanCI returns the mean of values and half of its 95 % interval by Student's
// t; 0 for a single value. There must be at least one.
func MeanCI(vs []float64) (mean, half float64) {
	for _, v := range vs {
		mean += v
	}
	mean /= float64(len(vs))
	if len(vs) < 2 {
		return mean, 0
	}
	sq := 0.0
	for _, v := range vs {
		sq += (v - mean) * (v - mean)
	}
	n := float64(len(vs))
	return mean, student(len(vs)-1) * math.Sqrt(sq/(n-1)/n)
}

// student returns the 97.5 % quantile of Student's t by degrees of freedom, from 20
// on by the first terms of its expansion around the normal's, to within 0.001.
func student(df int) float64 {
	t := []float64{0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093}
	if df < len(t) {
		return t[df]
	}
	const z = 1.959964
	n := float64(df)
	return z + (z*z*z+z)/(4*n) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*n*n)
}
