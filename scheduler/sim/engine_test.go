package sim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/policies/order"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

var _ = draws.Fixed()

func run(t testing.TB, w *workload.Workload, f workload.Fleet, opt sim.Options) *sim.Result {
	t.Helper()
	if opt.Planner == nil {
		opt.Planner = sim.NewBerth(scheduler.ModeFFD, 0)
	}
	opt.Paranoid = true
	r, err := sim.Run(context.Background(), w, &f, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func near(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	if got == nil {
		t.Fatalf("%s is not known, want %g", what, want)
	}
	if d := *got - want; d > 1e-6*(1+want) || d < -1e-6*(1+want) {
		t.Errorf("%s: got %g, want %g", what, *got, want)
	}
}

func hours(n float64) time.Duration { return time.Duration(n * float64(time.Hour)) }

func TestTwoJobsOnOneCard(t *testing.T) {
	t.Parallel()
	w := &workload.Workload{Name: "two", Jobs: []workload.Job{
		{ID: "a", Duration: hours(1), GPUs: 1, MemMiB: 4000, UsedMilli: 400},
		{ID: "b", Duration: hours(1), GPUs: 1, MemMiB: 4000, UsedMilli: 400},
	}}
	f := workload.Homogeneous(1, 1, "T4", 16000)
	t.Run("sharing without interference", func(t *testing.T) {
		r := run(t, w, f, sim.Options{World: slowdown.Free{}})
		near(t, "makespan", r.Makespan, 3600)
		near(t, "allocation", r.AllocationPct, 80)
		near(t, "utilization", r.GPUUtilPct, 80)
		near(t, "memory", r.MemUtilPct, 50)
		near(t, "slowdown", r.MeanSlowdown, 1)
	})
	t.Run("sharing costs a tenth", func(t *testing.T) {
		r := run(t, w, f, sim.Options{World: slowdown.Linear{Beside: 0.1}})
		near(t, "makespan", r.Makespan, 3960)
		near(t, "slowdown", r.MeanSlowdown, 1.1)
	})
	t.Run("one after the other", func(t *testing.T) {
		r := run(t, w, f, sim.Options{Planner: sim.NewBerth(scheduler.ModeSlot, 0)})
		near(t, "makespan", r.Makespan, 7200)
		near(t, "mean jct", r.MeanJCT, 5400)
		near(t, "mean wait", r.MeanWait, 1800)
		near(t, "utilization", r.GPUUtilPct, 40)
		near(t, "allocation", r.AllocationPct, 100)
	})
	t.Run("start overhead", func(t *testing.T) {
		r := run(t, w, f, sim.Options{Planner: sim.NewBerth(scheduler.ModeSlot, 0), Start: time.Minute})
		near(t, "makespan", r.Makespan, 7320)
	})
}

// A neighbour that comes half way slows only the second half.
func TestSpeedChangesOnTheWay(t *testing.T) {
	t.Parallel()
	w := &workload.Workload{Name: "late", Jobs: []workload.Job{
		{ID: "a", Duration: hours(1), GPUs: 1, MemMiB: 1000, UsedMilli: 300},
		{ID: "b", Submit: hours(0.5), Duration: hours(1), GPUs: 1, MemMiB: 1000, UsedMilli: 300},
	}}
	r := run(t, w, workload.Homogeneous(1, 1, "T4", 16000), sim.Options{World: slowdown.Linear{Beside: 1}})
	// a: half an hour alone, the other half at half speed: ends at 1.5 h. b did
	// half by then and ends at 2 h.
	near(t, "makespan", r.Makespan, 7200)
	near(t, "mean jct", r.MeanJCT, (1.5+1.5)/2*3600)
}

func genWorkload(t *rapid.T) *workload.Workload {
	w := &workload.Workload{Name: "random"}
	n := rapid.IntRange(1, 40).Draw(t, "jobs")
	for i := range n {
		j := workload.Job{
			ID: fmt.Sprintf("j%d", i), Submit: time.Duration(rapid.IntRange(0, 7200).Draw(t, "submit")) * time.Second,
			Duration: time.Duration(rapid.IntRange(1, 7200).Draw(t, "duration")) * time.Second,
			GPUs:     rapid.SampledFrom([]int{0, 1, 1, 1, 1, 2, 4}).Draw(t, "gpus"),
		}
		if j.GPUs > 0 {
			j.MemMiB, j.UsedMilli = rapid.Int64Range(100, 12000).Draw(t, "mem"), rapid.Int64Range(50, 1000).Draw(t, "util")
		}
		w.Jobs = append(w.Jobs, j)
	}
	return w
}

func genOptions(t *rapid.T) sim.Options {
	opt := sim.Options{
		Seed: rapid.Uint64Range(0, 9).Draw(t, "seed"), Paranoid: true,
		Errors:    sim.Errors{Mem: rapid.SampledFrom([]float64{0, 0.3}).Draw(t, "mem error"), Util: rapid.SampledFrom([]float64{0, 0.3}).Draw(t, "util error")},
		PassEvery: time.Duration(rapid.SampledFrom([]int{0, 1, 60}).Draw(t, "pass every")) * time.Second,
		OOMAfter:  30 * time.Second, Start: time.Duration(rapid.IntRange(0, 10).Draw(t, "start")) * time.Second,
		CapMemory: rapid.Bool().Draw(t, "cap"),
		Planner:   sim.NewBerth(rapid.SampledFrom([]scheduler.Mode{scheduler.ModeFFD, scheduler.ModeSlot}).Draw(t, "mode"), 0),
	}
	if rapid.Bool().Draw(t, "breaks") {
		opt.MTBF, opt.Repair, opt.Checkpoint = 5*time.Hour, 10*time.Minute, 5*time.Minute
	}
	return opt
}

// TestLaws holds for whatever workload: every job ends once, nothing is
// faster than alone, no bound is beaten, the ledger always balances, and the
// order of the rows plays no part.
func TestLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, opt := genWorkload(t), genOptions(t)
		f := workload.Homogeneous(2, 4, "T4", 16000)
		r, err := sim.Run(context.Background(), w, &f, opt)
		if err != nil {
			t.Fatal(err)
		}
		if r.Completed+r.Failed+r.Unplaced != len(w.Jobs) {
			t.Fatalf("%d jobs completed, %d failed and %d did not run, of %d", r.Completed, r.Failed, r.Unplaced, len(w.Jobs))
		}
		if r.Failed > r.OOMs {
			t.Fatalf("%d jobs failed with %d out-of-memories and nothing else to fail by", r.Failed, r.OOMs)
		}
		if r.MeanSlowdown != nil && *r.MeanSlowdown < 1-1e-6 {
			t.Fatalf("mean slowdown %g is below 1", *r.MeanSlowdown)
		}
		if r.Completed == len(w.Jobs) && *r.Makespan < *r.LowerBoundMakespan-1e-3 {
			t.Fatalf("makespan %g beats the bound %g", *r.Makespan, *r.LowerBoundMakespan)
		}
		mixed := &workload.Workload{Name: w.Name, Jobs: rapid.Permutation(w.Jobs).Draw(t, "order")}
		again, err := sim.Run(context.Background(), mixed, &f, opt)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(asJSON(t, r), asJSON(t, again)); d != "" {
			t.Fatalf("another order of rows gave another result (-first +permuted):\n%s", d)
		}
	})
}

