// Package hf reads the files that Hugging Face stores with a model's weights:
// config.json, the headers of safetensors files, and the index of sharded
// checkpoints. It computes from the shapes alone the cost of training or running a
// transformer: exact parameter counts, FLOPs, and the activations that a training
// step keeps, term by term after Korthikanti et al. 2022 (arXiv:2205.05198).
//
// It also knows the published shapes of common language models by name (Lookup).
// Files are treated as hostile: reading is bounded, weights are never read, and
// nothing panics. Everything here is deterministic and safe for concurrent use.
package hf

import (
	"errors"
	"fmt"

	"github.com/berth-scheduler/berth/model"
)

// Limits on what is read.
const (
	// MaxConfigBytes bounds config.json and adapter_config.json.
	MaxConfigBytes = 1 << 20
	// MaxHeaderBytes bounds the JSON header of one safetensors file.
	MaxHeaderBytes = 16 << 20
	// MaxIndexBytes bounds the index of a sharded checkpoint.
	MaxIndexBytes = 16 << 20
	// MaxTensors bounds the tensors of one header.
	MaxTensors = 1 << 17
	// MaxShards bounds the files of a sharded checkpoint.
	MaxShards = 1024
	// MaxDepth bounds how deeply JSON nests.
	MaxDepth = 64
	// MaxLayers bounds the repeated layers of a model.
	MaxLayers = 10_000
)

// ErrMalformed is wrapped by the errors of files that are not what their names say.
var ErrMalformed = errors.New("not well formed")

// ErrLimit is wrapped by the errors of files beyond the limits.
var ErrLimit = errors.New("larger than the reader allows")

// Config is the shape of a transformer, whatever names its file used. Build one
// with ParseConfig or Lookup; the fields may be changed before Features is called,
// which checks them. Sizes are counts of values, not bytes.
type Config struct {
	// Name is the model's name: its file's _name_or_path, or its name in the
	// catalogue. It may be empty.
	Name string
	// Type is model_type, such as "llama"; Architecture the first of architectures,
	// such as "LlamaForCausalLM", which determines the head.
	Type, Architecture string
	// Activation is hidden_act, such as "gelu_new".
	Activation string
	// Catalogue means that the shape came from Lookup, not from a file.
	Catalogue bool

	Hidden        int64 // width of the residual stream
	Layers        int64 // of the decoder; of the encoder for encoder-decoders
	DecoderLayers int64 // of encoder-decoders, 0 for others
	Heads         int64
	KVHeads       int64 // fewer than Heads with grouped or multi-query attention
	HeadDim       int64
	DecoderHeads  int64 // of encoder-decoders
	FFN           int64 // inner width of the feed-forward network
	DecoderFFN    int64 // of encoder-decoders
	Vocab         int64
	Positions     int64 // longest sequence
	TokenTypes    int64 // rows of the token-type embedding
	EmbedDim      int64 // width of token embeddings, if not Hidden

	Experts         int64 // 0 for dense feed-forward networks
	ExpertsPerToken int64
	ExpertFFN       int64
	SharedFFN       int64 // of the expert that every token passes
	SparseStep      int64 // every SparseStep-th layer has experts

	ImageSize, PatchSize, Channels int64 // of vision transformers
	Labels                         int64 // of classifiers
	AudioBins, AudioPositions      int64 // of speech encoders

	// Precision is the checkpoint's own, used if a run gives none.
	Precision model.Precision
	// WeightBits is the width of the stored weights of a quantized checkpoint, 0
	// for none; DoubleQuant means that its block scales are quantized too.
	WeightBits  int64
	DoubleQuant bool
	// Tied means that the output head shares the token embedding.
	Tied bool
	// Gated means that the feed-forward network has a gate next to the up
	// projection (GLU, Shazeer 2020, arXiv:2002.05202).
	Gated bool
	// Tiled means that attention never stores its score matrices (Dao et al. 2022,
	// arXiv:2205.14135), as in frameworks for most types today.
	Tiled bool
	// Fused means that one matrix outputs queries, keys and values, and that
	// rotating the first two copies them: the values, a view, then keep all of that
	// matrix's output alive in addition to the copies.
	Fused bool
	// Dropout and AttentionDropout mean that training keeps dropout masks.
	Dropout, AttentionDropout bool
	// LoRATargets are the projections that get adapters, of "q", "k", "v", "o",
	// "gate", "up" and "down"; empty means q and v.
	LoRATargets []string

	// Partial means that the figures do not cover all of the model.
	Partial bool
	// Notes says what was assumed or left out, in words for the user.
	Notes []string

	traits traits
}

func (c *Config) note(format string, args ...any) {
	const most = 16
	if len(c.Notes) < most {
		c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
	}
}

// limit is one field with its range.
type limit struct {
	name      string
	v         int64
	low, high int64
}

// check returns an error that names the first field out of range.
func (c *Config) check() error {
	const wide, most = 1 << 20, 1 << 24
	for _, l := range []limit{
		{"hidden size", c.Hidden, 1, wide}, {"layers", c.Layers, 1, MaxLayers}, {"decoder layers", c.DecoderLayers, 0, MaxLayers},
		{"attention heads", c.Heads, 1, 1 << 16}, {"key-value heads", c.KVHeads, 1, 1 << 16}, {"head size", c.HeadDim, 1, wide},
		{"decoder attention heads", c.DecoderHeads, 0, 1 << 16}, {"feed-forward size", c.FFN, 0, most},
		{"decoder feed-forward size", c.DecoderFFN, 0, most}, {"vocabulary", c.Vocab, 0, 1 << 28}, {"positions", c.Positions, 0, 1 << 31},
		{"token types", c.TokenTypes, 0, 1 << 16}, {"embedding size", c.EmbedDim, 0, wide}, {"experts", c.Experts, 0, 1 << 14},
		{"experts per token", c.ExpertsPerToken, 0, max(c.Experts, 0)}, {"expert feed-forward size", c.ExpertFFN, 0, most},
		{"shared expert size", c.SharedFFN, 0, most}, {"sparse step", c.SparseStep, 0, MaxLayers}, {"image size", c.ImageSize, 0, 1 << 16},
		{"patch size", c.PatchSize, 0, 1 << 16}, {"channels", c.Channels, 0, 1 << 12}, {"labels", c.Labels, 0, most},
		{"audio bins", c.AudioBins, 0, 1 << 16}, {"audio positions", c.AudioPositions, 0, most},
	} {
		if l.v < l.low || l.v > l.high {
			return fmt.Errorf("%s %d: must be %d to %d", l.name, l.v, l.low, l.high)
		}
	}
	if c.KVHeads > c.Heads {
		return fmt.Errorf("key-value heads %d: must be at most the %d attention heads", c.KVHeads, c.Heads)
	}
	if c.traits.kind == vision && (c.PatchSize < 1 || c.ImageSize < c.PatchSize) {
		return fmt.Errorf("patch size %d: must be 1 to the image size, %d", c.PatchSize, c.ImageSize)
	}
	return nil
}
