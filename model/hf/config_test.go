package hf

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

func parse(t testing.TB, text string) Config {
	t.Helper()
	c, err := ParseConfig(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return c
}

// TestParseConfigCounts reads configurations as their authors publish them,
// each with its own names for the same things.
func TestParseConfigCounts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text string
		params     int64
	}{
		{"gpt2", `{"activation_function":"gelu_new","architectures":["GPT2LMHeadModel"],"attn_pdrop":0.1,"model_type":"gpt2","n_ctx":1024,"n_embd":768,"n_head":12,"n_inner":null,"n_layer":12,"n_positions":1024,"vocab_size":50257}`, 124_439_808},
		{"gpt2 without head", `{"architectures":["GPT2Model"],"model_type":"gpt2","n_embd":768,"n_head":12,"n_layer":12,"n_positions":1024,"vocab_size":50257}`, 124_439_808},
		{"gpt2, old name of positions", `{"model_type":"gpt2","n_embd":768,"n_head":12,"n_layer":12,"n_ctx":1024,"vocab_size":50257}`, 124_439_808},
		{"bert", `{"architectures":["BertModel"],"model_type":"bert","hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"intermediate_size":3072,"max_position_embeddings":512,"type_vocab_size":2,"vocab_size":30522}`, 109_482_240},
		{"bert, masked", `{"architectures":["BertForMaskedLM"],"model_type":"bert","hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"intermediate_size":3072,"max_position_embeddings":512,"type_vocab_size":2,"vocab_size":30522}`, 109_514_298},
		{"bert, two classes", `{"architectures":["BertForSequenceClassification"],"id2label":{"0":"no","1":"yes"},"model_type":"bert","hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"intermediate_size":3072,"max_position_embeddings":512,"type_vocab_size":2,"vocab_size":30522}`, 109_483_778},
		{"distilbert, masked", `{"architectures":["DistilBertForMaskedLM"],"model_type":"distilbert","dim":768,"hidden_dim":3072,"n_layers":6,"n_heads":12,"max_position_embeddings":512,"vocab_size":30522}`, 66_985_530},
		{"roberta, masked", `{"architectures":["RobertaForMaskedLM"],"model_type":"roberta","hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"intermediate_size":3072,"max_position_embeddings":514,"type_vocab_size":1,"vocab_size":50265}`, 124_697_433},
		{"opt", `{"model_type":"opt","activation_function":"relu","hidden_size":2048,"ffn_dim":8192,"num_hidden_layers":24,"num_attention_heads":32,"max_position_embeddings":2048,"vocab_size":50272,"word_embed_proj_dim":2048,"do_layer_norm_before":true}`, 1_315_758_080},
		{"opt, narrow embedding, norms after", `{"model_type":"opt","hidden_size":1024,"ffn_dim":4096,"num_hidden_layers":24,"num_attention_heads":16,"max_position_embeddings":2048,"vocab_size":50272,"word_embed_proj_dim":512,"do_layer_norm_before":false}`, 331_196_416},
		{"llama without kv heads", `{"model_type":"llama","hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,"vocab_size":32000,"rms_norm_eps":1e-5}`, 6_738_415_616},
		{"llama, numbers as floats", `{"model_type":"llama","hidden_size":4096.0,"intermediate_size":1.1008e4,"num_hidden_layers":32,"num_attention_heads":32,"vocab_size":32000}`, 6_738_415_616},
		{"mistral", `{"model_type":"mistral","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":32000,"max_position_embeddings":32768,"tie_word_embeddings":false}`, 7_241_732_096},
		{"mixtral", `{"model_type":"mixtral","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":32000,"num_local_experts":8,"num_experts_per_tok":2}`, 46_702_792_704},
		{"gemma", `{"model_type":"gemma","hidden_size":2048,"intermediate_size":16384,"num_hidden_layers":18,"num_attention_heads":8,"num_key_value_heads":1,"head_dim":256,"vocab_size":256000,"max_position_embeddings":8192}`, 2_506_172_416},
		{"falcon 7b", `{"model_type":"falcon","hidden_size":4544,"num_hidden_layers":32,"num_attention_heads":71,"num_kv_heads":71,"multi_query":true,"parallel_attn":true,"new_decoder_architecture":false,"bias":false,"vocab_size":65024}`, 6_921_720_704},
		{"falcon 40b", `{"model_type":"falcon","hidden_size":8192,"num_hidden_layers":60,"num_attention_heads":128,"num_kv_heads":8,"multi_query":true,"parallel_attn":true,"new_decoder_architecture":true,"bias":false,"vocab_size":65024}`, 41_303_293_952},
		{"phi", `{"model_type":"phi","hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":24,"num_attention_heads":32,"num_key_value_heads":null,"vocab_size":51200,"max_position_embeddings":2048}`, 1_418_270_720},
		{"t5", `{"model_type":"t5","architectures":["T5ForConditionalGeneration"],"d_model":512,"d_ff":2048,"d_kv":64,"num_heads":8,"num_layers":6,"vocab_size":32128,"n_positions":512,"is_encoder_decoder":true,"feed_forward_proj":"relu"}`, 60_506_624},
		{"flan-t5", `{"model_type":"t5","d_model":512,"d_ff":1024,"d_kv":64,"num_heads":6,"num_layers":8,"num_decoder_layers":8,"vocab_size":32128,"feed_forward_proj":"gated-gelu","tie_word_embeddings":false}`, 76_961_152},
		{"bart", `{"model_type":"bart","d_model":768,"encoder_layers":6,"decoder_layers":6,"encoder_attention_heads":12,"decoder_attention_heads":12,"encoder_ffn_dim":3072,"decoder_ffn_dim":3072,"num_hidden_layers":6,"max_position_embeddings":1024,"vocab_size":50265}`, 139_420_416},
		{"whisper", `{"model_type":"whisper","d_model":768,"encoder_layers":12,"decoder_layers":12,"encoder_attention_heads":12,"decoder_attention_heads":12,"encoder_ffn_dim":3072,"decoder_ffn_dim":3072,"num_mel_bins":80,"max_source_positions":1500,"max_target_positions":448,"vocab_size":51865}`, 241_734_912},
		{"vit", `{"model_type":"vit","architectures":["ViTModel"],"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"intermediate_size":3072,"image_size":224,"patch_size":16,"num_channels":3}`, 86_389_248},
		{"text model of a larger one", `{"model_type":"llava","text_config":{"model_type":"llama","hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,"vocab_size":32000},"vision_config":{"hidden_size":1024}}`, 6_738_415_616},
		{"gemma 3, its class's defaults left out", `{"model_type":"gemma3","text_config":{"model_type":"gemma3_text","hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":34},"vision_config":{}}`, 3_880_263_168},
		{"mpt", `{"model_type":"mpt","d_model":4096,"n_heads":32,"n_layers":32,"expansion_ratio":4,"max_seq_len":2048,"no_bias":true,"vocab_size":50432,"attn_config":{"alibi":true}}`, 6_649_286_656},
		{"bloom, old names", `{"model_type":"bloom","n_embed":1024,"n_layer":24,"num_attention_heads":16,"vocab_size":250880}`, 559_214_592},
		{"gpt-neox", `{"model_type":"gpt_neox","hidden_size":512,"intermediate_size":2048,"num_hidden_layers":6,"num_attention_heads":8,"vocab_size":50304,"tie_word_embeddings":false}`, 70_426_624},
		{"unknown kin of llama", `{"model_type":"newllm","rms_norm_eps":1e-6,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,"vocab_size":32000}`, 6_738_415_616},
		{"byte order mark, unknown keys, Python's NaN", "\xef\xbb\xbf" + `{"x":[NaN,-Infinity,Infinity,"NaN"],"rope":{"a":{"b":[1]}},"model_type":"gpt2","n_embd":768,"n_head":12,"n_layer":12,"n_positions":1024,"vocab_size":50257}`, 124_439_808},
		{"a key twice: the last counts", `{"n_layer":3,"model_type":"gpt2","n_embd":768,"n_head":12,"n_layer":12,"n_positions":1024,"vocab_size":50257}`, 124_439_808},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := parse(t, tc.text)
			if got := c.Params(); got != tc.params {
				t.Errorf("%d parameters, want %d (%+d)", got, tc.params, got-tc.params)
			}
		})
	}
}