func asJSON(t rapid.TB, v any) string {
	raw, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestStoresAgree runs the same with the replicated state machine and with
// the stand-in: both must come to the same schedule, also where a policy
// preempts.
func TestStoresAgree(t *testing.T) {
	t.Parallel()
	var preempted atomic.Int64
	defer func() {
		if preempted.Load() == 0 {
			t.Error("no policy ever preempted anybody")
		}
	}()
	rapid.Check(t, func(t *rapid.T) {
		w, opt := genWorkload(t), genOptions(t)
		if name := rapid.SampledFrom([]string{"", "slot+srtf", "firstfit+las", "slot+themis", "reactive"}).Draw(t, "preempts"); name != "" {
			p, err := policies.New(name, policies.Options{LAS: order.LAS{Limits: []time.Duration{20 * time.Minute}, Promote: order.PromoteAfter}})
			if err != nil {
				t.Fatal(err)
			}
			opt.Planner, opt.Preemptible, opt.PreemptSmall = p, true, 40*time.Second
		}
		f := workload.Homogeneous(2, 4, "T4", 16000)
		if rapid.Bool().Draw(t, "two types") { // on the smaller of which many run out of memory
			f = small()
		}
		opt.Declare = rapid.Bool().Draw(t, "declare")
		var got []string
		for _, log := range []bool{false, true} {
			opt.Log = log
			r, err := sim.Run(context.Background(), w, &f, opt)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, asJSON(t, r))
			preempted.Add(int64(r.Preemptions))
		}
		if d := cmp.Diff(got[0], got[1]); d != "" {
			t.Fatalf("the state machine and its stand-in disagree (-stand-in +log):\n%s", d)
		}
	})
}

