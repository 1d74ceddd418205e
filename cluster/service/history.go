package service

import (
	"math"
	"slices"
	"time"
)

const (
	// Slot is for how long one figure of a service's load stands.
	Slot = 5 * time.Minute
	// Week is how many slots are kept.
	Week = 7 * day
	// day is how many slots a day has, hour an hour.
	day, hour = int64(24 * time.Hour / Slot), int64(time.Hour / Slot)

	// most is the most that is kept of a load, and lastSlot the last slot there is, in the
	// year 9999: what is beyond is no measurement.
	most     = 1e15
	lastSlot = 1 << 30
	unknown  = -1
)

// History is the load of all replicas of a service together over the last week: of every five
// minutes the highest that was measured, as the autoscaler looked at it. It is bounded, and
// values are immutable. Nil knows nothing.
type History struct {
	// First is the slot of Loads[0], counted since 1970, and the others follow; -1 is that
	// nobody measured then.
	First int64
	Loads []float32
	// Each is the load that one replica bore within the service's objective, by what was
	// learnt last; 0 is not known, or that the service is not scaled by it.
	Each float32
}

// Noted is the load of one slot, and what one replica bears of it as History.Each has it.
type Noted struct {
	Slot       int64
	Load, Each float64
}

// isLoad reports whether v is a load: finite, not negative and no nonsense.
func isLoad(v float64) bool { return v >= 0 && v <= most } // and not NaN

// last is the last slot that is kept.
func (h *History) last() int64 { return h.First + int64(len(h.Loads)) - 1 }

// With is the history with the load of one more slot, and without what is older than a week
// before it; what is no load changes nothing. Of a slot that is told twice the higher counts. A
// slot before all others, or long after them, begins a history anew: a clock was wrong.
func (h *History) With(n Noted) *History {
	if !isLoad(n.Load) || n.Slot < 0 || n.Slot > lastSlot {
		return h
	}
	out := &History{First: n.Slot, Loads: []float32{unknown}}
	if h != nil && len(h.Loads) > 0 && n.Slot >= h.First && n.Slot-h.last() < Week {
		out.First = max(h.First, n.Slot-Week+1)
		out.Loads = slices.Grow([]float32(nil), int(max(h.last(), n.Slot)-out.First+1))
		out.Loads = append(out.Loads, h.Loads[out.First-h.First:]...)
		for out.last() < n.Slot {
			out.Loads = append(out.Loads, unknown)
		}
	}
	if h != nil {
		out.Each = h.Each
	}
	if isLoad(n.Each) && n.Each > 0 {
		out.Each = float32(n.Each)
	}
	at := &out.Loads[n.Slot-out.First]
	*at = max(*at, float32(n.Load))
	return out
}

// Valid reports whether it is one that With makes.
func (h *History) Valid() bool {
	if h == nil {
		return true
	}
	bad := func(v float32) bool { return v != unknown && !isLoad(float64(v)) }
	return h.First >= 0 && len(h.Loads) > 0 && int64(len(h.Loads)) <= Week && h.last() <= lastSlot && isLoad(float64(h.Each)) && !slices.ContainsFunc(h.Loads, bad)
}

// Known is for how long the load is known.
func (h *History) Known() (d time.Duration) {
	if h == nil {
		return 0
	}
	for _, v := range h.Loads {
		if v >= 0 {
			d += Slot
		}
	}
	return d
}

// at is the load of a slot, negative where it is not known.
func (h *History) at(slot int64) float64 {
	if slot < h.First || slot > h.last() {
		return unknown
	}
	return float64(h.Loads[slot-h.First])
}

// usual is the load that a slot has by the days before: the middle one of its time of day,
// the lower one of two, so that no single day decides. Where one day alone is known, a
// slot above both beside it counts as the higher of them. It is negative where nothing is known.
func (h *History) usual(slot int64) float64 {
	var of [Week / day]float64
	n, from := 0, int64(0)
	for at := slot - day; at >= slot-Week; at -= day {
		if v := h.at(at); v >= 0 {
			of[n], from, n = v, at, n+1
		}
	}
	switch n {
	case 0:
		return unknown
	case 1:
		if beside := max(h.at(from-1), h.at(from+1)); beside >= 0 {
			return min(of[0], beside)
		}
		return of[0]
	}
	slices.Sort(of[:n])
	return of[(n-1)/2]
}