func TestParseConfigRefuses(t *testing.T) {
	t.Parallel()
	const rest = `"model_type":"llama","hidden_size":64,"num_attention_heads":4,"vocab_size":10`
	for _, tc := range []struct {
		name, text, want string
		is               error
	}{
		{"empty", "", "want a JSON object", ErrMalformed},
		{"a list", "[1]", "want a JSON object", ErrMalformed},
		{"cut off", `{"hidden_size":64`, "not well formed", ErrMalformed},
		{"more after it", `{` + rest + `,"num_hidden_layers":2}{}`, "more after", ErrMalformed},
		{"a key that is no string", `{1:2}`, "not well formed", ErrMalformed},
		{"nested 10,000 deep", `{"a":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + "}", "nested deeper than 64", ErrLimit},
		{"nested deeply in objects", strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100), "nested deeper than 64", ErrLimit},
		{"too long", `{"a":"` + strings.Repeat("x", MaxConfigBytes) + `"}`, "more than 1048576 bytes", ErrLimit},
		{"no width", `{"model_type":"resnet","depths":[3,4]}`, "the width is missing (hidden_size, n_embd, d_model or dim)", nil},
		{"no layers", `{` + rest + `}`, "the number of layers is missing", nil},
		{"no heads", `{"model_type":"mamba","hidden_size":64,"num_hidden_layers":2}`, "attention heads is missing", nil},
		{"a thousand million layers", `{` + rest + `,"num_hidden_layers":1000000000}`, "layers 1000000000: must be 1 to 10000", nil},
		{"negative layers", `{` + rest + `,"num_hidden_layers":-3}`, "layers -3: must be 1 to 10000", nil},
		{"no layer", `{` + rest + `,"num_hidden_layers":0}`, "layers 0: must be 1", nil},
		{"half a layer", `{` + rest + `,"num_hidden_layers":2.5}`, "num_hidden_layers 2.5: must be a whole number", nil},
		{"layers in words", `{` + rest + `,"num_hidden_layers":"two"}`, `must be a whole number`, nil},
		{"layers beyond int64", `{` + rest + `,"num_hidden_layers":99999999999999999999}`, "must be a whole number", nil},
		{"layers of infinite exponent", `{` + rest + `,"num_hidden_layers":1e999}`, "must be a whole number", nil},
		{"layers in a mixed list", `{` + rest + `,"num_hidden_layers":[1,2]}`, "must be a whole number", nil},
		{"NaN layers", `{` + rest + `,"num_hidden_layers":NaN}`, "layers 0: must be 1", nil},
		{"more key-value heads than heads", `{` + rest + `,"num_hidden_layers":2,"num_key_value_heads":8}`, "key-value heads 8: must be at most the 4", nil},
		{"more heads than values", `{"model_type":"llama","hidden_size":4,"num_attention_heads":64,"num_hidden_layers":2,"vocab_size":10}`, "head size 0: must be 1", nil},
		{"a vocabulary too large", `{"model_type":"llama","hidden_size":64,"num_attention_heads":4,"num_hidden_layers":2,"vocab_size":9000000000}`, "vocabulary 9000000000", nil},
		{"a patch larger than the image", `{"model_type":"vit","hidden_size":64,"num_attention_heads":4,"num_hidden_layers":2,"image_size":16,"patch_size":32}`, "patch size 32: must be 1 to the image size", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseConfig(strings.NewReader(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "config.json: ") {
				t.Fatalf("error %v, want one with %q", err, tc.want)
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%v does not wrap %v", err, tc.is)
			}
			if len(err.Error()) > 200 {
				t.Errorf("error of %d bytes", len(err.Error()))
			}
		})
	}
}

func TestParseConfigNotes(t *testing.T) {
	t.Parallel()
	const rest = `"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4`
	for name, tc := range map[string]struct {
		text    string
		partial bool
		want    []string
	}{
		"all known":        {`{"model_type":"llama","vocab_size":10,"intermediate_size":128,` + rest + `}`, false, nil},
		"unknown type":     {`{"model_type":"weird","vocab_size":10,"intermediate_size":128,"rms_norm_eps":1,` + rest + `}`, true, []string{"model type weird is not known; its layers are counted as Llama's"}},
		"no type":          {`{"vocab_size":10,"intermediate_size":128,"layer_norm_eps":1,` + rest + `}`, true, []string{"model type (none) is not known; its layers are counted as GPT's"}},
		"key twice":        {`{"model_type":"llama","vocab_size":9,"vocab_size":10,"intermediate_size":128,` + rest + `}`, false, []string{`key "vocab_size" is there more than once; the last one counts`}},
		"no vocabulary":    {`{"model_type":"llama","intermediate_size":128,` + rest + `}`, true, []string{"vocab_size is missing; neither embeddings nor outputs are counted"}},
		"no inner width":   {`{"model_type":"llama","vocab_size":10,` + rest + `}`, false, []string{"the feed-forward size is missing; counted with 4 times the width"}},
		"odd quantization": {`{"model_type":"llama","vocab_size":10,"intermediate_size":128,"quantization_config":{"quant_method":"x"},` + rest + `}`, true, []string{"quantization_config is not understood; weights are counted unquantized"}},
	} {
		c := parse(t, tc.text)
		if d := cmp.Diff(tc.want, c.Notes); d != "" || c.Partial != tc.partial {
			t.Errorf("%s: partial %t, want %t; notes:\n%s", name, c.Partial, tc.partial, d)
		}
	}
}

func TestConfigStorage(t *testing.T) {
	t.Parallel()
	const rest = `"model_type":"llama","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":10,"intermediate_size":128`
	for text, want := range map[string]struct {
		p      model.Precision
		bits   int64
		double bool
	}{
		`"torch_dtype":"bfloat16"`: {graph.BF16, 0, false},
		`"dtype":"float16"`:        {graph.FP16, 0, false},
		`"torch_dtype":"float32"`:  {graph.FP32, 0, false},
		`"torch_dtype":"auto"`:     {"", 0, false},
		`"torch_dtype":"float16","quantization_config":{"load_in_4bit":true,"bnb_4bit_use_double_quant":true}`: {graph.FP16, 4, true},
		`"quantization_config":{"load_in_8bit":true,"load_in_4bit":false}`:                                     {"", 8, false},
		`"quantization_config":{"quant_method":"gptq","bits":4}`:                                               {"", 4, false},
		`"quantization_config":{"quant_method":"fp8"}`:                                                         {"", 8, false},
	} {
		c := parse(t, `{`+rest+`,`+text+`}`)
		if c.Precision != want.p || c.WeightBits != want.bits || c.DoubleQuant != want.double {
			t.Errorf("%s: precision %q, %d bits, double %t", text, c.Precision, c.WeightBits, c.DoubleQuant)
		}
	}
}

// TestLookup holds the spellings that people use.
func TestLookup(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"meta-llama/Llama-2-7b-chat-hf": "llama-2-7b", "Llama 2 7 B": "llama-2-7b", "Llama-2-7b-hf": "llama-2-7b", "llama2-7b": "llama-2-7b",
		"LLaMA 2 13B": "llama-2-13b", "NousResearch/Llama-2-70b-hf": "llama-2-70b", "Meta-Llama-3-8B-Instruct": "llama-3-8b",
		"meta-llama/Meta-Llama-3.1-8B": "llama-3.1-8b", "Llama-3.2-1B-Instruct": "llama-3.2-1b",
		"StableLM Alpha 3B": "stablelm-base-alpha-3b", "StableLM Alpha": "stablelm-base-alpha-3b", "3 B StableLM Alpha": "stablelm-base-alpha-3b",
		"stabilityai/stablelm-tuned-alpha-7b": "stablelm-base-alpha-7b", "stablelm-zephyr-3b": "stablelm-3b-4e1t",
		"CodeLlama-34b-Instruct-hf": "codellama-34b", "34 B CodeLlama": "codellama-34b", "CodeLlama-7b-Python-hf": "codellama-7b-python",
		"Falcon 40 B": "falcon-40b", "tiiuae/falcon-7b-instruct": "falcon-7b", "phi-1_5": "phi-1.5", "microsoft/phi-1.5": "phi-1.5", "1.3 B phi-1.5": "phi-1.5",
		"Phi-3-mini-4k-instruct": "phi-3-mini", "Mistral-7B-Instruct-v0.2": "mistral-7b", "Mistral-7B-Instruct-v0.3": "mistral-7b-v0.3", "Mixtral-8x7B-Instruct-v0.1": "mixtral-8x7b",
		"TinyLlama-1.1B-intermediate-step-1431k-3T": "tinyllama-1.1b", "TinyLlama-1.1B-Chat-v1.0": "tinyllama-1.1b", "tiny-llama": "tinyllama-1.1b",
		"lmsys/vicuna-7b-v1.5-16k": "llama-2-7b", "vicuna-13b-v1.3": "llama-13b", "vicuna-33b-v1.3": "llama-30b", "longchat-13b-16k": "longchat-13b-16k",
		"Nous-Hermes-13b": "nous-hermes-13b", "Nous-Hermes-Llama2-13b": "nous-hermes-llama2-13b", "Platypus2-70B-instruct": "llama-2-70b", "Platypus-30B": "llama-30b", "FreeWilly2": "llama-2-70b",
		"RedPajama-INCITE-Base-3B-v1": "redpajama-incite-base-3b", "RedPajama-INCITE-Chat-3B-v1": "redpajama-incite-base-3b", "RedPajama-INCITE-7B-Instruct": "redpajama-incite-7b-base",
		"databricks/dolly-v2-12b": "dolly-v2-12b", "open_llama_3b": "open_llama_3b", "openlm-research/open_llama_7b": "llama-7b",
		"h2o-danube2-1.8b-chat": "danube2-1.8b", "gemma-2b-it": "gemma-2b", "google/gemma-2-2b-it": "gemma-2-2b", "Gemma-7b": "gemma-7b", "gemma2-9b": "gemma-2-9b",
		"Qwen/Qwen2.5-7B-Instruct": "qwen2-7b", "pythia-70m-deduped": "pythia-70m", "EleutherAI/pythia-1.4b": "pythia-1.4b", "facebook/opt-1.3b": "opt-1.3b", "opt-13b": "opt-13b",
		"stablecode-instruct-alpha-3b": "stablecode-completion-alpha-3b", "google/flan-t5-xl": "flan-t5-xl", "t5-v1_1-base": "flan-t5-base", "openai/whisper-small": "whisper-small", "google/switch-base-8": "switch-base-8",
		// the configurations that come with NeuSight's data
		"bert": "bert", "bert_large": "bert-large", "gpt2_large": "gpt2-large", "gpt2_med": "gpt2-medium", "gpt2_xl": "gpt2-xl", "gpt3_13": "gpt3-13b", "gpt3_27": "gpt3-2.7b",
		"gpt3_67": "gpt3-6.7b", "gpt3_xl": "gpt3-xl", "opt": "opt-1.3b", "opt_13": "opt-1.3b", "switchxl4": "switch-xl-4",
	} {
		c, err := Lookup(name)
		if err != nil || c.Name != want {
			t.Errorf("%s: found %q, want %q (%v)", name, c.Name, want, err)
		}
	}
}

func TestLookupRefuses(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "/", "llama-9-7b", "resnet50", "7b", "chat", "opt-14b", strings.Repeat("llama-", 1<<16), "\xff\xfe", "llama-2-7"} {
		c, err := Lookup(name)
		if err == nil {
			t.Errorf("%q: found %s", shorten(name), c.Name)
		} else if len(err.Error()) > 400 {
			t.Errorf("%q: error of %d bytes", shorten(name), len(err.Error()))
		}
	}
	if _, err := Lookup("llama-2-8b"); err == nil || !strings.Contains(err.Error(), "llama-2-7b") {
		t.Errorf("error %v, want one that names llama-2-7b", err)
	}
}

