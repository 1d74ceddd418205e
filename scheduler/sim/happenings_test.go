package sim_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// TestOutOfMemory: two jobs are predicted to fit beside each other and do not.
// The newer one ends after half a minute and runs again.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	job := func(id string, submit time.Duration) workload.Job {
		return workload.Job{ID: id, Submit: submit, Duration: hours(1), GPUs: 1, MemMiB: 9000, UsedMilli: 300}
	}
	w := &workload.Workload{Name: "oom", Jobs: []workload.Job{job("a", 0), job("b", time.Minute)}}
	f := workload.Homogeneous(1, 1, "T4", 16000)
	opt := sim.Options{World: slowdown.Free{}, OOMAfter: 30 * time.Second, Planner: halved{sim.NewBerth(scheduler.ModeFFD, 0)}}
	r := run(t, w, f, opt)
	if r.OOMs == 0 || r.Completed != 2 {
		t.Errorf("%d out-of-memories and %d completed, want some and 2", r.OOMs, r.Completed)
	}
	// Whoever is in the way at last runs alone: one hour after the other.
	near(t, "makespan", r.Makespan, 7200)
}

// TestFatalOutOfMemory: where nobody is told why, whoever runs out of memory is over, with
// the state machine and without.
func TestFatalOutOfMemory(t *testing.T) {
	t.Parallel()
	w := &workload.Workload{Name: "oom", Jobs: []workload.Job{
		{ID: "a", Duration: hours(1), GPUs: 1, MemMiB: 9000, UsedMilli: 300}, {ID: "b", Submit: time.Minute, Duration: hours(1), GPUs: 1, MemMiB: 9000, UsedMilli: 300},
	}}
	for _, log := range []bool{false, true} {
		r := run(t, w, workload.Homogeneous(1, 1, "T4", 16000), sim.Options{
			Log: log, World: slowdown.Free{}, OOMAfter: 30 * time.Second, OOMFatal: true, Planner: halved{sim.NewBerth(scheduler.ModeFFD, 0)},
		})
		if r.OOMs != 1 || r.Completed != 1 || r.Failed != 1 {
			t.Errorf("log %t: %d out-of-memories, %d completed, %d failed, want 1 each", log, r.OOMs, r.Completed, r.Failed)
		}
	}
}

// halved predicts half of the memory.
type halved struct{ sim.Berth }

func (h halved) Plan(snap *dispatch.Snapshot) dispatch.Plan {
	for i, j := range snap.Waiting {
		c := *j
		c.Estimates = append([]cluster.Estimate(nil), j.Estimates...)
		for k := range c.Estimates {
			c.Estimates[k].GPUMemMiB /= 2
			c.Estimates[k].GPUMemP95MiB = 0
		}
		snap.Waiting[i] = &c
	}
	return h.Berth.Plan(snap)
}

