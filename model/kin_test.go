package model

import "testing"

// TestKin: imported runs help where nothing better is known, and let a job
// share only when several took nearly the same.
func TestKin(t *testing.T) {
	t.Parallel()
	kin := KinSignature("1000", "train.sh", 1)
	run := func(gpu string, peak int64, seconds float64) Sample {
		return Sample{Signature: kin, GPUType: gpu, PeakMiB: peak, UtilMilli: 600, Seconds: seconds, HostMiB: 9000, CPUMilli: 3000}
	}
	for _, tc := range []struct {
		name    string
		samples []Sample
		known   bool // the model is
		own     bool // the job ran here
		want    Prediction
	}{
		{"steady", []Sample{run("T4", 4000, 100), run("T4", 4100, 110), run("T4", 4200, 120)}, false, false,
			Prediction{GPUMemMiB: 4200, Seconds: 110, HostMemMiB: 11700, CPUMilli: 3000, UtilMilli: 600, Confidence: confidenceKin, Source: SourceImported}},
		{"two are a hint", []Sample{run("T4", 4000, 100), run("T4", 4000, 100)}, false, false,
			Prediction{GPUMemMiB: 4000, Seconds: 100, HostMemMiB: 11700, CPUMilli: 3000, UtilMilli: 600, Confidence: confidenceKinHint, Source: SourceImported}},
		{"one that took more", []Sample{run("T4", 4000, 100), run("T4", 4000, 100), run("T4", 9000, 100)}, false, false,
			Prediction{GPUMemMiB: 9000, Seconds: 100, HostMemMiB: 11700, CPUMilli: 3000, UtilMilli: 600, Confidence: confidenceKinHint, Source: SourceImported}},
		{"memory was not measured", []Sample{run("T4", 0, 100), run("T4", 0, 100), run("T4", 0, 100)}, false, false,
			Prediction{GPUMemMiB: 15360, Seconds: 100, HostMemMiB: 11700, CPUMilli: 3000, UtilMilli: 1000, Source: SourceNone}},
		{"a run here counts more", []Sample{run("T4", 4000, 100), run("T4", 4000, 100), run("T4", 4000, 100)}, false, true,
			Prediction{GPUMemMiB: 7000, Seconds: 50, UtilMilli: 300, Confidence: 0.9, Source: SourceHistory}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			samples := tc.samples
			if tc.own {
				samples = append(samples, Sample{Signature: "own", GPUType: "T4", PeakMiB: 7000, UtilMilli: 300, Seconds: 50})
			}
			got := newPredictor(t, samples...).Predict(Request{Signature: "own", Kin: kin, Types: []TypeInfo{{Name: "T4", MemMiB: 15360}}})[0]
			w := tc.want
			if got.GPUMemMiB != w.GPUMemMiB || got.Seconds != w.Seconds || got.UtilMilli != w.UtilMilli || got.Confidence != w.Confidence || got.Source != w.Source {
				t.Errorf("got %+v,\nwant %+v", got, w)
			}
			if w.HostMemMiB > 0 && (got.HostMemMiB != w.HostMemMiB || got.CPUMilli != w.CPUMilli) {
				t.Errorf("host %d MiB, %d milli cores", got.HostMemMiB, got.CPUMilli)
			}
			if got.Source == SourceImported && got.GPUMemP95MiB <= got.GPUMemMiB {
				t.Errorf("no margin: %+v", got)
			}
		})
	}
	t.Run("a model is known", func(t *testing.T) {
		t.Parallel()
		f := features(t, "resnet50", training64)
		f.Steps = 0
		req := Request{Features: f, Signature: "own", Types: []TypeInfo{{Name: "T4", MemMiB: 15360}}}
		bare := newPredictor(t, run("T4", 4000, 100)).Predict(req)[0]
		req.Kin = kin
		got := newPredictor(t, run("T4", 4000, 100)).Predict(req)[0]
		if got.Source != bare.Source || got.GPUMemMiB != bare.GPUMemMiB || got.HostMemMiB != bare.HostMemMiB || got.Seconds != 100 {
			t.Errorf("got %+v,\nbare %+v", got, bare)
		}
	})
	t.Run("another type", func(t *testing.T) {
		t.Parallel()
		got := newPredictor(t, run("T4", 4000, 100)).Predict(Request{Kin: kin, Types: []TypeInfo{{Name: "H200", MemMiB: 143771}}})[0]
		if got.Source != SourceImported || got.Seconds >= 100 || got.Seconds <= 0 || got.GPUMemMiB < 4000 {
			t.Errorf("%+v", got)
		}
	})
	seen := map[string]bool{}
	for _, s := range []string{KinSignature("1", "a", 1), KinSignature("1", "a", 2), KinSignature("2", "a", 1), KinSignature("1", "b", 1), KinSignature("1a", "", 1)} {
		if seen[s] || len(s) != 32 {
			t.Errorf("%q: of two jobs", s)
		}
		seen[s] = true
	}
}
