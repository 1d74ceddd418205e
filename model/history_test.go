package model

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	var samples []Sample
	for i := range MaxSignatures + 100 {
		samples = append(samples, Sample{Signature: fmt.Sprint(i), GPUType: "T4", PeakMiB: 1000})
	}
	h := NewHistory(samples)
	if h.Jobs() != MaxSignatures {
		t.Fatalf("%d jobs kept, want %d", h.Jobs(), MaxSignatures)
	}
	if o, _ := h.find("0", "T4"); o != nil {
		t.Error("the oldest job is still known")
	}
	if o, _ := h.find(fmt.Sprint(MaxSignatures+99), "T4"); o == nil {
		t.Error("the newest job is not known")
	}
}

func TestHistoryForgetsOldRuns(t *testing.T) {
	t.Parallel()
	samples := []Sample{{Signature: "a", GPUType: "T4", PeakMiB: 9000}}
	for range maxRunsPerEntry {
		samples = append(samples, Sample{Signature: "a", GPUType: "T4", PeakMiB: 1000})
	}
	if o, _ := NewHistory(samples).find("a", "T4"); o == nil || o.peakMiB != 1000 || o.runs != maxRunsPerEntry {
		t.Fatalf("%+v: want the last %d runs only", o, maxRunsPerEntry)
	}
}

func TestHistoryIsDeterministic(t *testing.T) {
	t.Parallel()
	var samples []Sample
	for i := range 500 {
		samples = append(samples, Sample{
			Signature: fmt.Sprint(i % 7), GPUType: []string{"T4", "H200", "L4"}[i%3], PeakMiB: int64(i), Seconds: float64(i) / 3, Steps: int64(i % 2),
		})
	}
	a, b := NewHistory(samples), NewHistory(samples)
	if d := cmp.Diff(a.jobs, b.jobs, cmp.AllowUnexported(observed{}, mean{})); d != "" {
		t.Fatal(d)
	}
}

func TestTimeFollowsSteps(t *testing.T) {
	t.Parallel()
	p := newPredictor(t, Sample{Signature: "a", GPUType: "T4", PeakMiB: 1000, Seconds: 100, Steps: 50})
	f := Features{Run: Run{Steps: 200}}
	if got := p.Predict(Request{Features: f, Signature: "a", Types: []TypeInfo{{Name: "T4"}}})[0]; got.Seconds != 400 || got.StepSeconds != 2 {
		t.Fatalf("%+v: want 400 s, 2 s a step", got)
	}
	fast := p.Predict(Request{Features: f, Signature: "a", Types: []TypeInfo{{Name: "H200"}}})[0]
	if fast.Seconds <= 0 || fast.Seconds >= 400 || fast.Source != SourceHistory {
		t.Fatalf("%+v: a faster card must take less than 400 s", fast)
	}
}

// TestPowerIsThatOfRunsAlone: what a card drew while others were on it too says
// little of the job.
func TestPowerIsThatOfRunsAlone(t *testing.T) {
	t.Parallel()
	run := func(gpu string, watts int64, neighbours int) Sample {
		return Sample{Signature: "s", GPUType: gpu, PeakMiB: 1000, UtilMilli: 500, PowerW: watts, Neighbours: neighbours}
	}
	physics := func(gpu string) int64 {
		p, err := NewPredictor(DefaultWeights(), NewHistory([]Sample{run(gpu, 0, 0)}))
		if err != nil {
			t.Fatal(err)
		}
		return p.Predict(Request{Signature: "s", Types: []TypeInfo{{Name: gpu}}})[0].PowerW
	}
	for _, tc := range []struct {
		name    string
		samples []Sample
		want    int64
	}{
		{"nobody measured it", []Sample{run("T4", 0, 0)}, physics("T4")},
		{"the mean", []Sample{run("T4", 40, 0), run("T4", 61, 0)}, 51},
		{"shared runs do not count", []Sample{run("T4", 40, 0), run("T4", 70, 2)}, 40},
		{"only shared runs", []Sample{run("T4", 70, 2)}, physics("T4")},
		{"another type", []Sample{run("A100-SXM4-80GB", 300, 0)}, physics("T4")},
	} {
		p, err := NewPredictor(DefaultWeights(), NewHistory(tc.samples))
		if err != nil {
			t.Fatal(err)
		}
		got := p.Predict(Request{Signature: "s", Types: []TypeInfo{{Name: "T4"}}})[0].PowerW
		if tc.name == "another type" { // by the utilization there
			if got == 300 {
				t.Errorf("%s: %d W", tc.name, got)
			}
			continue
		}
		if got != tc.want {
			t.Errorf("%s: %d W, want %d", tc.name, got, tc.want)
		}
	}
}
