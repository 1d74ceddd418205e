package model

import (
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/berth-scheduler/berth/model/fit"
	"github.com/berth-scheduler/berth/model/gpuspec"
)

// TypeInfo names a GPU type of the cluster.
type TypeInfo struct {
	Name string
	// MemMiB is what NVML reports as total; 0 means the published size.
	MemMiB int64
	// HostMiB and HostCPUMilli are what the largest node with such GPUs has for
	// jobs; no job is predicted to need more. 0 is no bound.
	HostMiB, HostCPUMilli int64
	// CPUMilli is above 0 for a run of the job on that many thousandths of a core
	// instead of its GPUs; the name is then CoresType.
	CPUMilli int64
	// Drivers are the versions of the driver on its nodes, sorted and separated by
	// spaces; "" is unknown.
	Drivers string
	// Simulated marks simulated GPUs, which account for what programs claim to use.
	Simulated bool
}

// Request asks what a job needs.
type Request struct {
	Features  Features
	Signature string // from Features.Signature; empty for no history
	// Kin is what the job has in common with imported runs, as KinSignature returns
	// it; empty for none.
	Kin string
	// Program is from Features.Program; empty for none.
	Program string
	// Numbers are those of its command, as Numbers returns them.
	Numbers []Number
	// User is the job's user, as in Sample.User; empty for none.
	User     string
	Declared Declared // takes precedence over Features.Declared
	Types    []TypeInfo
	// GPUs is how many the job wants, for a run on cores that does their work; 0
	// counts as one.
	GPUs int
}

// Prediction is what a job needs on one GPU type. Memory is what NVML would show
// for the job's process, CUDA context included. All numbers are limited to the GPU:
// 1 ≤ GPUMemMiB ≤ GPUMemP95MiB ≤ its memory. A run on cores has no GPU memory and
// no utilization.
type Prediction struct {
	GPUType      string
	GPUMemMiB    int64 // expected peak
	GPUMemP95MiB int64 // upper quantile: what to reserve
	// Fits is false if the expected peak exceeds the GPU; the numbers above are
	// then the GPU's size, and Parts shows the need.
	Fits        bool
	UtilMilli   int64   // compute, 1 to 1000 thousandths of the GPU
	Seconds     float64 // whole run; 0 if the number of steps is unknown
	StepSeconds float64 // one step; 0 if unknown
	HostMemMiB  int64
	CPUMilli    int64
	PowerW      int64
	// Confidence in the memory number, from 0 (nothing is known: the numbers are
	// the whole GPU) to 1.
	Confidence float64
	// HostConfidence is that in host memory and cores if they were measured, 0 if
	// Confidence applies to them too.
	HostConfidence float64
	// TimeConfidence is that in the run time if it differs from Confidence, else 0:
	// nine in ten runs take at most 3 − 1.5 × TimeConfidence times as long. TimeBy
	// is the name of the number in the command with which the time was found to
	// grow.
	TimeConfidence float64
	TimeBy         string
	Source         Source // of the memory number
	Parts          []Part // of the analytic estimate, empty without one
	// Floors are those under the drivers of the type, empty if nothing was learned
	// of any. The estimate has the highest.
	Floors []Floor
}

// Confidences by source. That of history grows with the number of runs.
const (
	confidenceDeclared  = 0.95
	confidenceGraph     = 0.7
	confidenceCatalogue = 0.6
	confidencePartial   = 0.4
	confidenceCensored  = 0.4
	confidenceOtherType = 0.75
	unknownTypeFactor   = 0.8
)

// Predictor answers Requests. It is immutable and safe for concurrent use; to
// improve it, build one from new weights or a new history.
type Predictor struct {
	w     Weights
	h     *History
	specs map[string]gpuspec.Spec
	// splits are those of the forests in w.
	splits [numTargets]*fit.Split
	own    sync.Map // ownKind to *ownErrors, computed on demand
	lifts  sync.Map // floorKind to []lift, computed on demand
	site   sync.Once
	known  bool // the result of familiar
}