// small has cards of 7 GiB, and larger ones.
func small() workload.Fleet {
	return workload.Fleet{Name: "two types", Nodes: []workload.NodeSpec{
		{Count: 2, GPUs: 4, GPUType: "T4", MemMiB: 7000}, {Count: 1, GPUs: 4, GPUType: "V100", MemMiB: 32000},
	}}
}

// TestTooLargeForAWholeCard: whom the smaller card is too small for, against
// all prediction, gets a larger one, with the state machine and without.
func TestTooLargeForAWholeCard(t *testing.T) {
	t.Parallel()
	w := &workload.Workload{Name: "large"}
	for i := range 300 {
		w.Jobs = append(w.Jobs, workload.Job{ID: fmt.Sprintf("j%d", i), Submit: time.Duration(i) * time.Minute, Duration: hours(0.1), GPUs: 1, MemMiB: 7200, UsedMilli: 500})
	}
	for _, log := range []bool{false, true} {
		r := run(t, w, small(), sim.Options{
			Log: log, Seed: 3, Planner: sim.NewBerth(scheduler.ModeSlot, 0), Errors: sim.Errors{Mem: 0.3}, OOMAfter: 30 * time.Second, Paranoid: true,
		})
		if r.OOMs == 0 || r.Completed != len(w.Jobs) || r.Failed > 0 {
			t.Errorf("log %t: %d ran out of memory, %d completed and %d failed of %d", log, r.OOMs, r.Completed, r.Failed, len(w.Jobs))
		}
	}
}

func TestWiderThanANode(t *testing.T) {
	t.Parallel()
	w := &workload.Workload{Name: "wide", Jobs: []workload.Job{{ID: "w", Duration: hours(1), GPUs: 9}}}
	f := workload.Homogeneous(2, 8, "T4", 16000)
	r := run(t, w, f, sim.Options{})
	if r.Unplaced != 1 || r.Completed != 0 {
		t.Fatalf("a job of 9 GPUs on nodes of 8: %d unplaced, %d completed", r.Unplaced, r.Completed)
	}
	f.Pool = true
	r = run(t, w, f, sim.Options{})
	near(t, "makespan in a pool", r.Makespan, 3600)
}

func TestRunsAreSlicesOfTheWorkload(t *testing.T) {
	t.Parallel()
	w := &workload.Workload{Name: "x", Jobs: []workload.Job{{ID: "b", Submit: hours(1), Duration: hours(1), GPUs: 1}, {ID: "a", Duration: hours(1), GPUs: 1}}}
	before := slices.Clone(w.Jobs)
	run(t, w, workload.Homogeneous(1, 1, "T4", 16000), sim.Options{})
	if d := cmp.Diff(before, w.Jobs); d != "" {
		t.Errorf("a run changed its workload:\n%s", d)
	}
}

// TestZoomChangesNothing holds the schedule that comes of looking at few cards
// against that of looking at all.
func TestZoomChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, opt := genWorkload(t), genOptions(t)
		opt.MTBF, opt.Repair, opt.PassEvery = 0, 0, 0
		for i := range w.Jobs { // most come alone, and queues are short
			w.Jobs[i].Submit += time.Duration(i) * hours(rapid.SampledFrom([]float64{0.01, 0.2}).Draw(t, "gap"))
		}
		f := workload.Fleet{Name: "two types", Nodes: []workload.NodeSpec{
			{Count: 2, GPUs: 4, GPUType: "T4", MemMiB: 16000, CPUMilli: rapid.SampledFrom([]int64{0, 6000}).Draw(t, "cpu")}, {Count: 1, GPUs: 2, GPUType: "A10", MemMiB: 24000},
		}}
		var got []string
		for _, all := range []bool{false, true} {
			opt.NoZoom = all
			r, err := sim.Run(context.Background(), w, &f, opt)
			if err != nil {
				t.Fatal(err)
			}
			r.Passes, r.Events = 0, 0
			got = append(got, asJSON(t, r))
		}
		if d := cmp.Diff(got[0], got[1]); d != "" {
			t.Fatalf("looking at few cards changed the schedule (-few +all):\n%s", d)
		}
	})
}
