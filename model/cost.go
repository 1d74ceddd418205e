package model

import (
	"github.com/berth-scheduler/berth/model/gpuspec"
	"github.com/berth-scheduler/berth/model/graph"
)

const mib = 1 << 20

// Part is one component of a memory estimate. The one named "correction" is
// what was learned beyond the physics; it may be negative.
type Part struct {
	Name string
	MiB  int64
}

// adder returns a function that adds a component to a total, unless it is 0.
func adder(total *float64, parts *[]Part) func(name string, v float64) {
	return func(name string, v float64) {
		if v > 0 {
			*total += v
			*parts = append(*parts, Part{Name: name, MiB: ceil(v)})
		}
	}
}

// memory adds up what NVML would show. parts receives the components.
func (w *Weights) memory(f *Features, spec *gpuspec.Spec, parts []Part) (float64, []Part) {
	total := 0.0
	add := adder(&total, &parts)
	weights, gradients, optimizer := f.state()
	add("context", float64(w.ContextFactor*float64(spec.ContextMiB)))
	add("libraries", w.LibraryMiB)
	add("weights", weights)
	transient := float64(float64(f.InputBytes) / mib)
	if f.Mode == Training {
		add("gradients", gradients)
		add("optimizer", optimizer)
		saved, acts, matrix := f.kept()
		add("activations", float64(w.SavedFactor*saved)+float64(1.2*acts)+float64(2.2*matrix))
		transient += float64(w.LargestFactor*float64(f.LargestBytes)/mib) + float64(w.OutputFactor*float64(f.OutputBytes)/mib)
	} else {
		add("activations", float64(w.LiveFactor*float64(f.LiveBytes)/mib))
	}
	add("transient", transient)
	add("workspace", float64(w.ScratchFactor*float64(f.WorkspaceBytes)/mib))
	return total, parts
}

// maxParts is the maximum number of components that memory returns.
const maxParts = 10

// rate returns the sustained speed of matrix products in FLOPs per second.
func (w *Weights) rate(p Precision, spec *gpuspec.Spec) float64 {
	plain := w.FP32Efficiency * spec.FP32TFLOPS * 1e12
	tensor := w.TensorEfficiency * spec.TensorTFLOPS * 1e12
	switch {
	case p.Tensor():
		return max(plain, tensor)
	case p == graph.TF32 && (spec.Capability >= "8.0" || len(spec.Capability) > 3):
		return max(plain, tensor/2) // Ampere ("8.0") and later, "10.0" too: half of the FP16 rate
	default:
		return plain
	}
}

// step is a roofline over the whole network: the longer of computing and moving
// bytes, plus the part of the shorter that is not overlapped, and never less than
// the minimum time of its kernels or the host's time to launch them. Small kernels
// do not fill a large GPU: utilization counts waves of threads.
func (w *Weights) step(f *Features, spec *gpuspec.Spec) (seconds, util float64) {
	flops, bytes := float64(f.FLOPs), float64(f.MovedBytes)
	kernels := w.KernelsPerLayer * float64(f.Convs+f.Linears+f.Activations+f.Norms+f.Others)
	perKernel := float64(f.MovedBytes) / max(1, kernels) / float64(f.Precision.ActivationBytes(4))
	if f.Mode == Training {
		flops *= 1 + w.BackwardFLOPs
		bytes = float64(bytes * (1 + w.BackwardBytes))
		bytes += float64(float64(f.ParamBytes) * float64(3+2*f.Optimizer.States()))
		kernels *= 1 + w.BackwardFLOPs
	}
	compute := flops / w.rate(f.Precision, spec)
	memory := bytes / (w.BandwidthEfficiency * spec.BandwidthGBs * 1e9)
	busy := max(compute, memory) + float64(w.Overlap*min(compute, memory))
	busy = max(busy, float64(kernels*w.KernelMicros/1e6))
	load := float64(f.InputBytes) / (w.HostLinkGBs * 1e9)
	seconds = max(busy, float64(kernels*w.LaunchMicros/1e6), load) + float64(w.StepMillis/1e3)
	waves := perKernel / float64(2048*max(1, spec.SMs))
	if seconds > 0 {
		util = busy / seconds
	}
	if waves+w.WaveShare > 0 {
		util *= waves / (waves + w.WaveShare)
	}
	return seconds, util
}

// host estimates main memory in MiB and CPU in thousandths of a core.
func (w *Weights) host(f *Features, stepSec float64) (memMiB, cpuMilli int64) {
	const maxLoaders = 7000 // a default loader pool is not larger
	mem := w.HostBaseMiB + float64(w.HostParamFactor*float64(f.ParamBytes)/mib) + float64(w.HostInputFactor*float64(f.InputBytes)/mib)
	cpu := w.CPUBaseMilli
	if stepSec > 0 {
		cpu += min(maxLoaders, w.CPUMilliPerMiBps*float64(f.InputBytes)/mib/stepSec)
	}
	return ceil(mem), ceil(cpu)
}

// power returns the board's draw at a utilization of 0 to 1, in watts.
func (w *Weights) power(spec *gpuspec.Spec, util float64) int64 {
	tdp := float64(spec.TDPWatt)
	return ceil(min(tdp, tdp*(w.IdlePowerShare+float64(w.DynamicPowerShare*util))))
}

// ceil rounds up into the range of a prediction.
func ceil(v float64) int64 {
	const most = 1 << 50
	if !(v > 0) {
		return 0
	}
	if v >= most {
		return most
	}
	n := int64(v)
	if float64(n) < v {
		n++
	}
	return n
}
