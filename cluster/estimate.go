package cluster

import (
	"fmt"
	"sort"
	"time"

	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/cluster/study"
)

// CPUType is the GPU type of an Estimate for a run without a GPU.
const CPUType = "cpu"

// Estimate is what the predictor expects of a job on one type of GPU. The leader
// makes it and sends it in the command; the state machine never predicts. Memory is
// what the driver shows for the job's processes on each GPU, including their CUDA
// contexts.
type Estimate struct {
	GPUType string
	// GPUMemMiB is the expected peak per GPU, GPUMemP95MiB its upper quantile.
	GPUMemMiB, GPUMemP95MiB int64
	// Milli is the utilization of each GPU in thousandths, 1–1000.
	Milli    int64
	Duration time.Duration
	// HostMemMiB and CPUMilli are for the whole job. HostConfidenceMilli is their
	// confidence where it is higher than the rest.
	HostMemMiB, CPUMilli int64
	HostConfidenceMilli  int64
	PowerW               int64
	// ConfidenceMilli is from 0 (unknown) to 1000 (seen before).
	ConfidenceMilli int64
	// Source says where the numbers come from: "declared", "history", "program",
	// "imported", "graph", "catalogue", "none".
	Source string
	// TimeConfidenceMilli is the confidence of Duration where it differs from
	// ConfidenceMilli, else 0; see TimeSure.
	TimeConfidenceMilli int64
}

// TimeSure returns the confidence of the duration, 0 to 1000.
func (e *Estimate) TimeSure() int64 {
	if e.TimeConfidenceMilli > 0 {
		return e.TimeConfidenceMilli
	}
	return e.ConfidenceMilli
}

// EstimateFor returns the estimate for a GPU type in es, which is sorted by
// type.
func EstimateFor(es []Estimate, gpuType string) (Estimate, bool) {
	i := sort.Search(len(es), func(i int) bool { return es[i].GPUType >= gpuType })
	if i < len(es) && es[i].GPUType == gpuType {
		return es[i], true
	}
	return Estimate{}, false
}

// Usage is what was measured of an attempt. Zero means not measured.
type Usage struct {
	// GPUMemPeakMiB is the peak of what all processes of the attempt held together
	// on one GPU.
	GPUMemPeakMiB int64
	// Milli is the mean utilization that the attempt caused on each of its GPUs.
	Milli int64
	// HostMemPeakMiB is anonymous and shared memory, without page cache.
	HostMemPeakMiB int64
	CPUMilli       int64
	Duration       time.Duration
	// GPUOOM means that an allocation on the GPU failed, so that the peak is only a
	// lower bound.
	GPUOOM bool
	// PowerW is the mean power of each of its GPUs, Steps the number of steps it
	// took.
	PowerW, Steps int64
	// Profile is what else was measured, nil for nothing.
	Profile *Profile
}

// MaxProfileSpans bounds Profile.Neighbours.
const MaxProfileSpans = 8

// Profile is what an agent measured of a running attempt besides its Usage. Zero
// means not measured. Values are immutable.
type Profile struct {
	// GPUMemMeanMiB is the time-averaged memory of the attempt's processes on one
	// GPU, for the GPU with the highest mean.
	GPUMemMeanMiB int64
	// MilliP95 is the 95th percentile over time of the utilization that the attempt
	// caused on one of its GPUs, accurate to 33 thousandths of the GPU.
	MilliP95 int64
	// MemActivity is the mean fraction of time in which the memory of its GPUs was
	// read or written, in thousandths, including by neighbours.
	MemActivity int64
	// EnergyJ is the attempt's part of the energy of its GPUs: at each moment
	// energy is split by utilization among the jobs on the GPU, evenly if none
	// computed.
	EnergyJ int64
	// HighWaterMiB is the kernel's high-water mark of host memory, including page
	// cache, whereas Usage.HostMemPeakMiB is anonymous and shared memory only.
	HighWaterMiB int64
	// ReadBytes and WrittenBytes count storage I/O.
	ReadBytes, WrittenBytes int64
	// Sampled is how long the attempt was observed, Gap how long it was not, as
	// while the agent restarted.
	Sampled, Gap time.Duration
	// Neighbours are the longest times that others spent on one of its GPUs,
	// ordered by start; MoreNeighbours were dropped.
	Neighbours     []NeighbourSpan
	MoreNeighbours int
}

// NeighbourSpan is a period in which another job shared one of an attempt's GPUs.
type NeighbourSpan struct {
	Job JobID
	// From is measured from the attempt's start.
	From, For time.Duration
	// Milli is the mean utilization that the neighbour caused on the shared GPUs in
	// that period, in thousandths of a GPU.
	Milli int64
}

// Serving is the serving state of a service replica, since when and why.
type Serving struct {
	State service.State
	Since Time
	Why   string
	// First is when it first accepted requests, 0 before.
	First Time
}

// Progress is how far along an attempt says it is: what its program wrote into the
// file named by BERTH_PROGRESS. It is trusted for that job only: whatever it says,
// the time limit holds and nothing else about the job changes.
type Progress struct {
	// At is when it reached Step. Steps are whatever the program counts.
	At   Time
	Step int64
	// Total is the planned number of steps, and StepTime how long a recent one
	// took; 0 is unknown.
	Total    int64
	StepTime time.Duration
	// Seen is the metric it reported for its study, nil before the first.
	Seen *study.Seen
}

// ProgressVar is the variable that names the file into which a job writes its
// progress.
const ProgressVar = "BERTH_PROGRESS"

