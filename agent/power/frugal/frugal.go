// Package frugal searches for the power cap at which a step of a job takes the least energy,
// within a limit on its slowdown. It follows Zeus (You et al., NSDI 2023), which tries the
// limits of a GPU one after another during training, and GPOEO (Wang et al., TPDS 2022), which
// bounds the cost in time. It has no clock and touches no GPU: it is given observations, and
// says which cap to set next.
package frugal

import (
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Rule is what a search must respect.
type Rule struct {
	// Slowdown is how many fewer steps a job may make per unit of time than before, in percent.
	Slowdown int
	// Warmup is how long a job must have reported steps before it is measured: its first ones
	// load, compile and fill caches. Settle is how long a cap must have been set before it is
	// measured.
	Warmup, Settle time.Duration
	// Steps and Span are the fewest steps and the shortest time that are measured under one
	// cap, Patience the longest time, after which a search is given up.
	Steps          int64
	Span, Patience time.Duration
}

// Usual returns an agent's rule with the job's slowdown.
func Usual(slowdown int) Rule {
	return Rule{Slowdown: slowdown, Warmup: 20 * time.Second, Settle: 2 * time.Second, Steps: 10, Span: 10 * time.Second, Patience: 30 * time.Minute}
}

// rung is the distance between the caps that are tried, and least the lowest one, in percent of
// the original limit.
const rung, least = 5, 10

// Seen is a moment at which a job had reported progress, and the energy that its GPUs had drawn
// by then, in joules from an arbitrary origin.
type Seen struct {
	At     time.Time
	Step   int64
	Joules float64
}

// Search is one search. It belongs to one goroutine.
//
//	warm-up ─▶ original limit ─▶ falling caps, until one is too slow ─▶ original limit ─▶ done
//
// The original limit is measured twice, and the better result counts: a job that was slow at
// first for other reasons must not make a cap look free.
type Search struct {
	rule  Rule
	caps  []int64 // in percent, the first is 100
	watts []int64 // of those that were set
	costs []cluster.StepCost
	again bool // the original limit, for the second time
	done  bool

	first  time.Time // when a step was first reported
	since  time.Time // when the cap was set
	window *Seen     // where the measurement begins
}

// New begins a search; before is the earlier result for the job on such GPUs, nil for none:
// with it, only its surroundings are tried.
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

// Percent returns the cap to set now, in percent of the original limit.
func (s *Search) Percent() int64 {
	switch {
	case s.done:
		return s.caps[s.best()]
	case s.again:
		return s.caps[0]
	}
	return s.caps[len(s.costs)]
}

// Held records that the cap is set from a moment on, and its value for one GPU in watts. A cap
// no lower than the previous one ends the descent: the GPU goes no lower.
func (s *Search) Held(at time.Time, watts int64) {
	if s.done || s.again {
		s.since = at
		return
	}
	if n := len(s.watts); n > 0 && watts >= s.watts[n-1] {
		s.again = true // the current cap is to be the original limit
		return
	}
	s.watts, s.since = append(s.watts, watts), at
}

// Step records progress of the job. It reports whether another cap must be set.
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

// measured moves on to the next cap.
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

// Late reports whether the measurement exceeds the rule's patience: steps too long, or a job
// that no longer reports any.
func (s *Search) Late(now time.Time) bool {
	return !s.done && !s.since.IsZero() && now.Sub(s.since) > s.rule.Patience
}

// Done reports whether Percent is final for the job.
func (s *Search) Done() bool { return s.done }

// Found returns the result of a finished search.
func (s *Search) Found() cluster.CapSearch {
	i := s.best()
	return cluster.CapSearch{DefaultW: s.watts[0], CapW: s.watts[i], Before: s.costs[0], After: s.costs[i]}
}

func (s *Search) best() int { return Best(s.costs, s.rule.Slowdown) }

// Best returns the index of the measured cap that takes the least energy per step among those
// that are fast enough, the first of equals. The first cap is the original limit, which always
// is.
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
