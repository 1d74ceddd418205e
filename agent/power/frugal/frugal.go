// Package frugal is the search for the power cap at which a step of a job takes the least
// energy, while it may go slower only by so much. It follows Zeus (You et al., NSDI 2023),
// which tries the limits of a card one after the other while a training runs, and GPOEO (Wang
// et al., TPDS 2022), which bounds what that may cost in time. It has no clock and touches no
// card: it is told what was seen, and says which cap is to be held next.
package frugal

import (
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Rule is what a search keeps to.
type Rule struct {
	// Slowdown is how much fewer steps a job may take in a time than before, in percent.
	Slowdown int
	// Warmup is how long a job has said steps before it is measured: its first ones load,
	// compile and fill caches. Settle is how long a cap has held before it is.
	Warmup, Settle time.Duration
	// Steps and Span are the fewest steps and the shortest time that are measured under
	// one cap, Patience the longest after which a search is given up.
	Steps          int64
	Span, Patience time.Duration
}

// Usual is the rule of an agent but for the slowdown, which is the job's.
func Usual(slowdown int) Rule {
	return Rule{Slowdown: slowdown, Warmup: 20 * time.Second, Settle: 2 * time.Second, Steps: 10, Span: 10 * time.Second, Patience: 30 * time.Minute}
}

// rung is how far caps that are tried lie apart, and least the lowest, in percent of the
// limit before.
const rung, least = 5, 10

// Seen is a moment at which a job had said that it is further, and what its cards had drawn
// by then, in joules from any beginning.
type Seen struct {
	At     time.Time
	Step   int64
	Joules float64
}

// Search is one search. It belongs to one goroutine.
//
//	warm-up ─▶ the limit before ─▶ caps, falling, until one is too slow ─▶ the limit again ─▶ done
//
// The limit before is measured twice, and the better of both counts: a job that was slow at
// first for other reasons must not pass a cap for no loss.
type Search struct {
	rule  Rule
	caps  []int64 // in percent, the first is 100
	watts []int64 // of those that were set
	costs []cluster.StepCost
	again bool // the limit before, for the second time
	done  bool

	first  time.Time // when a step was said first
	since  time.Time // when the cap held first
	window *Seen     // where what is measured begins
}

// New begins a search; before is what was found for the job on such cards, nil for nothing:
// then only what lies around that is tried.
func New(rule Rule, before *cluster.CapSearch) *Search {
	s := &Search{rule: rule, caps: []int64{100}}
	high, low := int64(100-rung), int64(least)
	if before != nil && before.DefaultW > 0 && before.CapW > 0 {
		near := (before.CapW*100/before.DefaultW + rung/2) / rung * rung
		high, low = min(high, near+rung), max(low, near-rung)
	}
	for p := high; p >= low; p -= rung {
		s.caps = append(s.caps, p)
	}
	return s
}

// Percent is the cap to be held now, in percent of the limit before.
func (s *Search) Percent() int64 {
	switch {
	case s.done:
		return s.caps[s.best()]
	case s.again:
		return s.caps[0]
	}
	return s.caps[len(s.costs)]
}

// Held says that the cap holds from a moment on, and how many watts it is of a card. One that
// is no lower than the one before ends the fall: the card goes no lower.
func (s *Search) Held(at time.Time, watts int64) {
	if s.done || s.again {
		s.since = at
		return
	}
	if n := len(s.watts); n > 0 && watts >= s.watts[n-1] {
		s.again = true // the cap that holds is to be the limit before
		return
	}
	s.watts, s.since = append(s.watts, watts), at
}

// Step takes over that a job came further. It reports whether another cap is to be held.
func (s *Search) Step(now Seen) (other bool) {
	if s.first.IsZero() {
		s.first = now.At
	}
	switch {
	case s.done, now.At.Before(s.since.Add(s.rule.Settle)), now.At.Before(s.first.Add(s.rule.Warmup)):
		return false
	case s.window == nil, now.Step < s.window.Step:
		s.window = &now
		return false
	}
	steps, span := now.Step-s.window.Step, now.At.Sub(s.window.At)
	if steps < s.rule.Steps || span < s.rule.Span {
		return false
	}
	s.measured(cluster.StepCost{PerSecond: float64(steps) / span.Seconds(), Joules: max(0, now.Joules-s.window.Joules) / float64(steps)})
	return true
}

// measured goes on to the next cap.
func (s *Search) measured(c cluster.StepCost) {
	s.window = nil
	if s.again {
		was := &s.costs[0]
		was.PerSecond, was.Joules = max(was.PerSecond, c.PerSecond), min(was.Joules, c.Joules)
		s.done = true
		return
	}
	s.costs = append(s.costs, c)
	s.again = len(s.costs) == len(s.caps) || !fastEnough(c, s.costs[0], s.rule.Slowdown)
}

// Late reports whether what is measured takes longer than the rule has patience: steps too
// long, or a job that says none any more.
func (s *Search) Late(now time.Time) bool {
	return !s.done && !s.since.IsZero() && now.Sub(s.since) > s.rule.Patience
}

// Done reports whether Percent is what the job is left with.
func (s *Search) Done() bool { return s.done }

// Found is what came of a search that is done.
func (s *Search) Found() cluster.CapSearch {
	i := s.best()
	return cluster.CapSearch{DefaultW: s.watts[0], CapW: s.watts[i], Before: s.costs[0], After: s.costs[i]}
}

func (s *Search) best() int { return Best(s.costs, s.rule.Slowdown) }

// Best is which of the caps that were measured, the first of which is the limit before, takes
// the least energy for a step of those that are fast enough: of equals the first. The limit
// before always is.
func Best(costs []cluster.StepCost, slowdown int) (best int) {
	for i, c := range costs {
		if c.Joules < costs[best].Joules && fastEnough(c, costs[0], slowdown) {
			best = i
		}
	}
	return best
}

func fastEnough(c, before cluster.StepCost, slowdown int) bool {
	return 100*c.PerSecond >= float64(100-slowdown)*before.PerSecond
}
