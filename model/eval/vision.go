package eval

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

const mib = 1 << 20

// readSchedTune reads the runs of Albahar et al., "SchedTune: A heterogeneity-
// aware GPU scheduler for deep learning", CCGrid 2022. Rows that the authors
// interpolated because the job did not fit count as out of memory.
func readSchedTune(b *builder, t *table) error {
	peak := []string{"peak_mem_mib", "peak_mem", "peak_memory", "max_memory", "memory"}
	if err := t.has([]string{"model"}, []string{"gpu"}, peak, []string{"activations_mb", "activations"}); err != nil {
		return err
	}
	for _, cells := range t.lines {
		l := line{t, cells}
		r := b.row(l, "schedtune", l.text("gpu", "gpu_name"))
		f := &r.Sample.Features
		f.Run = model.Run{Mode: model.Training, Batch: l.count("batch_size", "batch"), Precision: graph.FP32, Optimizer: graph.SGD, Framework: "pytorch"}
		f.ActBytes = mibBytes(l, "activations_mb", "activations")
		f.ParamBytes = mibBytes(l, "parameters_mb", "parameters", "params")
		f.Params = f.ParamBytes / 4
		f.InputBytes = mibBytes(l, "input_mb", "input")
		v, _ := l.mib(false, peak...)
		r.Sample.PeakMiB = whole(v)
		if l.flag("interpolated_oom", "oom") {
			card, _ := l.mib(false, "gpu_mem_mib", "gpu_memory")
			r.Sample.Censored, r.Sample.PeakMiB = true, whole(card)
		}
		b.add(Memory, r)
	}
	return nil
}

// row returns a Row with the fields that all readers fill alike.
func (b *builder) row(l line, dataset, gpu string) Row {
	name := l.text("model", "name", "model_name")
	family := l.text("family", "arch")
	if family == "" {
		family = familyOf(name)
	}
	return Row{
		Dataset: dataset, Model: strings.ToLower(name), Family: strings.ToLower(family), GPU: gpu, ID: l.id(dataset),
		Sample: model.Sample{Features: model.Features{Source: model.SourceGraph, Model: name}},
	}
}

// familyOf returns the letters at the beginning of a model's name.
func familyOf(name string) string {
	name = strings.ToLower(name)
	if i := strings.IndexFunc(name, func(r rune) bool { return r < 'a' || r > 'z' }); i > 0 {
		return name[:i]
	}
	return name
}

func mibBytes(l line, names ...string) int64 {
	v, _ := l.num(names...)
	return whole(v * mib)
}

// readTimmMemory reads memory peaks of timm's models together with a shape-only
// trace of each step, twice: with the trace, and with the model card alone.
func readTimmMemory(b *builder, t *table) error {
	const dataset = "timm_mem_a100"
	if err := t.has([]string{"model"}, []string{"batch_size", "batch"}, []string{"peak_mem_mib", "peak_mem", "peak_memory"}, []string{"params_m", "params"}); err != nil {
		return err
	}
	for _, cells := range t.lines {
		l := line{t, cells}
		reason := ""
		if st := strings.ToLower(l.text("status")); st != "" && st != "ok" {
			reason = "of status " + st
		} else if l.flag("meta_suspect") {
			reason = "with doubtful model facts"
		}
		if reason != "" {
			b.skip(dataset, Memory, reason)
			b.skip(dataset, MemorySummary, reason)
			continue
		}
		r := b.row(l, dataset, cmp.Or(l.text("gpu"), "A100-SXM4-40GB"))
		f := &r.Sample.Features
		f.Run = model.Run{Mode: model.Training, Batch: l.count("batch_size", "batch"), Precision: graph.FP32, Optimizer: graph.SGD, Framework: "pytorch"}
		card(l, f, 4)
		v, _ := l.mib(false, "peak_mem_mib", "peak_mem", "peak_memory")
		r.Sample.PeakMiB = whole(v)
		summary := r
		summary.Sample.Features.Source = model.SourceCatalogue
		b.add(MemorySummary, summary)
		f.SavedBytes, f.TracedBytes = mibBytes(l, "ft_fwd_mib", "ft_fwd"), mibBytes(l, "ft_last_mib", "ft_last")
		if f.SavedBytes == 0 {
			b.skip(dataset, Memory, "without a trace")
			continue
		}
		b.add(Memory, r)
	}
	return nil
}

// card fills in the figures of timm's tables: millions of parameters, 10^9
// multiply-adds and millions of outputs of convolutions and matrix products per
// sample, with activations of the given width.
func card(l line, f *model.Features, width float64) {
	params, _ := l.num("params_m", "param_count", "params")
	gmacs, _ := l.num("gmacs", "macs")
	macts, _ := l.num("macts_m", "macts")
	img, _ := l.num("img_size", "image_size", "input_size")
	batch := float64(f.Batch)
	f.Params = whole(params * 1e6)
	f.ParamBytes = f.Params * f.Precision.WeightBytes(4)
	f.FLOPs = whole(2 * gmacs * 1e9 * batch)
	f.MatrixBytes = whole(macts * 1e6 * width * batch)
	f.InputBytes = whole(3 * img * img * 4 * batch)
}

