package sim_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

func TestFillByHand(t *testing.T) {
	t.Parallel()
	// Two cards; halves only, wanted twice over: four of eight fit, and nothing
	// is idle.
	w := &workload.Workload{Name: "halves"}
	for i := range 3 {
		w.Jobs = append(w.Jobs, workload.Job{ID: fmt.Sprintf("h%d", i), Duration: hours(1), GPUs: 1, Milli: 500})
	}
	f := workload.Homogeneous(1, 2, "T4", 16000)
	r, err := sim.Fill(context.Background(), w, &f, sim.FillOptions{Planner: sim.NewBerth(scheduler.ModeFFD, 0), Demand: 4})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "allocation", r.AllocationPct, 100)
	if r.Jobs != 16 || *r.RejectedPods != 12 {
		t.Errorf("%d jobs came and %d were turned away, want 16 and 12", r.Jobs, *r.RejectedPods)
	}
	// Shares of 600: one a card, and what is left is of use to nobody.
	for i := range w.Jobs {
		w.Jobs[i].Milli = 600
	}
	r, err = sim.Fill(context.Background(), w, &f, sim.FillOptions{Planner: sim.NewBerth(scheduler.ModeFFD, 0), Demand: 2})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "allocation", r.AllocationPct, 60)
	near(t, "fragmentation", r.FragmentationPct, 100)
}

func TestFillRefuses(t *testing.T) {
	t.Parallel()
	f := workload.Homogeneous(1, 1, "T4", 0)
	w := &workload.Workload{Jobs: []workload.Job{{ID: "a", Duration: 1, GPUs: 1}}}
	p := sim.NewBerth(scheduler.ModeFFD, 0)
	for name, c := range map[string]struct {
		w *workload.Workload
		o sim.FillOptions
	}{
		"no planner": {w, sim.FillOptions{Demand: 1}},
		"no demand":  {w, sim.FillOptions{Planner: p}},
		"no jobs":    {&workload.Workload{}, sim.FillOptions{Planner: p, Demand: 1}},
	} {
		if _, err := sim.Fill(context.Background(), c.w, &f, c.o); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
}

// TestFillZoomChangesNothing holds the packing that comes of looking at few
// cards against that of looking at all, and both against what a cluster can
// hold.
func TestFillZoomChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &workload.Workload{Name: "random"}
		for i := range rapid.IntRange(1, 30).Draw(t, "jobs") {
			j := workload.Job{ID: fmt.Sprintf("j%d", i), Duration: hours(1), GPUs: rapid.SampledFrom([]int{0, 1, 1, 1, 2, 8}).Draw(t, "gpus")}
			j.CPUMilli, j.HostMemMiB = rapid.Int64Range(100, 8000).Draw(t, "cpu"), rapid.Int64Range(1, 8000).Draw(t, "mem")
			if j.GPUs > 0 {
				j.Milli = 1000
			}
			if j.GPUs == 1 {
				j.Milli = rapid.SampledFrom([]int64{100, 330, 500, 700, 1000}).Draw(t, "milli")
				j.Types = rapid.SampledFrom([][]string{nil, {"A"}, {"A", "B"}}).Draw(t, "types")
			}
			w.Jobs = append(w.Jobs, j)
		}
		cores := rapid.SampledFrom([]int64{0, 16000}).Draw(t, "cores")
		f := workload.Fleet{Name: "two", MaxShares: 8, Nodes: []workload.NodeSpec{
			{Count: 2, GPUs: 2, GPUType: "A", CPUMilli: cores}, {Count: 1, GPUs: 8, GPUType: "B", CPUMilli: 2 * cores},
		}}
		demand := rapid.SampledFrom([]float64{0.5, 1, 2}).Draw(t, "demand")
		var got []string
		for _, all := range []bool{false, true} {
			r, err := sim.Fill(context.Background(), w, &f, sim.FillOptions{
				Planner: sim.NewBerth(scheduler.ModeFFD, 8), Seed: 7, Demand: demand, NoZoom: all,
			})
			if err != nil {
				t.Fatal(err)
			}
			if *r.AllocationPct > 100 {
				t.Fatalf("%g %% of the cards were given away", *r.AllocationPct)
			}
			got = append(got, asJSON(t, r))
		}
		if d := cmp.Diff(got[0], got[1]); d != "" {
			t.Fatalf("looking at few cards changed the packing (-few +all):\n%s", d)
		}
	})
}