// NewPredictor returns a predictor. history may be nil. The error is that of the
// weights.
func NewPredictor(w Weights, history *History) (*Predictor, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	p := &Predictor{w: w, h: history, specs: make(map[string]gpuspec.Spec)}
	for _, s := range gpuspec.All() {
		p.specs[s.Name] = s
	}
	for t := range p.splits {
		p.splits[t] = w.Learned[t].Forest.Split(firstTypeColumn)
	}
	return p, nil
}

// Predict returns a prediction for each GPU type of the request, sorted by type; a
// type named twice is answered once. Features out of range count as unknown.
func (p *Predictor) Predict(r Request) []Prediction {
	out := make([]Prediction, 0, len(r.Types))
	parts := make([]Part, 0, maxParts*len(r.Types))
	if r.Features.Check() != nil {
		r.Features = Features{}
	}
	var sc scratch
	for _, t := range r.Types {
		if slices.ContainsFunc(out, func(q Prediction) bool { return q.GPUType == t.Name }) {
			continue
		}
		n := len(parts)
		var q Prediction
		if t.CPUMilli > 0 && onCores(t.Name) {
			q, parts = p.cores(&r, t, parts)
		} else {
			q, parts = p.one(&r, t, parts, &sc)
		}
		if len(parts) > n {
			q.Parts = parts[n:len(parts):len(parts)]
		}
		out = append(out, q)
	}
	slices.SortFunc(out, func(a, b Prediction) int { return strings.Compare(a.GPUType, b.GPUType) })
	return out
}

// spec describes a type, with the cluster's own memory size if known.
func (p *Predictor) spec(t TypeInfo) (gpuspec.Spec, bool) {
	s, ok := p.specs[t.Name]
	if !ok {
		if s, ok = gpuspec.Lookup(t.Name); !ok && t.MemMiB > 0 {
			s = gpuspec.Estimate(s.Name, t.MemMiB)
		}
	}
	if t.MemMiB > 0 {
		s.MemMiB = min(t.MemMiB, 1<<30)
	}
	return s, ok
}

// answer is a prediction before it is clamped to the GPU.
type answer struct {
	mem, p95   float64
	util       float64 // 0 to 1; 0 if unknown
	step, secs float64
	host, cpu  int64
	power      int64 // 0 if it follows from the utilization
	hostSure   float64
	timeSure   float64 // 0 if it is as sure as the memory
	timeBy     string
	confidence float64
	source     Source
	floors     []Floor
}

func (p *Predictor) one(r *Request, t TypeInfo, parts []Part, sc *scratch) (Prediction, []Part) {
	spec, known := p.spec(t)
	a := answer{source: SourceNone, mem: float64(spec.MemMiB), p95: float64(spec.MemMiB)}
	if r.Features.Known() {
		parts = p.analytic(r, t, &spec, &a, parts, sc)
		if !known {
			a.confidence *= unknownTypeFactor
		}
	}
	a.host, a.cpu = p.w.host(&r.Features, a.step)
	p.fromHistory(r, t.Drivers, &spec, &a)
	p.beyondHost(r, &a.host, &a.hostSure)
	a.declare(r.Declared.over(r.Features.Declared), &spec)
	return p.finish(&a, t, &spec), parts
}

// The minimum margins while no run of this cluster was learned from, nor have its
// runs shown that they do not need them, with EstimateMarginMiB on top. What a run
// takes besides its tensors depends on the driver and the framework: for the same
// models an A100 with those of 2023 takes some 900 MiB more than an H200 with those
// of 2026, regardless of size, and cuDNN may choose other algorithms for
// convolutions, with other workspaces. Estimates fitted on the one with these
// margins cover 97 of 100 runs of timm's models and 92 of 100 random CNNs on the
// other.
const (
	foreignMargin     = 1.5
	foreignConvMargin = 1.9
)

// simulatedMargin is the margin on simulated GPUs, where a run takes what its trace
// says plus a context and libraries like those of the H200 that the weights were
// fitted on: of 1,008 replays of the zoo's graphs 99 in 100 take less
// (TestMarginOnSimulatedCards).
const simulatedMargin = 1.15

