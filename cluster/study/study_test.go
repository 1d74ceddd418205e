package study

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// sweep is a study that is right.
func sweep() *Study {
	return &Study{Metric: "loss", Rule: RuleASHA, First: 10, Eta: 3, Seed: 7, Space: []Axis{
		{Name: "lr", Kind: KindLog, Low: 1e-5, High: 0.1}, {Name: "drop", Kind: KindUniform, Low: -1, High: 0.5},
		{Name: "layers", Kind: KindInt, Low: 1, High: 8}, {Name: "opt", Kind: KindChoice, Values: []string{"sgd", "adam"}},
	}}
}

// TestWhatIsNoStudy: each fault is named with its place, and what is right is taken.
func TestWhatIsNoStudy(t *testing.T) {
	t.Parallel()
	if err := sweep().Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Study){
		"metric: is missing":        func(s *Study) { s.Metric = "" },
		`metric "a b"`:              func(s *Study) { s.Metric = "a b" },
		`stop "often"`:              func(s *Study) { s.Rule = "often" },
		"first 0":                   func(s *Study) { s.First = 0 },
		"first 1000000001":          func(s *Study) { s.First = maxFirst + 1 },
		"eta 1:":                    func(s *Study) { s.Eta = 1 },
		"eta 11:":                   func(s *Study) { s.Eta = 11 },
		"budget":                    func(s *Study) { s.Budget = -time.Second },
		"has no parameter":          func(s *Study) { s.Space = nil },
		"33 parameters":             func(s *Study) { s.Space = make([]Axis, 33) },
		"LR: is there twice":        func(s *Study) { s.Space[1].Name = "LR" },
		"1x: a parameter's name":    func(s *Study) { s.Space[0].Name = "1x" },
		"a-b: a parameter's name":   func(s *Study) { s.Space[0].Name = "a-b" },
		`kind "norm"`:               func(s *Study) { s.Space[0].Kind = "norm" },
		"log from 0: both":          func(s *Study) { s.Space[0].Low = 0 },
		"uniform from 0.5 to 0.5":   func(s *Study) { s.Space[1].Low = 0.5 },
		"uniform from NaN":          func(s *Study) { s.Space[1].Low = math.NaN() },
		"uniform from -1 to +Inf":   func(s *Study) { s.Space[1].High = math.Inf(1) },
		"int from 1 to 8.5":         func(s *Study) { s.Space[2].High = 8.5 },
		"has values and a range":    func(s *Study) { s.Space[2].Values = []string{"x"} },
		"opt: 0 values":             func(s *Study) { s.Space[3].Values = nil },
		"opt: 1001 values":          func(s *Study) { s.Space[3].Values = make([]string, 1001) },
		`value "a\nb"`:              func(s *Study) { s.Space[3].Values[0] = "a\nb" },
		"log: a grid needs a list":  func(s *Study) { s.Grid = true },
		"a grid takes at most 1000": func(s *Study) { s.Grid, s.Space = true, []Axis{{Name: "n", Kind: KindInt, Low: 0, High: 1000}} },
		"takes 54880 bytes":         func(s *Study) { s.Space[3].Values = slices.Repeat([]string{strings.Repeat("x", 256)}, 200) },
		"takes 64480 bytes": func(s *Study) {
			for i := range 4 {
				s.Space[i] = Axis{Name: fmt.Sprint("a", i), Kind: KindChoice, Values: make([]string, 1000)}
			}
		},
		`value "` + strings.Repeat("x", 64) + "...": func(s *Study) { s.Space[3].Values[0] = strings.Repeat("x", 257) },
	} {
		s := sweep()
		if change(s); s.Check() == nil || !strings.Contains(s.Check().Error(), want) {
			t.Errorf("%s: Check says %v", want, s.Check())
		}
	}
	none := sweep()
	none.Rule, none.Metric, none.First, none.Eta = RuleNone, "", 0, 0
	if err := none.Check(); err != nil {
		t.Errorf("trials that all run to their end: %v", err)
	}
}

