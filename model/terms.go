package model

import (
	"cmp"
	"math"
	"strings"

	"github.com/berth-scheduler/berth/model/fit"
	"github.com/berth-scheduler/berth/model/gpuspec"
	"github.com/berth-scheduler/berth/model/graph"
)

// Target is a quantity that is learned from samples.
type Target uint8

// The targets. Host memory, CPU and power follow from these and from history.
const (
	Memory Target = iota // peak GPU memory, MiB
	Util                 // share of the GPU, 0 to 1
	Time                 // one step, seconds
	numTargets
)

// String returns the target's name: memory, util or time.
func (t Target) String() string { return [...]string{"memory", "util", "time"}[t] }

// Targets returns all targets.
func Targets() []Target { return []Target{Memory, Util, Time} }

// Label returns what s measured of t, in t's unit; ok is false if it did not, if
// the value is impossible, or if a limit ended the run.
func (t Target) Label(s *Sample) (v float64, ok bool) {
	switch t {
	case Memory:
		v = float64(s.PeakMiB)
	case Util:
		v = float64(min(s.UtilMilli, 1000)) / 1000
	case Time:
		if s.Steps > 0 {
			v = s.Seconds / float64(s.Steps)
		}
	}
	if onCores(s.GPUType) {
		return 0, false // what is learned is about GPUs
	}
	low, high := [...]float64{1, 0.001, 1e-6}[t], [...]float64{1 << 30, 1, 1e8}[t]
	return v, v >= low && v <= high && !s.Censored
}

// term is one addend of a target's physics: a name for users, the coefficient
// before anything was learned, and the range in which samples may move it. The
// ranges are wide, but physical: few samples of large models must not shift their
// own overhead into the constant part of small ones.
type term struct {
	name             string
	prior, low, high float64
}

// maxTerms is the maximum per target.
const maxTerms = 13

// The memory terms, in MiB. A job has one of the activation terms: the tensors that
// autograd keeps if known, else the output of all layers, else that of convolutions
// and matrix products.
var memoryTerms = []term{
	{"context", 1, 0.5, 2}, {"libraries", 0.5, 0, 4}, {"libraries", 1, 0, 8},
	{"weights", 1, 0.9, 2}, {"gradients", 1, 0.5, 2.5}, {"optimizer", 1, 0.8, 1.5},
	{"activations", 1.1, 0.7, 2}, {"activations", 1.2, 0.3, 3}, {"activations", 2.2, 0.7, 6},
	{"transient", 1, 0, 10}, {"transient", 2, 0, 6}, {"workspace", 1, 0, 2}, {"attention", 1, 0, 2},
}

// libraryUnit is the unit of the constant term, in MiB.
const libraryUnit = 512

func fillMemory(f *Features, spec *gpuspec.Spec, w *Weights, out []float64) {
	out[0], out[1], out[2] = float64(spec.ContextMiB), libraryUnit, float64(spec.SMs)
	out[3], out[4], out[5] = f.state()
	out[6], out[7], out[8] = f.kept()
	out[9] = float64(float64(f.InputBytes)/mib) + float64(w.OutputFactor*float64(f.OutputBytes)/mib)
	if out[10] = 0; f.Mode == Training {
		out[10] = float64(f.LargestBytes) / mib
	}
	out[11] = w.ScratchFactor * min(float64(f.WorkspaceBytes)/mib, 4096)
	out[12] = 0
	if f.Mode == Training && !f.Checkpointing {
		out[12] = float64(f.ScoreBytes) / mib
	}
}

// state returns the memory of weights, gradients and optimizer states in MiB.
func (f *Features) state() (weights, gradients, optimizer float64) {
	weights = float64(float64(f.ParamBytes) / mib)
	trained := weights
	if f.TrainedBytes > 0 {
		trained = float64(float64(f.TrainedBytes) / mib)
	}
	if f.Mode == Training {
		gradients, optimizer = trained, float64(trained*float64(f.Optimizer.States()))
	}
	if f.Precision == graph.AMP {
		weights *= 1.5 // autocast keeps a two-byte copy
	}
	return weights, gradients, optimizer
}

// kept returns the activations that a step holds in MiB: exactly one is above 0 if
// anything is known.
func (f *Features) kept() (saved, acts, matrix float64) {
	switch {
	case f.Mode == Inference && f.LiveBytes > 0:
		return float64(f.LiveBytes) / mib, 0, 0
	case f.Mode == Training && f.SavedBytes > 0:
		return float64(f.SavedBytes) / mib, 0, 0
	case f.ActBytes > 0:
		return 0, float64(f.ActBytes) / mib, 0
	default:
		return 0, 0, float64(f.MatrixBytes) / mib
	}
}

