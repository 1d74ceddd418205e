package hf

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/berth-scheduler/berth/model/graph"
)

// maxKeys bounds the keys of one object of config.json.
const maxKeys = 4096

// ParseConfig parses a config.json. Unknown keys are ignored; of a duplicate key
// the last one counts, as in Python. Errors wrap ErrMalformed or ErrLimit, or name
// the field that is missing or out of range. An unknown model_type is treated as
// Llama-like or GPT-like, and the result marked partial.
func ParseConfig(r io.Reader) (Config, error) {
	c, err := parseConfig(r)
	if err != nil {
		return Config{}, fmt.Errorf("config.json: %w", err)
	}
	return c, nil
}

func parseConfig(r io.Reader) (Config, error) {
	data, err := readBounded(r, MaxConfigBytes)
	if err != nil {
		return Config{}, err
	}
	o, err := parseObject(data, maxKeys)
	if err != nil {
		return Config{}, err
	}
	return fromObject(o)
}

// hiddenKeys are the keys for the width of the residual stream.
var hiddenKeys = [...]string{"hidden_size", "n_embd", "d_model", "dim", "n_embed"}

func fromObject(o *object) (Config, error) {
	var c Config
	if inner := o.object("text_config", "llm_config", "language_config"); inner != nil && !o.has(hiddenKeys[:]...) {
		if !inner.has("model_type") {
			inner.field["model_type"] = o.field["model_type"]
		}
		for _, k := range []string{"torch_dtype", "dtype", "quantization_config", "tie_word_embeddings", "_name_or_path"} {
			if !inner.has(k) {
				inner.field[k] = o.field[k]
			}
		}
		o = inner
		c.Partial = true
		c.note("only the text model is counted, not what reads images or sound")
	}
	for _, k := range o.twice {
		c.note("key %q is there more than once; the last one counts", shorten(k))
	}
	c.Name, c.Type = o.text("_name_or_path", "name_or_path"), o.text("model_type")
	c.Name = strings.Trim(c.Name[strings.LastIndexByte(strings.TrimRight(c.Name, "/"), '/')+1:], "/")
	if _, raw := o.find("architectures"); raw != nil {
		var all []string
		if json.Unmarshal(raw, &all) == nil && len(all) > 0 {
			c.Architecture = all[0]
		}
	}
	c.family()
	d := draft{&c, o}
	if !c.traits.known {
		d.guessFamily()
	}
	for _, step := range []func() error{d.readShape, d.readPair, d.readExperts, d.readInputs} {
		if err := step(); err != nil {
			return Config{}, err
		}
	}
	d.readTraits()
	d.readStorage()
	c.complete()
	return c, c.check()
}

// draft is a configuration and the object it is parsed from.
type draft struct {
	*Config
	o *object
}

// numbered is a number that the first of some keys gives.
type numbered struct {
	to    *int64
	names []string
}

func (o *object) numbers(list []numbered) error {
	for _, x := range list {
		if err := o.number(x.to, x.names...); err != nil {
			return err
		}
	}
	return nil
}

// guessFamily handles an unknown model_type.
func (c draft) guessFamily() {
	c.Partial = true
	like := "Llama"
	switch {
	case c.o.has("type_vocab_size"):
		like, c.traits, c.Gated, c.Tied = "BERT", bertTraits(), false, true
	case !c.o.has("rms_norm_eps") && c.o.has("n_embd", "layer_norm_epsilon", "layer_norm_eps"):
		like, c.traits, c.Gated = "GPT", gptTraits(), false
		c.traits.learned = c.o.has("n_positions")
	}
	name := cmp.Or(c.Type, "(none)")
	c.note("model type %s is not known; its layers are counted as %s's", shorten(name), like)
}

