package study

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// seen is a trial that said values at the first rungs.
func seen(no uint32, values ...float64) Trial {
	s := &Seen{}
	for i, v := range values {
		s.Marks = append(s.Marks, Mark{uint32(i), v})
		s.Last, s.Best = v, v
	}
	return Trial{No: no, Seen: s}
}

// TestRungs: a trial is marked at the highest rung that it has come to, once, and what it
// said in between or passed over is no mark.
func TestRungs(t *testing.T) {
	t.Parallel()
	s := sweep() // 10, 30, 90, 270 steps
	var now *Seen
	for _, say := range []struct {
		step  int64
		value float64
	}{{9, 5}, {11, 4}, {29, 1}, {95, 3}, {96, 2}, {300, math.NaN()}, {300, math.Inf(-1)}, {301, 6}} {
		now = s.Saw(0, now, say.step, Seen{Last: say.value})
	}
	want := []Mark{{0, 4}, {2, 3}, {3, 6}}
	if !slices.Equal(now.Marks, want) || now.Best != 1 || now.BestStep != 29 || now.Last != 6 {
		t.Errorf("%+v, want marks %v and 1 at step 29", now, want)
	}
	for rung, step := range []int64{10, 30, 90, 270} {
		if got := s.Step(0, uint32(rung)); got != step {
			t.Errorf("rung %d is at step %d, want %d", rung, got, step)
		}
		if r, ok := s.rung(0, step); !ok || r != uint32(rung) {
			t.Errorf("at step %d it is at rung %d, %v", step, r, ok)
		}
		if r, ok := s.rung(0, step-1); ok != (rung > 0) || ok && r != uint32(rung-1) {
			t.Errorf("at step %d it is at rung %d, %v", step-1, r, ok)
		}
	}
	if r, ok := s.rung(0, math.MaxInt64); !ok || r > maxRungs || s.Step(0, math.MaxUint32) != math.MaxInt64 {
		t.Errorf("after all steps that there are: rung %d, %v", r, ok)
	}
	s.Maximize = true
	if b := s.Saw(0, seen(0, 4).Seen, 12, Seen{Last: 9}); b.Best != 9 || b.BestStep != 12 {
		t.Errorf("more is better, and the best is %+v", b)
	}
}

// TestTheBestBetweenLooks: what was best between two that were seen counts, if it is a
// number and no later than now.
func TestTheBestBetweenLooks(t *testing.T) {
	t.Parallel()
	s, was := sweep(), &Seen{Last: 4, Best: 4, BestStep: 2}
	for _, c := range []struct {
		said Seen
		best float64
		step int64
	}{
		{Seen{Last: 5, Best: 1, BestStep: 7}, 1, 7}, {Seen{Last: 5, Best: 1, BestStep: 99}, 1, 9}, {Seen{Last: 5, Best: 4.5, BestStep: 7}, 4, 2},
		{Seen{Last: 3, Best: 3.5, BestStep: 7}, 3, 9}, {Seen{Last: 5, Best: math.NaN(), BestStep: 7}, 4, 2}, {Seen{Last: 5}, 4, 2},
	} {
		if got := s.Saw(0, was, 9, c.said); got.Best != c.best || got.BestStep != c.step || got.Last != c.said.Last {
			t.Errorf("after %+v: %+v, want the best %g at step %d", c.said, got, c.best, c.step)
		}
	}
}

// TestHalving: of Eta trials at a rung the best goes on, fewer are not judged, and who was
// first is judged again when others come.
func TestHalving(t *testing.T) {
	t.Parallel()
	s := sweep()
	all := []Trial{seen(0, 5), seen(1, 4)}
	for _, x := range all {
		if why := s.Field(all).Verdict(x); why != "" {
			t.Errorf("of two trials %d ends: %s", x.No, why)
		}
	}
	all = append(all, seen(2, 3), Trial{No: 3}, seen(4))
	for i, ends := range []bool{true, true, false, false, false} {
		if why := s.Field(all).Verdict(all[i]); (why != "") != ends {
			t.Errorf("trial %d: %q", i, why)
		}
	}
	if why := s.Field(all).Verdict(all[0]); why != "loss 5 at step 10 is number 3 of 3 trials there, and the best 1 go on" {
		t.Error(why)
	}
	all[0] = seen(0, 5, 2) // it has come on meanwhile, and is alone there
	if why := s.Field(all).Verdict(all[0]); why != "" {
		t.Errorf("alone at its rung: %s", why)
	}
	if s.Rule = RuleNone; s.Field(all).Verdict(all[1]) != "" {
		t.Error("without a rule a trial ends")
	}
}

