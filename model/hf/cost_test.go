package hf

import (
	"math"
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
