package hf

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

// Features computes the cost of the checkpoint for a run, and says in notes what
// was assumed, left out, or inconsistent. Its configuration decides; without one
// the shape is guessed from the weights' names, and if that fails only the weights
// are counted: both make the result partial. An adapter's rank is taken from the
// checkpoint if the run trains and gives none.
func (m *Model) Features(run model.Run) (f model.Features, notes []string, err error) {
	notes = slices.Clone(m.Notes)
	w := m.Weights
	if w == nil {
		w = &Weights{}
	}
	rank := max(m.LoRARank, w.LoRARank)
	if run.Mode == model.Training && run.LoRARank == 0 && rank > 0 {
		run.LoRARank = min(rank, model.MaxLoRARank)
		notes = append(notes, fmt.Sprintf("counted as training the adapters of rank %d that are there", run.LoRARank))
	}
	notes = append(notes, w.Notes...)
	if w.Unknown > 0 {
		notes = append(notes, fmt.Sprintf("%d tensors are of a type that is not known; counted as one byte a value", w.Unknown))
	}
	if m.Config == nil {
		if f, err = w.features(&run, &notes); err != nil {
			return f, notes, err
		}
		f.Model = cut(m.Name, "")
		return f, notes, nil
	}
	c := *m.Config
	c.Precision = cmp.Or(c.Precision, w.Precision)
	c.WeightBits = cmp.Or(c.WeightBits, w.WeightBits)
	if f, err = c.Features(run); err != nil {
		return f, notes, err
	}
	if c.Name == "" {
		f.Model = cut(m.Name, c.Type)
	}
	notes = append(notes, c.Warnings(run)...)
	if w.Params > 0 && !w.Partial && !w.agrees(&c) {
		notes = append(notes, fmt.Sprintf("the weights hold %d parameters, but by its configuration the model has %d; counted with the weights", w.Params, c.Params()))
		w.overrule(&f)
	}
	return f, notes, nil
}

// agrees reports whether the weights can be those of c: tied heads and buffers
// may be stored or not.
func (w *Weights) agrees(c *Config) bool {
	want := c.Params()
	slack := want/50 + c.Vocab*c.Hidden + c.Hidden*c.Hidden
	return w.Params >= want-slack && w.Params <= want+slack
}

// overrule puts the actual number of weights into f, whatever its configuration
// says.
func (w *Weights) overrule(f *model.Features) {
	per := float64(f.ParamBytes) / float64(max(1, f.Params))
	f.ParamBytes = whole(per * float64(w.Params))
	f.MovedBytes = whole(float64(f.MovedBytes) + float64(f.ParamBytes) - per*float64(f.Params))
	f.Params, f.Partial = w.Params, true
}

// features computes features of weights without a configuration.
func (w *Weights) features(run *model.Run, notes *[]string) (model.Features, error) {
	if w.Params == 0 && w.LoRAParams > 0 {
		return model.Features{}, fmt.Errorf("holds adapters alone; give the checkpoint of the model that they are for")
	}
	if w.Params == 0 {
		return model.Features{}, fmt.Errorf("%w: holds no weights of a model", ErrMalformed)
	}
	if c, ok := w.guess(); ok {
		f, err := c.Features(*run)
		if err == nil {
			*notes = append(*notes, "there is no config.json; the model's shape is guessed from the names of its weights")
			*notes = append(*notes, c.Warnings(*run)...)
			w.overrule(&f)
		}
		return f, err
	}
	*notes = append(*notes, "there is no config.json; only the weights are counted, so the prediction is too low")
	run.Precision = cmp.Or(run.Precision, w.Precision)
	run.WeightBits = cmp.Or(run.WeightBits, w.WeightBits)
	per := float64(run.Precision.WeightBytes(4))
	if bits := run.WeightBits; bits != 0 {
		per = float64(bits) / 8
	}
	f := model.Features{
		Source: model.SourceGraph, Run: *run, Params: w.Params, ParamBytes: whole(per * float64(w.Params)),
		MovedBytes: whole(per * float64(w.Params)), Blocks: min(w.Blocks, graph.MaxNodes), Partial: true,
	}
	if run.Mode == model.Training && run.LoRARank > 0 && w.LoRAParams > 0 {
		f.TrainedBytes = whole(per * float64(w.LoRAParams))
	}
	return f, f.Check()
}

