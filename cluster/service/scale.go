package service

import (
	"math"
	"time"
)

const (
	// scaleEvery is how often the number of replicas is checked against the load,
	// tolerance the load deviation that is ignored, and calm how long fewer must
	// have sufficed before there are fewer.
	scaleEvery = 15 * time.Second
	tolerance  = 0.1
	calm       = 5 * time.Minute
	// easy is the fraction of its objective below which a percentile lets one
	// replica go.
	easy = 0.5
	// hopeful is for how much longer than usual a service stays awake without a
	// request that the forecast expects; vainFor is how long it then is woken by
	// requests alone.
	hopeful = time.Hour
	vainFor = 12 * time.Hour
	// spare is the fraction of the rate at which a replica missed the objective
	// that it is given.
	spare = 0.9
)

// Rate and InFlight are loads that proxies measure: requests per second and
// requests in flight per replica. While no proxy does, they are what replicas
// report in their progress.
const (
	Rate     = "rps"
	InFlight = "in_flight"
)

// Seen is what is known of the load of a service at a time.
type Seen struct {
	// Ready is how many replicas accept requests. Loads holds, for each replica
	// where it is known, the metric that the service is scaled on or, for one with
	// only an objective, its own percentile in milliseconds.
	Ready int
	Loads []float64
	// Measured is what proxies measure.
	Measured Measured
	// History is the load of the last week, and ColdStart how long replicas
	// recently took to accept requests, 0 if unknown.
	History   *History
	ColdStart time.Duration
}

// Scaler chooses the number of replicas of a service by load: up at once, to at
// most twice as many, and down once fewer sufficed for five minutes, like
// Kubernetes' horizontal autoscaler. With an objective it scales up while the
// measured percentile is above it, and remembers at which rate a replica met it and
// at which it did not, which MArk (ATC 2019) and BARISTA (IC2E 2019) profile
// beforehand. If a day's load is known, it provides at least as many as needed for
// the highest load expected until a replica requested now accepts requests. A
// service that may have none has none after a time without a request, until the next
// one or until that forecast expects some. The zero value is ready to use.
type Scaler struct {
	last    time.Duration
	seen    []need // in order of time, at most calm old
	have    int
	ready   int
	changed time.Duration // when have or ready last changed
	// good is the highest rate of requests per second and replica that met the
	// objective, bad the lowest that did not; 0 is unknown.
	good, bad float64
	told      Told
	peak      peak
	// vain is until when the forecast wakes nothing, since nobody came.
	vain time.Duration
}

// peak caches a forecast with its inputs; it is reused while those do not change.
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

// Next returns how many replicas there should be, given that have are requested
// now. It is have if nothing is known.
func (c *Scaler) Next(s *Service, have int, seen *Seen, now time.Duration) int {
	n := c.next(s, have, seen, now)
	c.told.N = n
	return n
}

func (c *Scaler) next(s *Service, have int, seen *Seen, now time.Duration) int {
	if have != c.have || seen.Ready != c.ready {
		c.have, c.ready, c.changed = have, seen.Ready, now
	}
	if s.Min == 0 {
		if n, ok := c.sleeps(s, have, seen, now); ok {
			return n
		}
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

// sleeps decides for a service that may have no replica: whether it has none, or
// which it begins with. ok is false while it has some and keeps them.
func (c *Scaler) sleeps(s *Service, have int, seen *Seen, now time.Duration) (n int, ok bool) {
	m := &seen.Measured
	if m.Waiting > 0 || m.InFlight > 0 || m.Rate > 0 {
		c.vain = 0
	}
	idle := min(m.Idle, now-c.changed)
	if have > 0 && (!m.Known || m.Waiting > 0 || m.InFlight > 0 || idle < s.IdleAfter) {
		return 0, false
	}
	told := Told{Asleep: true}
	if told.Forecast, told.Ahead = c.ahead(s, seen, now); told.Ahead > 0 && have > 0 {
		if now >= c.vain && idle < s.IdleAfter+hopeful {
			return 0, false
		}
		c.vain = max(c.vain, now+vainFor)
	}
	switch {
	case have > 0:
	case m.Waiting > 0:
		n, told.Asked = 1, 1
	case now >= c.vain:
		n = min(told.Ahead, s.Max)
	}
	c.told = told
	return n, true
}

// ahead returns how many replicas are needed for the highest load expected until
// one requested now accepts requests, or until the next check; 0 if unknown.
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
	if seen.ColdStart == 0 && c.have == 0 {
		look = Slot // nobody knows yet how long its first replica takes
	}
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

// Each returns the load that a replica is given by what was learned of the
// objective, in requests per second; 0 while nothing was.
func (c *Scaler) Each() float64 { return spare * c.good }

// Told returns the reason for the number of replicas that was last decided.
func (c *Scaler) Told() Told { return c.told }

// smooth returns want if that is more than there are, and otherwise what has
// sufficed for long enough.
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

// byLoad returns how many replicas give each its target load.
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

// mean returns the mean of the valid loads, and their number.
func mean(loads []float64) (mean float64, n int) {
	sum := 0.0
	for _, v := range loads {
		if v >= 0 && !math.IsInf(v, 1) { // and not NaN
			sum, n = sum+v, n+1
		}
	}
	return sum / float64(max(1, n)), n
}

// byObjective returns how many replicas answer within the objective. What was
// measured while their number changed is ignored, except that a rate at which they
// missed the objective before is too high.
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
	over := 0 // by what was learned
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
	if c.good > 0 && m.Known { // those sufficed, though not easily
		want = min(want, max(1, int(math.Ceil(min(m.Rate/c.Each(), MaxReplicas)))))
	}
	return want, true
}

// learn records whether a rate of requests per replica was too high.
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
			c.bad = 0 // it was a transient
		}
	}
}
