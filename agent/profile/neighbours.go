package profile

import (
	"cmp"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// maxSpans bounds what is kept of a running attempt; the longest spans count.
const maxSpans = 64

// span is a time during which another attempt was on one of this one's GPUs.
type span struct {
	With   cluster.AttemptID `json:"with"`
	FromMs int64             `json:"from_ms"`
	// ForMs and Milli are set when it is over. Base is what the other had done on the shared
	// GPUs when it began.
	ForMs int64    `json:"for_ms"`
	Milli int64    `json:"milli"`
	Over  bool     `json:"over"`
	Base  integral `json:"base"`
}

// meet begins a span between t and o, unless there is one.
func (r *Recorder) meet(t, o *track) {
	if t == o || !t.ended.IsZero() || !o.ended.IsZero() || !t.shares(o) ||
		slices.ContainsFunc(t.Beside, func(s *span) bool { return s.With == o.ID && !s.Over }) {
		return
	}
	from := max(0, o.Started.Sub(t.Started))
	t.Beside = append(t.Beside, &span{With: o.ID, FromMs: from.Milliseconds(), Base: o.doneWith(t)})
}

func (t *track) shares(o *track) bool {
	return slices.ContainsFunc(t.Cards, func(c *cardTrack) bool { return o.card(c.UUID) != nil })
}

// doneWith returns what o has done so far on the GPUs that it shares with t.
func (o *track) doneWith(t *track) integral {
	var sum integral
	for _, c := range o.Cards {
		if t.card(c.UUID) != nil {
			sum.Sum, sum.Ms = sum.Sum+c.Util.Sum, sum.Ms+c.Util.Ms
		}
	}
	return sum
}

// part ends the spans of t, and those of its neighbours with t.
func (r *Recorder) part(t *track, at time.Time) {
	for _, s := range t.Beside {
		t.over(s, r.tracks[s.With], at)
	}
	for _, o := range r.tracks {
		for _, s := range o.Beside {
			if s.With == t.ID {
				o.over(s, t, at)
			}
		}
	}
}

// over ends one span between t and o, which is nil when o is no longer known.
func (t *track) over(s *span, o *track, at time.Time) {
	if s.Over {
		return
	}
	s.Over, s.ForMs = true, max(0, at.Sub(t.Started).Milliseconds()-s.FromMs)
	if o != nil {
		done := o.doneWith(t)
		s.Milli = integral{done.Sum - s.Base.Sum, done.Ms - s.Base.Ms}.mean()
	}
	if len(t.Beside) > maxSpans {
		t.dropShortest(maxSpans)
	}
}

// dropShortest keeps the n longest of the finished spans, and all others.
func (t *track) dropShortest(n int) {
	for len(t.Beside) > n {
		least := -1
		for i, s := range t.Beside {
			if s.Over && (least < 0 || s.ForMs < t.Beside[least].ForMs) {
				least = i
			}
		}
		if least < 0 {
			return
		}
		t.Beside = slices.Delete(t.Beside, least, least+1)
		t.More++
	}
}

// addSpans adds the longest spans to the profile, in order.
func (t *track) addSpans(p *nodev1.Profile) {
	t.dropShortest(cluster.MaxProfileSpans)
	slices.SortStableFunc(t.Beside, func(a, b *span) int { return cmp.Compare(a.FromMs, b.FromMs) })
	for _, s := range t.Beside {
		p.Neighbours = append(p.Neighbours, &nodev1.NeighbourSpan{Job: uint64(s.With.Job), FromMs: s.FromMs, ForMs: s.ForMs, Milli: s.Milli})
	}
	p.MoreNeighbours = uint32(t.More)
}
