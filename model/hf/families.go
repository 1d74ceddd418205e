package hf

import "strings"

// kind is the structure of a model.
type kind uint8

const (
	decoder kind = iota
	encoder
	encoderDecoder
	vision
	speech
)

// traits are what model_type determines, besides the numbers of the configuration.
type traits struct {
	known        bool
	kind         kind
	rms          bool  // RMSNorm: one weight per value, no bias
	normBias     bool  // of LayerNorm
	plainNorm    bool  // norms without weights
	norms        int64 // per layer, without cross attention's
	qkvBias      bool
	kBias        bool // the key projection's
	outBias      bool
	mlpBias      bool
	headBias     bool
	learned      bool  // learned positions
	posOffset    int64 // rows before the first learned position
	embedNorm    bool
	noFinalNorm  bool
	qkNorm       bool
	sharedLayers bool // one layer's weights serve all
	relative     bool // T5's relative position buckets
	pooler       bool
	// scoresFP32 means that eager attention computes its softmax in float32.
	scoresFP32 bool
}

func gptTraits() traits {
	return traits{known: true, normBias: true, norms: 2, qkvBias: true, kBias: true, outBias: true, mlpBias: true, learned: true}
}

func llamaTraits() traits {
	return traits{known: true, rms: true, norms: 2, scoresFP32: true}
}

func bertTraits() traits {
	t := gptTraits()
	t.kind, t.embedNorm, t.noFinalNorm, t.pooler = encoder, true, true, true
	return t
}

// family sets the traits of a model_type and the defaults that go with it.
func (c *Config) family() {
	c.Tiled = true
	switch c.Type {
	case "gpt2", "gpt_bigcode", "openai-gpt", "imagegpt":
		c.traits, c.Tied, c.Dropout, c.AttentionDropout = gptTraits(), true, true, true
		if c.Type == "openai-gpt" {
			c.traits.noFinalNorm = true
		}
	case "opt":
		c.traits, c.Tied, c.Dropout = gptTraits(), true, true
		c.traits.posOffset = 2
	case "gpt_neo":
		c.traits, c.Tied = gptTraits(), true
		c.traits.qkvBias, c.traits.kBias = false, false
	case "gptj", "codegen":
		c.traits = traits{known: true, normBias: true, norms: 1, mlpBias: true, headBias: true}
	case "gpt_neox", "bloom", "starcoder2", "phi", "mpt", "falcon", "RefinedWeb", "RefinedWebModel", "stablelm", "stablelm_epoch", "cohere":
		c.rotaryFamily()
	case "bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "albert", "xlm-roberta-xl", "mpnet",
		"deberta", "deberta-v2", "roformer", "longformer", "ernie":
		c.encoderFamily()
	case "t5", "mt5", "umt5", "longt5", "switch_transformers", "bart", "mbart", "marian", "pegasus", "m2m_100", "blenderbot", "whisper":
		c.pairFamily()
	case "vit", "deit", "beit", "dinov2", "vit_mae", "clip_vision_model", "siglip_vision_model":
		c.traits, c.Dropout = gptTraits(), false
		c.traits.kind = vision
	default:
		c.llamaFamily()
	}
}

// rotaryFamily handles decoders without learned positions that are not Llama-like.
func (c *Config) rotaryFamily() {
	t := gptTraits()
	t.learned = false
	switch c.Type {
	case "gpt_neox":
		c.Fused = true
	case "bloom":
		t.embedNorm, c.Tied = true, true
	case "starcoder2":
		c.Tied = true
	case "phi":
		t.norms, t.headBias = 1, true
	case "mpt":
		t = traits{known: true, norms: 2}
		c.Tied, c.Tiled = true, false
	case "falcon", "RefinedWeb", "RefinedWebModel":
		t.norms, t.qkvBias, t.kBias, t.outBias, t.mlpBias = 1, false, false, false, false
		c.Tied, c.Fused = true, true
	case "stablelm", "stablelm_epoch":
		t.qkvBias, t.kBias, t.outBias, t.mlpBias = false, false, false, false
		c.Gated = true
	case "cohere":
		t = traits{known: true, norms: 1}
		c.Gated, c.Tied = true, true
	}
	c.traits = t
}

func (c *Config) encoderFamily() {
	c.traits, c.Tied, c.Dropout, c.AttentionDropout = bertTraits(), true, true, true
	switch c.Type {
	case "distilbert", "electra", "deberta", "deberta-v2":
		c.traits.pooler = false
	case "albert":
		c.traits.sharedLayers = true
	case "longformer", "roformer", "mpnet":
		c.Partial = true
		c.note("model type %s: its own kind of attention is counted as BERT's", c.Type)
	}
	if strings.HasPrefix(c.Type, "deberta") {
		c.Partial, c.Tiled = true, false
		c.note("model type %s: its relative attention is counted as BERT's", c.Type)
	}
}

// pairFamily handles models with an encoder and a decoder.
func (c *Config) pairFamily() {
	switch c.Type {
	case "t5", "mt5", "umt5", "longt5", "switch_transformers":
		c.traits = traits{known: true, kind: encoderDecoder, rms: true, norms: 2, relative: true, scoresFP32: true}
		c.Tied, c.Tiled, c.Dropout, c.AttentionDropout = true, false, true, true
	case "whisper":
		c.traits = gptTraits()
		c.traits.kind, c.traits.kBias, c.Tied = speech, false, true
	default:
		c.traits, c.Tied, c.Dropout = gptTraits(), true, true
		c.traits.kind = encoderDecoder
		switch c.Type {
		case "bart":
			c.traits.posOffset, c.traits.embedNorm, c.traits.noFinalNorm = 2, true, true
		case "mbart":
			c.traits.posOffset, c.traits.embedNorm = 2, true
		case "marian":
			c.traits.learned, c.traits.noFinalNorm = false, true
		case "pegasus", "m2m_100":
			c.traits.learned = false
		}
	}
}

// llamaFamily handles Llama-like and unknown models.
func (c *Config) llamaFamily() {
	c.traits, c.Gated = llamaTraits(), true
	switch c.Type {
	case "llama", "mistral", "mixtral", "olmo2", "internlm", "baichuan", "yi", "phi3", "olmoe", "granite", "qwen2_moe", "exaone", "arcee", "smollm3", "ministral":
		c.traits.qkvBias, c.traits.kBias = c.Type == "qwen2_moe", c.Type == "qwen2_moe"
		c.traits.qkNorm, c.Fused = c.Type == "olmoe" || c.Type == "olmo2", c.Type == "phi3"
		c.Tied = false
	case "qwen2":
		c.traits.qkvBias, c.traits.kBias = true, true
	case "qwen3", "qwen3_moe":
		c.traits.qkNorm = true
	case "gemma", "gemma2", "gemma3", "gemma3_text":
		c.Tied = true
		if c.Type != "gemma" {
			c.traits.norms = 4
			c.Tiled = c.Type != "gemma2" // it caps its scores, which tiled kernels cannot
			c.traits.qkNorm = c.Type != "gemma2"
		}
	case "olmo":
		c.traits.plainNorm = true
	default:
		c.traits.known = false
	}
}
