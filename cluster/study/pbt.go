package study

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// RulePBT is population based training (Jaderberg et al., "Population Based Training of
// Neural Networks", 2017): every First steps a trial that is among the worst 1/Eta of those
// that have come as far begins again from the state of a running one of the best 1/Eta, with its
// values, changed a little. None ends early.
const RulePBT Rule = "pbt"

const (
	// MaxPopulation is how many trials a population may have: all run at once.
	MaxPopulation = 256
	// MaxGenerations is how often a trial begins again from another one's state.
	MaxGenerations = 80
	// keepMarks is how many of the last marks of a trial are kept under RulePBT.
	keepMarks = 8
	// resample is how likely a value is drawn anew, low and high what it is multiplied with
	// else, as the paper has it.
	resample, low, high = 0.25, 0.8, 1.2
)

// Copy is from where a trial goes on that began again. Values are immutable.
type Copy struct {
	// From is the trial whose state it takes, as that one's generation FromGeneration has it,
	// and Generation its own from then on, from 1.
	From, Generation, FromGeneration uint32
	// Values are those of the parameters from then on, in the order of the space.
	Values []string
}

// Check reports whether it can be one of a study.
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

// ParamsAfter are the values of trial number n after it began again, nil for never.
func (s *Study) ParamsAfter(n uint32, c *Copy) []Param {
	out := s.Params(n)
	if c != nil {
		for i := range min(len(out), len(c.Values)) {
			out[i].Value = c.Values[i]
		}
	}
	return out
}

// generation is that of a trial after it began again, 0 for never.
func (c *Copy) generation() uint32 {
	if c == nil {
		return 0
	}
	return c.Generation
}

// Exploit says from which trial one is to go on, and why; false when it goes on by itself. It
// is compared once it has run for First steps since it began, at the last rung that it came
// to, with the others that came there in their present generation.
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
		return 0, "", false // they are done, and nothing is left to do with their state
	}
	best := donors[int(unit(s.Seed, uint64(t.No), uint64(now.generation())+1, 1)*float64(len(donors)))]
	if !s.better(best.value, mark.Value) {
		return 0, "", false // all are alike
	}
	return best.no, fmt.Sprintf("%s %.6g at step %d is number %d of %d trials there; it goes on from trial %d, which had %.6g", s.Metric, mark.Value, s.Step(t.No, mark.Rung), own+1, n, best.no, best.value), true
}

// Explore is what a trial goes on with from another one, whose last copy was donor, nil for
// none: of that one's values each is drawn anew once in four times and else a fifth lower or
// higher, or the one beside it in its list, within the space.
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

// near is a value beside another one, below it or above.
func (a *Axis) near(value string, below bool) string {
	by, step := high, 1
	if below {
		by, step = low, -1
	}
	if a.Kind == KindChoice {
		i := slices.Index(a.Values, value) // -1 is none, of which none is beside
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
