// Package simjob is the workload for simulated GPUs: a program that holds
// memory, computes, and is slowed by its neighbours as a training job
// would be.
package simjob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/agent/gpu/sim/simclient"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	"github.com/berth-scheduler/berth/model/graph"
)

type options struct {
	gpuMem    string
	gpuUtil   string
	seconds   float64
	step      float64
	ramp      float64
	onnx      string
	batch     int64
	optimizer string
	precision string
	seqLen    int64
	inference bool
}

// NewCommand returns `berth sim-job`. Its exit code is 1 after running out
// of memory, as PyTorch's is, and 143 after SIGTERM.
func NewCommand(out io.Writer) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "sim-job",
		Short: "Run a workload on simulated GPUs (inside a job)",
		Long: `Run a workload on the simulated GPUs of the job it is started in.

It allocates memory through the simulated GPU, which refuses when the GPU or the job's share is full,
and computes for a number of seconds of work on the reference GPU (A100); slower GPUs and neighbours
make it take longer.`,
		Example: `  berth submit --gpus 1 -- berth sim-job --gpu-mem 6GiB --gpu-util 40 --seconds 20
  berth submit --gpus 1 --onnx m.onnx --batch 32 -- berth sim-job --onnx m.onnx --batch 32 --seconds 5`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o, out) },
	}
	f := cmd.Flags()
	f.StringVar(&o.gpuMem, "gpu-mem", "1GiB", "memory to hold on each GPU")
	f.StringVar(&o.gpuUtil, "gpu-util", "50", "utilization of each GPU, in percent")
	f.Float64Var(&o.seconds, "seconds", 10, "work, in seconds on an A100")
	f.Float64Var(&o.step, "step", 0, "report a step in BERTH_PROGRESS every so many `SECONDS` of work; 0 for none")
	f.Float64Var(&o.ramp, "ramp", 0, "seconds over which memory grows to its peak")
	f.StringVar(&o.onnx, "onnx", "", "use the memory and utilization of training this ONNX graph")
	f.Int64Var(&o.batch, "batch", 1, "batch size, with --onnx")
	f.StringVar(&o.optimizer, "optimizer", "sgd", "optimizer, with --onnx")
	f.StringVar(&o.precision, "precision", "fp32", "precision, with --onnx")
	f.Int64Var(&o.seqLen, "seq-len", 128, "sequence length, with --onnx")
	f.BoolVar(&o.inference, "inference", false, "infer instead of training, with --onnx")
	return cmd
}

func run(ctx context.Context, o options, out io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	job, err := o.job()
	if err != nil {
		return err
	}
	if job.Told, err = o.steps(); err != nil {
		return err
	}
	cfg, err := simclient.FromEnv(os.Environ())
	if err != nil {
		return err
	}
	err = job.Run(ctx, cfg, out)
	if code := simclient.ExitCode(err); code != 0 {
		return &console.ExitError{Code: code, Err: err}
	}
	return nil
}

func (o options) job() (simclient.Job, error) {
	if o.seconds <= 0 || o.seconds > 30*86400 {
		return simclient.Job{}, fmt.Errorf("--seconds %v: must be above 0 and at most 30 days", o.seconds)
	}
	if o.onnx != "" {
		return o.replay()
	}
	mem, err := units.ParseMiB(o.gpuMem)
	if err != nil {
		return simclient.Job{}, fmt.Errorf("--gpu-mem: %w", err)
	}
	util, err := units.ParsePercent(o.gpuUtil)
	if err != nil {
		return simclient.Job{}, fmt.Errorf("--gpu-util: %w", err)
	}
	return simclient.Job{GPUMemMiB: mem, UtilMilli: max(1, 10*int64(util)), Seconds: o.seconds, RampSeconds: o.ramp}, nil
}

