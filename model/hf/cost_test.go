package hf

import (
	"math"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

func lookup(t testing.TB, name string) Config {
	t.Helper()
	c, err := Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func features(t testing.TB, c *Config, run model.Run) model.Features {
	t.Helper()
	f, err := c.Features(run)
	if err != nil {
		t.Fatalf("%s, %+v: %v", c.Name, run, err)
	}
	return f
}

// TestSavedBytesOfKorthikanti holds one layer to equation 1 of
// arXiv:2205.05198: s·b·h·(34 + 5·a·s/h) bytes at 16 bits.
func TestSavedBytesOfKorthikanti(t *testing.T) {
	t.Parallel()
	c := lookup(t, "gpt2-xl")
	c.Activation, c.Tiled = "gelu", false
	run := model.Run{Mode: model.Training, Batch: 3, SeqLen: 1024, Precision: graph.FP16, Optimizer: graph.Adam}
	layers := func(n int64) float64 {
		c := c
		c.Layers = n
		f := features(t, &c, run)
		return float64(f.SavedBytes)
	}
	s, b, h, a := 1024.0, 3.0, 1600.0, 25.0
	want := s * b * h * (34 + 5*a*s/h)
	if got := layers(7) - layers(6); math.Abs(got-want) > 1 {
		t.Errorf("a layer keeps %.0f bytes, want %.0f", got, want)
	}
	c.Tiled = true // section 4: 34sbh without the scores, here with flash attention's row sums
	if got, want := layers(7)-layers(6), s*b*h*34+4*s*b*a; math.Abs(got-want) > 1 {
		t.Errorf("tiled: a layer keeps %.0f bytes, want %.0f", got, want)
	}
}

// TestTrainedParametersOfLoRA holds adapters of rank 8 on queries and values
// to the counts that litgpt publishes.
func TestTrainedParametersOfLoRA(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int64{
		"phi-1.5": 1_572_864, "StableLM Alpha 3 B": 2_097_152, "Llama 2 7 B": 4_194_304, "Llama 2 13 B": 6_553_600, "Falcon 40 B": 12_042_240,
	} {
		c := lookup(t, name)
		f := features(t, &c, model.Run{Mode: model.Training, Batch: 1, Precision: graph.BF16, LoRARank: 8})
		if f.TrainedBytes != 2*want || f.Params != c.Params()+want {
			t.Errorf("%s: %d bytes trained, %d parameters; want %d bytes, %d parameters", name, f.TrainedBytes, f.Params, 2*want, c.Params()+want)
		}
	}
}

// TestFusedProjection: values that are a view keep queries and keys alive.
func TestFusedProjection(t *testing.T) {
	t.Parallel()
	c := lookup(t, "llama-3-8b")
	run := model.Run{Mode: model.Training, Batch: 2, SeqLen: 100, Precision: graph.BF16}
	apart := features(t, &c, run).SavedBytes
	c.Fused = true
	if got, want := features(t, &c, run).SavedBytes-apart, int64(32*2*100*(4096+1024)*2); got != want {
		t.Errorf("keeps %d bytes more, want %d", got, want)
	}
	if n := lookup(t, "pythia-1b"); !n.Fused {
		t.Error("GPT-NeoX has one projection")
	}
}

func TestKeyValueCache(t *testing.T) {
	t.Parallel()
	c := lookup(t, "llama-3-8b")
	run := model.Run{Batch: 4, SeqLen: 1000, Precision: graph.BF16}
	one := c
	one.Layers = 31
	diff := features(t, &c, run).LiveBytes - features(t, &one, run).LiveBytes
	if want := int64(2 * 8 * 128 * 4 * 1000 * 2); diff != want {
		t.Errorf("a layer's cache takes %d bytes, want %d", diff, want)
	}
	b := lookup(t, "bert-base-uncased")
	one = b
	one.Layers = 11
	if diff := features(t, &b, run).LiveBytes - features(t, &one, run).LiveBytes; diff != 0 {
		t.Errorf("an encoder caches %d bytes a layer", diff)
	}
}

func TestOutputsOfTraining(t *testing.T) {
	t.Parallel()
	c := lookup(t, "gpt2")
	for p, each := range map[model.Precision]int64{graph.FP32: 4, graph.BF16: 6, graph.AMP: 6} {
		f := features(t, &c, model.Run{Mode: model.Training, Batch: 2, SeqLen: 100, Precision: p})
		if want := 2 * 100 * 50257 * each; f.OutputBytes != want {
			t.Errorf("%s: outputs of %d bytes, want %d", p, f.OutputBytes, want)
		}
	}
	if f := features(t, &c, model.Run{Batch: 2, SeqLen: 100, Precision: graph.BF16}); f.OutputBytes != 2*100*50257*2 {
		t.Errorf("inference: outputs of %d bytes", f.OutputBytes)
	}
}

func TestFLOPs(t *testing.T) {
	t.Parallel()
	c := lookup(t, "gpt2-xl")
	c.Tiled = false
	f := features(t, &c, model.Run{Batch: 2, SeqLen: 512, Precision: graph.FP32})
	// Twice the values of all matrices and tokens, and two products of scores.
	matrices := 48*12*1600*1600 + 1600*50257
	want := 2*float64(matrices)*1024 + 48*4*2*512*512*1600
	if math.Abs(float64(f.FLOPs)-want) > 1 {
		t.Errorf("%d FLOPs, want %.0f", f.FLOPs, want)
	}
	if got, want := f.Linears, int64(48*6+1); got != want { // queries, keys and values count apart
		t.Errorf("%d linear layers, want %d", got, want)
	}
	if f.Norms != 48*2+1 || f.Blocks != 48 || f.Width != 1600 || f.Activations != 48 {
		t.Errorf("%d norms, %d blocks of width %d, %d activations", f.Norms, f.Blocks, f.Width, f.Activations)
	}
	if want := int64(48 * 2 * 25 * 512 * 512 * (4 + 4 + 1)); f.ScoreBytes != want {
		t.Errorf("scores of %d bytes, want %d", f.ScoreBytes, want)
	}
	moe := lookup(t, "mixtral-8x7b")
	m := features(t, &moe, model.Run{Batch: 1, SeqLen: 128, Precision: graph.BF16})
	if r := float64(m.FLOPs) / (2 * 128 * float64(m.Params)); r < 0.25 || r > 0.3 {
		t.Errorf("two of eight experts compute %.2f of all", r)
	}
}

func TestFeaturesRefuse(t *testing.T) {
	t.Parallel()
	c := lookup(t, "gpt2")
	for name, run := range map[string]model.Run{
		"no batch": {}, "batch below 0": {Batch: -1}, "batch too large": {Batch: graph.MaxBatch + 1}, "sequence below 0": {Batch: 1, SeqLen: -1},
		"precision": {Batch: 1, Precision: "fp7"}, "rank": {Batch: 1, LoRARank: -1}, "rank too large": {Batch: 1, LoRARank: 1 << 20}, "bits": {Batch: 1, WeightBits: 3},
	} {
		if _, err := c.Features(run); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	c.Layers = -1
	if _, err := c.Features(model.Run{Batch: 1}); err == nil || c.Params() != 0 {
		t.Errorf("layers -1: error %v, %d parameters", err, c.Params())
	}
	var zero Config
	if _, err := zero.Features(model.Run{Batch: 1}); err == nil {
		t.Error("zero configuration: no error")
	}
}

// TestSequenceLength: a missing one is the model's, and is told.
func TestSequenceLength(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int64{"gpt2": 1024, "llama-3.1-8b": 2048, "bert-base-uncased": 512, "t5-small": 512, "vit-base": 0, "whisper-small": 448} {
		c := lookup(t, name)
		f := features(t, &c, model.Run{Batch: 1})
		if f.SeqLen != want {
			t.Errorf("%s: counted with %d tokens, want %d", name, f.SeqLen, want)
		}
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		model string
		run   model.Run
		want  string
	}{
		{"gpt2", model.Run{Batch: 1}, "the sequence length is missing; counted with 1024"},
		{"gpt2", model.Run{Batch: 1, SeqLen: 4096}, "a sequence length of 4096 is more than the model's 1024 positions"},
		{"gpt2", model.Run{Batch: 1, SeqLen: 8, Mode: model.Training, WeightBits: 4}, "weights of 4 bits do not train without adapters; give their rank"},
		{"gpt2", model.Run{Batch: 1, SeqLen: 8, LoRARank: 4}, "adapters are not counted in inference: they can be merged into the weights"},
		{"gpt2", model.Run{Batch: 1, SeqLen: 8}, ""},
	} {
		c := lookup(t, tc.model)
		got := c.Warnings(tc.run)
		if tc.want == "" && len(got) == 0 {
			continue
		}
		if len(got) != 1 || got[0] != tc.want {
			t.Errorf("%s, %+v: %q, want %q", tc.model, tc.run, got, tc.want)
		}
	}
}

func BenchmarkParseConfig(b *testing.B) {
	const text = `{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,"vocab_size":32000,"rms_norm_eps":1e-5,"torch_dtype":"float16"}`
	b.ReportAllocs()
	for b.Loop() {
		c, err := ParseConfig(strings.NewReader(text))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.Features(model.Run{Batch: 1}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		lookup(b, "Qwen/Qwen2.5-32B-Instruct")
	}
}

func BenchmarkFeatures(b *testing.B) {
	c := lookup(b, "mixtral-8x7b")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Features(model.Run{Mode: model.Training, Batch: 1}); err != nil {
			b.Fatal(err)
		}
	}
}
