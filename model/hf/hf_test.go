package hf

import "testing"

func TestPublishedParameterCounts(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int64{
		"gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080, "gpt2-xl": 1_557_611_200, "distilgpt2": 81_912_576,
		"bert-base-uncased": 109_482_240, "bert-large-uncased": 335_141_888, "bert-base-cased": 108_310_272,
		"roberta-base": 124_645_632, "roberta-large": 355_359_744, "distilbert-base-uncased": 66_362_880, "albert-base-v2": 11_683_584,
		"xlm-roberta-base": 278_043_648, "electra-base": 108_891_648,
		"opt-125m": 125_239_296, "opt-350m": 331_196_416, "opt-1.3b": 1_315_758_080, "opt-2.7b": 2_651_596_800, "opt-6.7b": 6_658_473_984,
		"opt-13b": 12_853_473_280, "opt-30b": 29_974_540_288,
		"pythia-70m": 70_426_624, "pythia-160m": 162_322_944, "pythia-410m": 405_334_016, "pythia-1b": 1_011_781_632,
		"pythia-1.4b": 1_414_647_808, "pythia-2.8b": 2_775_208_960, "pythia-6.9b": 6_857_302_016, "pythia-12b": 11_846_072_320,
		"gpt-neox-20b": 20_554_567_680, "gpt-j-6b": 6_050_882_784, "gpt-neo-125m": 125_198_592, "gpt-neo-1.3b": 1_315_575_808, "gpt-neo-2.7b": 2_651_307_520,
		"bloom-560m": 559_214_592, "bloom-7b1": 7_069_016_064,
		"phi-1.5": 1_418_270_720, "phi-2": 2_779_683_840, "phi-3-mini": 3_821_079_552, "phi-3-medium": 13_960_238_080, "phi-4": 14_659_507_200, "phi-4-mini": 3_836_021_760,
		"llama-7b": 6_738_415_616, "llama-2-7b": 6_738_415_616, "llama-2-13b": 13_015_864_320, "llama-2-70b": 68_976_648_192,
		"llama-3-8b": 8_030_261_248, "llama-3-70b": 70_553_706_496, "llama-3.1-405b": 405_853_388_800, "llama-3.2-1b": 1_235_814_400, "llama-3.2-3b": 3_212_749_824,
		"open_llama_3b": 3_426_473_600, "tinyllama-1.1b": 1_100_048_384, "codellama-34b": 33_743_970_304,
		"mistral-7b": 7_241_732_096, "mistral-7b-v0.3": 7_248_023_552, "mistral-nemo-12b": 12_247_782_400, "mixtral-8x7b": 46_702_792_704,
		"falcon-7b": 6_921_720_704, "danube2-1.8b": 1_831_201_280,
		"gemma-2b": 2_506_172_416, "gemma-7b": 8_537_680_896, "gemma-2-2b": 2_614_341_888, "gemma-2-9b": 9_241_705_984, "gemma-2-27b": 27_227_128_320, "gemma-3-1b": 999_885_952,
		"stablelm-3b-4e1t": 2_795_443_200, "stablelm-2-1.6b": 1_644_515_328,
		"qwen2-0.5b": 494_032_768, "qwen2-1.5b": 1_543_714_304, "qwen2.5-3b": 3_085_938_688, "qwen2-7b": 7_615_616_512, "qwen2.5-14b": 14_770_033_664, "qwen2.5-32b": 32_763_876_352, "qwen2-72b": 72_706_203_648,
		"qwen3-0.6b": 596_049_920, "qwen3-1.7b": 1_720_574_976, "qwen3-4b": 4_022_468_096, "qwen3-8b": 8_190_735_360, "deepseek-r1-distill-qwen-1.5b": 1_777_088_000,
		"t5-small": 60_506_624, "t5-base": 222_903_552, "t5-large": 737_668_096, "t5-3b": 2_851_598_336, "t5-11b": 11_307_321_344,
		"flan-t5-small": 76_961_152, "flan-t5-base": 247_577_856, "flan-t5-large": 783_150_080, "flan-t5-xl": 2_849_757_184, "flan-t5-xxl": 11_135_332_352,
		"bart-base": 139_420_416, "bart-large": 406_291_456,
		"whisper-tiny": 37_760_640, "whisper-base": 72_593_920, "whisper-small": 241_734_912, "whisper-medium": 763_857_920, "whisper-large-v2": 1_543_304_960, "whisper-large-v3": 1_543_490_560,
		"vit-base": 86_567_656, "vit-large": 304_326_632, "starcoder": 15_517_456_384, "starcoder2-3b": 3_030_371_328, "starcoder2-7b": 7_173_923_840, "starcoder2-15b": 15_957_889_024,
		"mpt-7b": 6_649_286_656, "olmo-1b": 1_176_764_416, "olmo-7b": 6_888_095_744, "yi-6b": 6_061_035_520, "yi-34b": 34_388_917_248,
		"mistral-small-24b": 23_572_403_200, "qwen3-30b-a3b": 30_532_122_624, "qwen3-235b-a22b": 235_093_634_560, "olmo-2-7b": 7_298_617_344, "olmo-2-13b": 13_716_198_400,
		"salamandra-2b": 2_253_490_176, "salamandra-7b": 7_768_117_248, "mistral-large-123b": 122_610_069_504, "falcon-40b": 41_303_293_952, "bloom-1b1": 1_065_314_304, "bloom-3b": 3_002_557_440,
		"smollm2-135m": 134_515_008, "smollm2-360m": 361_821_120, "smollm2-1.7b": 1_711_376_384,
	} {
		c, err := Lookup(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := c.Params(); got != want {
			t.Errorf("%s: %d parameters, want %d (%+d, %.4f%%)", name, got, want, got-want, 100*float64(got-want)/float64(want))
		}
	}
}