// guess derives a configuration from the shapes of well-known tensors.
func (w *Weights) guess() (Config, bool) {
	s := &w.seen
	if s.embed == nil || s.up == nil || w.Blocks == 0 {
		return Config{}, false
	}
	c := Config{Type: "gpt_neox", Vocab: s.embed[0], Hidden: s.embed[1], Layers: w.Blocks, Precision: w.Precision, WeightBits: w.WeightBits}
	if s.gate {
		c.Type = "llama"
	}
	c.family()
	c.Tied, c.Gated, c.Partial = !s.head, s.gate, true
	if c.FFN = s.up[0]; c.FFN == c.Hidden {
		c.FFN = s.up[1]
	}
	c.HeadDim = 64
	if c.Hidden > 2048 {
		c.HeadDim = 128
	}
	width := func(shape []int64) int64 {
		if shape == nil {
			return c.Hidden
		}
		return shape[0]
	}
	c.Heads, c.KVHeads = max(1, width(s.query)/c.HeadDim), max(1, width(s.key)/c.HeadDim)
	c.KVHeads = min(c.KVHeads, c.Heads)
	c.complete()
	return c, c.check() == nil
}

// Warnings returns what a user of Features should know about its figures: what was
// assumed of the model, and what does not fit the run.
func (c *Config) Warnings(run model.Run) []string {
	out := slices.Clone(c.Notes)
	train := run.Mode == model.Training
	bits := cmp.Or(run.WeightBits, c.WeightBits)
	if run.SeqLen == 0 && c.SeqLen() > 0 {
		out = append(out, fmt.Sprintf("the sequence length is missing; counted with %d", c.SeqLen()))
	}
	if c.Positions > 0 && run.SeqLen > c.Positions && c.traits.kind != vision {
		out = append(out, fmt.Sprintf("a sequence length of %d is more than the model's %d positions", run.SeqLen, c.Positions))
	}
	if train && run.LoRARank == 0 && (bits == 4 || bits == 8) {
		out = append(out, fmt.Sprintf("weights of %d bits do not train without adapters; give their rank", bits))
	}
	if !train && run.LoRARank > 0 {
		out = append(out, "adapters are not counted in inference: they can be merged into the weights")
	}
	if c.traits.kind == speech {
		out = append(out, "the sequence length is that of the decoder; the encoder always has its full length")
	}
	return out
}

// adaptTo sets LoRATargets from module names such as "q_proj".
func (c *Config) adaptTo(raw json.RawMessage) {
	var names []string
	if json.Unmarshal(raw, &names) != nil {
		var one string
		if json.Unmarshal(raw, &one) != nil || one != "all-linear" {
			return
		}
		names = []string{"q", "k", "v", "o", "up", "gate", "down"}
	}
	var out []string
	for _, n := range names {
		for _, role := range roles(n[strings.LastIndexByte(n, '.')+1:]) {
			if !slices.Contains(out, role) {
				out = append(out, role)
			}
		}
	}
	c.LoRATargets = out
}

// roles returns the projections that a module holds.
func roles(module string) []string {
	switch module {
	case "q", "k", "v", "o", "up", "gate", "down":
		return []string{module}
	case "q_proj", "query", "q_lin":
		return []string{"q"}
	case "k_proj", "key", "k_lin":
		return []string{"k"}
	case "v_proj", "value", "v_lin":
		return []string{"v"}
	case "o_proj", "out_proj", "out_lin":
		return []string{"o"}
	case "query_key_value", "qkv_proj", "Wqkv", "c_attn":
		return []string{"q", "k", "v"}
	case "up_proj", "fc1", "dense_h_to_4h", "c_fc", "wi", "wi_1":
		return []string{"up"}
	case "gate_proj", "wi_0":
		return []string{"gate"}
	case "gate_up_proj":
		return []string{"gate", "up"}
	case "down_proj", "fc2", "dense_4h_to_h", "wo":
		return []string{"down"}
	}
	return nil
}
