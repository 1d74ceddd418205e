package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// captured is a cluster of one node with a job that ended, one that runs, one
// that waits and one that never ran.
func captured() Capture {
	at := func(h float64) *time.Time {
		x := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(h * float64(time.Hour)))
		return &x
	}
	say := []Forecast{{GPUType: "T4", GPUMemMiB: 3000, GPUMemP95MiB: 3500, GPUUtilMilli: 400, Seconds: 1800, ConfidenceMilli: 900, Source: "history"}}
	return Capture{
		Format: CaptureFormat, Cluster: "c", Taken: *at(10),
		Nodes: []CaptureNode{
			{ID: "n1", CPUMilli: 8000, MemMiB: 1000, GPUs: []CaptureGPU{{Type: "T4", MemMiB: 15360, SellableMiB: 15000, MaxShares: 2}}},
			{ID: "n2", CPUMilli: 8000, MemMiB: 1000, GPUs: []CaptureGPU{{Type: "T4", MemMiB: 15360, SellableMiB: 15000, MaxShares: 2}}},
		},
		Jobs: []CaptureJob{
			{ID: 1, User: "ann", Finished: true, GPUs: 1, Submitted: at(1), FirstStart: at(2), Started: at(3), Ended: at(4), RanOn: "T4", Predictions: say, Measured: &Measured{2900, 380, 3500}},
			{ID: 2, User: "bob", GPUs: 1, Submitted: at(8), Started: at(9), RanOn: "T4", Predictions: say},
			{ID: 3, User: "bob", GPUs: 1, Submitted: at(9), Exclusive: true, GPUType: "T4", Predictions: say},
			{ID: 4, User: "bob", Finished: true, GPUs: 1, Submitted: at(9), Ended: at(9.5)},
			{ID: 5, User: "bob", Finished: true, GPUs: -1, Submitted: at(9), Started: at(9), Ended: at(9.5)},
		},
	}
}

func TestCapture(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(captured())
	if err != nil {
		t.Fatal(err)
	}
	c, err := ReadCapture(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	w, actual, rep, err := c.Workload(CaptureOptions{})
	if err != nil {
		t.Fatal(err)
	}
	say := []cluster.Estimate{{GPUType: "T4", GPUMemMiB: 3000, GPUMemP95MiB: 3500, Milli: 400, Duration: 1800 * sec, ConfidenceMilli: 900, Source: "history"}}
	want := []workload.Job{
		{ID: "1", User: "ann", GPUs: 1, Duration: 3500 * sec, MemMiB: 2900, UsedMilli: 380, Predicted: say, Row: 1},
		{ID: "2", User: "bob", GPUs: 1, Submit: 7 * time.Hour, Duration: time.Hour, MemMiB: 3000, UsedMilli: 400, Predicted: say, Row: 2}, // has run longer than predicted
		{ID: "3", User: "bob", GPUs: 1, Submit: 8 * time.Hour, Duration: 1800 * sec, MemMiB: 3000, UsedMilli: 400, Milli: 1000, Types: []string{"T4"}, Predicted: say, Row: 3},
	}
	if d := cmp.Diff(want, w.Jobs); d != "" {
		t.Errorf("jobs (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]Actual{{0, time.Hour, 3 * time.Hour, nil}}, actual); d != "" {
		t.Errorf("what happened (-want +got):\n%s", d)
	}
	if rep.Rows != 5 || rep.Skipped != 2 || rep.Bad[1].Row != 5 {
		t.Errorf("report %+v", rep)
	}
	f := c.Fleet()
	if d := cmp.Diff([]workload.NodeSpec{{Count: 2, GPUs: 1, GPUType: "T4", MemMiB: 15360, CPUMilli: 8000, HostMemMiB: 1000, MaxShares: 2}}, f.Nodes); d != "" || f.ReservedMiB != 360 {
		t.Errorf("fleet, %d MiB reserved (-want +got):\n%s", f.ReservedMiB, d)
	}
	if _, _, _, err := c.Workload(CaptureOptions{Strict: true}); err == nil || !strings.Contains(err.Error(), "jobs[4]") {
		t.Errorf("strict: got %v", err)
	}
	if w, _, _, err := c.Workload(CaptureOptions{Last: 7 * time.Hour}); err != nil || len(w.Jobs) != 1 || w.Jobs[0].ID != "1" {
		t.Errorf("the last hours: %v", err)
	}
	if _, _, _, err := c.Workload(CaptureOptions{Last: time.Hour}); err == nil || !strings.Contains(err.Error(), "ran in the time asked for") {
		t.Errorf("nothing ran in the last hour: got %v", err)
	}
}

// TestPredictions: a run of captured jobs goes by what was predicted then.
func TestPredictions(t *testing.T) {
	t.Parallel()
	c := captured()
	c.Jobs[0].Predictions[0].GPUMemMiB, c.Jobs[0].Predictions[0].GPUMemP95MiB = 20_000, 20_000 // more than any card
	w, _, _, err := c.Workload(CaptureOptions{Last: 7 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	f := c.Fleet()
	r, err := sim.Run(context.Background(), w, &f, sim.Options{Planner: sim.NewBerth(scheduler.ModeFFD, 0), Paranoid: true})
	if err != nil || r.Completed != 0 {
		t.Errorf("%d jobs completed, %v; want none, as the prediction vetoes all cards", r.Completed, err)
	}
}

func FuzzCapture(f *testing.F) {
	raw, err := json.Marshal(captured())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"format":"berth-capture/1","taken":"2026-01-01T00:00:00Z","jobs":[{"id":1,"gpus":1,"submitted":"2200-01-01T00:00:00Z"}]}`))
	f.Add([]byte(`{"format":"berth-capture/1","taken":"2026-01-01T00:00:00Z","nodes":[{"gpus":[{"mem_mib":9}]}]}{}`))
	f.Add([]byte{0x1f, 0x8b, 8})
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ReadCapture(bytes.NewReader(data))
		if err != nil {
			return
		}
		fleet := c.Fleet()
		if fleet.GPUs() > 0 {
			if err := fleet.Check(); err != nil {
				t.Fatalf("a fleet came out that no simulation takes: %v", err)
			}
		}
		for _, o := range []CaptureOptions{{}, {Last: time.Hour}, {Strict: true}} {
			w, actual, _, err := c.Workload(o)
			if err != nil {
				continue
			}
			if err := w.Check(); err != nil {
				t.Fatalf("a job came out that no simulation takes: %v", err)
			}
			if len(actual) > len(w.Jobs) {
				t.Fatalf("%d jobs happened, of %d", len(actual), len(w.Jobs))
			}
		}
	})
}