// analytic fills in a from the physics of the model, with the weights.
func (p *Predictor) analytic(r *Request, t TypeInfo, spec *gpuspec.Spec, a *answer, parts []Part, sc *scratch) []Part {
	f, margin := &r.Features, p.w.GraphMargin
	a.source, a.confidence = f.Source, confidenceGraph
	if f.Source == SourceCatalogue {
		margin, a.confidence = p.w.CatalogueMargin, confidenceCatalogue
	}
	if f.Partial {
		margin, a.confidence = max(margin, p.w.PartialMargin), confidencePartial
	}
	if l := &p.w.Learned[Memory]; l.empty() {
		a.mem, parts = p.w.memory(f, spec, parts)
		a.p95 = float64(a.mem*margin) + p.w.EstimateMarginMiB
	} else {
		g := p.memory(f, spec, t.Drivers, sc)
		a.mem, a.p95 = g.value, g.p95
		switch {
		case p.w.TrainedSeq > 0:
		case t.Simulated && f.Source == SourceGraph:
			a.p95 = g.value * simulatedMargin
		case !p.familiar():
			margin := foreignMargin
			if f.Convs > 0 {
				margin = foreignConvMargin
			}
			a.p95 = max(a.p95, float64(g.value*margin)) + p.w.EstimateMarginMiB
		}
		if own, ok := p.ownMargin(r.User, f, spec, g.value); ok {
			a.p95 = g.value * math.Exp(max(own, ownPart*math.Log(g.p95/g.value)))
		}
		if f.Partial {
			a.p95 = max(a.p95, a.mem*p.w.PartialMargin)
		}
		a.floors = p.floors(f, spec, t.Drivers, &g)
		parts = g.parts(sc.terms[:], parts)
	}
	a.step, a.util = p.w.step(f, spec)
	if l := &p.w.Learned[Util]; !l.empty() {
		a.util = l.estimate(Util, p.splits[Util], &p.w, f, spec, sc).value
	}
	if l := &p.w.Learned[Time]; !l.empty() {
		a.step = l.estimate(Time, p.splits[Time], &p.w, f, spec, sc).value
	}
	a.secs = a.step * float64(f.Steps)
	return parts
}

// fromHistory applies the measurements of earlier runs of the same job.
func (p *Predictor) fromHistory(r *Request, drivers string, spec *gpuspec.Spec, a *answer) {
	o, exact := p.h.find(r.Signature, spec.Name)
	if o == nil {
		if !p.fromProgram(r, spec, a) {
			p.fromKin(r, spec, a)
		}
		return
	}
	other, speed := p.moved(r, o, spec, drivers), 1.0
	if !exact {
		other, speed = p.carry(r, o, spec)
	}
	if o.memorySeen {
		a.mem = max(1, float64(o.peakMiB)+other)
		margin := p.w.HistoryMargin
		a.confidence = 1 - 0.1/float64(o.runs)
		if !exact {
			margin, a.confidence = p.w.OtherTypeMargin, confidenceOtherType
		}
		a.p95 = float64(a.mem*margin) + p.w.HistoryMarginMiB
		a.source = SourceHistory
	}
	p.measured(r, o, other, speed, 1-0.1/float64(max(1, o.runs)), a)
	if exact && o.power.n > 0 {
		a.power = ceil(o.power.value())
	}
}

// measured applies what runs took besides GPU memory, for which they give at most a
// bound.
func (p *Predictor) measured(r *Request, o *observed, other, speed, hostSure float64, a *answer) {
	if o.boundMiB > 0 {
		p.beyond(float64(o.boundMiB)+other, a)
	}
	if o.util.n > 0 {
		a.util = max(leastUtil, min(1, o.util.value()/1000*speed))
	}
	if o.hostMiB > 0 {
		a.host, a.hostSure = ceil(float64(o.hostMiB)*hostMargin), hostSure
	}
	if o.cpu.n > 0 {
		a.cpu = ceil(o.cpu.value())
	}
	switch {
	case o.perStep.n > 0 && r.Features.Steps > 0:
		a.step = o.perStep.value() * speed
		a.secs = a.step * float64(r.Features.Steps)
	case o.seconds.n > 0 && r.Features.Steps == 0:
		a.secs = o.seconds.value() * speed
	}
}

