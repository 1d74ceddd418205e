package eval

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/gpuspec"
	"github.com/berth-scheduler/berth/model/graph"
	"github.com/berth-scheduler/berth/model/hf"
)

// readNeuSight reads end-to-end latencies of Lee et al., "Forecasting GPU
// performance for deep learning training and inference", ASPLOS 2025: FP32, one
// GPU; including runs with fused operators, which the features do not distinguish.
func readNeuSight(b *builder, t *table) error {
	const dataset = "neusight"
	step := []string{"e2e_ms", "e2e", "latency"}
	if err := t.has([]string{"model"}, []string{"gpu"}, []string{"hidden"}, []string{"layers"}, step); err != nil {
		return err
	}
	for _, cells := range t.lines {
		l := line{t, cells}
		if v := strings.ToLower(l.text("variant")); v != "" && !strings.HasPrefix(v, "fusion") {
			b.skip(dataset, Time, "on several GPUs")
			continue
		}
		r := b.row(l, dataset, l.text("gpu"))
		f, err := neuSightFeatures(l, r.Model)
		if err != nil {
			b.skip(dataset, Time, "of a model that cannot be described")
			continue
		}
		r.Sample.Features = f
		r.Sample.Features.Model, r.Family = r.Model, familyOf(r.Model)
		r.Sample.Seconds, _ = l.seconds(step...)
		r.Sample.Steps = 1
		b.add(Time, r)
	}
	return nil
}

// neuSightShape returns a line's model shape; where the line is silent, that of the
// published configurations of opt-1.3b and of Switch Transformers with four
// experts.
func neuSightShape(l line, name string) (hidden, layers, heads, ffn, vocab int64) {
	hidden, layers, heads, ffn, vocab = l.count("hidden"), l.count("layers"), l.count("heads"), l.count("ffn"), l.count("vocab")
	known := [5]int64{0, 0, 0, 4 * hidden, 50257}
	switch name {
	case "opt_13":
		known = [5]int64{2048, 24, 32, 8192, 50272}
	case "switchxl4":
		known = [5]int64{1024, 24, 32, 16384, 32128}
	}
	for i, p := range []*int64{&hidden, &layers, &heads, &ffn, &vocab} {
		if *p == 0 {
			*p = known[i]
		}
	}
	return hidden, layers, heads, ffn, vocab
}

func neuSightFeatures(l line, name string) (model.Features, error) {
	seq := l.count("seq_len", "sequence_length")
	hidden, layers, heads, ffn, vocab := neuSightShape(l, name)
	shape := map[string]any{
		"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
		"intermediate_size": ffn, "vocab_size": vocab, "max_position_embeddings": seq,
	}
	switch family := familyOf(name); family {
	case "bert":
		shape["model_type"], shape["architectures"], shape["type_vocab_size"] = "bert", []string{"BertLMHeadModel"}, 2
	case "opt":
		shape["model_type"], shape["architectures"] = "opt", []string{"OPTForCausalLM"}
	case "switchxl":
		shape["model_type"], shape["architectures"] = "switch_transformers", []string{"SwitchTransformersForConditionalGeneration"}
		experts, _, _ := numberOf(strings.TrimPrefix(name, "switchxl"))
		shape["num_experts"] = experts
		shape["num_decoder_layers"], shape["d_kv"], shape["is_encoder_decoder"] = layers, 128, true
		shape["encoder_sparse_step"], shape["decoder_sparse_step"] = 2, 2
	default:
		shape["model_type"], shape["architectures"] = "gpt2", []string{"GPT2LMHeadModel"}
	}
	run := model.Run{Batch: l.count("batch_size", "batch"), SeqLen: seq, Precision: graph.FP32, Framework: "pytorch"}
	if strings.HasPrefix(strings.ToLower(l.text("mode")), "train") {
		run.Mode = model.Training // forward and backward pass, no optimizer
	}
	return configFeatures(shape, run, func(c *hf.Config) { c.Tiled = false })
}

// configFeatures computes features by way of a config.json.
func configFeatures(shape map[string]any, run model.Run, change func(*hf.Config)) (model.Features, error) {
	raw, err := json.Marshal(shape)
	if err != nil {
		return model.Features{}, err
	}
	c, err := hf.ParseConfig(bytes.NewReader(raw))
	if err != nil {
		return model.Features{}, err
	}
	change(&c)
	return c.Features(run)
}

