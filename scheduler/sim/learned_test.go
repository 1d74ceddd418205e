package sim_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/company"
	"github.com/berth-scheduler/berth/scheduler/sim"
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
		{"on another number of cards", []string{"a2c/2", "bert/1"}, (525*0.96 + 525*0.027) * 1.31 / 525}, {"nobody knows it", []string{"gpt2/1", "bert/1"}, 1},
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

// TestToldIsHeeded: programs that are known to slow each other down beyond the limit do
// not lie together, in a full pass as in a fast one; what is not known beforehand is
// found out once.
func TestToldIsHeeded(t *testing.T) {
	t.Parallel()
	world := slowdown.NewPairs("hand", slowdown.Free{})
	world.Set("", "a", "b", 0.5)
	w := &workload.Workload{}
	for i := range 12 {
		w.Jobs = append(w.Jobs, workload.Job{
			ID: fmt.Sprint(i), Model: []string{"a", "b"}[i%2], GPUs: 1, Milli: 300, UsedMilli: 300, MemMiB: 1000,
			Submit: time.Duration(i/2) * 10 * time.Hour, Duration: []time.Duration{time.Hour, 2 * time.Hour}[i%2],
		})
	}
	w.Jobs[1].Submit = 2 * time.Hour // the first is alone
	f := workload.Homogeneous(1, 1, "T4", 16000)
	for _, c := range []struct {
		name     string
		opt      sim.Options
		slowdown float64 // mean of the twelve; of a beside b it is 2
	}{
		{"nobody is told", sim.Options{}, 1 + 5.0/12},
		{"told", sim.Options{Know: slowdown.Learned(w, &f, world)}, 1},
		{"learned", sim.Options{Learn: true}, 1 + 1.0/12},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.opt.Planner, c.opt.World = sim.NewBerth(scheduler.ModeFFD, 0), world
			if r := simulate(t, w, f, c.opt); math.Abs(*r.MeanSlowdown-c.slowdown) > 1e-3 {
				t.Errorf("jobs took %.3f times as long as alone, want %.3f", *r.MeanSlowdown, c.slowdown)
			}
		})
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