// beyond raises a above a peak that a limit cut off. What the run would have taken
// is unknown, so the reserve grows by twice as much as the point.
func (p *Predictor) beyond(bound float64, a *answer) {
	if a.mem >= bound*p.w.CensoredFactor || a.source == SourceNone {
		return
	}
	a.mem = bound * p.w.CensoredFactor
	a.p95 = max(a.p95, bound*p.w.CensoredFactor*p.w.CensoredFactor)
	a.confidence = min(a.confidence, confidenceCensored)
}

// beyondHost raises host memory above what was too little for the job.
func (p *Predictor) beyondHost(r *Request, mib *int64, sure *float64) {
	bound := p.h.hostBound(r.Signature)
	if bound == 0 {
		return
	}
	*mib = max(*mib, ceil(float64(bound)*p.w.CensoredFactor))
	*sure = max(*sure, confidenceCensored)
}

// ratio returns how much longer a step takes on to than on from: by the analytic
// core if the model is known, by bandwidth and FP32 speed otherwise.
func (p *Predictor) ratio(f *Features, from, to *gpuspec.Spec) float64 {
	if f.Known() {
		return p.step(f, to) / p.step(f, from)
	}
	return math.Sqrt(from.BandwidthGBs * from.FP32TFLOPS / (to.BandwidthGBs * to.FP32TFLOPS))
}

// step returns the time of one step by the physics.
func (p *Predictor) step(f *Features, spec *gpuspec.Spec) float64 {
	if l := &p.w.Learned[Time]; !l.empty() {
		var sc scratch
		return max(1e-9, l.estimate(Time, p.splits[Time], &p.w, f, spec, &sc).value)
	}
	seconds, _ := p.w.step(f, spec)
	return seconds
}

// leastUtil is the lowest utilization reported, a thousandth.
const leastUtil = 0.001

// declare applies the user's numbers. A job that declares only a fraction of the
// GPU's memory is assumed to keep the same fraction of it busy, as where GPUs are
// cut into fractions, until it was measured.
func (a *answer) declare(d Declared, spec *gpuspec.Spec) {
	if d.GPUMemMiB > 0 {
		a.mem, a.p95 = float64(d.GPUMemMiB), float64(d.GPUMemMiB)
		a.source, a.confidence = SourceDeclared, confidenceDeclared
	}
	switch {
	case d.UtilMilli > 0:
		a.util = float64(d.UtilMilli) / 1000
	case a.util == 0 && d.GPUMemMiB > 0 && spec.MemMiB > 0:
		a.util = float64(d.GPUMemMiB) / float64(spec.MemMiB)
	case a.util == 0:
		a.util = 1
	}
	if d.Seconds > 0 {
		a.secs, a.timeSure, a.timeBy = d.Seconds, 0, ""
	}
}

// atMost returns n, limited to bound if that is known.
func atMost(n, bound int64) int64 {
	if bound > 0 {
		return min(n, bound)
	}
	return n
}

// finish rounds a and limits it to the GPU.
func (p *Predictor) finish(a *answer, t TypeInfo, spec *gpuspec.Spec) Prediction {
	card := max(1, spec.MemMiB)
	need := max(1, ceil(a.mem))
	mem := min(need, card)
	util := min(max(a.util, leastUtil), 1)
	power := a.power
	if power <= 0 {
		power = p.w.power(spec, util)
	}
	return Prediction{
		GPUType: t.Name, GPUMemMiB: mem, GPUMemP95MiB: min(max(mem, ceil(a.p95)), card), Fits: need <= card,
		UtilMilli: min(1000, max(1, int64(math.Round(util*1000)))),
		Seconds:   math.Round(min(a.secs, 1e12)*1e3) / 1e3, StepSeconds: a.step,
		HostMemMiB: atMost(a.host, t.HostMiB), CPUMilli: atMost(a.cpu, t.HostCPUMilli), PowerW: power,
		Confidence: a.confidence, HostConfidence: a.hostSure, TimeConfidence: a.timeSure, TimeBy: a.timeBy, Source: a.source, Floors: a.floors,
	}
}
