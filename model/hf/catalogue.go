package hf

// catalogue returns the table of known shapes. Numbers are the architectures' as
// their authors published them; tests compare the parameter counts with the
// published ones.
func catalogue() []shape {
	return append(decoders(), others()...)
}

func tied(c *Config)   { c.Tied = true }
func untied(c *Config) { c.Tied = false }

func headDim(n int64) func(*Config) { return func(c *Config) { c.HeadDim = n } }

func headDimTied(n int64) func(*Config) {
	return func(c *Config) { c.HeadDim, c.Tied = n, true }
}

func experts(n, used int64) func(*Config) {
	return func(c *Config) { c.Experts, c.ExpertsPerToken = n, used }
}

func qwenExperts(width int64) func(*Config) {
	return func(c *Config) { c.HeadDim, c.Experts, c.ExpertsPerToken, c.ExpertFFN = 128, 128, 8, width }
}

func falconModern(c *Config) { c.traits.norms = 2 }

func qkvBias(c *Config) { c.traits.qkvBias, c.traits.kBias = true, true }

// decoders returns decoder-only language models.
func decoders() []shape {
	return append(gptLike(), llamaLike()...)
}

func gptLike() []shape {
	return append(neoxLike(), []shape{
		{"gpt2|gpt2-small|gpt2-base", "gpt2", 768, 12, 12, 0, 0, 50257, 1024, "", nil},
		{"gpt2-medium|gpt2_med", "gpt2", 1024, 24, 16, 0, 0, 50257, 1024, "", nil},
		{"gpt2-large", "gpt2", 1280, 36, 20, 0, 0, 50257, 1024, "", nil},
		{"gpt2-xl", "gpt2", 1600, 48, 25, 0, 0, 50257, 1024, "", nil},
		{"distilgpt2", "gpt2", 768, 6, 12, 0, 0, 50257, 1024, "", nil},
		{"gpt3-xl", "gpt2", 3072, 24, 24, 0, 0, 50257, 2048, "", nil},
		{"gpt3-2.7b|gpt3_27", "gpt2", 2560, 32, 32, 0, 0, 50257, 2048, "", nil},
		{"gpt3-6.7b|gpt3_67", "gpt2", 4096, 32, 32, 0, 0, 50257, 2048, "", nil},
		{"gpt3-13b|gpt3_13", "gpt2", 5120, 40, 40, 0, 0, 50257, 2048, "", nil},
		{"opt-125m", "opt", 768, 12, 12, 0, 0, 50272, 2048, half, nil},
		{"opt-350m", "opt", 1024, 24, 16, 0, 0, 50272, 2048, half, func(c *Config) { c.EmbedDim, c.traits.noFinalNorm = 512, true }},
		{"opt-1.3b|opt|opt_13", "opt", 2048, 24, 32, 0, 0, 50272, 2048, half, nil},
		{"opt-2.7b", "opt", 2560, 32, 32, 0, 0, 50272, 2048, half, nil},
		{"opt-6.7b", "opt", 4096, 32, 32, 0, 0, 50272, 2048, half, nil},
		{"opt-13b", "opt", 5120, 40, 40, 0, 0, 50272, 2048, half, nil},
		{"opt-30b", "opt", 7168, 48, 56, 0, 0, 50272, 2048, half, nil},
		{"opt-66b", "opt", 9216, 64, 72, 0, 0, 50272, 2048, half, nil},
		{"gpt-j-6b|gpt-j", "gptj", 4096, 28, 16, 0, 0, 50400, 2048, half, nil},
		{"gpt-neo-125m", "gpt_neo", 768, 12, 12, 0, 0, 50257, 2048, "", nil},
		{"gpt-neo-1.3b", "gpt_neo", 2048, 24, 16, 0, 0, 50257, 2048, "", nil},
		{"gpt-neo-2.7b", "gpt_neo", 2560, 32, 20, 0, 0, 50257, 2048, "", nil},
		{"bloom-560m", "bloom", 1024, 24, 16, 0, 0, 250880, 2048, half, nil},
		{"bloom-1b1|bloom-1.1b", "bloom", 1536, 24, 16, 0, 0, 250880, 2048, half, nil},
		{"bloom-1b7|bloom-1.7b", "bloom", 2048, 24, 16, 0, 0, 250880, 2048, half, nil},
		{"bloom-3b", "bloom", 2560, 30, 32, 0, 0, 250880, 2048, half, nil},
		{"bloom-7b1|bloom-7.1b", "bloom", 4096, 30, 32, 0, 0, 250880, 2048, half, nil},
		{"phi-1", "phi", 2048, 24, 32, 0, 0, 51200, 2048, half, nil},
		{"phi-1.5|phi-1_5|phi-1.5-1.3b", "phi", 2048, 24, 32, 0, 0, 51200, 2048, half, nil},
		{"phi-2|phi-2-2.7b", "phi", 2560, 32, 32, 0, 0, 51200, 2048, half, nil},
		{"falcon-7b", "falcon", 4544, 32, 71, 1, 0, 65024, 2048, brain, nil},
		{"falcon-40b", "falcon", 8192, 60, 128, 8, 0, 65024, 2048, brain, falconModern},
		{"falcon-180b", "falcon", 14848, 80, 232, 8, 0, 65024, 2048, brain, falconModern},
		{"mpt-7b", "mpt", 4096, 32, 32, 0, 0, 50432, 2048, brain, nil},
		{"mpt-30b", "mpt", 7168, 48, 64, 0, 0, 50432, 8192, brain, nil},
		{"starcoder|starcoder-15b|starcoderbase", "gpt_bigcode", 6144, 40, 48, 1, 0, 49152, 8192, brain, nil},
		{"starcoder2-3b", "starcoder2", 3072, 30, 24, 2, 12288, 49152, 16384, brain, nil},
		{"starcoder2-7b", "starcoder2", 4608, 32, 36, 4, 18432, 49152, 16384, brain, nil},
		{"starcoder2-15b", "starcoder2", 6144, 40, 48, 4, 24576, 49152, 16384, brain, untied},
		{"stablelm-3b-4e1t|stablelm-3b|stablelm-zephyr-3b|zephyr-3b", "stablelm", 2560, 32, 32, 0, 6912, 50304, 4096, brain, nil},
		{"stable-code-3b|stablecode-stable-3b", "stablelm", 2560, 32, 32, 0, 6912, 50304, 16384, brain, nil},
		{"stablelm-2-1.6b|stablelm-2-zephyr-1.6b", "stablelm", 2048, 24, 32, 0, 5632, 100352, 4096, brain, qkvBias},
	}...)
}