// steps makes the job report progress, in steps of so many seconds of work;
// nil for none.
func (o options) steps() (told func(done time.Duration), err error) {
	if o.step == 0 {
		return nil, nil
	}
	if o.step < 0.001 || o.step > 86400 {
		return nil, fmt.Errorf("--step %v: must be from 0.001 to 86400 seconds", o.step)
	}
	path := os.Getenv(cluster.ProgressVar)
	if path == "" {
		return nil, errors.New("--step: BERTH_PROGRESS names no file; run it as a job")
	}
	return func(done time.Duration) {
		if f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0); err == nil {
			fmt.Fprintf(f, "{\"step\": %d, \"total\": %d}\n", int64(done.Seconds()/o.step), int64(o.seconds/o.step))
			f.Close()
		}
	}, nil
}

// stages is how many pieces the first step of a training is split into, so
// that memory grows while it runs.
const stages = 8

// libraries is what cuDNN's and cuBLAS's kernels, handles and plans take in
// addition to the context and the allocator: 224 to 244 MiB on an H200 with
// PyTorch 2.11 and CUDA 13 (model/measured), whose bare context takes 518.
const libraries = 240 << 20

// replay makes a job out of a graph: the memory that PyTorch's allocator
// would take from the driver while the graph's step runs, and the utilization
// that its operators would cause, each priced independently. Neither uses the
// predictor, so that a prediction can be compared with it.
func (o options) replay() (simclient.Job, error) {
	f, err := os.Open(o.onnx)
	if err != nil {
		return simclient.Job{}, fmt.Errorf("--onnx: %w", err)
	}
	defer f.Close()
	g, err := graph.Read(f)
	if err != nil {
		return simclient.Job{}, fmt.Errorf("--onnx %s: %w", o.onnx, err)
	}
	events, err := graph.Trace(g, graph.Options{
		Batch: o.batch, SeqLen: o.seqLen, Training: !o.inference,
		Precision: graph.Precision(o.precision), Optimizer: graph.Optimizer(o.optimizer),
	})
	if err != nil {
		return simclient.Job{}, fmt.Errorf("--onnx %s: %w", o.onnx, err)
	}
	if len(events) == 0 {
		return simclient.Job{}, errors.New("--onnx: the graph does nothing")
	}
	util := utilization(events, graph.Precision(o.precision).Tensor())
	job := simclient.Job{Steps: 1, Events: []simclient.Event{{Op: simclient.EventAlloc, ID: stages + 1, Bytes: libraries}}}
	held := int64(0)
	for i := 1; i <= stages; i++ {
		if peak := graph.Peak(events[:len(events)*i/stages]); peak > held {
			job.Events = append(job.Events, simclient.Event{Op: simclient.EventAlloc, ID: uint32(i), Bytes: peak - held})
			held = peak
		}
		job.Events = append(job.Events, simclient.Event{
			Op: simclient.EventCompute, WorkSeconds: o.seconds / stages, UtilMilli: util,
		})
	}
	return job, nil
}

// The A100's peaks (NVIDIA's data sheet) and what large kernels reach of
// them, and the time that launching one kernel takes on the host.
const (
	fp32FLOPs    = 19.5e12
	tensorFLOPs  = 312e12
	memBandwidth = 2.0e12
	reached      = 0.5
	launch       = 8 * time.Microsecond
	inputGap     = 0.04 // fraction of a step in which the GPU waits for the next batch
)

// utilization returns the fraction of a step, in thousandths, in which a
// kernel runs: kernels shorter than a launch leave the GPU waiting for the
// host.
func utilization(events []graph.Event, tensor bool) int64 {
	peak := fp32FLOPs
	if tensor {
		peak = tensorFLOPs
	}
	var busy, wall float64
	for _, e := range events {
		if e.Kind != graph.Compute {
			continue
		}
		t := max(float64(e.FLOPs)/(peak*reached), float64(e.Moved)/(memBandwidth*reached))
		busy += t
		wall += max(t, launch.Seconds())
	}
	if wall == 0 {
		return 1
	}
	return max(1, min(1000, int64(1000*(1-inputGap)*busy/wall)))
}