func (c draft) readShape() error {
	if c.Type == "gemma3_text" { // defaults of its own class where files omit them
		c.Heads, c.KVHeads, c.HeadDim, c.Vocab = 8, 4, 256, 262_208
	}
	if err := c.o.numbers([]numbered{
		{&c.Hidden, hiddenKeys[:]},
		{&c.Layers, []string{"num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers"}},
		{&c.Heads, []string{"num_attention_heads", "n_head", "num_heads", "n_heads", "encoder_attention_heads"}},
		{&c.KVHeads, []string{"num_key_value_heads", "num_kv_heads", "n_head_kv", "num_query_groups", "multi_query_group_num"}},
		{&c.HeadDim, []string{"head_dim", "d_kv", "kv_channels", "attention_head_size"}},
		{&c.FFN, []string{"intermediate_size", "n_inner", "ffn_dim", "d_ff", "hidden_dim", "ffn_hidden_size", "encoder_ffn_dim", "d_inner", "dff"}},
		{&c.Vocab, []string{"vocab_size", "padded_vocab_size"}},
		{&c.Positions, []string{"max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length", "max_target_positions", "max_sequence_length"}},
		{&c.TokenTypes, []string{"type_vocab_size"}},
		{&c.EmbedDim, []string{"word_embed_proj_dim", "embedding_size"}},
	}); err != nil {
		return err
	}
	if c.Hidden == 0 {
		return fmt.Errorf("the width is missing (hidden_size, n_embd, d_model or dim); only transformers are understood")
	}
	if c.Layers == 0 && !c.o.has("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers") {
		return fmt.Errorf("the number of layers is missing (num_hidden_layers, n_layer, num_layers or n_layers)")
	}
	if c.Heads == 0 && !c.o.has("num_attention_heads", "n_head", "num_heads", "n_heads", "encoder_attention_heads") {
		return fmt.Errorf("the number of attention heads is missing (num_attention_heads, n_head or num_heads); only transformers are understood")
	}
	multi := c.Type == "gpt_bigcode"
	c.o.truth(&multi, "multi_query")
	modern := false
	c.o.truth(&modern, "new_decoder_architecture")
	if multi && !modern {
		c.KVHeads = 1
	}
	if in := c.o.object("attn_config"); in != nil && c.KVHeads == 0 { // MPT
		return in.number(&c.KVHeads, "kv_n_heads")
	}
	return nil
}

// readPair reads what models with an encoder and a decoder give twice.
func (c draft) readPair() error {
	if c.traits.kind != encoderDecoder && c.traits.kind != speech {
		return nil
	}
	c.DecoderLayers, c.DecoderHeads, c.DecoderFFN = 0, 0, 0
	if err := c.o.numbers([]numbered{
		{&c.Layers, []string{"encoder_layers", "num_layers", "num_hidden_layers"}},
		{&c.Heads, []string{"encoder_attention_heads", "num_heads", "num_attention_heads"}},
		{&c.FFN, []string{"encoder_ffn_dim", "d_ff", "intermediate_size"}},
		{&c.DecoderLayers, []string{"decoder_layers", "num_decoder_layers"}},
		{&c.DecoderHeads, []string{"decoder_attention_heads"}},
		{&c.DecoderFFN, []string{"decoder_ffn_dim"}},
		{&c.AudioBins, []string{"num_mel_bins"}},
		{&c.AudioPositions, []string{"max_source_positions"}},
	}); err != nil {
		return err
	}
	c.DecoderLayers = cmp.Or(c.DecoderLayers, c.Layers)
	return nil
}

