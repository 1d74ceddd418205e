package model

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/model/gpuspec"
	"github.com/berth-scheduler/berth/model/graph"
)

func newPredictor(t testing.TB, samples ...Sample) *Predictor {
	t.Helper()
	p, err := NewPredictor(CoreWeights(), NewHistory(samples))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func features(t testing.TB, name string, run Run) Features {
	t.Helper()
	f, err := FromCatalogue(name, run)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

var training64 = Run{Mode: Training, Batch: 64, Steps: 1000, Precision: graph.FP32, Optimizer: graph.Momentum}

func TestNobodyKnowsMeansTheWholeCard(t *testing.T) {
	t.Parallel()
	got := newPredictor(t).Predict(Request{Types: []TypeInfo{{Name: "T4", MemMiB: 15000}}})
	want := []Prediction{{
		GPUType: "T4", GPUMemMiB: 15000, GPUMemP95MiB: 15000, Fits: true, UtilMilli: 1000,
		HostMemMiB: 2560, CPUMilli: 1000, PowerW: 63, Source: SourceNone,
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("(-want +got)\n%s", d)
	}
}

// TestHostOutOfMemoryRaisesTheNext: what was too little of the host's memory is a lower
// bound on every type of GPU, sure enough to be reserved, until a run came to its end
// with more; of the GPU it says nothing.
func TestHostOutOfMemoryRaisesTheNext(t *testing.T) {
	t.Parallel()
	oom := Sample{Signature: "s", GPUType: "T4", HostMiB: 8000, Censored: true, HostCensored: true}
	predict := func(gpu string, samples ...Sample) Prediction {
		return newPredictor(t, samples...).Predict(Request{Signature: "s", Types: []TypeInfo{{Name: gpu, MemMiB: 15_000}}})[0]
	}
	for _, gpu := range []string{"T4", "A100-SXM4-80GB"} {
		if q := predict(gpu, oom); q.HostMemMiB != 10_000 || q.HostConfidence != confidenceCensored || q.Source != SourceNone || q.GPUMemMiB != 15_000 {
			t.Errorf("%s: %+v, want 1.25 times the cap of the host and nothing of the GPU", gpu, q)
		}
	}
	least := oom
	least.HostMiB = 2048 // what is guessed of any job is 1.25 times that
	if q := predict("T4", least); q.HostMemMiB != 2560 || q.HostConfidence != confidenceCensored {
		t.Errorf("no more than the guess: %+v, want it to count all the same", q)
	}
	if q := predict("T4", oom, Sample{Signature: "s", GPUType: "T4", PeakMiB: 500, HostMiB: 12_000}); q.HostMemMiB != 15_600 || q.HostConfidence < 0.9 {
		t.Errorf("after a run that ended: %+v, want 1.3 times what it took", q)
	}
}

// TestHostIsAtMostTheNodes: a host is never asked for more than the largest node
// has, so that a prediction keeps no job from all of them.
func TestHostIsAtMostTheNodes(t *testing.T) {
	t.Parallel()
	run := Sample{Signature: "s", GPUType: "T4", PeakMiB: 5000, Seconds: 200, HostMiB: 40_000, CPUMilli: 12_000}
	p := newPredictor(t, run)
	predict := func(t TypeInfo) Prediction { return p.Predict(Request{Signature: "s", Types: []TypeInfo{t}})[0] }
	if free := predict(TypeInfo{Name: "T4"}); free.HostMemMiB != 52_000 || free.CPUMilli != 12_000 {
		t.Errorf("unbounded: %d MiB, %d milli cores, want 1.3 times the 40,000 MiB seen, and 12,000", free.HostMemMiB, free.CPUMilli)
	}
	if bound := predict(TypeInfo{Name: "T4", HostMiB: 30_000, HostCPUMilli: 8000}); bound.HostMemMiB != 30_000 || bound.CPUMilli != 8000 {
		t.Errorf("bounded: %d MiB, %d milli cores, want the node's", bound.HostMemMiB, bound.CPUMilli)
	}
}

func TestSources(t *testing.T) {
	t.Parallel()
	resnet := features(t, "resnet50", training64)
	sig := resnet.Signature("alice python train.py")
	on := func(gpu string, peak int64, censored bool) Sample {
		return Sample{Signature: sig, GPUType: gpu, PeakMiB: peak, UtilMilli: 700, Seconds: 200, Steps: 1000, HostMiB: 4000, CPUMilli: 2500, Censored: censored}
	}
	for _, tc := range []struct {
		name     string
		f        Features
		samples  []Sample
		declared Declared
		source   Source
		low      int64 // of the point
		high     int64
		conf     float64
	}{
		{"catalogue", resnet, nil, Declared{}, SourceCatalogue, 6000, 9000, 0.6},
		{"declared wins over all", resnet, []Sample{on("T4", 8000, false)}, Declared{GPUMemMiB: 3000}, SourceDeclared, 3000, 3000, 0.95},
		{"declared alone", Features{}, nil, Declared{GPUMemMiB: 3000}, SourceDeclared, 3000, 3000, 0.95},
		{"one run", resnet, []Sample{on("Tesla T4", 5000, false)}, Declared{}, SourceHistory, 5000, 5000, 0.9},
		{"the largest of three", resnet, []Sample{on("T4", 5000, false), on("T4", 5300, false), on("T4", 5100, false)}, Declared{}, SourceHistory, 5300, 5300, 1 - 0.1/3},
		{"another type's run", resnet, []Sample{on("NVIDIA H200", 5000, false)}, Declared{}, SourceHistory, 4760, 4760, 0.75},
		{"own type before another's", resnet, []Sample{on("H200", 9000, false), on("T4", 5000, false)}, Declared{}, SourceHistory, 5000, 5000, 0.9},
		{"a cut-off run below the estimate says nothing", resnet, []Sample{on("T4", 2000, true)}, Declared{}, SourceCatalogue, 6000, 9000, 0.6},
		{"a cut-off run is a lower bound", resnet, []Sample{on("T4", 9000, true)}, Declared{}, SourceCatalogue, 11250, 11250, 0.4},
		{"the larger of two bounds", resnet, []Sample{on("T4", 9000, true), on("T4", 8000, true)}, Declared{}, SourceCatalogue, 11250, 11250, 0.4},
		{"cut off after a good run", resnet, []Sample{on("T4", 5000, false), on("T4", 6000, true)}, Declared{}, SourceHistory, 7500, 7500, 0.4},
		{"cut off and nothing else", Features{}, []Sample{on("T4", 6000, true)}, Declared{}, SourceNone, 15360, 15360, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := newPredictor(t, tc.samples...).Predict(Request{
				Features: tc.f, Signature: sig, Declared: tc.declared, Types: []TypeInfo{{Name: "T4"}},
			})[0]
			if got.Source != tc.source || got.GPUMemMiB < tc.low || got.GPUMemMiB > tc.high || math.Abs(got.Confidence-tc.conf) > 1e-9 {
				t.Fatalf("%+v\nwant %s, %d to %d MiB, confidence %v", got, tc.source, tc.low, tc.high, tc.conf)
			}
			if tc.source == SourceHistory && tc.conf > 0.8 {
				if got.UtilMilli != 700 || got.Seconds != 200 || got.HostMemMiB != 5200 || got.CPUMilli != 2500 {
					t.Fatalf("not what the run showed: %+v", got)
				}
			}
		})
	}
}

func TestDeclaredPartsWin(t *testing.T) {
	t.Parallel()
	f := features(t, "resnet50", training64)
	f.Declared = Declared{UtilMilli: 300, Seconds: 50}
	got := newPredictor(t).Predict(Request{Features: f, Declared: Declared{Seconds: 70}, Types: []TypeInfo{{Name: "T4"}}})[0]
	if got.UtilMilli != 300 || got.Seconds != 70 || got.Source != SourceCatalogue {
		t.Fatalf("%+v: want 300 thousandths, 70 s, memory from the catalogue", got)
	}
}

func TestTypesComeSortedAndOnce(t *testing.T) {
	t.Parallel()
	f := features(t, "bert-base-uncased", training64)
	got := newPredictor(t).Predict(Request{Features: f, Types: []TypeInfo{{Name: "T4", MemMiB: 0}, {Name: "A100-SXM4-80GB", MemMiB: 0}, {Name: "T4", MemMiB: 0}, {Name: "H200", MemMiB: 0}}})
	var names []string
	for _, g := range got {
		names = append(names, g.GPUType)
	}
	if d := cmp.Diff([]string{"A100-SXM4-80GB", "H200", "T4"}, names); d != "" {
		t.Fatal(d)
	}
	if !(got[1].Seconds < got[0].Seconds && got[0].Seconds < got[2].Seconds) {
		t.Fatalf("H200 %v s, A100 %v s, T4 %v s: must rise", got[1].Seconds, got[0].Seconds, got[2].Seconds)
	}
}

func TestTooLargeForTheCard(t *testing.T) {
	t.Parallel()
	f := features(t, "vgg16", Run{Mode: Training, Batch: 512, Precision: graph.FP32, Optimizer: graph.Adam})
	got := newPredictor(t).Predict(Request{Features: f, Types: []TypeInfo{{Name: "T4"}}})[0]
	var need int64
	for _, p := range got.Parts {
		need += p.MiB
	}
	if got.Fits || got.GPUMemMiB != 15360 || need < 40000 {
		t.Fatalf("%+v: must not fit, and the parts must tell the need", got)
	}
}

// TestPartsAreInMiB: the memory of a model whose bytes are known, by hand.
// Sizes are powers of two, so that MiB and MB cannot be taken for each other.
func TestPartsAreInMiB(t *testing.T) {
	t.Parallel()
	const mebi = 1 << 20
	f := Features{
		Source: SourceGraph, Model: "by hand", Run: Run{Batch: 1, Mode: Training, Precision: graph.FP32, Optimizer: graph.AdamW},
		Params: 256 * mebi, ParamBytes: 1024 * mebi, FLOPs: 1 << 40, Linears: 1,
	}
	got := newPredictor(t).Predict(Request{Features: f, Types: []TypeInfo{{Name: "A100-SXM4-80GB"}}})[0]
	want := map[string]int64{"weights": 1024, "gradients": 1024, "optimizer": 2048}
	for _, p := range got.Parts {
		if mib, ok := want[p.Name]; ok && p.MiB != mib {
			t.Errorf("%s: %d MiB, want %d", p.Name, p.MiB, mib)
		}
		delete(want, p.Name)
	}
	if len(want) > 0 {
		t.Errorf("parts %+v lack %v", got.Parts, want)
	}
}

func TestPhysicsOrders(t *testing.T) {
	t.Parallel()
	p := newPredictor(t)
	ask := func(name string, run Run) Prediction {
		return p.Predict(Request{Features: features(t, name, run), Types: []TypeInfo{{Name: "A100-SXM4-80GB"}}})[0]
	}
	with := func(change func(*Run)) Run {
		r := training64
		change(&r)
		return r
	}
	base := ask("resnet50", training64)
	for _, tc := range []struct {
		name string
		less bool
		got  Prediction
	}{
		{"inference takes less", true, ask("resnet50", with(func(r *Run) { r.Mode = Inference }))},
		{"mixed precision takes less", true, ask("resnet50", with(func(r *Run) { r.Precision = graph.AMP }))},
		{"Adam takes more than momentum", false, ask("resnet50", with(func(r *Run) { r.Optimizer = graph.AdamW }))},
		{"a deeper network takes more", false, ask("resnet101", training64)},
	} {
		if (tc.got.GPUMemMiB < base.GPUMemMiB) != tc.less {
			t.Errorf("%s: %d MiB against %d MiB", tc.name, tc.got.GPUMemMiB, base.GPUMemMiB)
		}
	}
	if amp := ask("resnet50", with(func(r *Run) { r.Precision = graph.AMP })); amp.Seconds >= base.Seconds {
		t.Errorf("mixed precision: %v s, float32 %v s", amp.Seconds, base.Seconds)
	}
	if small := ask("resnet50", with(func(r *Run) { r.Batch = 1 })); small.UtilMilli >= base.UtilMilli {
		t.Errorf("batch 1 uses %d thousandths, batch 64 %d", small.UtilMilli, base.UtilMilli)
	}
}

// drawFeatures makes features as a client could send them.
func drawFeatures(t *rapid.T) Features {
	var f Features
	for _, v := range f.numbers() {
		limit := min(v.max, int64(1)<<rapid.IntRange(0, 50).Draw(t, "bits"))
		*v.p = rapid.Int64Range(0, limit).Draw(t, v.name)
	}
	f.Batch = max(1, f.Batch)
	f.WeightBits = rapid.SampledFrom([]int64{0, 4, 8, 16, 32}).Draw(t, "weight bits")
	f.Checkpointing = rapid.Bool().Draw(t, "checkpointing")
	f.Framework = rapid.SampledFrom([]string{"", "pytorch", "jax"}).Draw(t, "framework")
	f.Source = rapid.SampledFrom([]Source{SourceGraph, SourceCatalogue, SourceNone, ""}).Draw(t, "source")
	f.Mode = Mode(rapid.IntRange(0, 1).Draw(t, "mode"))
	f.Partial = rapid.Bool().Draw(t, "partial")
	f.Precision = rapid.SampledFrom(append(graph.Precisions(), "")).Draw(t, "precision")
	f.Optimizer = rapid.SampledFrom(append(graph.Optimizers(), "")).Draw(t, "optimizer")
	f.Model = shorten(rapid.String().Draw(t, "model"))
	return f
}

func drawType(t *rapid.T) TypeInfo {
	return TypeInfo{
		Name:   rapid.SampledFrom([]string{"T4", "H200", "A100-SXM4-40GB", "NVIDIA GeForce RTX 3090", "Future X", ""}).Draw(t, "type"),
		MemMiB: rapid.Int64Range(0, 1<<18).Draw(t, "mem"),
	}
}

func TestPredictionsStayInRange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ti := drawType(t)
		sample := rapid.Custom(func(t *rapid.T) Sample {
			return Sample{
				Signature: rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "sig"), GPUType: drawType(t).Name,
				PeakMiB: rapid.Int64Range(-1, 1<<40).Draw(t, "peak"), UtilMilli: rapid.Int64Range(-1, 5000).Draw(t, "util"),
				Seconds: rapid.Float64().Draw(t, "secs"), Steps: rapid.Int64Range(-1, 1<<40).Draw(t, "steps"),
				Censored: rapid.Bool().Draw(t, "censored"),
			}
		})
		p, err := NewPredictor(CoreWeights(), NewHistory(rapid.SliceOfN(sample, 0, 8).Draw(t, "samples")))
		if err != nil {
			t.Fatal(err)
		}
		r := Request{Features: drawFeatures(t), Signature: "a", Types: []TypeInfo{ti}}
		if !rapid.Bool().Draw(t, "declare") {
			r.Features.Declared = Declared{}
		}
		got := p.Predict(r)[0]
		card := ti.MemMiB
		if card == 0 {
			s, _ := gpuspec.Lookup(ti.Name)
			card = s.MemMiB
		}
		if got.GPUMemMiB < 1 || got.GPUMemP95MiB < got.GPUMemMiB || got.GPUMemP95MiB > card {
			t.Errorf("memory %d, P95 %d, card %d", got.GPUMemMiB, got.GPUMemP95MiB, card)
		}
		if got.UtilMilli < 1 || got.UtilMilli > 1000 || !(got.Confidence >= 0 && got.Confidence <= 1) {
			t.Errorf("utilization %d, confidence %v", got.UtilMilli, got.Confidence)
		}
		if !(got.Seconds >= 0) || math.IsInf(got.Seconds, 0) || got.HostMemMiB < 0 || got.CPUMilli < 0 || got.PowerW < 0 {
			t.Errorf("out of range: %+v", got)
		}
		if d := cmp.Diff(got, p.Predict(r)[0]); d != "" {
			t.Errorf("a second answer differs:\n%s", d)
		}
	})
}