const (
	// enoughOf is of which part of a day the load must be known until there is a forecast.
	enoughOf = 0.9
	// mostTrend is by how much the last hour may raise what is usual; it may lower it to
	// nothing.
	mostTrend = 1.5
	// steadying is how much of a mean slot stands beside each slot of the last hour, so that
	// little load by night says little about the day.
	steadying = 0.25
	// mostAhead is how far a forecast looks at most.
	mostAhead = time.Hour
)

// Forecast is the highest load that is to be expected soon.
type Forecast struct {
	// Load is that of the slot that begins at At, since 1970; it may be the present one.
	Load float64
	At   time.Duration
	// Ahead is how far was looked.
	Ahead time.Duration
	// Trend is the last hour's load over what was usual then.
	Trend float64
}

// Peak is the highest load that is to be expected from now until so long after: what is usual at
// that time of day, times how the last hour was beside what is usual. False until nine tenths
// of a day are known. MArk (ATC 2019) and Swayam (Middleware 2017) scale by a forecast of so
// far ahead as a replica takes to start; theirs are learnt models, this is a seasonal median.
func (h *History) Peak(now, ahead time.Duration) (f Forecast, ok bool) {
	if h == nil || now < 0 {
		return f, false
	}
	ahead = min(max(ahead, 0), mostAhead)
	slot, sum, n := int64(now/Slot), 0.0, 0
	for k := range day {
		if v := h.usual(slot + k); v >= 0 {
			sum, n = sum+v, n+1
		}
	}
	if float64(n) < enoughOf*float64(day) {
		return f, false
	}
	f = Forecast{Load: unknown, Ahead: ahead, Trend: h.trend(slot, steadying*sum/float64(n))}
	for s := slot; s <= int64((now+ahead)/Slot); s++ {
		if v := h.usual(s); v > f.Load {
			f.Load, f.At = v, time.Duration(s)*Slot
		}
	}
	if f.Load < 0 {
		return Forecast{}, false
	}
	f.Load *= f.Trend
	return f, true
}

// trend is the load of the hour before a slot over what is usual then, with so much added to
// each slot of both.
func (h *History) trend(slot int64, steady float64) float64 {
	got, want := 0.0, 0.0
	for s := slot - hour; s < slot; s++ {
		if is, was := h.at(s), h.usual(s); is >= 0 && was >= 0 {
			got, want = got+is+steady, want+was+steady
		}
	}
	if want <= 0 {
		return 1
	}
	return min(got/want, mostTrend)
}

// Recorder gathers the highest load of each slot. The zero value has seen nothing.
type Recorder struct {
	last time.Duration
	slot int64
	peak float64
}

// Saw takes over a load as of now, which counts as often as the autoscaler looks; one that is
// none is passed over. When a slot of which something is known has ended it returns that.
func (r *Recorder) Saw(load float64, now time.Duration) (n Noted, ended bool) {
	if slot := int64(now / Slot); slot != r.slot {
		n, ended = Noted{Slot: r.slot, Load: r.peak}, r.last != 0 && r.peak >= 0
		r.slot, r.peak, r.last = slot, unknown, max(now-scaleEvery, 1)
	}
	if now-r.last >= scaleEvery {
		r.last = now
		if load >= 0 { // and not NaN
			r.peak = max(r.peak, math.Min(load, most))
		}
	}
	return n, ended
}

// Total is the load of all replicas together: of what the service is scaled on, or requests
// a second where it has an objective alone. NaN is that it is not known, or that nobody wants
// to know. No load is more than that of as many replicas as a service may have at all.
func (v *Seen) Total(s *Service) float64 {
	m := &v.Measured
	switch {
	case !s.Forecasts():
		return math.NaN()
	case s.Scale == Scale{} && m.Known:
		return m.Rate
	case s.Scale == Scale{}:
		return math.NaN()
	case m.Known && s.Scale.On == Rate:
		return math.Min(m.Rate, s.Scale.Target*MaxReplicas)
	case m.Known && s.Scale.On == InFlight:
		return math.Min(float64(m.InFlight), s.Scale.Target*MaxReplicas)
	}
	mean, n := mean(v.Loads)
	if n == 0 {
		return math.NaN()
	}
	return math.Min(mean*float64(n), s.Scale.Target*MaxReplicas)
}

// SameLoad reports whether a history of one revision says something of another: both are
// scaled by the same figure.
func SameLoad(a, b *Service) bool {
	return a.Forecasts() && b.Forecasts() && a.Scale.On == b.Scale.On
}
