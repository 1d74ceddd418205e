package model

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/model/graph"
)

func onSome(p *Predictor, f Features, sig string, milli int64, gpus int) Prediction {
	return p.Predict(Request{Features: f, Signature: sig, GPUs: gpus, Declared: Declared{Seconds: 7}, Types: []TypeInfo{{Name: CoresType, CPUMilli: milli}}})[0]
}

// TestCoresByArithmetic: a step of ResNet-50 at batch 64 in FP32 is three times
// 2 × 4.1 GFLOPs × 64 products. Eight cores sustain 8 × 2.4e9 × 32 / 2 a second.
func TestCoresByArithmetic(t *testing.T) {
	t.Parallel()
	f := features(t, "resnet50", training64)
	q := onSome(newPredictor(t), f, "s", 8000, 1)
	compute := 3 * float64(f.FLOPs) / (8 * 2.4e9 * 32 * 0.5)
	moved := 3 * f.traffic() / 32e9
	if q.StepSeconds < compute+moved || q.StepSeconds > 1.1*(compute+moved) {
		t.Errorf("a step takes %.3f s, products alone %.3f s and traffic %.3f s", q.StepSeconds, compute, moved)
	}
	if math.Abs(q.Seconds-1000*q.StepSeconds) > 1e-6 || q.Confidence != 0.3 || q.Source != SourceCatalogue || q.PowerW != 48 || q.CPUMilli != 8000 {
		t.Errorf("predicted %+v", q)
	}
	if q.GPUMemMiB != 0 || q.GPUMemP95MiB != 0 || q.UtilMilli != 0 || !q.Fits {
		t.Errorf("takes of a GPU: %+v", q)
	}
	// Parameters, gradients and one state of 98 MiB each, and activations of
	// some GiB, lie in host memory.
	if saved, _, _ := f.kept(); float64(q.HostMemMiB) < saved+3*97 || q.HostMemMiB > 20_000 {
		t.Errorf("takes %d MiB of the host, keeps %.0f MiB for the way back", q.HostMemMiB, saved)
	}
	sum := int64(0)
	for _, part := range q.Parts {
		sum += part.MiB
	}
	if d := sum - q.HostMemMiB; d < 0 || d > int64(len(q.Parts)) {
		t.Errorf("the parts make %d MiB of %d", sum, q.HostMemMiB)
	}
}

func TestCoresKnowNothingByThemselves(t *testing.T) {
	t.Parallel()
	q := onSome(newPredictor(t), Features{}, "s", 4000, 1)
	if q.Seconds != 0 || q.HostMemMiB != 0 || q.Confidence != 0 || q.Source != SourceNone || q.PowerW != 24 {
		t.Errorf("predicted %+v; what was declared is about GPUs", q)
	}
}

func TestCoresLearn(t *testing.T) {
	t.Parallel()
	f := features(t, "resnet50", training64)
	cores := Sample{Signature: "s", GPUType: CoresType, Seconds: 500, Steps: 100, HostMiB: 10_000, CPUMilli: 7900}
	gpu := Sample{Signature: "s", GPUType: "T4", PeakMiB: 7000, UtilMilli: 900, Seconds: 40, Steps: 100, HostMiB: 3000}
	plain := newPredictor(t)
	t4 := []TypeInfo{{Name: "T4"}}
	for _, c := range []struct {
		name    string
		samples []Sample
		step    float64
		host    int64
		conf    float64
	}{
		{"one run", []Sample{cores}, 5, 13_000, 0.8},
		{"two runs", []Sample{cores, cores, gpu}, 5, 13_000, 0.9},
		{"one on a GPU", []Sample{gpu}, onSome(plain, f, "s", 8000, 1).StepSeconds * 0.4 / plain.Predict(Request{Features: f, Types: t4})[0].StepSeconds,
			onSome(plain, f, "s", 8000, 1).HostMemMiB, 0.4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			q := onSome(newPredictor(t, c.samples...), f, "s", 8000, 1)
			if math.Abs(q.StepSeconds/c.step-1) > 1e-6 || q.HostMemMiB != c.host || math.Abs(q.Confidence-c.conf) > 1e-9 || q.Source != SourceHistory {
				t.Errorf("predicted %+v, want %g s a step, %d MiB, confidence %g", q, c.step, c.host, c.conf)
			}
		})
	}
	was := plain.Predict(Request{Features: f, Signature: "s", Types: t4})[0]
	if got := newPredictor(t, cores).Predict(Request{Features: f, Signature: "s", Types: t4})[0]; got.Seconds != was.Seconds || got.GPUMemMiB != was.GPUMemMiB {
		t.Errorf("a run on cores changed what is predicted of a GPU: %+v, was %+v", got, was)
	}
	for _, target := range Targets() {
		if v, ok := target.Label(&cores); ok {
			t.Errorf("%s is learned from a run on cores: %g", target, v)
		}
	}
}

// TestCoresScale: more cores are never slower, more GPUs' work never takes less
// time or memory, and nothing is without bounds.
func TestCoresScale(t *testing.T) {
	t.Parallel()
	p := newPredictor(t)
	rapid.Check(t, func(t *rapid.T) {
		run := Run{Mode: Training, Batch: rapid.Int64Range(1, 512).Draw(t, "batch"), Steps: rapid.Int64Range(1, 1<<40).Draw(t, "steps"),
			Precision: rapid.SampledFrom(graph.Precisions()).Draw(t, "precision"), Optimizer: graph.Momentum}
		if rapid.Bool().Draw(t, "inference") {
			run.Mode, run.Optimizer = Inference, graph.OptimizerNone
		}
		f, err := FromCatalogue(rapid.SampledFrom([]string{"resnet50", "vgg16", "alexnet"}).Draw(t, "model"), run)
		if err != nil {
			t.Fatal(err)
		}
		few := rapid.Int64Range(1, 4_000_000).Draw(t, "cores")
		more := rapid.Int64Range(few, 4_096_000).Draw(t, "more")
		gpus := rapid.IntRange(1, 15).Draw(t, "gpus")
		a, b, c := onSome(p, f, "", few, gpus), onSome(p, f, "", more, gpus), onSome(p, f, "", few, gpus+1)
		if b.StepSeconds > a.StepSeconds || c.StepSeconds < a.StepSeconds || c.HostMemMiB < a.HostMemMiB || b.PowerW < a.PowerW {
			t.Fatalf("%d cores %+v, %d %+v, one GPU more %+v", few, a, more, b, c)
		}
		if !(a.Seconds > 0 && a.Seconds <= 1e12) || a.HostMemMiB <= 0 || math.IsInf(a.StepSeconds, 0) {
			t.Fatalf("out of bounds: %+v", a)
		}
	})
}