// The time terms, in seconds.
var timeTerms = []term{
	{"matrix products", 1, 0.3, 6}, {"memory traffic", 1, 0.2, 6}, {"kernels", 4, 0.5, 15},
	{"step", 1, 0, 5}, {"input", 1, 0, 5}, {"optimizer", 1.3, 0, 6},
}

func fillTime(f *Features, spec *gpuspec.Spec, w *Weights, out []float64) {
	flops, bytes := float64(f.FLOPs), f.traffic()
	kernels := w.KernelsPerLayer * float64(f.layers())
	optimizer := 0.0
	if f.Mode == Training {
		flops *= 1 + w.BackwardFLOPs
		bytes *= 1 + w.BackwardBytes
		kernels *= 1 + w.BackwardFLOPs
		_, gradients, states := f.state()
		optimizer = (float64(2*gradients) + float64(2*states)) * mib
	}
	bandwidth := spec.BandwidthGBs * 1e9
	out[0] = flops / sustained(f.Precision, spec)
	out[1] = bytes / bandwidth
	out[2] = kernels * 1e-6
	out[3] = 1e-3
	out[4] = float64(f.InputBytes) / (w.HostLinkGBs * 1e9)
	out[5] = optimizer / bandwidth
}

// traffic returns the forward memory traffic in bytes; if it was not counted, each
// output is assumed to be written once and read once, each weight read once.
func (f *Features) traffic() float64 {
	if f.MovedBytes > 0 {
		return float64(f.MovedBytes)
	}
	acts := cmp.Or(float64(f.ActBytes), float64(2*float64(f.MatrixBytes)))
	return float64(2*acts) + float64(f.ParamBytes)
}

// layers returns the number of operators.
func (f *Features) layers() int64 {
	return f.Convs + f.Linears + f.Activations + f.Norms + f.Others
}

// sustained returns the speed of matrix products that a board can sustain, in FLOPs
// per second: seven tenths of the data sheet's peak, or what its power limit allows
// if that is less. The latter is by generation, in FLOPs per joule: large boards
// seldom reach it, small ones with the same chip and a low limit (P4, T4, L4)
// always do, and run at a third of their peak. The two bounds are joined by a norm,
// since the transition is not abrupt.
func sustained(p Precision, spec *gpuspec.Spec) float64 {
	peak := spec.FP32TFLOPS * 1e12
	perJoule := 29e9 // 16 nm and older
	switch {
	case spec.Capability == "":
		perJoule = 95e9 // not NVIDIA's: AMD's of 6 and 7 nm, with matrix units for FP32
	case spec.Capability >= "8.9" || len(spec.Capability) > 3:
		perJoule = 98e9 // 4 nm
	case spec.Capability >= "8.0":
		perJoule = 65e9 // 7 and 8 nm
	case spec.Capability >= "7.0":
		perJoule = 42e9 // 12 nm
	}
	tensor := spec.TensorTFLOPS * 1e12
	switch {
	case p.Tensor() && tensor > peak:
		peak, perJoule = tensor, perJoule*10
	case p == graph.TF32 && spec.Capability >= "8.0" && tensor/2 > peak:
		peak, perJoule = tensor/2, perJoule*5
	}
	a, b := 1/(0.7*peak), 1/(perJoule*float64(max(1, spec.TDPWatt)))
	return 1 / math.Sqrt(math.Sqrt(float64(float64(a*a)*float64(a*a))+float64(float64(b*b)*float64(b*b))))
}

// The utilization terms: the roofline, and a constant.
var utilTerms = []term{{"roofline", 0.7, 0, 1.5}, {"constant", 0.3, 0, 2}}

// terms returns t's terms, in the order of fill.
func (t Target) terms() []term {
	return [...][]term{memoryTerms, utilTerms, timeTerms}[t]
}

// Terms returns the physics of t for a job on a type: one addend for each
// coefficient of a Group, in t's unit.
func (w *Weights) Terms(t Target, f *Features, spec *gpuspec.Spec) []float64 {
	out := make([]float64, len(t.terms()))
	w.terms(t, f, spec, out)
	return out
}

// Priors returns the coefficients of t before anything was learned, and the ranges
// in which samples may move them.
func (t Target) Priors() ([]float64, []fit.Box) {
	out, boxes := make([]float64, len(t.terms())), make([]fit.Box, len(t.terms()))
	for i, x := range t.terms() {
		out[i], boxes[i] = x.prior, fit.Box{Low: x.low, High: x.high}
	}
	return out, boxes
}