// TestValuesAreInTheirSpace: every trial has one value of each axis, within its bounds,
// the same whenever it is asked, and other trials have others.
func TestValuesAreInTheirSpace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := sweep()
		s.Seed = rapid.Uint64().Draw(t, "seed")
		n := rapid.Uint32Range(0, MaxTrials-1).Draw(t, "trial")
		ps := s.Params(n)
		if !slices.Equal(ps, s.Params(n)) || len(ps) != len(s.Space) {
			t.Fatalf("%v and then %v", ps, s.Params(n))
		}
		for i, p := range ps {
			a := s.Space[i]
			v, err := strconv.ParseFloat(p.Value, 64)
			switch {
			case p.Name != a.Name:
				t.Fatalf("%v is not of %s", p, a.Name)
			case a.Kind == KindChoice && !slices.Contains(a.Values, p.Value):
				t.Fatalf("%v is none of %v", p, a.Values)
			case a.Kind == KindChoice:
			case err != nil || v < a.Low*(1-1e-5)-1e-5 && a.Kind != KindLog || v < a.Low*(1-1e-5) && a.Kind == KindLog || v > a.High*(1+1e-5):
				t.Fatalf("%v is outside %g to %g", p, a.Low, a.High)
			case a.Kind == KindInt && v != math.Trunc(v):
				t.Fatalf("%v is no whole number", p)
			}
		}
	})
	s, seen, low, both, layers := sweep(), map[string]bool{}, 0, 0, map[string]int{}
	for n := range uint32(1000) {
		ps := s.Params(n)
		seen[ps[0].Value+ps[1].Value] = true
		layers[ps[2].Value]++
		if v, _ := strconv.ParseFloat(ps[0].Value, 64); v < 1e-3 {
			low++
			if v, _ := strconv.ParseFloat(ps[1].Value, 64); v < -0.25 {
				both++
			}
		}
	}
	if len(seen) < 999 || low < 450 || low > 550 || both < 200 || both > 300 || len(layers) != 8 || layers["1"] < 90 || layers["8"] < 90 {
		t.Errorf("of 1000 trials %d differ, %d have lr below the middle of its logarithm, %d also drop below its own, and layers are %v", len(seen), low, both, layers)
	}
	other := sweep()
	if other.Seed = 8; slices.Equal(s.Params(0), other.Params(0)) {
		t.Error("another seed draws the same")
	}
}

// TestAGridHasEveryCombination once, the last parameter changing first.
func TestAGridHasEveryCombination(t *testing.T) {
	t.Parallel()
	s := &Study{Grid: true, Space: []Axis{{Name: "a", Kind: KindChoice, Values: []string{"x", "y"}}, {Name: "n", Kind: KindInt, Low: -1, High: 1}}}
	if err := s.Check(); err != nil || s.Combinations() != 6 {
		t.Fatalf("%d combinations, %v", s.Combinations(), err)
	}
	var got []string
	for n := range uint32(6) {
		ps := s.Params(n)
		got = append(got, ps[0].Value+ps[1].Value)
	}
	if want := []string{"x-1", "x0", "x1", "y-1", "y0", "y1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for range 5 {
		s.Space = append(s.Space, Axis{Name: fmt.Sprintf("m%d", len(s.Space)), Kind: KindInt, Low: 0, High: 999})
	}
	if n := s.Combinations(); n != MaxTrials+1 {
		t.Errorf("%d combinations, and there are more than may be", n)
	}
}

// TestACommandHasItsValues where it names parameters, and nowhere else.
func TestACommandHasItsValues(t *testing.T) {
	t.Parallel()
	s, command := sweep(), []string{"train", "--lr={lr}", "{lr}{opt}", "{other}", "{LR}", "{"}
	if n := s.Places(command); n != 3 {
		t.Errorf("%d places", n)
	}
	got := Fill(command, []Param{{"lr", "0.1"}, {"opt", "{lr}"}})
	if want := []string{"train", "--lr=0.1", "0.1{lr}", "{other}", "{LR}", "{"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAMetricAlone: a job that is no trial may have a metric, and nothing else of a study.
func TestAMetricAlone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]*Study{
		"loss": {Metric: "loss"}, "loss:min": {Metric: "loss"}, "val/acc:max": {Metric: "val/acc", Maximize: true}, "": nil, ":max": nil, "loss:up": nil, "a b": nil, "x:max:min": nil,
	} {
		s, err := ParseMetric(text)
		if (err == nil) != (want != nil) || want != nil && (s.Metric != want.Metric || s.Maximize != want.Maximize || s.Searches()) {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
	for name, change := range map[string]func(*Study){
		"rule": func(s *Study) { s.Rule, s.First, s.Eta = RuleASHA, 1, 3 }, "grid": func(s *Study) { s.Grid = true }, "budget": func(s *Study) { s.Budget = time.Hour },
	} {
		s := &Study{Metric: "loss"}
		if change(s); s.Check() == nil {
			t.Errorf("a metric with a %s and no space is taken", name)
		}
	}
	if !sweep().Searches() || (*Study)(nil).Searches() || (*Study)(nil).Bytes() != 0 {
		t.Error("what has a space is no search, or what is not there is one")
	}
	plain := &Study{Metric: "loss"}
	if got := plain.Saw(0, plain.Saw(0, nil, 3, Seen{Last: 2}), 5, Seen{Last: 4}); got.Best != 2 || got.BestStep != 3 || got.Last != 4 || len(got.Marks) != 0 {
		t.Errorf("it said %+v", got)
	}
}
