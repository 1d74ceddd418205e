package trace

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// peakKey names a training run whose memory was measured.
type peakKey struct {
	model string
	batch int
	gpu   string
}

// readPeaks reads the measured peaks of SchedTune's training runs.
func readPeaks(path string) (map[peakKey]int64, error) {
	r, c, err := open(path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	t, err := newTable(filepath.Base(path), r)
	if err != nil {
		return nil, err
	}
	out := map[peakKey]int64{}
	for {
		bad, fatal := t.next()
		if errors.Is(fatal, io.EOF) {
			return out, nil
		}
		batch, err := t.between(1, 1<<20, "batch_size")
		mem, err2 := t.between(1, 1<<23, "peak_mem_mib")
		params, err3 := t.between(0, 1<<23, "parameters_mb")
		if err = errors.Join(bad, fatal, err, err2, err3); err != nil {
			return nil, fmt.Errorf("%s: row %d: %w", t.file, t.row, err)
		}
		gpu, model := t.text("gpu"), t.text("model")
		out[peakKey{model, int(batch), gpu}] = int64(mem)
		out[peakKey{model, 0, gpu}] = int64(params)
	}
}

// schedTuneCards returns the types of the evaluated cluster with what they reach:
// 17 % of the peak of the data sheets. That share follows from the paper's figures
// for one epoch of ResNet-152 with batch 32, 2,513 s on the slowest GPU and 280 s
// on the fastest, and is used for all.
func schedTuneCards() []struct {
	name   string
	tflops float64
} {
	const reached = 0.17
	return []struct {
		name   string
		tflops float64
	}{{"RTX 2070 SUPER", reached * 9.1}, {"RTX 3070", reached * 20.3}, {"RTX 3090", reached * 35.6}}
}

// gflops returns the cost of one image of 224 by 224 forward, from the models'
// papers.
func gflops(model string) float64 {
	return map[string]float64{
		"resnet18": 1.8, "resnet34": 3.7, "resnet50": 4.1, "resnet101": 7.8, "resnet152": 11.5,
		"vgg11": 7.6, "vgg13": 11.3, "vgg16": 15.5, "vgg19": 19.6, "alexnet": 0.7, "googlenet": 1.5,
		"densenet121": 2.9, "densenet161": 7.8, "densenet169": 3.4, "densenet201": 4.3,
		"mobilenet_v2": 0.3, "squeezenet1_0": 0.8, "squeezenet1_1": 0.35, "inception_v3": 5.7,
	}[model]
}

// The cost of an inference of one image: the start of its process, since the image
// itself is done in about a second; memory by the context and the weights; and how
// much of a GPU each kind keeps busy. All are assumed.
const (
	inferTime                = 8 * time.Second
	inferBaseMiB             = 500
	inferPerParam            = 5
	trainMilli, inferMilli   = 450, 100
	imagesOfEpoch, passesPer = 50_000, 3
)

// readSchedTune reads the arrivals of SchedTune's evaluation (CCGrid 2022).
// Training takes one epoch of CIFAR-10 at the GPU's speed, and the measured memory
// if the folder has it.
func readSchedTune(t *table, o *Options) (workload.Job, error) {
	j := workload.Job{ID: t.text("job"), Model: t.text("model"), Group: t.text("kind"), GPUs: 1}
	var err error
	if j.Submit, err = t.span(time.Second, "arrival_s"); err != nil {
		return j, err
	}
	batch, err := t.between(1, 1<<20, "batch_size")
	if err != nil {
		return j, err
	}
	j.Batch, j.Inference = int64(batch), j.Group != "train"
	j.Steps = 1
	if !j.Inference {
		j.Steps = int64(imagesOfEpoch / batch)
	}
	flops := gflops(j.Model)
	if flops == 0 && j.Group == "train" {
		return j, fmt.Errorf("model: %q is not one whose operations are known", j.Model)
	}
	for _, c := range schedTuneCards() {
		on := workload.OnType{Type: c.name, Duration: inferTime, UsedMilli: inferMilli}
		on.MemMiB = inferBaseMiB + inferPerParam*o.peaks[peakKey{j.Model, 0, c.name}]
		if j.Group == "train" {
			on.Duration = time.Duration(flops * imagesOfEpoch * passesPer / c.tflops / 1000 * float64(time.Second)).Round(time.Millisecond)
			on.UsedMilli, on.MemMiB = trainMilli, o.peaks[peakKey{j.Model, int(batch), c.name}]
		}
		j.On = append(j.On, on)
	}
	j.Duration, j.UsedMilli, j.MemMiB = j.On[0].Duration, j.On[0].UsedMilli, j.On[0].MemMiB
	return j, nil
}

// Peaks returns the measured peaks of training on one type of GPU, without those
// above a limit, in ascending order.
func Peaks(dir, gpu string, most int64) ([]int64, error) {
	path, err := find(dir, "", "train_peak_mem")
	if err != nil {
		return nil, err
	}
	all, err := readPeaks(path)
	if err != nil {
		return nil, err
	}
	var out []int64
	for k, v := range all {
		if k.batch > 0 && k.gpu == gpu && v <= most {
			out = append(out, v)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: holds no run on %s of at most %d MiB", path, gpu, most)
	}
	slices.Sort(out)
	return out, nil
}
