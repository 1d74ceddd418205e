// Package idle derives from what attempts have used of their GPUs how long those
// have been idle.
package idle

import "github.com/berth-scheduler/berth/cluster"

// Sample is an attempt's use up to a time: thousandths of a GPU times milliseconds
// over all its GPUs, and the milliseconds in which that was known. Both only rise.
type Sample struct {
	At              cluster.Time
	BusyMs, KnownMs int64
}

const (
	// mostSamples bounds what is kept of one attempt.
	mostSamples = 64
	// leastKnown is the part of a window, in thousandths, in which use must be
	// known.
	leastKnown = 900
)

// Window follows one attempt. The zero value has seen nothing.
type Window struct {
	samples []Sample // rising
	since   cluster.Time
	resumed cluster.Time // since, from an earlier leader; the last sample is the first
}

// Resume begins where an earlier leader's mark ended.
func (w *Window) Resume(m *cluster.IdleMark) {
	w.samples = []Sample{{m.At, m.BusyMs, m.KnownMs}}
	w.resumed = m.Since
}

// Verdict is what a window shows.
type Verdict uint8

// The verdicts: too little is known, the GPUs were busy, or idle.
const (
	Unknown Verdict = iota
	Busy
	Idle
)

// Add adds a sample and returns what the window that ends with it shows. cards is
// how many GPUs the attempt has. While it is Idle since is the beginning of the
// first of the consecutive idle windows. Time in which use was not known is never
// idle: it must be known for nine tenths.
func (w *Window) Add(s Sample, p cluster.IdlePolicy, cards int) (v Verdict, since cluster.Time) {
	if n := len(w.samples); n > 0 {
		last := w.samples[n-1]
		if s.At <= last.At {
			return Unknown, 0
		}
		if s.BusyMs < last.BusyMs || s.KnownMs < last.KnownMs { // the count restarted
			*w = Window{}
		}
	}
	// Thin out: of samples closer than a part of the window the older stays.
	if n := len(w.samples); n > 1 && s.At.Sub(w.samples[n-2].At) < p.Window/(mostSamples-4) {
		w.samples = w.samples[:n-1]
	}
	w.samples = append(w.samples, s)
	base := -1
	for i, x := range w.samples {
		if s.At.Sub(x.At) >= p.Window {
			base = i
		}
	}
	if base < 0 {
		return Unknown, 0
	}
	from := w.samples[base]
	w.samples = append(w.samples[:0], w.samples[base:]...)
	span, known, busy := s.At.Sub(from.At).Milliseconds()*int64(max(1, cards)), s.KnownMs-from.KnownMs, s.BusyMs-from.BusyMs
	switch {
	case known < span/1000*leastKnown || known <= 0:
		w.since, w.resumed = 0, 0
		return Unknown, 0
	case busy >= p.BelowMilli*known:
		w.since, w.resumed = 0, 0
		return Busy, 0
	}
	if w.since == 0 {
		w.since = from.At
		if w.resumed != 0 && w.resumed < w.since {
			w.since = w.resumed
		}
		w.resumed = 0
	}
	return Idle, w.since
}