// TestNamesAreClear: each name finds its own entry, and each entry computes.
func TestNamesAreClear(t *testing.T) {
	t.Parallel()
	if n := Names(); len(n) < 100 {
		t.Errorf("%d names", len(n))
	}
	all := catalogue()
	for i := range all {
		want := all[i].config()
		for n := range strings.SplitSeq(all[i].names, "|") {
			if c := lookup(t, n); c.Name != want.Name {
				t.Errorf("%s: found %s, want %s", n, c.Name, want.Name)
			}
		}
		f := features(t, &want, model.Run{Mode: model.Training, Batch: 2, Optimizer: graph.AdamW})
		if f.Source != model.SourceCatalogue || f.Partial || f.Params != want.Params() || f.SavedBytes == 0 || f.FLOPs == 0 {
			t.Errorf("%s: %+v", want.Name, f)
		}
		tokens := float64(2 * max(1, f.SeqLen))
		if r := float64(f.FLOPs) / (2 * float64(f.Params) * tokens); want.traits.kind == decoder && want.Experts == 0 && (r < 0.5 || r > 2.5) {
			t.Errorf("%s: FLOPs are %.2f times twice parameters and tokens", want.Name, r)
		}
	}
}

func TestWidthsOfWeights(t *testing.T) {
	t.Parallel()
	c := lookup(t, "llama-2-7b")
	p := float64(c.Params())
	const outside = 2*32000*4096 + 65*4096 // embedding, head, norms
	for _, tc := range []struct {
		name   string
		run    model.Run
		double bool
		want   float64
	}{
		{"fp32", model.Run{Precision: graph.FP32}, false, 4 * p},
		{"amp", model.Run{Precision: graph.AMP}, false, 4 * p},
		{"bf16", model.Run{Precision: graph.BF16}, false, 2 * p},
		{"the checkpoint's", model.Run{}, false, 2 * p},
		{"bf16 from fp32 weights", model.Run{Precision: graph.BF16, WeightBits: 32}, false, 4 * p},
		{"8 bits", model.Run{Precision: graph.BF16, WeightBits: 8}, false, p - outside + 2*outside},
		{"4 bits", model.Run{Precision: graph.BF16, WeightBits: 4}, false, (p-outside)*4.5/8 + 2*outside},
		{"4 bits, scales quantized", model.Run{Precision: graph.BF16, WeightBits: 4}, true, (p-outside)*4.126953125/8 + 2*outside},
	} {
		c := c
		c.DoubleQuant = tc.double
		tc.run.Batch = 1
		if got := float64(features(t, &c, tc.run).ParamBytes); math.Abs(got-tc.want) > 1 {
			t.Errorf("%s: %.0f bytes, want %.0f", tc.name, got, tc.want)
		}
	}
}
