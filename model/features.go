// Package model predicts what a job needs on each GPU type: peak memory, share of
// the GPU, time, host memory, CPU and power. Physics comes first (an analytic core
// over what the graph says), memory second (what the same job took before). Users'
// declarations take precedence over both.
//
// Reading models happens on the client, in FromGraph and FromCatalogue; the result,
// Features, is small, bounded and carries no user data beyond the model's name.
// Everything here is pure: equal arguments give equal results.
package model

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/berth-scheduler/berth/model/graph"
)

// Source says where knowledge about a job comes from.
type Source string

// The sources, from the strongest to none. In Features only the last three occur.
const (
	SourceDeclared Source = "declared"
	SourceHistory  Source = "history"
	// SourceProgram is runs of the same program with other numbers among its
	// arguments.
	SourceProgram Source = "program"
	// SourceImported is runs under another scheduler, of jobs of the same name.
	SourceImported  Source = "imported"
	SourceGraph     Source = "graph"
	SourceCatalogue Source = "catalogue"
	SourceNone      Source = "none"
)

// Precision and Optimizer are those of package graph, so that callers need only one
// package.
type (
	Precision = graph.Precision
	Optimizer = graph.Optimizer
)

// Mode says whether a job trains or infers.
type Mode uint8

// The modes.
const (
	Inference Mode = iota
	Training
)

// Limits of Features.
const (
	MaxModelName = 64
	MaxFramework = 16
	MaxLoRARank  = 1 << 16
	MaxSteps     = int64(1) << 40
	// MaxBytes bounds every size in bytes, and FLOPs: 2^60.
	MaxBytes = int64(1) << 60
)

// Run says how a model will be run.
type Run struct {
	Mode      Mode
	Batch     int64 // samples per step on one GPU, 1 to graph.MaxBatch
	SeqLen    int64 // 0 for the model's own
	Steps     int64 // 0 if unknown
	Precision Precision
	Optimizer Optimizer // training only
	// Framework is "pytorch", "tensorflow", "jax" or empty for unknown.
	Framework string
	// Checkpointing means that activations are recomputed in the backward pass
	// instead of being kept.
	Checkpointing bool
	// LoRARank is the rank of low-rank adapters, which are then the only weights
	// trained; 0 for none (Hu et al. 2021, arXiv:2106.09685).
	LoRARank int64
	// WeightBits is the width of stored weights if it differs from the precision's:
	// 4 or 8 for quantized models; 0 otherwise.
	WeightBits int64
}

// Declared holds what the user says that the job needs; 0 means not said. Declared
// numbers take precedence over every estimate.
type Declared struct {
	GPUMemMiB int64 // as NVML would show it, CUDA context included
	UtilMilli int64 // thousandths of a GPU, 1 to 1000
	Seconds   float64
}

// over fills in from other what d leaves open.
func (d Declared) over(other Declared) Declared {
	d.GPUMemMiB = cmp.Or(d.GPUMemMiB, other.GPUMemMiB)
	d.UtilMilli = cmp.Or(d.UtilMilli, other.UtilMilli)
	d.Seconds = cmp.Or(d.Seconds, other.Seconds)
	return d
}

// Features is what the server knows of a job's model. Bytes and FLOPs are those of
// one step at the run's batch size and precision; all are at most MaxBytes. The
// zero value means that nothing is known.
type Features struct {
	Source Source // graph, catalogue or none (also if empty)
	Model  string
	Run

	Params         int64 // number of weights
	ParamBytes     int64 // weights and running statistics, as stored on the GPU
	TrainedBytes   int64 // of the weights that get gradients; 0 means all if training
	SavedBytes     int64 // activations kept for the backward pass
	LiveBytes      int64 // peak that inference holds besides the weights
	LargestBytes   int64 // largest single activation
	InputBytes     int64
	OutputBytes    int64
	WorkspaceBytes int64
	MovedBytes     int64 // forward memory traffic
	FLOPs          int64 // forward, a multiply-add counts as two
	// ActBytes is the output of all layers in one forward pass (SchedTune's
	// activations), MatrixBytes that of convolutions and matrix products (the
	// activations of Radosavovic et al. 2020, arXiv:2003.13678).
	ActBytes, MatrixBytes int64
	// TracedBytes is the peak of a shape-only trace of one whole step, including
	// gradients but not optimizer states; 0 without a trace.
	TracedBytes int64
	// ScoreBytes is the size of attention's score matrices if all were kept; 0 if
	// the model computes them in tiles.
	ScoreBytes int64
	// Blocks is the number of repeated blocks (transformer layers), Width the
	// values that flow between them per sample and position; 0 if unknown.
	Blocks, Width int64

	Convs, Linears, Activations, Norms, Others int64

	// Partial means that part of the graph was not understood.
	Partial  bool
	Declared Declared
}

// Known reports whether f describes a model, rather than only a job.
func (f *Features) Known() bool {
	return f.Source == SourceGraph || f.Source == SourceCatalogue
}

// Check returns an error that names the first field out of range.
func (f *Features) Check() error {
	switch f.Source {
	case "", SourceNone, SourceGraph, SourceCatalogue:
	default:
		return fmt.Errorf("source %q: must be graph, catalogue or none", f.Source)
	}
	if len(f.Model) > MaxModelName {
		return fmt.Errorf("model name: %d bytes, at most %d are allowed", len(f.Model), MaxModelName)
	}
	if !utf8.ValidString(f.Model) {
		return fmt.Errorf("model name %q: is not valid UTF-8", f.Model)
	}
	if err := f.Run.check(f.Known()); err != nil {
		return err
	}
	for _, v := range f.numbers() {
		if *v.p < 0 || *v.p > v.max {
			return fmt.Errorf("%s %d: must be 0 to %d", v.name, *v.p, v.max)
		}
	}
	if s := f.Declared.Seconds; math.IsNaN(s) || s < 0 || s > 1e10 {
		return fmt.Errorf("declared seconds %v: must be 0 to 1e10", s)
	}
	return nil
}

