package service

import (
	"math"
	"slices"
	"time"
)

const (
	// Slot is the time that one figure of a service's load covers.
	Slot = 5 * time.Minute
	// Week is how many slots are kept.
	Week = 7 * day
	// day is the number of slots per day, hour per hour.
	day, hour = int64(24 * time.Hour / Slot), int64(time.Hour / Slot)

	// most is the highest load that is kept, and lastSlot the last slot, in the
	// year 9999; anything beyond is not a measurement.
	most     = 1e15
	lastSlot = 1 << 30
	unknown  = -1
)

// History is the combined load of all replicas of a service over the last week: for
// every five minutes the highest value that the autoscaler measured. It is bounded,
// and values are immutable. Nil is an empty history.
type History struct {
	// First is the slot of Loads[0], counted since 1970; the others follow. -1
	// means not measured.
	First int64
	Loads []float32
	// Each is the load that one replica sustained within the service's objective,
	// as last learned; 0 if unknown, or if the service is not scaled by it.
	Each float32
}

// Noted is the load of one slot, and the load per replica as in History.Each.
type Noted struct {
	Slot       int64
	Load, Each float64
}

// isLoad reports whether v is a load: finite, not negative and within bounds.
func isLoad(v float64) bool { return v >= 0 && v <= most } // and not NaN

// last returns the last slot that is kept.
func (h *History) last() int64 { return h.First + int64(len(h.Loads)) - 1 }

// With returns the history with the load of one more slot, without slots more than
// a week older than it; an invalid load changes nothing. If a slot is reported
// twice, the higher load counts. A slot before all others, or long after them,
// starts a new history: a clock was wrong.
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

// Valid reports whether With could have made it.
func (h *History) Valid() bool {
	if h == nil {
		return true
	}
	bad := func(v float32) bool { return v != unknown && !isLoad(float64(v)) }
	return h.First >= 0 && len(h.Loads) > 0 && int64(len(h.Loads)) <= Week && h.last() <= lastSlot && isLoad(float64(h.Each)) && !slices.ContainsFunc(h.Loads, bad)
}

// Known returns for how much time the load is known.
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

// at returns the load of a slot, negative if unknown.
func (h *History) at(slot int64) float64 {
	if slot < h.First || slot > h.last() {
		return unknown
	}
	return float64(h.Loads[slot-h.First])
}

// usual returns the usual load of a slot from the days before: the median for its
// time of day, the lower one of two, so that no single day decides. If only one day
// is known, a slot above both its neighbours counts as the higher of them. It is
// negative if nothing is known.
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
	// enoughOf is the fraction of a day for which the load must be known before
	// there is a forecast.
	enoughOf = 0.9
	// mostTrend is the most by which the last hour may raise the usual load; it may
	// lower it to nothing.
	mostTrend = 1.5
	// steadying is the fraction of a mean slot that is added to each slot of the
	// last hour, so that little load at night says little about the day.
	steadying = 0.25
	// mostAhead is the maximum horizon of a forecast.
	mostAhead = time.Hour
)

// Forecast is the highest load expected soon.
type Forecast struct {
	// Load is that of the slot that begins at At, since 1970; it may be the current
	// one.
	Load float64
	At   time.Duration
	// Ahead is the horizon.
	Ahead time.Duration
	// Trend is the last hour's load relative to the usual load.
	Trend float64
}

// Peak returns the highest load expected within ahead of now: the usual load at
// that time of day, times the last hour's load relative to its usual one. ok is
// false until nine tenths of a day are known. MArk (ATC 2019) and Swayam
// (Middleware 2017) also scale by a forecast as far ahead as a replica takes to
// start; theirs are learned models, this is a seasonal median.
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

// trend returns the load of the hour before a slot relative to its usual load, with
// steady added to each slot of both.
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

// Recorder records the highest load of each slot. The zero value is empty.
type Recorder struct {
	last time.Duration
	slot int64
	peak float64
}

// Saw records a load at now, once per look of the autoscaler; an invalid one is
// ignored. When a slot with known load has ended, it returns that slot.
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

// Total returns the combined load of all replicas: of the metric that the service
// is scaled on, or requests per second if it has only an objective. NaN means
// unknown or not wanted. No load exceeds that of the maximum number of replicas.
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

// SameLoad reports whether a history of one revision applies to the other: both are
// scaled by the same metric.
func SameLoad(a, b *Service) bool {
	return a.Forecasts() && b.Forecasts() && a.Scale.On == b.Scale.On
}