// neoxLike returns GPT-NeoX and its derivatives.
func neoxLike() []shape {
	return []shape{
		{"pythia-14m", "gpt_neox", 128, 6, 4, 0, 0, 50304, 512, half, nil},
		{"pythia-31m", "gpt_neox", 256, 6, 8, 0, 0, 50304, 1024, half, nil},
		{"pythia-70m", "gpt_neox", 512, 6, 8, 0, 0, 50304, 2048, half, nil},
		{"pythia-160m", "gpt_neox", 768, 12, 12, 0, 0, 50304, 2048, half, nil},
		{"pythia-410m", "gpt_neox", 1024, 24, 16, 0, 0, 50304, 2048, half, nil},
		{"pythia-1b", "gpt_neox", 2048, 16, 8, 0, 0, 50304, 2048, half, nil},
		{"pythia-1.4b", "gpt_neox", 2048, 24, 16, 0, 0, 50304, 2048, half, nil},
		{"pythia-2.8b", "gpt_neox", 2560, 32, 32, 0, 0, 50304, 2048, half, nil},
		{"pythia-6.9b", "gpt_neox", 4096, 32, 32, 0, 0, 50432, 2048, half, nil},
		{"pythia-12b", "gpt_neox", 5120, 36, 40, 0, 0, 50688, 2048, half, nil},
		{"gpt-neox-20b", "gpt_neox", 6144, 44, 64, 0, 0, 50432, 2048, half, nil},
		{"dolly-v2-3b", "gpt_neox", 2560, 32, 32, 0, 0, 50280, 2048, brain, nil},
		{"dolly-v2-7b", "gpt_neox", 4096, 32, 32, 0, 0, 50280, 2048, brain, nil},
		{"dolly-v2-12b", "gpt_neox", 5120, 36, 40, 0, 0, 50280, 2048, brain, nil},
		{"redpajama-incite-base-3b|redpajama-incite-3b", "gpt_neox", 2560, 32, 32, 0, 0, 50432, 2048, half, nil},
		{"redpajama-incite-7b-base|redpajama-incite-7b", "gpt_neox", 4096, 32, 32, 0, 0, 50432, 2048, half, nil},
		{"stablelm-base-alpha-3b|stablelm-alpha-3b|stablelm-alpha", "gpt_neox", 4096, 16, 32, 0, 0, 50688, 4096, half, nil},
		{"stablelm-base-alpha-7b|stablelm-alpha-7b", "gpt_neox", 6144, 16, 48, 0, 0, 50432, 4096, half, nil},
		{"stablecode-completion-alpha-3b|stablecode-instruct-alpha-3b|stablecode-alpha-3b|stablecode-3b", "gpt_neox", 2560, 32, 32, 0, 0, 49152, 16384, half, nil},
		{"stablecode-completion-alpha-3b-4k", "gpt_neox", 2560, 32, 32, 0, 0, 49152, 4096, half, nil},
	}
}

