package model

import (
	"strings"

	"github.com/berth-scheduler/berth/model/gpuspec"
)

// CoresType is the name, in requests, samples and predictions, of a run on CPU
// cores instead of GPUs.
const CoresType = "cpu"

func onCores(gpuType string) bool { return strings.EqualFold(gpuType, CoresType) }

// Confidences in a run on cores. The node's processor is unknown, so physics says
// little; runs of the same job say more.
const (
	confidenceCores      = 0.3
	confidenceCoresRatio = 0.4 // from runs of the same job on a GPU
)

// hostMargin is the factor by which a run may exceed the measured or computed host
// memory: unlike a GPU's, its allocator seldom gives anything back.
const hostMargin = 1.3

// maxParallel bounds the cores that one training step keeps busy.
const maxParallel = 256

// cores predicts a run of the job on t.CPUMilli cores that does the work of all its
// GPUs, one after the other. Its memory is the host's: HostMemMiB holds parameters
// and activations, and is what to reserve. Seconds is 0 if unknown; the user's
// declarations are about GPUs and do not count.
func (p *Predictor) cores(r *Request, t TypeInfo, parts []Part) (Prediction, []Part) {
	cores := float64(t.CPUMilli) / 1000
	core := gpuspec.OneCore()
	q := Prediction{GPUType: t.Name, Fits: true, CPUMilli: t.CPUMilli, PowerW: ceil(cores * core.Watt), Source: SourceNone}
	if r.Features.Known() {
		var mem float64
		mem, parts = p.w.coresMemory(&r.Features, max(1, r.GPUs), parts)
		q.HostMemMiB = ceil(mem)
		q.StepSeconds = p.w.coresStep(&r.Features, core, cores, max(1, r.GPUs))
		q.Source, q.Confidence = r.Features.Source, confidenceCores
	}
	p.coresHistory(r, &q)
	p.beyondHost(r, &q.HostMemMiB, &q.HostConfidence)
	if q.StepSeconds > 0 && r.Features.Steps > 0 {
		q.Seconds = q.StepSeconds * float64(r.Features.Steps)
	}
	q.Seconds = min(q.Seconds, 1e12)
	return q, parts
}

// coresHistory applies the measurements of earlier runs of the same job: on cores,
// or else on a GPU, times how much longer the physics predicts it takes on cores.
func (p *Predictor) coresHistory(r *Request, q *Prediction) {
	if o := p.h.onCores(r.Signature); o != nil && o.runs > 0 {
		if o.hostMiB > 0 {
			q.HostMemMiB = ceil(float64(o.hostMiB) * hostMargin)
		}
		switch {
		case o.perStep.n > 0 && r.Features.Steps > 0:
			q.StepSeconds = o.perStep.value()
		case o.seconds.n > 0 && r.Features.Steps == 0:
			q.Seconds = o.seconds.value()
		default:
			return
		}
		q.Source, q.Confidence = SourceHistory, 1-0.2/float64(o.runs)
		return
	}
	o, _ := p.h.find(r.Signature, "")
	if o == nil || o.perStep.n == 0 || q.StepSeconds <= 0 {
		return
	}
	from, ok := p.specs[o.gpuType]
	if !ok {
		from, _ = gpuspec.Lookup(o.gpuType)
	}
	q.StepSeconds *= o.perStep.value() / p.step(&r.Features, &from)
	q.Source, q.Confidence = SourceHistory, confidenceCoresRatio
}

// coresStep is a roofline over the whole step: cores overlap little of compute and
// memory traffic, so both add up. Everything is FP32: most servers' cores have no
// faster mode.
func (w *Weights) coresStep(f *Features, core gpuspec.Core, cores float64, gpus int) float64 {
	flops, bytes := float64(f.FLOPs), f.traffic()
	optimizer := 0.0
	if f.Mode == Training {
		flops *= 1 + w.BackwardFLOPs
		bytes *= 1 + w.BackwardBytes
		_, gradients, states := f.state()
		optimizer = (float64(2*gradients) + float64(2*states)) * mib
	}
	cores = min(max(cores, 0.001), maxParallel)
	work := flops/core.FLOPS(cores) + float64(bytes*widened(f))/core.Bandwidth(cores)
	return float64(float64(gpus)*work) + optimizer/core.Bandwidth(cores) + float64(w.StepMillis/1e3)
}

// widened returns how much larger activations are in FP32 than as counted.
func widened(f *Features) float64 { return 4 / float64(f.Precision.ActivationBytes(4)) }

// coresMemory adds up the host memory of a run on cores, in MiB: one copy of the
// parameters, and the activations of what all GPUs would have held. parts receives
// the components.
func (w *Weights) coresMemory(f *Features, gpus int, parts []Part) (float64, []Part) {
	total := 0.0
	add := adder(&total, &parts)
	weights, gradients, optimizer := f.state()
	wide := widened(f) * float64(gpus)
	add("process", w.HostBaseMiB)
	add("weights", weights)
	add("gradients", gradients)
	add("optimizer", optimizer)
	saved, acts, matrix := f.kept()
	add("activations", float64(wide*(float64(1.1*saved)+float64(1.2*acts)+float64(2.2*matrix))))
	transient := float64(float64(f.InputBytes) / mib)
	if f.Mode == Training {
		transient += float64(float64(2*float64(f.LargestBytes))/mib) + float64(float64(f.OutputBytes)/mib)
	}
	add("transient", float64(wide*transient))
	add("margin", float64(total*(hostMargin-1)))
	return total, parts
}
