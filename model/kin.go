package model

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/berth-scheduler/berth/model/gpuspec"
)

// KinSignature returns what runs under another scheduler have in common with jobs
// here: their commands were not kept, only who ran them under what name, on how
// many GPUs of a node.
func KinSignature(user, name string, gpus int) string {
	h := sha256.New()
	for _, part := range []string{"kin", user, name, strconv.Itoa(gpus)} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Confidences of predictions from imported runs. A name is often given to many
// different runs: only if several took nearly the same is it more than a hint, and
// a hint alone permits no sharing.
const (
	confidenceKin     = 0.6
	confidenceKinHint = 0.2
	kinRuns           = 3
	kinSpread         = 1.25
)

// fromKin fills in from imported runs what no better source knows.
func (p *Predictor) fromKin(r *Request, spec *gpuspec.Spec, a *answer) {
	o, exact := p.h.find(r.Kin, spec.Name)
	if o == nil {
		return
	}
	other, speed := 0.0, 1.0
	if !exact {
		other, speed = p.carry(r, o, spec)
	}
	if o.memorySeen && a.source == SourceNone {
		a.mem = max(1, float64(o.peakMiB)+other)
		a.p95 = float64(a.mem*p.w.OtherTypeMargin) + p.w.HistoryMarginMiB
		a.source, a.confidence = SourceImported, confidenceKinHint
		if o.steady() {
			a.confidence = confidenceKin
		}
		if o.util.n > 0 {
			a.util = max(leastUtil, min(1, o.util.value()/1000*speed))
		}
	}
	if o.hostMiB > 0 && !r.Features.Known() {
		a.host = ceil(float64(o.hostMiB) * hostMargin)
	}
	if o.cpu.n > 0 && !r.Features.Known() {
		a.cpu = ceil(o.cpu.value())
	}
	if a.secs == 0 && o.seconds.n > 0 && r.Features.Steps == 0 {
		a.secs = o.seconds.value() * speed
	}
}

// steady reports whether several runs took nearly the same memory.
func (o *observed) steady() bool {
	return o.measured >= kinRuns && float64(o.peakMiB) <= kinSpread*float64(o.leastMiB)
}

// carry converts what was observed on another type of GPU to that of spec: how much
// more memory a context takes there, and by what factor a run is longer.
func (p *Predictor) carry(r *Request, o *observed, spec *gpuspec.Spec) (mem, speed float64) {
	from, ok := p.specs[o.gpuType]
	if !ok {
		from, _ = gpuspec.Lookup(o.gpuType)
	}
	mem = p.w.ContextFactor * float64(spec.ContextMiB-from.ContextMiB)
	return mem, p.ratio(&r.Features, &from, spec)
}