func llamaLike() []shape {
	return append([]shape{
		{"llama-2-7b|vicuna-7b|platypus2-7b|llama-2-7b-32k|function-calling-llama-2-7b|llama-2-7b-chat-hf-function-calling-v2", "llama", 4096, 32, 32, 0, 11008, 32000, 4096, half, nil},
		{"llama-2-13b|vicuna-13b|platypus2-13b|camel-platypus2-13b|stable-platypus2-13b", "llama", 5120, 40, 40, 0, 13824, 32000, 4096, half, nil},
		{"llama-2-70b|platypus2-70b|camel-platypus2-70b|freewilly2|stablebeluga2", "llama", 8192, 80, 64, 8, 28672, 32000, 4096, half, nil},
		{"llama-7b|vicuna-7b-v1.3|open_llama_7b|open-llama-7b|openllama-7b", "llama", 4096, 32, 32, 0, 11008, 32000, 2048, half, nil},
		{"llama-13b|vicuna-13b-v1.3|open_llama_13b|open-llama-13b|openllama-13b", "llama", 5120, 40, 40, 0, 13824, 32000, 2048, half, nil},
		{"llama-30b|llama-33b|vicuna-33b|vicuna-33b-v1.3|platypus-30b", "llama", 6656, 60, 52, 0, 17920, 32000, 2048, half, nil},
		{"llama-65b", "llama", 8192, 80, 64, 0, 22016, 32000, 2048, half, nil},
		{"longchat-7b-16k|longchat-7b", "llama", 4096, 32, 32, 0, 11008, 32000, 16384, half, nil},
		{"longchat-13b-16k|longchat-13b", "llama", 5120, 40, 40, 0, 13824, 32000, 16384, half, nil},
		{"nous-hermes-13b", "llama", 5120, 40, 40, 0, 13824, 32001, 2048, half, nil},
		{"nous-hermes-llama-2-7b", "llama", 4096, 32, 32, 0, 11008, 32000, 4096, half, nil},
		{"nous-hermes-llama2-13b", "llama", 5120, 40, 40, 0, 13824, 32032, 4096, half, nil},
		{"open_llama_3b|open-llama-3b|openllama-3b", "llama", 3200, 26, 32, 0, 8640, 32000, 2048, half, nil},
		{"tinyllama-1.1b|tiny-llama-1.1b|tinyllama|tiny-llama", "llama", 2048, 22, 32, 4, 5632, 32000, 2048, brain, nil},
		{"llama-3-8b|llama-3", "llama", 4096, 32, 32, 8, 14336, 128256, 8192, brain, nil},
		{"llama-3-70b", "llama", 8192, 80, 64, 8, 28672, 128256, 8192, brain, nil},
		{"llama-3.1-8b|llama-3.1|deepseek-r1-distill-llama-8b", "llama", 4096, 32, 32, 8, 14336, 128256, 131072, brain, nil},
		{"llama-3.1-70b|llama-3.3-70b|deepseek-r1-distill-llama-70b|llama-3.1-nemotron-70b", "llama", 8192, 80, 64, 8, 28672, 128256, 131072, brain, nil},
		{"llama-3.1-405b", "llama", 16384, 126, 128, 8, 53248, 128256, 131072, brain, nil},
		{"llama-3.2-1b|llama-3.2", "llama", 2048, 16, 32, 8, 8192, 128256, 131072, brain, tied},
		{"llama-3.2-3b", "llama", 3072, 28, 24, 8, 8192, 128256, 131072, brain, tied},
		{"codellama-7b|code-llama-7b", "llama", 4096, 32, 32, 0, 11008, 32016, 16384, brain, nil},
		{"codellama-7b-python", "llama", 4096, 32, 32, 0, 11008, 32000, 16384, brain, nil},
		{"codellama-13b|code-llama-13b", "llama", 5120, 40, 40, 0, 13824, 32016, 16384, brain, nil},
		{"codellama-13b-python", "llama", 5120, 40, 40, 0, 13824, 32000, 16384, brain, nil},
		{"codellama-34b|code-llama-34b|codellama-34b-python", "llama", 8192, 48, 64, 8, 22016, 32000, 16384, brain, nil},
		{"codellama-70b|code-llama-70b|codellama-70b-python", "llama", 8192, 80, 64, 8, 28672, 32016, 16384, brain, nil},
		{"yi-6b", "llama", 4096, 32, 32, 4, 11008, 64000, 4096, brain, nil},
		{"yi-34b", "llama", 7168, 60, 56, 8, 20480, 64000, 4096, brain, nil},
		{"salamandra-2b", "llama", 2048, 24, 16, 0, 5440, 256000, 8192, brain, nil},
		{"salamandra-7b", "llama", 4096, 32, 32, 8, 11008, 256000, 8192, brain, nil},
		{"microllama-300m|microllama", "llama", 1024, 12, 16, 4, 5632, 32000, 2048, brain, nil},
		{"smollm2-135m|smollm-135m", "llama", 576, 30, 9, 3, 1536, 49152, 8192, brain, tied},
		{"smollm2-360m|smollm-360m", "llama", 960, 32, 15, 5, 2560, 49152, 8192, brain, tied},
		{"smollm2-1.7b|smollm-1.7b", "llama", 2048, 24, 32, 0, 8192, 49152, 8192, brain, tied},
		{"falcon3-1b", "llama", 2048, 18, 8, 4, 8192, 131072, 8192, brain, headDim(256)},
		{"falcon3-3b", "llama", 3072, 22, 12, 4, 9216, 131072, 32768, brain, headDim(256)},
		{"falcon3-7b", "llama", 3072, 28, 12, 4, 23040, 131072, 32768, brain, headDim(256)},
		{"falcon3-10b", "llama", 3072, 40, 12, 4, 23040, 131072, 32768, brain, headDim(256)},
		{"danube3-4b", "llama", 3840, 24, 32, 8, 10240, 32000, 8192, brain, nil},
	}, newerLlamaLike()...)
}

