package slowdown

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

var _ = draws.Fixed()

func speeds(w Interference, gpuType string, loads ...Load) []float64 {
	out := make([]float64, len(loads))
	w.Speeds(gpuType, loads, out)
	return out
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// TestSpeedsByHand: each model on a few cards, worked out from its definition.
func TestSpeedsByHand(t *testing.T) {
	t.Parallel()
	card := Load{Stages: [3]int64{800, 100, 100}}
	cores := Load{Stages: [3]int64{100, 800, 100}}
	net := Load{Stages: [3]int64{100, 100, 800}}
	pairs := NewPairs("a table", Linear{Beside: 1})
	pairs.Set("V100", "x", "y", 0.5)
	pairs.Set("", "x", "y", 0.8)
	pairs.Set("", "y", "x", 0.9)
	pairs.Set("", "x", "x", 1.2) // measured faster than alone
	pairs.Set("", "y", "y", 0.001)
	x, y, z := Load{Model: "x"}, Load{Model: "y"}, Load{Model: "z"}
	for _, c := range []struct {
		name    string
		world   Interference
		gpuType string
		loads   []Load
		want    []float64
	}{
		{"none", Free{}, "", []Load{{Milli: 900}, {Milli: 900}}, []float64{1, 1}},
		{"linear, two", Linear{Beside: 0.25}, "", make([]Load, 2), []float64{0.8, 0.8}},
		{"linear, five", Linear{Beside: 0.25}, "", make([]Load, 5), []float64{0.5, 0.5, 0.5, 0.5, 0.5}},
		{"a curve below the whole card", Curve{Beside: 0.25, Over: 3}, "", []Load{{Milli: 400}, {Milli: 600}}, []float64{0.8, 0.8}},
		{"and beyond it", Curve{Beside: 0, Over: 2}, "", []Load{{Milli: 750}, {Milli: 750}}, []float64{0.5, 0.5}},
		{"stages that fit beside each other", Stages{}, "", []Load{card, cores}, []float64{1, 1}},
		{"all three", Stages{}, "", []Load{card, cores, net}, []float64{1, 1, 1}},
		{"two that want the card", Stages{}, "", []Load{card, card}, []float64{1 / 1.6, 1 / 1.6}},
		{"two that want the network", Stages{}, "", []Load{net, net}, []float64{1 / 1.6, 1 / 1.6}},
		{"unknown stages take turns", Stages{}, "", make([]Load, 2), []float64{0.5, 0.5}},
		{"one of them known", Stages{}, "", []Load{{}, cores}, []float64{1 / 1.1, 1 / 1.1}},
		{"a pair on any card", pairs, "T4", []Load{x, y}, []float64{0.8, 0.9}},
		{"on its own card, however that is written", pairs, "v100", []Load{y, x}, []float64{0.9, 0.5}},
		{"none is faster than alone", pairs, "T4", []Load{x, x}, []float64{1, 1}},
		{"none stands still", pairs, "T4", []Load{y, y}, []float64{0.02, 0.02}},
		{"slowdowns of three multiply", pairs, "T4", []Load{y, x, x}, []float64{0.81, 0.8, 0.8}},
		{"what is not known goes by the other", pairs, "T4", []Load{x, z}, []float64{0.5, 0.5}},
		{"for whom it is not known", pairs, "T4", []Load{x, y, z}, []float64{1 / 3.0, 1 / 3.0, 1 / 3.0}},
		{"in whatever order they lie", pairs, "T4", []Load{x, z, y}, []float64{1 / 3.0, 1 / 3.0, 1 / 3.0}},
		{"turns where iterations are unknown", Interleaved{}, "", []Load{{Stages: [3]int64{1, 1, 1}}, {Iteration: time.Second}}, []float64{0.5, 0.5}},
		{"five take turns", Interleaved{}, "", slices.Repeat([]Load{{Iteration: time.Second, Stages: [3]int64{100, 100, 100}}}, 5), []float64{0.2, 0.2, 0.2, 0.2, 0.2}},
	} {
		got := speeds(c.world, c.gpuType, c.loads...)
		if !slices.EqualFunc(got, c.want, near) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if pairs.Len() != 5 {
		t.Errorf("%d pairs, want 5", pairs.Len())
	}
}

// TestSpeedsAreLaws: in every model a job runs faster than not at all and no faster than
// alone, the order of jobs plays no part, and one more on the card speeds up nobody.
// Where a card is said to do no more than a card's work, it does not.
func TestSpeedsAreLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pairs := NewPairs("drawn", Linear{Beside: 2})
		for _, a := range []string{"x", "y"} {
			for _, b := range []string{"x", "y"} {
				pairs.Set("", a, b, rapid.Float64Range(0, 1.2).Draw(t, "speed"))
			}
		}
		worlds := []Interference{Free{}, DefaultCurve(), Linear{Beside: rapid.Float64Range(0, 2).Draw(t, "beside")}, Stages{}, pairs,
			Curve{Beside: rapid.Float64Range(0, 1).Draw(t, "curve"), Over: rapid.Float64Range(0, 2).Draw(t, "over")}}
		var loads []Load
		for range rapid.IntRange(2, 5).Draw(t, "jobs") {
			loads = append(loads, Load{Milli: rapid.Int64Range(0, 1000).Draw(t, "milli"), Model: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "model"),
				Stages: [3]int64{rapid.Int64Range(0, 900).Draw(t, "card"), rapid.Int64Range(0, 900).Draw(t, "cores"), rapid.Int64Range(0, 900).Draw(t, "network")}})
		}
		back := slices.Clone(loads)
		slices.Reverse(back)
		for _, w := range worlds {
			got, other := speeds(w, "T4", loads...), speeds(w, "T4", back...)
			slices.Reverse(other)
			more := speeds(w, "T4", append(slices.Clone(loads), Load{Milli: 500, Model: "y", Stages: [3]int64{300, 300, 300}})...)
			work := 0.0
			for i, v := range got {
				work += v * float64(loads[i].Milli)
				if v <= 0 || v > 1 || !near(v, other[i]) || more[i] > v+1e-9 {
					t.Fatalf("%s: speeds %v, %v in other order, %v with one more", w.Name(), got, other, more)
				}
			}
			if w.CapsWork() && work > 1000+1e-6 {
				t.Fatalf("%s: the card does %f thousandths of its work", w.Name(), work)
			}
		}
	})
}

