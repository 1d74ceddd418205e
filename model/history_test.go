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
