package study

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// RulePBT is population based training (Jaderberg et al., "Population Based
// Training of Neural Networks", 2017): every First steps a trial among the worst
// 1/Eta of those that have come as far restarts from the state of a running one of
// the best 1/Eta, with its values slightly changed. No trial ends early.
const RulePBT Rule = "pbt"

const (
	// MaxPopulation bounds the trials of a population: all run at once.
	MaxPopulation = 256
	// MaxGenerations bounds how often a trial restarts from another one's state.
	MaxGenerations = 80
	// keepMarks is how many of a trial's latest marks are kept under RulePBT.
	keepMarks = 8
	// resample is the probability of drawing a value anew; low and high are the
	// factors otherwise, as in the paper.
	resample, low, high = 0.25, 0.8, 1.2
)

// Copy records a trial's restart from the state of another. Values are immutable.
type Copy struct {
	// From is the trial whose state it takes, at that one's generation
	// FromGeneration, and Generation its own from then on, from 1.
	From, Generation, FromGeneration uint32
	// Values are the parameter values from then on, in the order of the space.
	Values []string
}

// Check reports whether c is valid for a study.
func (c *Copy) Check(s *Study) error {
	if !s.Searches() || s.Rule != RulePBT || len(c.Values) != len(s.Space) || c.Generation < 1 || c.Generation > MaxGenerations || c.FromGeneration > MaxGenerations {
		return fmt.Errorf("generation %d from generation %d with %d values is none of this study", c.Generation, c.FromGeneration, len(c.Values))
	}
	for i, v := range c.Values {
		if err := (&Axis{Kind: KindChoice, Values: []string{v}}).checkValues(); err != nil {
			return fmt.Errorf("%s: %w", s.Space[i].Name, err)
		}
	}
	return nil
}

// ParamsAfter returns the values of trial number n after restart c, nil for none.
func (s *Study) ParamsAfter(n uint32, c *Copy) []Param {
	out := s.Params(n)
	if c != nil {
		for i := range min(len(out), len(c.Values)) {
			out[i].Value = c.Values[i]
		}
	}
	return out
}

// generation returns the generation of a trial after the restart, 0 for none.
func (c *Copy) generation() uint32 {
	if c == nil {
		return 0
	}
	return c.Generation
}

// Exploit returns the trial from which t is to continue, and why; ok is false if t
// continues by itself. It is compared once it has run for First steps since it
// began, at the last rung that it reached, with the others that reached it in their
// present generation.
func (s *Study) Exploit(all []Trial, t Trial, now *Copy) (from uint32, why string, ok bool) {
	least := 1
	if now != nil {
		least = 2 // the first mark may come at once
	}
	if s.Rule != RulePBT || t.Seen == nil || len(t.Seen.Marks) < least || now.generation() >= MaxGenerations {
		return 0, "", false
	}
	mark := t.Seen.Marks[len(t.Seen.Marks)-1]
	type one struct {
		no    uint32
		value float64
		over  bool
	}
	var field []one
	for _, o := range all {
		if o.Seen == nil {
			continue
		}
		if i := slices.IndexFunc(o.Seen.Marks, func(m Mark) bool { return m.Rung == mark.Rung }); i >= 0 {
			field = append(field, one{o.No, o.Seen.Marks[i].Value, o.Over})
		}
	}
	slices.SortFunc(field, func(a, b one) int {
		switch {
		case s.better(a.value, b.value):
			return -1
		case s.better(b.value, a.value):
			return 1
		}
		return cmp.Compare(a.no, b.no)
	})
	n, part := len(field), len(field)/s.Eta
	own := slices.IndexFunc(field, func(o one) bool { return o.no == t.No })
	if part == 0 || own < n-part || own < part {
		return 0, "", false
	}
	donors := slices.DeleteFunc(slices.Clone(field[:part]), func(o one) bool { return o.over })
	if len(donors) == 0 {
		return 0, "", false // they are done and have no use for its state
	}
	best := donors[int(unit(s.Seed, uint64(t.No), uint64(now.generation())+1, 1)*float64(len(donors)))]
	if !s.better(best.value, mark.Value) {
		return 0, "", false // all are alike
	}
	return best.no, fmt.Sprintf("%s %.6g at step %d is number %d of %d trials there; it goes on from trial %d, which had %.6g", s.Metric, mark.Value, s.Step(t.No, mark.Rung), own+1, n, best.no, best.value), true
}

// Explore returns the restart of a trial from another one, whose last copy was
// donor, nil for none: each of its values is drawn anew with a probability of 1/4,
// else changed by a fifth down or up, or to the adjacent one in its list, within
// the space.
func (s *Study) Explore(n uint32, now *Copy, from uint32, donor *Copy) *Copy {
	c := &Copy{From: from, Generation: now.generation() + 1, FromGeneration: donor.generation()}
	for i, p := range s.ParamsAfter(from, donor) {
		u := func(k uint64) float64 { return unit(s.Seed, uint64(n), uint64(c.Generation), uint64(i), k) }
		if u(2) < resample {
			c.Values = append(c.Values, s.Space[i].draw(u(3)))
			continue
		}
		c.Values = append(c.Values, s.Space[i].near(p.Value, u(4) < 0.5))
	}
	return c
}

// near returns the value next to another in the list, below it or above.
func (a *Axis) near(value string, below bool) string {
	by, step := high, 1
	if below {
		by, step = low, -1
	}
	if a.Kind == KindChoice {
		i := slices.Index(a.Values, value) // -1 if absent, which has no neighbours
		return a.Values[min(max(i+step, 0), len(a.Values)-1)]
	}
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		v = a.Low
	}
	to := v * by
	if a.Kind == KindInt {
		if to = math.Round(to); to == v {
			to += float64(step)
		}
		return strconv.FormatFloat(min(max(to, a.Low), a.High), 'f', 0, 64)
	}
	return number(min(max(to, a.Low), a.High))
}