// TestLearnedBendsBack: the offset of a pair, put back into the bend, is the slowdown
// that the world gives the first beside the second.
func TestLearnedBendsBack(t *testing.T) {
	t.Parallel()
	world := NewPairs("hand", Linear{Beside: 0.5})
	world.Set("", "a", "b", 0.5)
	world.Set("", "b", "a", 0.8)
	w := &workload.Workload{Jobs: []workload.Job{
		{ID: "1", Model: "b", GPUs: 1}, {ID: "2", Model: "a", GPUs: 1}, {ID: "3", Model: "a", GPUs: 1}, {ID: "4", GPUs: 1}, {ID: "5", Model: "a", GPUs: 2},
	}}
	f := workload.Homogeneous(1, 2, "T4", 16000)
	know := Learned(w, &f, world)
	if len(know.Jobs) != 3 || len(know.Cards) != 1 || know.Cards[0].GPUType != "T4" {
		t.Fatalf("%+v", know)
	}
	id := func(sig string) uint64 { return know.Jobs[sig].Self }
	for _, c := range []struct {
		a, b string
		slow float64
	}{{"a/1", "b/1", 2}, {"b/1", "a/1", 1.25}, {"a/1", "a/1", 1.5}, {"a/2", "a/2", 1.5}, {"a/1", "a/2", 1.5}} {
		o, ok := know.Cards[0].Histories[[2]uint64{id(c.a), id(c.b)}]
		if got := (2 + o) / (2 - o); !ok || !near(got, c.slow) {
			t.Errorf("%s beside %s: %f times (%t), want %f", c.a, c.b, got, ok, c.slow)
		}
	}
	if got := offsetOf(0); got != mostBend {
		t.Errorf("who stands still has the offset %f, want %f", got, mostBend)
	}
}

// TestLoadOfByHand: what is true of a job, else what it declares, else a whole card.
func TestLoadOfByHand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		job  workload.Job
		want int64
	}{{workload.Job{UsedMilli: 300, Milli: 500}, 300}, {workload.Job{Milli: 500}, 500}, {workload.Job{}, 1000}} {
		if got := LoadOf(&c.job, "T4").Milli; got != c.want {
			t.Errorf("%+v: %d, want %d", c.job, got, c.want)
		}
	}
}
