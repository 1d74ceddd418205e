package eval

import (
	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/gpuspec"
	"github.com/berth-scheduler/berth/model/graph"
)

// known is a workload whose network is in the catalogue.
type known struct {
	model, family string
	seqLen        int64
	optimizer     model.Optimizer
	// area is the feature maps' size relative to the catalogue's; 0 is 1.
	area float64
}

// siaModels returns the workloads of Sia (SOSP 2023) and Pollux (OSDI 2021). Their
// CIFAR-10 network begins at 32×32 where ResNet-18 has 56×56.
func siaModels() map[string]known {
	return map[string]known{
		"cifar10":  {"resnet18", "resnet", 0, graph.Momentum, 32.0 * 32 / (56 * 56)},
		"imagenet": {"resnet50", "resnet", 0, graph.Momentum, 0},
		"bert":     {"bert-base-uncased", "bert", 384, graph.AdamW, 0},
	}
}

// lambdaModels returns those of Lambda's benchmark that are in the catalogue.
func lambdaModels() map[string]known {
	return map[string]known{
		"resnet50":       {"resnet50", "resnet", 0, graph.Momentum, 0},
		"bertbasesquad":  {"bert-base-uncased", "bert", 384, graph.Adam, 0},
		"bertlargesquad": {"bert-large-uncased", "bert", 384, graph.Adam, 0},
	}
}

func (k known) features(run model.Run) (model.Features, error) {
	run.Mode, run.SeqLen, run.Optimizer, run.Framework = model.Training, k.seqLen, k.optimizer, "pytorch"
	f, err := model.FromCatalogue(k.model, run)
	if err != nil || k.area == 0 {
		return f, err
	}
	for _, p := range []*int64{
		&f.SavedBytes, &f.LiveBytes, &f.LargestBytes, &f.InputBytes, &f.WorkspaceBytes, &f.MovedBytes, &f.FLOPs, &f.ActBytes, &f.MatrixBytes,
	} {
		*p = whole(float64(*p) * k.area)
	}
	return f, nil
}

// readSia reads step times by batch and placement. Rows of several GPUs are left
// out: a sample does not record how many its job had.
func readSia(b *builder, t *table) error {
	batch, step := []string{"local_bsz", "batch_size", "batch"}, []string{"step_time_s", "step_time"}
	if err := t.has([]string{"model"}, []string{"gpu"}, batch, step); err != nil {
		return err
	}
	models := siaModels()
	for _, cells := range t.lines {
		l := line{t, cells}
		r := b.row(l, "sia", l.text("gpu"))
		k, ok := models[plain(r.Model)]
		switch {
		case !ok:
			b.skip("sia", Time, "of a model that is not in the catalogue")
			continue
		case l.count("n_gpus", "num_gpu", "gpus") > 1:
			b.skip("sia", Time, "on several GPUs")
			continue
		}
		f, err := k.features(model.Run{Batch: l.count(batch...), Precision: graph.FP32})
		if err != nil {
			b.skip("sia", Time, "with a batch out of range")
			continue
		}
		r.Family, r.Sample.Features, r.Sample.Steps = k.family, f, 1
		r.Sample.Seconds, _ = l.seconds(step...)
		b.add(Time, r)
	}
	return nil
}

// readLambda reads Lambda's benchmark. Memory is not a target: its batches were
// tuned to fill the GPU.
func readLambda(b *builder, t *table) error {
	const dataset = "lambda_bench"
	if err := t.has([]string{"model"}, []string{"gpu"}, []string{"batch_size", "batch"}, []string{"throughput"}); err != nil {
		return err
	}
	models := lambdaModels()
	both := func(reason string) { b.skip(dataset, Time, reason); b.skip(dataset, Util, reason) }
	for _, cells := range t.lines {
		l := line{t, cells}
		r := b.row(l, dataset, l.text("gpu"))
		k, ok := models[plain(r.Model)]
		switch {
		case !ok:
			both("of a model that is not in the catalogue")
			continue
		case l.count("num_gpu", "n_gpus", "gpus") > 1:
			both("on several GPUs")
			continue
		}
		batch := l.count("batch_size", "batch")
		f, err := k.features(model.Run{Batch: batch, Precision: containerPrecision(l.text("precision"), r.GPU)})
		if err != nil {
			both("with a batch out of range")
			continue
		}
		r.Family, r.Sample.Features, r.Sample.Steps = k.family, f, 1
		if rate, ok := l.num("throughput"); ok && rate > 0 {
			r.Sample.Seconds = float64(batch) / rate
		}
		util, _ := l.num("util_mean_active", "util", "gpu_util")
		r.Sample.UtilMilli = min(1000, whole(10*util))
		if l.flag("oom") {
			both("ended by a lack of memory")
			continue
		}
		b.add(Time, r)
		b.add(Util, r)
	}
	return nil
}

// containerPrecision returns what FP32 means in NVIDIA's containers: TF32 on GPUs
// that have it.
func containerPrecision(s, gpu string) model.Precision {
	p := precisionOf(s)
	if spec, ok := gpuspec.Lookup(gpu); ok && p == graph.FP32 && (spec.Capability >= "8" || len(spec.Capability) > 3) {
		return graph.TF32
	}
	return p
}
