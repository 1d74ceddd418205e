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
	// easy is below which part of its objective a percentile lets one replica go.
	easy = 0.5
	// spare is the part of the rate at which a replica missed the objective that it is given.
	spare = 0.9
)

// Rate and InFlight are loads that proxies measure: requests a second and requests in flight
// of each replica. While no proxy does, they are what replicas say in their progress.
const (
	Rate     = "rps"
	InFlight = "in_flight"
)

// Seen is what is known of the load of a service at a time.
type Seen struct {
	// Ready is how many replicas take requests, and Loads what each of those of which that
	// is known has to do of what the service is scaled on, or, of one with an objective that
	// is scaled on nothing, its own percentile in milliseconds.
	Ready int
	Loads []float64
	// Measured is what proxies measure.
	Measured Measured
	// History is the load of the last week, and ColdStart how long replicas took lately
	// until they took requests, 0 where that is not known.
	History   *History
	ColdStart time.Duration
}

// Scaler chooses how many replicas a service has by their load: at once more, up to twice as
// many, and fewer once fewer were enough for five minutes, as Kubernetes' horizontal
// autoscaler does. By its objective it has more while the measured percentile is above it,
// and remembers at which rate a replica met it and at which it did not, as MArk (ATC 2019)
// and BARISTA (IC2E 2019) profile it beforehand. Where the load of a day is known it has as
// many as the highest load needs that is to be expected until a replica asked for now takes
// requests, if those are more. One that may have none has none after a time without a
// request. The zero value has seen nothing.
type Scaler struct {
	last    time.Duration
	seen    []need // in order of time, at most as long ago as calm
	have    int
	ready   int
	changed time.Duration // when have changed last, or ready
	// good is the most requests a second of one replica with which the objective was met,
	// bad the fewest with which it was not; 0 is not known.
	good, bad float64
	told      Told
	peak      peak
}

// peak is a forecast that was made, and of what: as long as nothing of that changes it is
// the same.
type peak struct {
	of       *History
	from, to int64
	f        Forecast
	ok       bool
}

type need struct {
	at time.Duration
	n  int
}

// Next is how many replicas there are to be, where have are asked for. It is have where
// there is nothing to go by.
func (c *Scaler) Next(s *Service, have int, seen *Seen, now time.Duration) int {
	n := c.next(s, have, seen, now)
	c.told.N = n
	return n
}

func (c *Scaler) next(s *Service, have int, seen *Seen, now time.Duration) int {
	m := &seen.Measured
	if have != c.have || seen.Ready != c.ready {
		c.have, c.ready, c.changed = have, seen.Ready, now
	}
	switch {
	case s.Min > 0:
	case have == 0:
		c.told = Told{Asleep: true}
		return min(m.Waiting, 1)
	case m.Known && m.Waiting == 0 && m.InFlight == 0 && min(m.Idle, now-c.changed) >= s.IdleAfter:
		c.told = Told{Asleep: true}
		return 0
	}
	if !s.scales() || c.last != 0 && now-c.last < scaleEvery {
		return have
	}
	c.last = now
	want, known := 0, false
	for _, by := range [...]func(*Service, int, *Seen, time.Duration) (int, bool){c.byLoad, c.byObjective} {
		if n, ok := by(s, have, seen, now); ok {
			want, known = max(want, n), true
		}
	}
	if c.told = (Told{}); !known {
		c.seen = nil
		return have
	}
	c.told.Known, c.told.Asked, c.told.Least, c.told.Most = true, want, s.Min, s.Max
	c.told.Forecast, c.told.Ahead = c.ahead(s, seen, now)
	return c.smooth(min(max(min(want, 2*have), c.told.Ahead, s.Min, 1), s.Max), have, now)
}

// ahead is how many replicas the highest load needs that is to be expected until one that is
// asked for now takes requests, or at the next look; 0 is that nothing is to be said.
func (c *Scaler) ahead(s *Service, seen *Seen, now time.Duration) (Forecast, int) {
	each := s.Scale.Target
	if s.Scale == (Scale{}) {
		each = c.Each()
		if seen.History != nil && each == 0 {
			each = float64(seen.History.Each)
		}
	}
	if !s.Forecasts() || !(each > 0) {
		return Forecast{}, 0
	}
	look := min(seen.ColdStart+scaleEvery, mostAhead)
	p := peak{of: seen.History, from: int64(now / Slot), to: int64((now + look) / Slot)}
	if p.f, p.ok = c.peak.f, c.peak.ok; p != c.peak {
		p.f, p.ok = seen.History.Peak(now, look)
		c.peak = p
	}
	if !p.ok {
		return Forecast{}, 0
	}
	f := p.f
	f.Ahead = look
	return f, int(math.Ceil(min(f.Load/(each*(1+tolerance)), MaxReplicas)))
}