// features computes the features of a language model whose modules a table lists.
func (x *transformer) features(run model.Run) (model.Features, bool) {
	if x == nil || x.hidden == 0 || x.blocks == 0 {
		return model.Features{}, false
	}
	shape := map[string]any{
		"hidden_size": x.hidden, "num_hidden_layers": x.blocks, "num_attention_heads": max(1, x.hidden/64), "vocab_size": x.vocab,
		"intermediate_size": x.ffn, "max_position_embeddings": max(x.positions, run.SeqLen),
	}
	switch x.kind {
	case "bert":
		shape["model_type"], shape["architectures"], shape["type_vocab_size"] = "bert", []string{"BertForMaskedLM"}, 2
	case "xlnet":
		shape["model_type"], shape["architectures"] = "bert", []string{"BertForSequenceClassification"}
	default:
		shape["model_type"], shape["architectures"] = "gpt2", []string{"GPT2LMHeadModel"}
	}
	f, err := configFeatures(shape, run, func(c *hf.Config) {
		if x.kind == "xlnet" { // relative attention keeps its scores, several times over
			c.Tiled, c.Partial = false, true
		}
	})
	return f, err == nil
}

// readLitGPT reads the allocator peaks in LitGPT's tables, in 10^9 bytes, of runs
// on one GPU.
func readLitGPT(b *builder, t *table) error {
	const dataset = "litgpt"
	name, peak := []string{"model", "model_name", "name", "config", "recipe", "file"}, []string{"peak_gb", "peak_memory", "peak_mem", "max_gpu_ram", "peak_memory_gb", "memory", "mem", "peak"}
	if t.find(name...) < 0 { // tables in documents often leave the first column's heading empty
		t.names[0], t.bases[0], t.units[0] = "name", "name", ""
	}
	if err := t.has(peak); err != nil {
		return err
	}
	for _, cells := range t.lines {
		l := line{t, cells}
		if l.text(name...) == "" || strings.EqualFold(l.text(name...), "model") {
			b.skip(dataset, Memory, "without a model")
			continue
		}
		run, method := litRun(l)
		if method == sharded {
			b.skip(dataset, Memory, "on several GPUs")
			continue
		}
		gpu := litGPU(l, b.file)
		r := b.row(l, dataset, gpu)
		f, err := litFeatures(l, run, method)
		if err != nil {
			b.skip(dataset, Memory, "of a model that is not in the catalogue")
			continue
		}
		r.Model, r.Family = strings.ToLower(f.Model), familyOf(f.Model)
		r.Sample.Features, r.Label = f, Allocator
		spec, _ := gpuspec.Lookup(gpu)
		r.OffsetMiB = spec.ContextMiB
		r.Sample.Censored = l.flag("oom") || strings.EqualFold(l.text(peak...), "oom")
		if v, ok := l.gigabytes(peak...); ok {
			r.Sample.PeakMiB = whole(v) + r.OffsetMiB
		}
		if r.Sample.Censored {
			r.Sample.PeakMiB = spec.MemMiB
		} else if r.Sample.PeakMiB == 0 {
			r.Sample.PeakMiB = r.OffsetMiB // not measured: add leaves it out
		}
		b.add(Memory, r)
	}
	return nil
}

// gigabytes is mib for columns whose default unit is 10^9 bytes.
func (l line) gigabytes(names ...string) (float64, bool) {
	i := l.t.find(names...)
	v, unit, ok := number(l.at(i))
	if ok && unit == "" && l.t.units[i] == "" && v < 200 {
		return v * 1e9 / mib, v > 0
	}
	return l.mib(true, names...)
}

// method is how LitGPT's job trains.
type method uint8

const (
	inference method = iota
	fullTuning
	loraTuning
	adapterTuning
	sharded
)

// severalGPUs finds "4xA10G" and "2 x A100".
var severalGPUs = regexp.MustCompile(`(?i)(?:^|[^0-9a-z])([2-9]|1\d)\s?x\s?[a-z]+\d+`)