func (r *Run) check(known bool) error {
	if r.Mode > Training {
		return fmt.Errorf("mode %d: must be 0 (inference) or 1 (training)", r.Mode)
	}
	if r.Batch < 0 || r.Batch > graph.MaxBatch || (known && r.Batch == 0) {
		return fmt.Errorf("batch %d: must be 1 to %d", r.Batch, graph.MaxBatch)
	}
	if len(r.Framework) > MaxFramework || !utf8.ValidString(r.Framework) {
		return fmt.Errorf("framework %q: must be at most %d bytes of UTF-8", r.Framework, MaxFramework)
	}
	if !slices.Contains([]int64{0, 4, 8, 16, 32}, r.WeightBits) {
		return fmt.Errorf("weight bits %d: must be 4, 8, 16 or 32, or 0 for those of the precision", r.WeightBits)
	}
	if r.Precision != "" && !slices.Contains(graph.Precisions(), r.Precision) {
		return fmt.Errorf("precision %q: must be one of %v", r.Precision, graph.Precisions())
	}
	if r.Optimizer != "" && !slices.Contains(graph.Optimizers(), r.Optimizer) {
		return fmt.Errorf("optimizer %q: must be one of %v", r.Optimizer, graph.Optimizers())
	}
	return nil
}

// number is one integer field with its name and range; the order is that of
// the encoding and must not change within a version.
type number struct {
	name string
	p    *int64
	max  int64
}

func (f *Features) numbers() []number {
	const layers = graph.MaxNodes
	return []number{
		{"batch", &f.Batch, graph.MaxBatch}, {"sequence length", &f.SeqLen, graph.MaxBatch}, {"steps", &f.Steps, MaxSteps},
		{"parameters", &f.Params, MaxBytes}, {"parameter bytes", &f.ParamBytes, MaxBytes}, {"saved bytes", &f.SavedBytes, MaxBytes},
		{"live bytes", &f.LiveBytes, MaxBytes}, {"largest tensor bytes", &f.LargestBytes, MaxBytes}, {"input bytes", &f.InputBytes, MaxBytes},
		{"output bytes", &f.OutputBytes, MaxBytes}, {"workspace bytes", &f.WorkspaceBytes, MaxBytes}, {"moved bytes", &f.MovedBytes, MaxBytes},
		{"FLOPs", &f.FLOPs, MaxBytes}, {"convolutions", &f.Convs, layers}, {"linear layers", &f.Linears, layers},
		{"activations", &f.Activations, layers}, {"norms", &f.Norms, layers}, {"other layers", &f.Others, layers},
		{"trained bytes", &f.TrainedBytes, MaxBytes}, {"activation bytes", &f.ActBytes, MaxBytes}, {"matrix activation bytes", &f.MatrixBytes, MaxBytes},
		{"traced bytes", &f.TracedBytes, MaxBytes}, {"score bytes", &f.ScoreBytes, MaxBytes}, {"blocks", &f.Blocks, layers}, {"width", &f.Width, MaxBytes},
		{"LoRA rank", &f.LoRARank, MaxLoRARank}, {"weight bits", &f.WeightBits, 32},
		{"declared GPU memory", &f.Declared.GPUMemMiB, 1 << 30}, {"declared utilization", &f.Declared.UtilMilli, 1000},
	}
}

// Signature returns the name of the job that f and identity describe: runs with
// equal signatures count as repetitions of each other. identity is whatever the
// caller knows of the program besides its model: user, command, image digest. Steps
// and declared numbers do not count: the job is the same when it runs longer. The
// result is 32 hexadecimal digits.
func (f Features) Signature(identity string) string {
	f.Declared, f.Steps = Declared{}, 0
	h := sha256.New()
	h.Write(f.Encode())
	h.Write([]byte{0})
	h.Write([]byte(identity))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// FromGraph computes the features of a graph for a run. name is the model's name;
// it is cut to MaxModelName bytes. The errors are those of run.
func FromGraph(g *graph.Graph, name string, run Run) (Features, error) {
	s, err := graph.Summarize(g, graph.Options{
		Batch: run.Batch, SeqLen: run.SeqLen, Training: run.Mode == Training, Precision: run.Precision, Optimizer: run.Optimizer,
	})
	if err != nil {
		return Features{}, err
	}
	f := Features{
		Source: SourceGraph, Model: shorten(name), Run: run,
		Params: s.Params, ParamBytes: clamp(s.ParamBytes) + clamp(s.BufferBytes), SavedBytes: s.SavedBytes, LiveBytes: s.LiveBytes,
		LargestBytes: s.LargestBytes, InputBytes: s.InputBytes, OutputBytes: s.OutputBytes,
		WorkspaceBytes: s.WorkspaceBytes, MovedBytes: s.MovedBytes, FLOPs: s.FLOPs, ActBytes: s.ActBytes, MatrixBytes: s.MatrixBytes,
		Convs: int64(s.Convs), Linears: int64(s.Linears), Activations: int64(s.Activations), Norms: int64(s.Norms), Others: int64(s.Others),
		Partial: s.Partial,
	}
	for _, v := range f.numbers() {
		*v.p = min(*v.p, v.max)
	}
	return f, f.Check()
}

// shorten cuts a name to MaxModelName bytes of valid UTF-8.
func shorten(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), MaxModelName)], "")
}

func clamp(v int64) int64 { return min(max(v, 0), MaxBytes) }