// Each is the load that a replica is given by what was learnt of the objective, in requests a
// second; 0 while nothing was.
func (c *Scaler) Each() float64 { return spare * c.good }

// Told is why the service has as many replicas as it was told last, or has now.
func (c *Scaler) Told() Told { return c.told }

// smooth is want where that is more than there are, and else what was enough for long.
func (c *Scaler) smooth(want, have int, now time.Duration) int {
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

// byLoad is how many replicas have as much to do each as they are to have.
func (c *Scaler) byLoad(s *Service, have int, seen *Seen, _ time.Duration) (int, bool) {
	if s.Scale == (Scale{}) {
		return 0, false
	}
	mean, n := mean(seen.Loads)
	if m := &seen.Measured; m.Known && seen.Ready > 0 && (s.Scale.On == Rate || s.Scale.On == InFlight) {
		if n, mean = seen.Ready, m.Rate/float64(seen.Ready); s.Scale.On == InFlight {
			mean = float64(m.InFlight) / float64(n)
		}
	}
	if n == 0 {
		return 0, false
	}
	if r := mean / s.Scale.Target; math.Abs(r-1) > tolerance {
		return int(math.Ceil(min(r*float64(n), MaxReplicas))), true
	}
	return have, true
}

// mean is that of what is a load, and of how many.
func mean(loads []float64) (mean float64, n int) {
	sum := 0.0
	for _, v := range loads {
		if v >= 0 && !math.IsInf(v, 1) { // and not NaN
			sum, n = sum+v, n+1
		}
	}
	return sum / float64(max(1, n)), n
}

// byObjective is how many replicas answer within the objective. Nothing follows from what
// was measured while their number changed, but that a rate at which they missed it before
// is too much.
func (c *Scaler) byObjective(s *Service, have int, seen *Seen, now time.Duration) (int, bool) {
	if s.SLO == (SLO{}) || seen.Ready == 0 || s.Min == s.Max {
		return 0, false
	}
	m, late, rate := &seen.Measured, 0.0, 0.0
	judged := now-c.changed >= window && seen.Ready >= have
	switch {
	case m.Known:
		rate = m.Rate / float64(seen.Ready)
		if judged = judged && m.Steady; judged && m.Latency.N() >= s.SLO.enough() {
			late = float64(m.Latency.Percentile(s.SLO.Percent)) / float64(s.SLO.Within)
		}
	case s.Scale == Scale{}:
		ms, n := mean(seen.Loads)
		if n == 0 {
			return 0, false
		}
		late = ms * float64(time.Millisecond) / float64(s.SLO.Within)
	default:
		return 0, false
	}
	if judged && rate > 0 && late > 0 {
		c.learn(rate, late)
	}
	over := 0 // by what was learnt
	if c.bad > 0 && rate >= c.bad {
		over = int(math.Ceil(min(m.Rate/max(c.good, c.bad/2), MaxReplicas)))
	}
	switch {
	case over > have && (!judged || late <= 1 || c.good > 0):
		return over, true
	case judged && late > 1:
		return max(have+1, over, int(math.Ceil(float64(have)*min(late, 2)))), true
	case !judged:
		return have, true
	}
	want := have
	if busy := late == 0 && m.InFlight > seen.Ready; !busy && late <= easy && (c.bad == 0 || m.Rate < spare*c.bad*float64(have-1)) {
		want = have - 1
	}
	if c.good > 0 && m.Known { // those were enough, though it was not easy
		want = min(want, max(1, int(math.Ceil(min(m.Rate/c.Each(), MaxReplicas)))))
	}
	return want, true
}

// learn takes over whether a rate of requests of each replica was too much.
func (c *Scaler) learn(rate, late float64) {
	switch {
	case late > 1:
		if c.bad == 0 || rate < c.bad {
			c.bad = rate
		}
		if c.good >= rate {
			c.good = 0 // it is slower now than it was
		}
	default:
		if c.good = max(c.good, rate); c.bad > 0 && c.bad <= c.good {
			c.bad = 0 // it was a bad moment
		}
	}
}