// litRun parses how a line's run was made. Sharded stands for runs on several GPUs,
// whose memory per GPU is no longer the job's.
func litRun(l line) (model.Run, method) {
	section := strings.ToLower(strings.Join([]string{
		l.text("section"), l.text("config"), l.text("method"), l.text("finetuning", "finetune"), l.text("name"), l.text("recipe", "file"),
	}, " "))
	run := model.Run{
		Mode: model.Training, Batch: max(1, l.count("microbatch_size", "micro_batch_size", "micro_batch", "batch_size")), Optimizer: graph.AdamW,
		SeqLen: l.count("max_seq_length", "max_seq_len", "seq_len", "sequence_length"), Precision: graph.BF16, Framework: "pytorch",
	}
	if p := l.text("precision"); p != "" {
		run.Precision = precisionOf(p)
	}
	quant := strings.ToLower(l.text("quantization", "quantize"))
	if strings.Contains(quant, "nf4") || strings.Contains(quant, "fp4") || strings.Contains(section, "qlora") {
		run.WeightBits = 4
	} else if strings.Contains(quant, "int8") {
		run.WeightBits = 8
	}
	several := false
	for _, cell := range l.cells {
		several = several || severalGPUs.MatchString(cell)
	}
	switch {
	case strings.Contains(section, "inference"):
		run.Mode, run.Optimizer, run.SeqLen = model.Inference, graph.OptimizerNone, 64 // a prompt and 50 new tokens
		return run, inference
	case strings.Contains(section, "multiple"), several && !strings.Contains(section, "lora"):
		return run, sharded
	case strings.Contains(section, "lora"):
		run.LoRARank = 8
		if l.t.find("max_seq_length", "max_seq_len") >= 0 {
			run.LoRARank = 32 // from LitGPT's collection of configurations
		}
		return run, loraTuning
	case strings.Contains(section, "adapter"):
		return run, adapterTuning
	}
	return run, fullTuning
}

// litFeatures looks up the model and fills in what its table leaves open: the
// longest example of the Alpaca data set, with which LitGPT's runs begin, by
// tokenizer as in its tables.
func litFeatures(l line, run model.Run, m method) (model.Features, error) {
	name, _, _ := strings.Cut(l.text("model", "model_name", "name", "config", "recipe", "file"), "/") // falcon-7b/lora.yaml
	c, err := litModel(name, l.text("size"))
	if err != nil {
		return model.Features{}, err
	}
	if run.Mode == model.Training && run.SeqLen == 0 {
		run.SeqLen = alpacaTokens(strings.ToLower(c.Name))
	}
	c.Fused = true // LitGPT computes queries, keys and values as one product
	if c.Activation == "gelu_new" {
		c.Activation = "gelu_pytorch_tanh" // and calls the fused kernel
	}
	c.DoubleQuant = strings.Contains(strings.ToLower(l.text("quantization", "quantize")), "dq")
	f, err := c.Features(run)
	if err != nil {
		return f, err
	}
	if trained := l.count("trainable_parameters", "trainable_params"); m == adapterTuning || (m == loraTuning && trained > 0) {
		f.TrainedBytes = max(1, trained*run.Precision.WeightBytes(4))
	}
	return f, nil
}

func alpacaTokens(name string) int64 {
	switch {
	case strings.Contains(name, "phi"):
		return 1044
	case strings.Contains(name, "stablelm"):
		return 1034
	case strings.Contains(name, "falcon"):
		return 1079
	}
	return 1304
}

var errNoModel = errors.New("is not in the catalogue")

// litModel finds a model by "7 B" and "Llama 2", or by "llama-2-7b".
func litModel(name, size string) (hf.Config, error) {
	size = strings.ReplaceAll(size, " ", "")
	for _, n := range []string{name + " " + size, name, name + " base " + size, "stablelm base alpha " + size} {
		if strings.HasPrefix(n, "stablelm base") && !strings.Contains(strings.ToLower(name), "stablelm") {
			continue
		}
		if c, err := hf.Lookup(n); err == nil {
			return c, nil
		}
	}
	return hf.Config{}, fmt.Errorf("model %q: %w", name, errNoModel)
}

// litGPU returns the GPU named in the line, else in the file's name.
func litGPU(l line, file string) string {
	s := strings.ToLower(l.text("machine", "gpu", "hardware") + " " + file)
	switch {
	case strings.Contains(s, "a10g"):
		return "A10G"
	case strings.Contains(s, "a100"):
		return "A100-SXM4-40GB"
	}
	return cmp.Or(l.text("gpu", "machine"), "A100-SXM4-40GB")
}