// terms fills out, which has room for maxTerms.
func (w *Weights) terms(t Target, f *Features, spec *gpuspec.Spec, out []float64) {
	switch t {
	case Memory:
		fillMemory(f, spec, w, out)
	case Util:
		_, out[0] = w.step(f, spec)
		out[0], out[1] = max(out[0], 0.02), 0.5
	case Time:
		fillTime(f, spec, w, out)
	}
}

// columnCount is how many numbers of a job the forests use.
const columnCount = 22

// Columns returns the numbers about a job on a type that a forest may use.
func (f *Features) Columns(spec *gpuspec.Spec) []float64 {
	x := make([]float64, columnCount)
	f.columns(x)
	typeColumns(spec, x)
	return x
}

// columns fills x with the numbers that the forests may use. They are ratios if
// possible, since trees cannot extrapolate, and logarithms.
func (f *Features) columns(x []float64) {
	saved, acts, matrix := f.kept()
	a := max(saved+acts+matrix, 1e-3)
	batch := float64(max(1, f.Batch))
	params, flops := float64(f.ParamBytes)/mib, float64(f.FLOPs)/1e9
	over := func(v int64) float64 {
		if v <= 0 {
			return missing
		}
		return fit.Log(float64(v) / mib / a)
	}
	x[0], x[1], x[2] = fit.Log(a), fit.Log(params), fit.Log(params/a)
	x[3], x[4], x[5] = over(f.MatrixBytes), over(f.ActBytes), over(f.TracedBytes)
	x[6], x[7], x[8] = over(f.LargestBytes), over(f.InputBytes), over(f.WorkspaceBytes)
	x[9], x[10] = fit.Log(flops/a), fit.Log(flops)
	if f.FLOPs == 0 {
		x[9], x[10] = missing, missing
	}
	x[11], x[12] = fit.Log(batch), fit.Log(float64(float64(f.InputBytes)/batch/1024)+1e-3)
	x[13], x[14], x[15] = float64(f.Convs), float64(f.Linears), float64(f.Activations)
	x[16], x[17] = float64(f.Norms), float64(f.Others)
	x[18] = float64(16*int(f.Mode) + precisionCode(f.Precision))
	x[19] = fit.Log(float64(max(1, f.SeqLen)))
}

// firstTypeColumn is the first column that typeColumns fills.
const firstTypeColumn = 20

// typeColumns fills x with the forests' numbers of a GPU type.
func typeColumns(spec *gpuspec.Spec, x []float64) {
	x[20], x[21] = fit.Log(float64(spec.SMs)), fit.Log(spec.FP32TFLOPS/spec.BandwidthGBs)
}

// missing stands for an unknown number in a forest's input.
const missing = -30

func precisionCode(p Precision) int {
	for i, q := range graph.Precisions() {
		if p == q {
			return i + 1
		}
	}
	return 0
}

// GroupKey returns the kind of run that f is, from general to special, each part
// ended by '/': coefficients are kept for each prefix that has enough samples.
func GroupKey(t Target, f *Features, spec *gpuspec.Spec) string {
	mode := "infer/"
	if f.Mode == Training {
		mode = "train/"
	}
	detail := ""
	if t == Memory {
		switch saved, acts, _ := f.kept(); {
		case saved > 0:
			detail = "saved/"
		case acts > 0:
			detail = "acts/"
		default:
			detail = "matrix/"
		}
	}
	precision := string(f.Precision)
	if t == Memory && f.Precision == graph.TF32 {
		precision = string(graph.FP32) // its tensors are as large
	}
	precision = cmp.Or(precision, "any")
	framework := cmp.Or(f.Framework, "any")
	return mode + detail + precision + "/" + strings.ReplaceAll(framework, "/", "-") + "/" + class(spec) + "/"
}

// class returns the GPU's architecture.
func class(spec *gpuspec.Spec) string {
	if spec.Arch == "" {
		return "any"
	}
	return strings.ReplaceAll(spec.Arch, "/", "-")
}

// RatioLimit returns the bound of the logarithm of the forest's correction, so that
// an unknown architecture falls back on physics: factors of 0.55 to 1.82 for
// memory, which is arithmetic, and wider ones where the physics is only an outline.
func (t Target) RatioLimit() float64 { return [...]float64{0.6, 2, 1}[t] }

// expClamped returns e^v with v limited to ±limit: an unknown architecture falls
// back on physics.
func expClamped(v, limit float64) float64 {
	return math.Exp(min(max(v, -limit), limit))
}
