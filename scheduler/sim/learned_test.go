package sim_test

import (
	"math"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/company"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// TestLearned: what is told of two programs is what the world makes of them,
// slowdowns of more add up, and of programs on other numbers of cards nothing
// is told.
func TestLearned(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	w := &workload.Workload{Jobs: []workload.Job{
		{ID: "a", GPUs: 1, Model: "bert", Iteration: 178 * ms, Stages: [3]int64{900, 3, 0}}, {ID: "b", GPUs: 1, Model: "a2c", Iteration: 517 * ms, Stages: [3]int64{27, 994, 0}},
		{ID: "c", GPUs: 2, Model: "a2c", Iteration: 525 * ms, Stages: [3]int64{27, 960, 1}}, {ID: "d", GPUs: 1},
	}}
	f := workload.Homogeneous(1, 4, "V100", 16<<10)
	know := slowdown.Learned(w, &f, slowdown.Interleaved{})
	gpu := &cluster.GPU{Type: "V100", CapMode: "sim"}
	// One period: max(0.5+514, 160+0) + max(1+14) of the stages, with the cost of two.
	period := (517*0.994 + 517*0.027) * 1.31
	for _, c := range []struct {
		name string
		sigs []string
		want float64 // of the first
	}{
		{"bert beside a2c", []string{"bert/1", "a2c/1"}, period / 178}, {"a2c beside bert", []string{"a2c/1", "bert/1"}, period / 517},
		{"bert beside two", []string{"bert/1", "a2c/1", "a2c/1"}, 2*period/178 - 1},
		{"another number of cards", []string{"a2c/2", "bert/1"}, 1}, {"nobody knows it", []string{"gpt2/1", "bert/1"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var set []company.Mate
			for i, s := range c.sigs {
				set = append(set, company.Mate{Job: cluster.JobID(i + 1), Signature: s})
			}
			got, known := company.Slowdowns(know, gpu, set, nil)
			if !known || math.Abs(got[0]/c.want-1) > 0.02 {
				t.Errorf("%v, known %t, want %.3f first", got, known, c.want)
			}
			pol := scheduler.Default()
			pol.MaxSlowdownMilli = 1500
			if want := got[0] <= 1.5 && got[1] <= 1.5 && (len(got) < 3 || got[2] <= 1.5); company.Bears(know, gpu, set[1:], set[0], &pol) != want {
				t.Errorf("slowdowns %.2f: may lie together is %t", got, !want)
			}
		})
	}
	if _, known := company.Slowdowns(know, &cluster.GPU{Type: "T4"}, nil, nil); known {
		t.Error("something is known of a card that nobody has")
	}
}

func TestInterleaved(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	a := slowdown.Load{Iteration: 100 * ms, Stages: [3]int64{900, 100, 0}}
	b := slowdown.Load{Iteration: 200 * ms, Stages: [3]int64{100, 900, 0}}
	for _, c := range []struct {
		name  string
		loads []slowdown.Load
		want  []float64
	}{
		{"one of each in a period", []slowdown.Load{a, b}, []float64{100 / (1.31 * 200), 200 / (1.31 * 200)}}, // 180 and 20 ms
		{"one is not known", []slowdown.Load{a, {}}, []float64{0.5, 0.5}},
		{"five take turns", []slowdown.Load{a, a, a, a, a}, []float64{0.2, 0.2, 0.2, 0.2, 0.2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := make([]float64, len(c.loads))
			slowdown.Interleaved{}.Speeds("", c.loads, got)
			for i := range got {
				if math.Abs(got[i]-c.want[i]) > 1e-9 {
					t.Errorf("speeds %v, want %v", got, c.want)
				}
			}
		})
	}
}
