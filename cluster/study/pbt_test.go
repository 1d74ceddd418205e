package study_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/study"
)

// member is a trial of a population that is played: what it has gained by now, with a value
// that is best when it grows as the steps do.
type member struct {
	gain float64
	seen *study.Seen
	copy *study.Copy
}

// played is the best of so many trials after so many steps, and how often one went on from
// another one.
func played(s *study.Study, trials, steps int) (best float64, copies int) {
	all := make([]member, trials)
	for step := 1; step <= steps; step++ {
		for n := range all {
			m := &all[n]
			h, _ := strconv.ParseFloat(s.ParamsAfter(uint32(n), m.copy)[0].Value, 64)
			off := h - float64(step)/float64(steps)
			m.gain += math.Max(0, 1-4*off*off)
			m.seen = s.Saw(uint32(n), m.seen, int64(step), study.Seen{Last: m.gain})
		}
		field := make([]study.Trial, trials)
		for n := range all {
			field[n] = study.Trial{No: uint32(n), Seen: all[n].seen}
		}
		was := slices.Clone(all)
		for n := range all {
			if step%int(s.First) != 0 || step == steps {
				continue
			}
			if from, _, ok := s.Exploit(field, field[n], all[n].copy); ok {
				all[n] = member{gain: was[from].gain, copy: s.Explore(uint32(n), all[n].copy, from, was[from].copy)}
				all[n].seen = s.Saw(uint32(n), nil, int64(step), study.Seen{Last: all[n].gain})
				copies++
			}
		}
	}
	for n := range all {
		best = max(best, all[n].gain)
	}
	return best, copies
}

func population(seed uint64) *study.Study {
	return &study.Study{Metric: "gain", Maximize: true, Rule: study.RulePBT, First: 5, Eta: 4, Seed: seed, Space: []study.Axis{{Name: "h", Kind: study.KindUniform, Low: 0.01, High: 1}}}
}

// TestAPopulationFindsASchedule: where the best value changes as training goes on, a
// population does better than as many trials that keep theirs, with every seed.
func TestAPopulationFindsASchedule(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed <= 5; seed++ {
		s := population(seed)
		pbt, copies := played(s, 16, 200)
		s.Rule = study.RuleNone
		random, none := played(s, 16, 200)
		t.Logf("seed %d: pbt %.1f with %d copies, random %.1f", seed, pbt, copies, random)
		if pbt < 1.1*random || random > 134 || none != 0 || copies == 0 {
			t.Errorf("seed %d: %.1f with %d copies, %.1f of those that keep their values", seed, pbt, copies, random)
		}
	}
}

// TestExploitByHand: the worst quarter goes on from the best, once it has run for long
// enough, and is compared with those alone that came as far.
func TestExploitByHand(t *testing.T) {
	t.Parallel()
	s := population(1)
	at := func(no uint32, marks ...study.Mark) study.Trial {
		return study.Trial{No: no, Seen: &study.Seen{Marks: marks}}
	}
	m := func(rung uint32, v float64) study.Mark { return study.Mark{Rung: rung, Value: v} }
	all := []study.Trial{at(0, m(0, 1), m(1, 9)), at(1, m(0, 2), m(1, 3)), at(2, m(0, 3), m(1, 4)), at(3, m(0, 4), m(1, 5)), at(4, m(0, 100)), {No: 5}}
	once := &study.Copy{Generation: 1}
	for what, c := range map[string]struct {
		t    study.Trial
		now  *study.Copy
		want string
	}{
		"the worst of four":             {all[1], nil, "gain 3 at step 10 is number 4 of 4 trials there; it goes on from trial 0, which had 9"},
		"the second worst":              {all[2], nil, ""},
		"the best":                      {all[0], nil, ""},
		"the best of the rung before":   {all[4], nil, ""},
		"one that said nothing":         {all[5], nil, ""},
		"one that is none of the field": {at(9, m(1, 0)), nil, ""},
		"begun again, and at a second":  {all[1], once, "gain 3 at step 10 is number 4 of 4 trials there; it goes on from trial 0, which had 9"},
		"begun again, and at a first":   {at(1, m(1, 3)), once, ""},
		"begun again too often":         {all[1], &study.Copy{Generation: study.MaxGenerations}, ""},
	} {
		from, why, ok := s.Exploit(all, c.t, c.now)
		if why != c.want || ok != (c.want != "") || ok && from != 0 {
			t.Errorf("%s: from %d: %q, want %q", what, from, why, c.want)
		}
	}
	less := *s
	less.Maximize = false
	if from, _, ok := less.Exploit(all, all[0], nil); !ok || from != 1 {
		t.Errorf("of which less is better the worst goes on from %d (%v)", from, ok)
	}
	equal := []study.Trial{at(0, m(0, 1)), at(1, m(0, 1)), at(2, m(0, 1)), at(3, m(0, 1))}
	for _, e := range equal {
		if _, why, ok := s.Exploit(equal, e, nil); ok {
			t.Errorf("of equal ones %s", why)
		}
	}
	over := slices.Clone(all)
	over[0].Over = true
	if _, why, ok := s.Exploit(over, over[1], nil); ok {
		t.Errorf("from one that is done: %s", why)
	}
	few := all[:3]
	if _, why, ok := s.Exploit(few, few[1], nil); ok {
		t.Errorf("of three %s", why)
	}
	for _, c := range []*study.Copy{{Generation: 1}, {Values: []string{"1"}}, {Generation: 1, Values: []string{"1", "2"}}, {Generation: study.MaxGenerations + 1, Values: []string{"1"}}, {Generation: 1, Values: []string{"a\n"}}, {Generation: 1, Values: []string{strings.Repeat("x", 300)}}} {
		if c.Check(s) == nil {
			t.Errorf("%+v is one", c)
		}
	}
	if err := (&study.Copy{Generation: 1, Values: []string{"1"}}).Check(&study.Study{Metric: "m"}); err == nil {
		t.Error("a job that is no trial has one")
	}
}