func TestMoreSamplesNeverNeedLess(t *testing.T) {
	t.Parallel()
	p := newPredictor(t)
	names := Catalogue()
	rapid.Check(t, func(t *rapid.T) {
		run := Run{
			Mode: Mode(rapid.IntRange(0, 1).Draw(t, "mode")), Batch: rapid.Int64Range(1, 4096).Draw(t, "batch"), Steps: 10,
			Precision: rapid.SampledFrom(graph.Precisions()).Draw(t, "precision"), Optimizer: rapid.SampledFrom(graph.Optimizers()).Draw(t, "optimizer"),
		}
		name := rapid.SampledFrom(names).Draw(t, "model")
		ti := drawType(t)
		ask := func(run Run) Prediction {
			f, err := FromCatalogue(name, run)
			if err != nil {
				t.Fatal(err)
			}
			return p.Predict(Request{Features: f, Types: []TypeInfo{ti}})[0]
		}
		a := ask(run)
		run.Batch += rapid.Int64Range(1, 4096).Draw(t, "more")
		b := ask(run)
		if b.GPUMemMiB < a.GPUMemMiB || b.GPUMemP95MiB < a.GPUMemP95MiB || b.Seconds < a.Seconds {
			t.Fatalf("a larger batch needs less:\n%+v\n%+v", a, b)
		}
	})
}

func BenchmarkPredict(b *testing.B) {
	f := features(b, "resnet50", training64)
	sig := f.Signature("x")
	p := newPredictor(b, Sample{Signature: sig, GPUType: "T4", PeakMiB: 5000})
	r := Request{Features: f, Signature: sig, Types: []TypeInfo{{Name: "T4", MemMiB: 15360}, {Name: "A100-SXM4-80GB", MemMiB: 81920}, {Name: "H200", MemMiB: 143771}, {Name: "RTX-3090", MemMiB: 24268}}}
	b.ReportAllocs()
	for b.Loop() {
		p.Predict(r)
	}
}
