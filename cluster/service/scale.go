package service

import (
	"math"
	"time"
)

const (
	// scaleEvery is how often it is looked whether a service has as many replicas as its
	// load asks for, tolerance by how much the load may differ, and calm for how long fewer
	// must have been enough until there are fewer.
	scaleEvery = 15 * time.Second
	tolerance  = 0.1
	calm       = 5 * time.Minute
)

// Scaler chooses how many replicas a service has by their load: at once more, up to twice as
// many, and fewer once fewer were enough for five minutes, as Kubernetes' horizontal
// autoscaler does. The zero value has seen nothing.
type Scaler struct {
	last time.Duration
	seen []need // in order of time, at most as long ago as calm
}

type need struct {
	at time.Duration
	n  int
}

// Next is how many replicas there are to be, where have are asked for and loads are what
// those that take requests have to do. It is have where there is nothing to go by.
func (c *Scaler) Next(s *Service, have int, loads []float64, now time.Duration) int {
	if s.Scale == (Scale{}) {
		return have
	}
	if c.last != 0 && now-c.last < scaleEvery {
		return have
	}
	c.last = now
	sum, n := 0.0, 0
	for _, v := range loads {
		if v >= 0 && !math.IsInf(v, 1) { // and not NaN
			sum, n = sum+v, n+1
		}
	}
	if n == 0 {
		c.seen = nil
		return have
	}
	want := have
	if r := sum / float64(n) / s.Scale.Target; math.Abs(r-1) > tolerance {
		want = int(math.Ceil(min(r*float64(n), MaxReplicas)))
	}
	want = min(max(want, s.Min), s.Max, 2*have)
	for len(c.seen) > 0 && now-c.seen[0].at > calm {
		c.seen = c.seen[1:]
	}
	c.seen = append(c.seen, need{now, want})
	if want >= have {
		return want
	}
	if now-c.seen[0].at < calm-scaleEvery {
		return have
	}
	for _, v := range c.seen {
		want = max(want, v.n)
	}
	return min(want, have)
}