// readTimmSpeed reads step times of timm's models.
func readTimmSpeed(b *builder, t *table) error {
	const dataset = "timm_speed"
	step := []string{"step_time_ms", "step_time", "train_step_time", "infer_step_time"}
	if err := t.has([]string{"model"}, []string{"gpu"}, step, []string{"batch_size", "batch"}); err != nil {
		return err
	}
	for _, cells := range t.lines {
		l := line{t, cells}
		r := b.row(l, dataset, l.text("gpu"))
		r.Model = strings.ToLower(strings.Split(r.Model, ".")[0]) // weights differ, the network does not
		f := &r.Sample.Features
		f.Source = model.SourceCatalogue
		f.Run = model.Run{Batch: l.count("batch_size", "batch"), Precision: precisionOf(l.text("precision")), Framework: "pytorch"}
		if strings.HasPrefix(strings.ToLower(l.text("mode")), "train") {
			f.Mode, f.Optimizer = model.Training, graph.SGD
		}
		card(l, f, float64(f.Precision.ActivationBytes(4)))
		r.Sample.Seconds, _ = l.seconds(step...)
		r.Sample.Steps = 1
		b.add(Time, r)
	}
	return nil
}

// precisionOf parses the names that data sets use; FP32 if there is none.
func precisionOf(s string) model.Precision {
	switch plain(s) {
	case "amp", "mixed", "16mixed", "bf16mixed":
		return graph.AMP
	case "fp16", "float16", "half", "16", "16true":
		return graph.FP16
	case "bf16", "bfloat16", "bf16true":
		return graph.BF16
	case "tf32":
		return graph.TF32
	case "int8":
		return graph.INT8
	}
	return graph.FP32
}

// readGPUMemNet reads the generated networks of Yousefzadeh-Asl-Miandoab et al.,
// "GPUMemNet", arXiv:2602.17817: FP32, Adam, layers that are not in place, as in
// their generators.
func readGPUMemNet(b *builder, t *table) error {
	peak := []string{"peak_mem_mib", "peak_mem", "peak_memory"}
	if err := t.has([]string{"layers"}, []string{"arch"}, []string{"batch_size", "batch"}, []string{"input_size"}, peak); err != nil {
		return err
	}
	dataset := "gpumemnet_mlp"
	if t.find("n_conv2d", "in_channels") >= 0 {
		dataset = "gpumemnet_cnn"
	}
	for _, cells := range t.lines {
		l := line{t, cells}
		ls, err := parseLayers(l.text("layers"))
		if err != nil || len(ls) == 0 {
			b.skip(dataset, Memory, "without layers that can be read")
			b.skip(dataset, Util, "without layers that can be read")
			continue
		}
		r := b.row(l, dataset, cmp.Or(l.text("gpu"), "A100-SXM4-40GB"))
		r.Model = fmt.Sprintf("%s-%016x", r.Family, networkHash(l))
		r.Sample.Features = networkFeatures(l, ls, r.Family, r.Model)
		v, _ := l.mib(false, peak...)
		r.Sample.PeakMiB = whole(v)
		util, sampled := l.num("gpu_util_pct", "gpu_util")
		r.Sample.UtilMilli = whole(10 * util)
		if strings.Contains(strings.ToLower(l.text("status")), "oom") {
			r.Sample.Censored, r.Sample.PeakMiB = true, 40960
			r.Sample.UtilMilli = 0
		}
		b.add(Memory, r)
		switch {
		case r.Sample.Censored:
			b.skip(dataset, Util, "out of memory")
		case !sampled:
			b.skip(dataset, Util, "not sampled")
		default:
			b.add(Util, r)
		}
	}
	return nil
}

// networkHash identifies a network, whatever its batch.
func networkHash(l line) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(l.text("layers") + "\x00" + l.text("input_size") + "\x00" + l.text("in_channels")))
	return h.Sum64()
}

func networkFeatures(l line, ls []layer, family, name string) model.Features {
	const widest = 1 << 16 // so that products of three stay in range
	side, chans := min(l.count("input_size"), widest), int64(0)
	input, sh := side, sequential
	if c := min(l.count("in_channels"), widest); c > 0 {
		chans = c
		input = c * side * side
	} else {
		side = 0
	}
	switch family {
	case "residual":
		sh = residual
	case "dense":
		sh = dense
	}
	f := model.Features{Source: model.SourceGraph, Model: name, Run: model.Run{
		Mode: model.Training, Batch: l.count("batch_size", "batch"), Precision: graph.FP32, Optimizer: graph.Adam, Framework: "pytorch",
	}}
	w := walkLayers(ls, sh, input, side, chans)
	w.fill(&f, input)
	return f
}

// fill converts per-sample figures to features in FP32 at the run's batch.
func (w *walk) fill(f *model.Features, input int64) {
	n := float64(f.Batch)
	at := func(elems int64) int64 { return whole(4 * n * float64(elems)) }
	f.Params, f.ParamBytes = w.params, 4*w.params
	f.SavedBytes = at(w.saved) + whole(n*float64(w.masks))
	f.ActBytes, f.MatrixBytes, f.LargestBytes, f.LiveBytes = at(w.acts), at(w.matrix), at(w.largest), at(w.live)
	f.InputBytes, f.OutputBytes, f.MovedBytes = at(input), at(w.cur), at(w.moved)
	f.FLOPs = whole(n * w.flops)
	f.Convs, f.Linears, f.Activations, f.Norms, f.Others = w.convs, w.linears, w.activations, w.norms, w.others
}