// TestBrackets: trials of Hyperband are compared in their bracket, which begins later the
// fewer it has.
func TestBrackets(t *testing.T) {
	t.Parallel()
	s := sweep()
	s.Rule = RuleHyperband
	var in [brackets]int
	for n := range uint32(26) {
		in[s.bracket(n)]++
	}
	if in != [brackets]int{18, 6, 2} {
		t.Errorf("of 26 trials %v are in the brackets", in)
	}
	for no, step := range map[uint32]int64{0: 10, 9: 30, 12: 90} {
		if got := s.Step(no, 0); got != step {
			t.Errorf("trial %d is compared at step %d first, want %d", no, got, step)
		}
		if s.News(no, nil, step-1) || !s.News(no, nil, step) {
			t.Errorf("trial %d has news before step %d, or none then", no, step)
		}
	}
	all := []Trial{seen(9, 3), seen(0, 1), seen(1, 1), seen(2, 1)}
	if why := s.Field(all).Verdict(all[0]); why != "" {
		t.Errorf("it is compared with other brackets: %s", why)
	}
}

// TestMedian: a trial ends when its best is worse than the median of the means of the
// others, of which there are three at least.
func TestMedian(t *testing.T) {
	t.Parallel()
	s := sweep()
	s.Rule = RuleMedian
	others := []Trial{seen(1, 4, 2), seen(2, 6, 6), seen(3, 1, 1)} // means 3, 6, 1 at rung 1
	for value, ends := range map[float64]bool{3.5: true, 3: false, 2: false} {
		x := seen(0, 9, value)
		if why := s.Field(append(others, x)).Verdict(x); (why != "") != ends || ends && !strings.Contains(why, "worse than the median 3 of 3 other") {
			t.Errorf("%g: %q", value, why)
		}
	}
	x := seen(0, 2, 9) // it was good once
	if why := s.Field(append(others, x)).Verdict(x); why != "" {
		t.Errorf("its best counts: %s", why)
	}
	if x = seen(0, 9, 9); s.Field(append(others[:2:2], x)).Verdict(x) != "" {
		t.Error("the median of two others ends it")
	}
}

// TestTheBestGoesOn: whatever trials said, of those at a rung the best never ends, and of
// at least Eta no more than one of Eta goes on but for those that are equal.
func TestTheBestGoesOn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := sweep()
		s.Rule = rapid.SampledFrom([]Rule{RuleASHA, RuleHyperband, RuleMedian}).Draw(t, "rule")
		s.Maximize = rapid.Bool().Draw(t, "max")
		s.Eta = rapid.IntRange(2, 5).Draw(t, "eta")
		values := rapid.SliceOfNDistinct(rapid.IntRange(0, 1000), 1, 40, rapid.ID).Draw(t, "values")
		var all []Trial
		for i, v := range values {
			all = append(all, seen(uint32(i), float64(v)))
		}
		on, of, best := map[int]int{}, map[int]int{}, map[int]Trial{}
		for _, x := range all {
			b := s.bracket(x.No)
			of[b]++
			if was, ok := best[b]; !ok || s.better(x.Seen.Best, was.Seen.Best) {
				best[b] = x
			}
			if s.Field(all).Verdict(x) == "" {
				on[b]++
			}
		}
		for b, x := range best {
			if why := s.Field(all).Verdict(x); why != "" {
				t.Fatalf("the best of bracket %d ends: %s", b, why)
			}
			if s.Rule != RuleMedian && of[b] >= s.Eta && on[b] != of[b]/s.Eta {
				t.Fatalf("of %d in bracket %d %d go on, with eta %d", of[b], b, on[b], s.Eta)
			}
		}
	})
}

// BenchmarkVerdicts judges a tenth of the largest study there can be.
func BenchmarkVerdicts(b *testing.B) {
	s := sweep()
	var all []Trial
	for n := range uint32(MaxTrials) {
		v := unit(uint64(n))
		all = append(all, seen(n, v, v, v, v))
	}
	for b.Loop() {
		f := s.Field(all)
		for _, t := range all[:MaxTrials/10] {
			f.Verdict(t)
		}
	}
}
