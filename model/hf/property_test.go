package hf

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

var _ = draws.Fixed()

// genConfig draws a configuration that check accepts.
func genConfig(t *rapid.T) Config {
	if rapid.Bool().Draw(t, "from the catalogue") {
		all := catalogue()
		return all[rapid.IntRange(0, len(all)-1).Draw(t, "entry")].config()
	}
	types := []string{"gpt2", "llama", "bert", "t5", "whisper", "vit", "mixtral", "opt", "falcon", "albert", "bart", "gemma3", "phi", "olmo", "something"}
	c := Config{Type: rapid.SampledFrom(types).Draw(t, "type")}
	small := func(name string, low, high int64) int64 { return rapid.Int64Range(low, high).Draw(t, name) }
	c.family()
	c.Heads = small("heads", 1, 64)
	c.KVHeads = small("kv heads", 1, c.Heads)
	c.HeadDim, c.Hidden = small("head size", 1, 512), small("hidden", 1, 8192)
	c.Layers, c.FFN, c.Vocab = small("layers", 1, 100), small("ffn", 1, 65536), small("vocab", 1, 300_000)
	c.Positions = small("positions", 0, 100_000)
	if rapid.Bool().Draw(t, "experts?") {
		c.Experts = small("experts", 2, 64)
		c.ExpertsPerToken, c.SparseStep = small("used", 1, c.Experts), small("step", 1, 3)
	}
	c.Tied, c.Gated, c.Tiled = rapid.Bool().Draw(t, "tied"), rapid.Bool().Draw(t, "gated"), rapid.Bool().Draw(t, "tiled")
	c.Dropout, c.AttentionDropout = rapid.Bool().Draw(t, "dropout"), rapid.Bool().Draw(t, "attention dropout")
	c.Activation = rapid.SampledFrom([]string{"", "relu", "gelu", "gelu_new", "quick_gelu"}).Draw(t, "activation")
	c.complete()
	return c
}

func genRun(t *rapid.T) model.Run {
	return model.Run{
		Mode:  rapid.SampledFrom([]model.Mode{model.Inference, model.Training}).Draw(t, "mode"),
		Batch: rapid.Int64Range(1, 4096).Draw(t, "batch"), SeqLen: rapid.Int64Range(1, 1<<17).Draw(t, "seq"),
		Precision:     rapid.SampledFrom(append(graph.Precisions(), "")).Draw(t, "precision"),
		Optimizer:     rapid.SampledFrom(graph.Optimizers()).Draw(t, "optimizer"),
		Checkpointing: rapid.Bool().Draw(t, "checkpointing"),
		LoRARank:      rapid.SampledFrom([]int64{0, 0, 8, 64}).Draw(t, "rank"),
		WeightBits:    rapid.SampledFrom([]int64{0, 0, 4, 8, 16, 32}).Draw(t, "bits"),
	}
}

// TestMoreNeverTakesLess: more samples, tokens or layers never take less.
func TestMoreNeverTakesLess(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, run := genConfig(t), genRun(t)
		base, err := c.Features(run)
		if err != nil {
			t.Fatal(err)
		}
		if err := base.Check(); err != nil {
			t.Fatal(err)
		}
		more, deeper := run, c
		switch rapid.IntRange(0, 2).Draw(t, "which") {
		case 0:
			more.Batch *= 2
		case 1:
			more.SeqLen *= 2
		default:
			deeper.Layers++
		}
		got, err := deeper.Features(more)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []struct {
			name      string
			less, now int64
		}{
			{"parameters", base.Params, got.Params}, {"parameter bytes", base.ParamBytes, got.ParamBytes}, {"saved", base.SavedBytes, got.SavedBytes},
			{"live", base.LiveBytes, got.LiveBytes}, {"largest", base.LargestBytes, got.LargestBytes}, {"inputs", base.InputBytes, got.InputBytes},
			{"outputs", base.OutputBytes, got.OutputBytes}, {"workspace", base.WorkspaceBytes, got.WorkspaceBytes}, {"moved", base.MovedBytes, got.MovedBytes},
			{"FLOPs", base.FLOPs, got.FLOPs}, {"activations", base.ActBytes, got.ActBytes}, {"matrices", base.MatrixBytes, got.MatrixBytes}, {"scores", base.ScoreBytes, got.ScoreBytes},
		} {
			if v.now < v.less {
				t.Errorf("%s fell from %d to %d", v.name, v.less, v.now)
			}
		}
		if got.MatrixBytes > got.ActBytes {
			t.Errorf("products put out %d bytes of %d in all", got.MatrixBytes, got.ActBytes)
		}
	})
}

// TestSavingsSave: checkpointing, adapters and narrow weights never cost memory
// where they are there to save it.
func TestSavingsSave(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, run := genConfig(t), genRun(t)
		run.Mode, run.Checkpointing, run.LoRARank, run.WeightBits = model.Training, false, 0, 0
		of := func(run model.Run) model.Features {
			f, err := c.Features(run)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		base := of(run)
		again := run
		again.Checkpointing = true
		if f := of(again); f.SavedBytes > base.SavedBytes {
			t.Errorf("checkpointing keeps %d bytes instead of %d", f.SavedBytes, base.SavedBytes)
		}
		lora := run
		lora.LoRARank = 1
		f := of(lora)
		if f.TrainedBytes <= 0 || f.Params <= base.Params {
			t.Errorf("adapters train %d bytes; %d parameters instead of %d", f.TrainedBytes, f.Params, base.Params)
		}
		if c.Hidden > 256 && c.HeadDim*c.Heads <= 4*c.Hidden && f.TrainedBytes >= base.ParamBytes {
			t.Errorf("adapters train %d bytes of %d", f.TrainedBytes, base.ParamBytes)
		}
		first, second := c.tokens(base.SeqLen)
		halves := 16 * f.Blocks * f.Batch * int64(first+second) // what adapters put out in their midst
		if f.SavedBytes > base.SavedBytes+halves {
			t.Errorf("adapters keep %d bytes instead of %d", f.SavedBytes, base.SavedBytes)
		}
		narrow := lora
		narrow.WeightBits = 4
		if n := of(narrow); n.ParamBytes > f.ParamBytes && run.Precision != graph.INT8 {
			t.Errorf("weights of four bits take %d bytes instead of %d", n.ParamBytes, f.ParamBytes)
		}
		tiled := c
		c.Tiled, tiled.Tiled = false, true
		eager, err := tiled.Features(run)
		if err != nil {
			t.Fatal(err)
		}
		if eager.ScoreBytes != 0 || of(run).ScoreBytes <= 0 {
			t.Errorf("scores of %d bytes in tiles, %d without", eager.ScoreBytes, of(run).ScoreBytes)
		}
	})
}
