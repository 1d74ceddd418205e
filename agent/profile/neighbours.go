package profile

import (
	"cmp"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// maxSpans bounds what is kept of an attempt while it runs; the longest count.
const maxSpans = 64

// span is a time in which another attempt lay on a card of this one's.
type span struct {
	With   cluster.AttemptID `json:"with"`
	FromMs int64             `json:"from_ms"`
	// ForMs and Milli are set when it is over. Base is what the other had done
	// on the shared cards when it began.
	ForMs int64    `json:"for_ms"`
	Milli int64    `json:"milli"`
	Over  bool     `json:"over"`
	Base  integral `json:"base"`
}

// meet begins a span of t beside o, unless there is one.
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

// doneWith is what o did so far on the cards that it shares with t.
func (o *track) doneWith(t *track) integral {
	var sum integral
	for _, c := range o.Cards {
		if t.card(c.UUID) != nil {
			sum.Sum, sum.Ms = sum.Sum+c.Util.Sum, sum.Ms+c.Util.Ms
		}
	}
	return sum
}

// part ends the spans of t, and those of the others beside it.
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

// over ends one span of t beside o, which is nil when nothing is known of it
// any more.
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

// dropShortest leaves the n longest of the spans that are over, and every
// other.
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

// addSpans gives the longest times to the profile, in order.
func (t *track) addSpans(p *nodev1.Profile) {
	t.dropShortest(cluster.MaxProfileSpans)
	slices.SortStableFunc(t.Beside, func(a, b *span) int { return cmp.Compare(a.FromMs, b.FromMs) })
	for _, s := range t.Beside {
		p.Neighbours = append(p.Neighbours, &nodev1.NeighbourSpan{Job: uint64(s.With.Job), FromMs: s.FromMs, ForMs: s.ForMs, Milli: s.Milli})
	}
	p.MoreNeighbours = uint32(t.More)
}
