package model

import (
	"fmt"
	"math"
	"testing"
)

const floorType = "A100-SXM4-80GB"

// under are runs of small jobs of a user under a driver, each of a job of its own,
// which took so much more than the weights say.
func under(t *testing.T, driver string, first, n int, more int64) (out []Sample) {
	t.Helper()
	for i := range n {
		f := little(i)
		out = append(out, Sample{
			Seq: uint64(first + i), Signature: fmt.Sprint(driver, i), GPUType: floorType, Driver: driver, User: "ann", Features: f,
			PeakMiB: expects(t, nil, f, "").GPUMemMiB + more, Seconds: 60,
		})
	}
	return out
}

// little is the i-th network of those that take little more than their floor.
func little(i int) Features {
	f := alike(i, 0)
	f.SavedBytes = 300<<20 + int64(i)<<20
	return f
}

// expects returns what is expected of a job on nodes with the given drivers.
func expects(t *testing.T, runs []Sample, f Features, drivers string) Prediction {
	t.Helper()
	p, err := NewPredictor(DefaultWeights(), NewHistory(runs))
	if err != nil {
		t.Fatal(err)
	}
	return p.Predict(Request{Features: f, Types: []TypeInfo{{Name: floorType, Drivers: drivers}}})[0]
}

// TestFloorsOfDrivers: runs under one driver do not move the floor of another, and a new
// driver begins with that of the one before.
func TestFloorsOfDrivers(t *testing.T) {
	t.Parallel()
	f := little(100)
	built := expects(t, nil, f, "570.1").GPUMemMiB
	near := func(what string, got, want int64) {
		t.Helper()
		if d := got - want; max(d, -d) > 40 {
			t.Errorf("%s: %d MiB are expected, want %d", what, got, want)
		}
	}
	old := under(t, "570.1", 1, 16, 600)
	both := append(append([]Sample{}, old...), under(t, "580.1", 17, 16, -200)...)
	raised := built + 600*16/(16+floorPrior)
	near("under its runs' driver", expects(t, old, f, "570.1").GPUMemMiB, raised)
	near("under a driver without runs", expects(t, old, f, "580.1").GPUMemMiB, raised)
	near("under another framework", expects(t, old, withFramework(f, "jax"), "570.1").GPUMemMiB, expects(t, nil, withFramework(f, "jax"), "").GPUMemMiB)
	if got, want := expects(t, both, f, "570.1").GPUMemMiB, expects(t, old, f, "570.1").GPUMemMiB; got != want {
		t.Errorf("runs under the new driver moved the old one's from %d to %d MiB", want, got)
	}
	moved := raised - (raised-built+200)*16/(16+floorPrior)
	near("under the new driver, by its own runs", expects(t, both, f, "580.1").GPUMemMiB, moved)
	near("while nodes have either", expects(t, both, f, "570.1 580.1").GPUMemMiB, raised)
	q := expects(t, both, f, "570.1 580.1 590.1")
	if len(q.Floors) != 3 || q.Floors[0].Runs != 16 || q.Floors[1].Runs != 16 || q.Floors[2].Runs != 0 || q.Floors[2].MiB != q.Floors[1].MiB || q.Floors[0].MiB <= q.Floors[1].MiB {
		t.Errorf("floors are %+v", q.Floors)
	}
	sum := int64(0)
	for _, part := range q.Parts {
		sum += part.MiB
	}
	near("the parts together", sum, q.GPUMemMiB)
}

func withFramework(f Features, name string) Features {
	f.Framework = name
	return f
}

// TestFloorsAreAdded: what small runs take besides their tensors is added to the estimate of
// a large one and does not multiply it; runs that are large say nothing of the floor.
func TestFloorsAreAdded(t *testing.T) {
	t.Parallel()
	large := little(100)
	large.SavedBytes *= 20
	small := little(100)
	runs := under(t, "570.1", 1, 16, 600)
	more := func(f Features, runs []Sample) int64 {
		return expects(t, runs, f, "570.1").GPUMemMiB - expects(t, nil, f, "570.1").GPUMemMiB
	}
	if a, b := more(small, runs), more(large, runs); math.Abs(float64(a-b)) > 150 || a < 400 {
		t.Errorf("a small job is expected to take %d MiB more, a large one %d", a, b)
	}
	for i := range runs {
		runs[i].Features.SavedBytes *= 20
		runs[i].PeakMiB = 10 * runs[i].PeakMiB
	}
	if d := more(small, runs); d != 0 {
		t.Errorf("large runs moved the floor by %d MiB", d)
	}
}

// TestFloorsAreBounded: neither absurd runs nor one user's many move it beyond what contexts
// and libraries can take, and old drivers are forgotten.
func TestFloorsAreBounded(t *testing.T) {
	t.Parallel()
	f := little(100)
	var runs []Sample
	for i := range 12 {
		runs = append(runs, under(t, fmt.Sprint(500+i), 1+16*i, 16, 60000)...)
	}
	h := NewHistory(runs)
	for _, of := range h.floors {
		if len(of) != maxDrivers || of[0].driver != "511" {
			t.Errorf("%d drivers are kept, the newest %s", len(of), of[0].driver)
		}
	}
	q := expects(t, runs, f, "511")
	if len(q.Floors) != 1 {
		t.Fatalf("floors are %+v", q.Floors)
	}
	floor := int64(0)
	for _, part := range q.Parts {
		if part.Name == "context" || part.Name == "libraries" {
			floor += part.MiB
		}
	}
	if got := q.Floors[0].MiB; got > floorBound*floor || got < floorBound*(floor-3) {
		t.Errorf("the floor is %d MiB, of the weights' %d", got, floor)
	}
}

// TestRunsUnderAnotherDriver: a job that ran under the old driver is expected to take what
// the new driver's floor is more.
func TestRunsUnderAnotherDriver(t *testing.T) {
	t.Parallel()
	runs := append(under(t, "570.1", 1, 16, 0), under(t, "580.1", 17, 16, 600)...)
	p, err := NewPredictor(DefaultWeights(), NewHistory(runs))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(sig, drivers string) int64 {
		return p.Predict(Request{Features: runs[3].Features, Signature: sig, Types: []TypeInfo{{Name: floorType, Drivers: drivers}}})[0].GPUMemMiB
	}
	if was, now := ask("570.13", "570.1"), ask("570.13", "580.1"); was != runs[3].PeakMiB || now < was+400 || now > was+600 {
		t.Errorf("a run of %d MiB is expected to take %d under its driver and %d under the next", runs[3].PeakMiB, was, now)
	}
	if got := ask("580.13", "570.1"); got != runs[19].PeakMiB {
		t.Errorf("a run of %d MiB is expected to take %d under a driver with a lower floor", runs[19].PeakMiB, got)
	}
}