// TestPreemption: a short job takes the card of a long one, which goes on
// later and pays for it.
func TestPreemption(t *testing.T) {
	t.Parallel()
	p, err := policies.New("slot+srtf", policies.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &workload.Workload{Name: "srtf", Jobs: []workload.Job{
		{ID: "long", Duration: hours(10), GPUs: 1}, {ID: "short", Submit: hours(1), Duration: hours(0.1), GPUs: 1},
	}}
	f := workload.Homogeneous(1, 1, "T4", 16000)
	r := run(t, w, f, sim.Options{Planner: p, Preemptible: true, PreemptSmall: time.Minute})
	if r.Preemptions != 1 {
		t.Fatalf("%d preemptions, want 1", r.Preemptions)
	}
	near(t, "makespan", r.Makespan, 10.1*3600+60)
	near(t, "mean jct", r.MeanJCT, (10.1*3600+60+360)/2)
	r = run(t, w, f, sim.Options{Planner: p})
	if r.Preemptions != 0 {
		t.Errorf("%d preemptions where nobody may be preempted", r.Preemptions)
	}
}

// TestProfile: a minute alone is lost, then the job runs beside the other.
func TestProfile(t *testing.T) {
	t.Parallel()
	w := &workload.Workload{Name: "profile", Jobs: []workload.Job{{ID: "a", Duration: hours(1), GPUs: 1, MemMiB: 100, UsedMilli: 100}}}
	r := run(t, w, workload.Homogeneous(1, 1, "T4", 16000), sim.Options{Profile: time.Minute})
	near(t, "makespan", r.Makespan, 3660)
}

func TestNodeFailure(t *testing.T) {
	t.Parallel()
	w := &workload.Workload{Name: "failures", Jobs: []workload.Job{{ID: "a", Duration: hours(20), GPUs: 1}}}
	f := workload.Homogeneous(1, 1, "T4", 16000)
	none := run(t, w, f, sim.Options{MTBF: hours(3), Repair: time.Minute, Checkpoint: time.Minute, Seed: 3})
	if none.NodeFailures == 0 || none.Completed != 1 {
		t.Fatalf("%d failures, %d completed", none.NodeFailures, none.Completed)
	}
	// Each failure costs at most the minute since the checkpoint, and the wait.
	if lost := *none.Makespan - 20*3600; lost <= 0 || lost > float64(none.NodeFailures)*15*60 {
		t.Errorf("%d failures cost %g s", none.NodeFailures, lost)
	}
}

func TestEnergy(t *testing.T) {
	t.Parallel()
	w := &workload.Workload{Name: "energy", Jobs: []workload.Job{{ID: "a", Duration: hours(2), GPUs: 1, MemMiB: 1, UsedMilli: 500}}}
	f := workload.Homogeneous(1, 2, "T4", 16000)
	f.Nodes[0].IdleW, f.Nodes[0].MaxW = 20, 220
	r := run(t, w, f, sim.Options{})
	near(t, "energy", r.EnergyKWh, 2*(0.120+0.020)) // one half busy, one idle
}

func TestCancelledContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w := &workload.Workload{Jobs: []workload.Job{{ID: "a", Duration: hours(1), GPUs: 1}}}
	f := workload.Homogeneous(1, 1, "T4", 0)
	if _, err := sim.Run(ctx, w, &f, sim.Options{Planner: sim.NewBerth(scheduler.ModeFFD, 0)}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	ok := workload.Workload{Jobs: []workload.Job{{ID: "a", Duration: 1, GPUs: 1}}}
	fleet := workload.Homogeneous(1, 1, "T4", 0)
	p := sim.NewBerth(scheduler.ModeFFD, 0)
	for name, c := range map[string]struct {
		w workload.Workload
		f workload.Fleet
		o sim.Options
	}{
		"no planner":           {ok, fleet, sim.Options{}},
		"no nodes":             {ok, workload.Fleet{}, sim.Options{Planner: p}},
		"negative overhead":    {ok, fleet, sim.Options{Planner: p, Start: -1}},
		"breaks for ever":      {ok, fleet, sim.Options{Planner: p, MTBF: 1}},
		"profiles by log":      {ok, fleet, sim.Options{Planner: p, Log: true, Profile: 1}},
		"wild error":           {ok, fleet, sim.Options{Planner: p, Errors: sim.Errors{Mem: 9}}},
		"a job without length": {workload.Workload{Jobs: []workload.Job{{ID: "a"}}}, fleet, sim.Options{Planner: p}},
		"too many shares":      {ok, workload.Fleet{Nodes: fleet.Nodes, MaxShares: 1 << 20}, sim.Options{Planner: p}},
	} {
		if _, err := sim.Run(context.Background(), &c.w, &c.f, c.o); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
}

func TestPairs(t *testing.T) {
	t.Parallel()
	p := slowdown.NewPairs("test", slowdown.Free{})
	p.Set("T4", "a", "b", 0.5)
	p.Set("", "b", "a", 0.8)
	p.Set("", "a", "a", 0)
	got := make([]float64, 3)
	for _, c := range []struct {
		models []string
		want   []float64
	}{
		{[]string{"a", "b"}, []float64{0.5, 0.8}}, {[]string{"a", "x"}, []float64{1, 1}}, {[]string{"a", "b", "b"}, []float64{0.25, 1, 1}},
		{[]string{"a", "a"}, []float64{0.02, 0.02}},
	} {
		var loads []slowdown.Load
		for _, m := range c.models {
			loads = append(loads, slowdown.Load{Model: m})
		}
		p.Speeds("T4", loads, got[:len(loads)])
		for i := range c.want {
			if d := got[i] - c.want[i]; d > 1e-9 || d < -1e-9 {
				t.Errorf("%v: speed %d is %g, want %g", c.models, i, got[i], c.want[i])
			}
		}
	}
}

func TestStages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b [3]int64
		want float64
	}{
		{[3]int64{500, 500, 0}, [3]int64{500, 0, 500}, 1}, {[3]int64{900, 100, 0}, [3]int64{900, 100, 0}, 1 / 1.8}, {[3]int64{}, [3]int64{}, 0.5},
	} {
		out := make([]float64, 2)
		slowdown.Stages{}.Speeds("", []slowdown.Load{{Stages: c.a}, {Stages: c.b}}, out)
		if d := out[0] - c.want; d > 1e-9 || d < -1e-9 || out[0] != out[1] {
			t.Errorf("%v beside %v: speeds %v, want %g", c.a, c.b, out, c.want)
		}
	}
}