// MaxStep bounds steps; MaxStepTime bounds the time of one step.
const (
	MaxStep     = 1_000_000_000_000
	MaxStepTime = MaxTimeDays * 24 * time.Hour
)

// Clip returns p within its bounds: a total below the step is dropped.
func (p Progress) Clip() Progress {
	p.Step = min(max(p.Step, 0), MaxStep)
	p.StepTime = min(max(p.StepTime, 0), MaxStepTime)
	if p.Total = min(p.Total, MaxStep); p.Total < p.Step {
		p.Total = 0
	}
	return p
}

// Rest returns how long the remaining steps take from At on; ok is false if that is
// unknown. p may be nil.
func (p *Progress) Rest() (rest time.Duration, ok bool) {
	if p == nil || p.Total == 0 || p.StepTime == 0 {
		return 0, false
	}
	if n := p.Total - p.Step; n < int64(MaxStepTime/p.StepTime) {
		return time.Duration(n) * p.StepTime, true
	}
	return MaxStepTime, true
}

// Milli returns the fraction of steps taken, in thousandths; ok is false if the
// total is unknown. p may be nil.
func (p *Progress) Milli() (milli int64, ok bool) {
	if p == nil || p.Total == 0 {
		return 0, false
	}
	return p.Step * 1000 / p.Total, true
}

// News reports whether now differs enough from p, the progress known so far, to be
// stored: by a twentieth of all steps, by an end that moves by a tenth of the
// remaining time and a minute, or, if the total is unknown, by half as many steps
// again. A job that proceeds as predicted is thus stored some twenty times in its
// life, however often it reports. p may be nil.
func (p *Progress) News(now Progress) bool {
	if p == nil || now.Total != p.Total {
		return now.Step > 0
	}
	if p.Total == 0 {
		return now.Step < p.Step || now.Step >= p.Step+p.Step/2+1
	}
	a, _ := p.Milli()
	b, _ := now.Milli()
	if b < a || b >= a+50 || b == 1000 && a < 1000 {
		return true
	}
	was, known := p.Rest()
	is, ok := now.Rest()
	off := now.At.Add(is).Sub(p.At.Add(was))
	return ok && (!known || max(off, -off) > max(time.Minute, is/10))
}

// Pull is the progress of an image pull to the node of an attempt, or to the
// slowest of its nodes.
type Pull struct {
	// Layers is 0 until the registry has described the image: other images are
	// fetched first, or it does not answer. A layer is done when all of it has
	// arrived.
	Layers, Done uint32
	// Bytes is the size of all layers as the registry sends them, Got how much has
	// arrived.
	Bytes, Got int64
}

// MaxPullBytes bounds the size of a layer or an image: a registry may claim
// anything.
const MaxPullBytes = 1 << 50

// Clip returns p within its bounds: no more has arrived than there is.
func (p Pull) Clip() Pull {
	p.Done = min(p.Done, p.Layers)
	p.Bytes = min(max(p.Bytes, 0), MaxPullBytes)
	p.Got = min(max(p.Got, 0), p.Bytes)
	return p
}

// Behind reports whether p is less far along than o; either may be nil, which is a
// finished pull.
func (p *Pull) Behind(o *Pull) bool {
	switch {
	case p == nil || o == nil:
		return p != nil
	case p.Layers == 0 || o.Layers == 0:
		return p.Layers == 0
	}
	return float64(p.Got)*float64(max(o.Bytes, 1)) < float64(o.Got)*float64(max(p.Bytes, 1))
}

// String returns p in words, such as "its image is being fetched: 3 of 7 layers,
// 120 of 1250 MiB (9 %)".
func (p *Pull) String() string {
	if p.Layers == 0 {
		return "its image is not here, and is being asked for"
	}
	if p.Done == p.Layers {
		return fmt.Sprintf("all %d MiB of its image are here, and are being unpacked", mib(p.Bytes))
	}
	return fmt.Sprintf("its image is being fetched: %d of %d layers, %d of %d MiB (%d %%)", p.Done, p.Layers, p.Got>>20, mib(p.Bytes), p.Got*100/max(p.Bytes, 1))
}

// mib converts bytes to MiB, rounding up.
func mib(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }

// Objective is what a job's GPU type is chosen for, as users name it (DOPE-ML).
type Objective string

// The objectives. The empty one leaves the choice to the cluster's policy.
const (
	// ObjectiveLatency takes the type on which the job ends first.
	ObjectiveLatency Objective = "latency"
	// ObjectiveThroughput takes the least of the cluster: the type on which the job
	// needs the smallest fraction of a GPU for the shortest time.
	ObjectiveThroughput Objective = "throughput"
	// ObjectiveEnergy takes the lowest predicted energy, ObjectiveCost the lowest
	// price.
	ObjectiveEnergy Objective = "energy"
	ObjectiveCost   Objective = "cost"
	// ObjectiveBalanced weighs time, energy and price equally.
	ObjectiveBalanced Objective = "balanced"
)

// Objectives returns all objectives.
func Objectives() []Objective {
	return []Objective{ObjectiveLatency, ObjectiveThroughput, ObjectiveEnergy, ObjectiveCost, ObjectiveBalanced}
}

// BusyMilli returns how much compute a job is expected to keep busy of a GPU of
// which it holds a share by an estimate, in thousandths: what it reserves, or what
// is predicted if that is more, where predicted compute is overcommitted.
func BusyMilli(s *Spec, held Share, e *Estimate) int64 {
	if held.Exclusive || s.GPUMilli > 0 {
		return held.Milli
	}
	return max(held.Milli, min(WholeGPU, e.Milli))
}