func newerLlamaLike() []shape {
	return []shape{
		{"mistral-7b|mistral-7b-v0.1|mistral-7b-v0.2|mistral|zephyr-7b|zephyr-7b-beta", "mistral", 4096, 32, 32, 8, 14336, 32000, 32768, brain, nil},
		{"mistral-7b-v0.3|mistral-7b-instruct-v0.3|mathstral-7b", "mistral", 4096, 32, 32, 8, 14336, 32768, 32768, brain, nil},
		{"mistral-nemo-12b|mistral-nemo|mistral-nemo-2407", "mistral", 5120, 40, 32, 8, 14336, 131072, 131072, brain, headDim(128)},
		{"mistral-small-24b|mistral-small", "mistral", 5120, 40, 32, 8, 32768, 131072, 32768, brain, headDim(128)},
		{"mistral-large-123b|mistral-large|mistral-large-2407", "mistral", 12288, 88, 96, 8, 28672, 32768, 131072, brain, nil},
		{"mixtral-8x7b|mixtral", "mixtral", 4096, 32, 32, 8, 14336, 32000, 32768, brain, experts(8, 2)},
		{"mixtral-8x22b", "mixtral", 6144, 56, 48, 8, 16384, 32768, 65536, brain, experts(8, 2)},
		{"danube2-1.8b|danube2|danube-1.8b", "mistral", 2560, 24, 32, 8, 6912, 32000, 8192, brain, nil},
		{"gemma-2b|codegemma-2b", "gemma", 2048, 18, 8, 1, 16384, 256000, 8192, brain, headDim(256)},
		{"gemma-7b|codegemma-7b", "gemma", 3072, 28, 16, 16, 24576, 256000, 8192, brain, headDim(256)},
		{"gemma-2-2b", "gemma2", 2304, 26, 8, 4, 9216, 256000, 8192, brain, headDim(256)},
		{"gemma-2-9b", "gemma2", 3584, 42, 16, 8, 14336, 256000, 8192, brain, headDim(256)},
		{"gemma-2-27b", "gemma2", 4608, 46, 32, 16, 36864, 256000, 8192, brain, headDim(128)},
		{"gemma-3-1b", "gemma3_text", 1152, 26, 4, 1, 6912, 262144, 32768, brain, headDim(256)},
		{"gemma-3-4b", "gemma3_text", 2560, 34, 8, 4, 10240, 262208, 131072, brain, headDim(256)},
		{"gemma-3-12b", "gemma3_text", 3840, 48, 16, 8, 15360, 262208, 131072, brain, headDim(256)},
		{"gemma-3-27b", "gemma3_text", 5376, 62, 32, 16, 21504, 262208, 131072, brain, headDim(128)},
		{"phi-3-mini|phi-3|phi-3-3.8b|phi-3.5-mini|phi-3.5", "phi3", 3072, 32, 32, 0, 8192, 32064, 4096, brain, nil},
		{"phi-3-medium|phi-3-14b", "phi3", 5120, 40, 40, 10, 17920, 32064, 4096, brain, nil},
		{"phi-4|phi-4-14b", "phi3", 5120, 40, 40, 10, 17920, 100352, 16384, brain, nil},
		{"phi-4-mini", "phi3", 3072, 32, 24, 8, 8192, 200064, 131072, brain, tied},
		{"qwen2-0.5b|qwen2.5-0.5b|qwen2.5-coder-0.5b", "qwen2", 896, 24, 14, 2, 4864, 151936, 32768, brain, tied},
		{"qwen2-1.5b|qwen2.5-1.5b|qwen2.5-coder-1.5b|qwen2.5-math-1.5b", "qwen2", 1536, 28, 12, 2, 8960, 151936, 32768, brain, tied},
		{"deepseek-r1-distill-qwen-1.5b", "qwen2", 1536, 28, 12, 2, 8960, 151936, 131072, brain, nil},
		{"qwen2.5-3b|qwen2.5-coder-3b", "qwen2", 2048, 36, 16, 2, 11008, 151936, 32768, brain, tied},
		{"qwen2-7b|qwen2.5-7b|qwen2.5-7b-1m|qwen2.5-coder-7b|qwen2.5-math-7b|deepseek-r1-distill-qwen-7b", "qwen2", 3584, 28, 28, 4, 18944, 152064, 131072, brain, nil},
		{"qwen2.5-14b|qwen2.5-14b-1m|qwen2.5-coder-14b|deepseek-r1-distill-qwen-14b", "qwen2", 5120, 48, 40, 8, 13824, 152064, 131072, brain, nil},
		{"qwen2.5-32b|qwen2.5-coder-32b|qwq-32b|deepseek-r1-distill-qwen-32b", "qwen2", 5120, 64, 40, 8, 27648, 152064, 131072, brain, nil},
		{"qwen2-72b|qwen2.5-72b|qwen2.5-math-72b", "qwen2", 8192, 80, 64, 8, 29568, 152064, 131072, brain, nil},
		{"qwen3-0.6b", "qwen3", 1024, 28, 16, 8, 3072, 151936, 40960, brain, headDimTied(128)},
		{"qwen3-1.7b", "qwen3", 2048, 28, 16, 8, 6144, 151936, 40960, brain, headDimTied(128)},
		{"qwen3-4b", "qwen3", 2560, 36, 32, 8, 9728, 151936, 40960, brain, headDimTied(128)},
		{"qwen3-8b", "qwen3", 4096, 36, 32, 8, 12288, 151936, 40960, brain, headDim(128)},
		{"qwen3-14b", "qwen3", 5120, 40, 40, 8, 17408, 151936, 40960, brain, headDim(128)},
		{"qwen3-32b", "qwen3", 5120, 64, 64, 8, 25600, 151936, 40960, brain, headDim(128)},
		{"qwen3-30b-a3b|qwen3-30b", "qwen3_moe", 2048, 48, 32, 4, 6144, 151936, 40960, brain, qwenExperts(768)},
		{"qwen3-235b-a22b|qwen3-235b", "qwen3_moe", 4096, 94, 64, 4, 12288, 151936, 40960, brain, qwenExperts(1536)},
		{"olmo-2-1b|olmo-2-0425-1b", "olmo2", 2048, 16, 16, 0, 8192, 100352, 4096, brain, nil},
		{"olmo-2-7b|olmo-2-1124-7b", "olmo2", 4096, 32, 32, 0, 11008, 100352, 4096, brain, nil},
		{"olmo-2-13b|olmo-2-1124-13b", "olmo2", 5120, 40, 40, 0, 13824, 100352, 4096, brain, nil},
		{"olmo-1b", "olmo", 2048, 16, 16, 0, 8192, 50304, 2048, "", tied},
		{"olmo-7b", "olmo", 4096, 32, 32, 0, 11008, 50304, 2048, "", nil},
	}
}
