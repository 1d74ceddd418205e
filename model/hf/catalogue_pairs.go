package hf

// others returns encoders, encoder-decoders and vision transformers.
func others() []shape {
	return append(encoders(), pairs()...)
}

func bertBase(c *Config) { c.TokenTypes, c.Activation = 2, "gelu" }

func bertHead(c *Config) {
	bertBase(c)
	c.Architecture = "BertLMHeadModel"
}

func oneType(c *Config) { c.TokenTypes, c.Activation = 1, "gelu" }

func image(size, patch int64) func(*Config) {
	return func(c *Config) {
		c.ImageSize, c.PatchSize, c.Labels, c.Architecture = size, patch, 1000, "ViTForImageClassification"
	}
}

func encoders() []shape {
	return []shape{
		{"bert-base-uncased|bert-base", "bert", 768, 12, 12, 0, 0, 30522, 512, "", bertBase},
		{"bert-base-cased", "bert", 768, 12, 12, 0, 0, 28996, 512, "", bertBase},
		{"bert-base-multilingual-cased", "bert", 768, 12, 12, 0, 0, 119547, 512, "", bertBase},
		{"bert-large-uncased", "bert", 1024, 24, 16, 0, 0, 30522, 512, "", bertBase},
		{"bert-large-cased", "bert", 1024, 24, 16, 0, 0, 28996, 512, "", bertBase},
		{"bert", "bert", 768, 12, 12, 0, 0, 30522, 512, "", bertHead},
		{"bert-large", "bert", 1024, 24, 16, 0, 0, 30522, 512, "", bertHead},
		{"roberta-base|roberta", "roberta", 768, 12, 12, 0, 0, 50265, 514, "", oneType},
		{"roberta-large", "roberta", 1024, 24, 16, 0, 0, 50265, 514, "", oneType},
		{"xlm-roberta-base", "xlm-roberta", 768, 12, 12, 0, 0, 250002, 514, "", oneType},
		{"xlm-roberta-large", "xlm-roberta", 1024, 24, 16, 0, 0, 250002, 514, "", oneType},
		{"distilbert-base-uncased|distilbert", "distilbert", 768, 6, 12, 0, 0, 30522, 512, "", nil},
		{"albert-base-v2|albert-base", "albert", 768, 12, 12, 0, 0, 30000, 512, "", func(c *Config) {
			c.TokenTypes, c.EmbedDim, c.Activation = 2, 128, "gelu_new"
			c.Dropout, c.AttentionDropout = false, false
		}},
		{"electra-base-discriminator|electra-base", "electra", 768, 12, 12, 0, 0, 30522, 512, "", bertBase},
		{"vit-base-patch16-224|vit-base", "vit", 768, 12, 12, 0, 0, 0, 0, "", image(224, 16)},
		{"vit-large-patch16-224|vit-large", "vit", 1024, 24, 16, 0, 0, 0, 0, "", image(224, 16)},
	}
}

func t5(head int64) func(*Config) {
	return func(c *Config) { c.HeadDim = head }
}

// t5v11 sets what T5 1.1 and FLAN-T5 have in common.
func t5v11(c *Config) {
	c.HeadDim, c.Gated, c.Tied, c.Activation = 64, true, false, "gelu_new"
}

func switchStep(n int64) func(*Config) {
	return func(c *Config) { c.HeadDim, c.Experts, c.ExpertsPerToken, c.SparseStep = 64, n, 1, 2 }
}

func layers(decoder int64) func(*Config) {
	return func(c *Config) { c.DecoderLayers = decoder }
}

func pairs() []shape {
	out := []shape{
		{"t5-small", "t5", 512, 6, 8, 0, 2048, 32128, 512, "", t5(64)},
		{"t5-base|t5", "t5", 768, 12, 12, 0, 3072, 32128, 512, "", t5(64)},
		{"t5-large", "t5", 1024, 24, 16, 0, 4096, 32128, 512, "", t5(64)},
		{"t5-3b", "t5", 1024, 24, 32, 0, 16384, 32128, 512, "", t5(128)},
		{"t5-11b", "t5", 1024, 24, 128, 0, 65536, 32128, 512, "", t5(128)},
		{"flan-t5-small|t5-v1_1-small", "t5", 512, 8, 6, 0, 1024, 32128, 512, "", t5v11},
		{"flan-t5-base|t5-v1_1-base|flan-t5", "t5", 768, 12, 12, 0, 2048, 32128, 512, "", t5v11},
		{"flan-t5-large|t5-v1_1-large", "t5", 1024, 24, 16, 0, 2816, 32128, 512, "", t5v11},
		{"flan-t5-xl|t5-v1_1-xl", "t5", 2048, 24, 32, 0, 5120, 32128, 512, "", t5v11},
		{"flan-t5-xxl|t5-v1_1-xxl", "t5", 4096, 24, 64, 0, 10240, 32128, 512, "", t5v11},
		{"switch-base-8|switch-base|switch", "switch_transformers", 768, 12, 12, 0, 3072, 32128, 512, "", switchStep(8)},
		{"switch-base-16", "switch_transformers", 768, 12, 12, 0, 3072, 32128, 512, "", switchStep(16)},
		{"switch-base-32", "switch_transformers", 768, 12, 12, 0, 3072, 32128, 512, "", switchStep(32)},
		{"switch-xl-4|switchxl4", "switch_transformers", 1024, 24, 32, 0, 16384, 32128, 512, brain, func(c *Config) {
			c.HeadDim, c.Experts, c.ExpertsPerToken, c.SparseStep = 128, 4, 1, 2
		}},
		{"bart-base|bart", "bart", 768, 6, 12, 0, 3072, 50265, 1024, "", nil},
		{"bart-large", "bart", 1024, 12, 16, 0, 4096, 50265, 1024, "", nil},
		{"whisper-tiny", "whisper", 384, 4, 6, 0, 1536, 51865, 448, "", nil},
		{"whisper-base", "whisper", 512, 6, 8, 0, 2048, 51865, 448, "", nil},
		{"whisper-small|whisper", "whisper", 768, 12, 12, 0, 3072, 51865, 448, "", nil},
		{"whisper-medium", "whisper", 1024, 24, 16, 0, 4096, 51865, 448, "", nil},
		{"whisper-large-v2|whisper-large", "whisper", 1280, 32, 20, 0, 5120, 51865, 448, "", nil},
		{"whisper-large-v3", "whisper", 1280, 32, 20, 0, 5120, 51866, 448, "", func(c *Config) { c.AudioBins = 128 }},
		{"distil-whisper-large-v3|distil-large-v3|whisper-large-v3-distil", "whisper", 1280, 32, 20, 0, 5120, 51866, 448, "", func(c *Config) {
			c.AudioBins, c.DecoderLayers = 128, 2
		}},
	}
	for i := range out {
		more, deep := out[i].more, out[i].layers
		out[i].more = func(c *Config) {
			layers(deep)(c)
			if more != nil {
				more(c)
			}
		}
	}
	return out
}