// TestExplore: values stay in the space, are the same each time, and are near those of the
// other one or drawn anew; of a population none is ended by the rule.
func TestExplore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := population(rapid.Uint64().Draw(t, "seed"))
		s.Space = []study.Axis{
			{Name: "u", Kind: study.KindUniform, Low: -1, High: 2}, {Name: "l", Kind: study.KindLog, Low: 1e-5, High: 0.1},
			{Name: "i", Kind: study.KindInt, Low: 1, High: 9}, {Name: "c", Kind: study.KindChoice, Values: []string{"a", "b", "c"}},
		}
		n, from := uint32(rapid.IntRange(0, 9).Draw(t, "n")), uint32(rapid.IntRange(0, 9).Draw(t, "from"))
		var now, donor *study.Copy
		for gen := uint32(1); gen < 20; gen++ {
			was := s.ParamsAfter(from, donor)
			c := s.Explore(n, now, from, donor)
			if err := c.Check(s); err != nil || c.Generation != gen || c.From != from {
				t.Fatalf("%+v: %v", c, err)
			}
			if again := s.Explore(n, now, from, donor); fmt.Sprint(again) != fmt.Sprint(c) {
				t.Fatalf("%+v, once more %+v", c, again)
			}
			for i, p := range s.ParamsAfter(n, c) {
				a := s.Space[i]
				v, err := strconv.ParseFloat(p.Value, 64)
				if a.Kind == study.KindChoice && !slices.Contains(a.Values, p.Value) || a.Kind != study.KindChoice && (err != nil || v < a.Low || v > a.High || a.Kind == study.KindInt && v != math.Trunc(v)) {
					t.Fatalf("%s is %s, before %s", p.Name, p.Value, was[i].Value)
				}
			}
			now, donor = c, c
		}
		marks := &study.Seen{}
		for step := int64(1); step < 200; step++ {
			marks = s.Saw(0, marks, step, study.Seen{Last: 1})
			if r, want := marks.Marks, min(8, step/5); int64(len(r)) != want || want > 0 && (int64(r[len(r)-1].Rung) != step/5-1 || s.Step(0, r[len(r)-1].Rung) != step/5*5) {
				t.Fatalf("after %d steps it has %v", step, r)
			}
		}
	})
	changed := 0
	s := population(3)
	for n := range uint32(200) {
		was, _ := strconv.ParseFloat(s.Params(7)[0].Value, 64)
		now, _ := strconv.ParseFloat(s.Explore(n, nil, 7, nil).Values[0], 64)
		if r := now / was; math.Abs(r-0.8) < 1e-4 || math.Abs(r-1.2) < 1e-4 || now == 1 {
			changed++
		}
	}
	if changed < 130 || changed > 170 {
		t.Errorf("%d of 200 are a fifth beside, want about 150", changed)
	}
	all := []study.Trial{}
	for n := range uint32(9) {
		all = append(all, study.Trial{No: n, Seen: &study.Seen{Marks: []study.Mark{{Rung: 0, Value: float64(n)}}}})
	}
	for _, v := range all {
		if why := s.Field(all).Verdict(v); why != "" {
			t.Errorf("trial %d ends: %s", v.No, why)
		}
	}
}