func (c draft) readExperts() error {
	if err := c.o.numbers([]numbered{
		{&c.Experts, []string{"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}},
		{&c.ExpertsPerToken, []string{"num_experts_per_tok", "num_selected_experts", "moe_top_k", "num_experts_per_token", "experts_per_token"}},
		{&c.ExpertFFN, []string{"moe_intermediate_size"}},
		{&c.SharedFFN, []string{"shared_expert_intermediate_size"}},
		{&c.SparseStep, []string{"encoder_sparse_step", "decoder_sparse_step"}},
	}); err != nil {
		return err
	}
	if c.Experts == 1 {
		c.Experts, c.ExpertsPerToken = 0, 0
	}
	if c.Experts > 0 && c.ExpertsPerToken == 0 {
		c.ExpertsPerToken = 1
		if c.Type != "switch_transformers" {
			c.note("the experts per token are missing; counted with 1")
		}
	}
	return nil
}

// readInputs reads the fields of image models, and the number of classes.
func (c draft) readInputs() error {
	if err := c.o.numbers([]numbered{
		{&c.ImageSize, []string{"image_size"}}, {&c.PatchSize, []string{"patch_size"}},
		{&c.Channels, []string{"num_channels"}}, {&c.Labels, []string{"num_labels", "num_classes"}},
	}); err != nil {
		return err
	}
	if labels := c.o.object("id2label"); labels != nil && c.Labels == 0 {
		c.Labels = int64(len(labels.keys))
	}
	if c.ImageSize > 0 && c.PatchSize > 0 && !c.traits.known && c.Vocab == 0 {
		c.traits = gptTraits()
		c.traits.kind, c.Gated = vision, false
	}
	return nil
}

// readTraits lets the file override what its model_type implies.
func (c draft) readTraits() {
	t := &c.traits
	c.Activation = c.o.text("hidden_act", "activation_function", "hidden_activation", "activation", "dense_act_fn", "ffn_activation")
	if proj := c.o.text("feed_forward_proj"); proj != "" {
		c.Gated = strings.HasPrefix(proj, "gated-")
		c.Activation = strings.TrimPrefix(proj, "gated-")
		if proj == "gated-gelu" {
			c.Activation = "gelu_new"
		}
	}
	c.o.truth(&c.Tied, "tie_word_embeddings")
	if c.o.has("attention_bias") && t.kind == decoder {
		c.o.truth(&t.qkvBias, "attention_bias")
		t.kBias, t.outBias = t.qkvBias, t.qkvBias
	}
	c.o.truth(&t.mlpBias, "mlp_bias")
	c.o.truth(&t.qkvBias, "use_qkv_bias")
	if c.o.has("use_qkv_bias") {
		t.kBias = t.qkvBias
	}
	switch c.Type {
	case "falcon", "RefinedWeb", "RefinedWebModel":
		c.readFalcon()
	case "opt":
		pre := true
		c.o.truth(&pre, "do_layer_norm_before")
		t.noFinalNorm = !pre
	case "gpt_neox", "stablelm", "phi", "cohere":
		c.o.truth(&t.qkNorm, "qk_layernorm", "use_qk_norm")
	case "bert":
		if causal := c.o.text("position_embedding_type"); causal != "" && causal != "absolute" {
			c.Partial = true
			c.note("relative positions are not counted")
		}
	}
	c.Dropout = c.o.positive(c.Dropout, "hidden_dropout_prob", "resid_pdrop", "hidden_dropout", "dropout", "dropout_rate", "residual_dropout", "resid_dropout")
	c.AttentionDropout = c.o.positive(c.AttentionDropout, "attention_probs_dropout_prob", "attn_pdrop", "attention_dropout", "dropout_rate")
	switch c.o.text("attn_implementation", "_attn_implementation") {
	case "eager":
		c.Tiled = false
	case "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention":
		c.Tiled = true
	}
}

func (c draft) readFalcon() {
	t := &c.traits
	parallel, modern, bias := true, c.Type == "RefinedWeb", false
	c.o.truth(&parallel, "parallel_attn")
	c.o.truth(&modern, "new_decoder_architecture")
	c.o.truth(&bias, "bias")
	t.qkvBias, t.kBias, t.outBias, t.mlpBias = bias, bias, bias, bias
	if modern || !parallel {
		t.norms = 2
	}
}

// readStorage reads how the checkpoint stores its weights.
func (c draft) readStorage() {
	switch c.o.text("torch_dtype", "dtype") {
	case "float32", "torch.float32":
		c.Precision = graph.FP32
	case "float16", "torch.float16":
		c.Precision = graph.FP16
	case "bfloat16", "torch.bfloat16":
		c.Precision = graph.BF16
	}
	q := c.o.object("quantization_config")
	if q == nil {
		return
	}
	four, eight := false, false
	o4, bits := q.text("quant_method"), int64(0)
	q.truth(&four, "load_in_4bit", "_load_in_4bit")
	q.truth(&eight, "load_in_8bit", "_load_in_8bit")
	if q.number(&bits, "bits", "w_bit") != nil {
		bits = 0
	}
	switch {
	case four, bits > 0 && bits <= 4, o4 == "mxfp4":
		c.WeightBits = 4
	case eight, bits > 4 && bits <= 8, o4 == "fp8", o4 == "fbgemm_fp8":
		c.WeightBits = 8
	default:
		c.note("quantization_config is not understood; weights are counted unquantized")
		c.Partial = true
	}
	q.truth(&c.DoubleQuant, "bnb_4bit_use_double_quant")
}

// complete fills in what the numbers imply.
func (c *Config) complete() {
	if c.HeadDim == 0 && c.Heads > 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	c.KVHeads = cmp.Or(c.KVHeads, c.Heads)
	if c.FFN == 0 {
		c.FFN = 4 * c.Hidden
		switch {
		case c.Gated && c.ExpertFFN == 0:
			c.note("the feed-forward size is missing; counted with 4 times the width")
		case c.Type == "t5" || c.Type == "bert":
			c.note("the feed-forward size is missing; counted with %d", c.FFN)
		}
	}
	c.DecoderHeads, c.DecoderFFN = cmp.Or(c.DecoderHeads, c.Heads), cmp.Or(c.DecoderFFN, c.FFN)
	if c.traits.kind != encoderDecoder && c.traits.kind != speech {
		c.DecoderHeads, c.DecoderFFN, c.DecoderLayers = 0, 0, 0
	}
	c.ExpertFFN = cmp.Or(c.ExpertFFN, c.FFN)
	c.SparseStep = max(1, c.SparseStep)
	if c.EmbedDim == c.Hidden || c.Type != "opt" && c.Type != "electra" && c.Type != "albert" {
		c.EmbedDim = 0
	}
	switch c.traits.kind {
	case vision:
		c.Channels, c.ImageSize, c.PatchSize = cmp.Or(c.Channels, 3), cmp.Or(c.ImageSize, 224), cmp.Or(c.PatchSize, 16)
	case speech:
		c.AudioBins, c.AudioPositions, c.Positions = cmp.Or(c.AudioBins, 80), cmp.Or(c.AudioPositions, 1500), cmp.Or(c.Positions, 448)
	default:
		if c.Vocab == 0 {
			c.Partial = true
			c.note("vocab_size is missing; neither embeddings nor outputs are counted")
		}
	}
}
