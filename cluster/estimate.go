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

// Estimate is what the predictor expects of a job on one type of GPU. The
// leader makes it and it travels in the command; the state machine never
// predicts. Memory is what the driver shows for the job's processes on each
// GPU, its CUDA context included.
type Estimate struct {
	GPUType string
	// GPUMemMiB is the expected peak, GPUMemP95MiB its upper quantile, per GPU.
	GPUMemMiB, GPUMemP95MiB int64
	// Milli is the utilization of each GPU in thousandths, 1–1000.
	Milli    int64
	Duration time.Duration
	// HostMemMiB and CPUMilli are for the whole job. HostConfidenceMilli is how sure
	// they are, where that is surer than the rest.
	HostMemMiB, CPUMilli int64
	HostConfidenceMilli  int64
	PowerW               int64
	// ConfidenceMilli is 0 (nobody knows) to 1000 (seen before).
	ConfidenceMilli int64
	// Source names where the numbers come from: "declared", "history",
	// "program", "imported", "graph", "catalogue", "none".
	Source string
	// TimeConfidenceMilli is how sure Duration is where that is another than
	// ConfidenceMilli, else 0; see TimeSure.
	TimeConfidenceMilli int64
}

// TimeSure is how sure the duration of e is, 0 to 1000.
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
	// GPUMemPeakMiB is the highest sum of the attempt's processes on one GPU.
	GPUMemPeakMiB int64
	// Milli is the mean utilization it caused on each of its GPUs.
	Milli int64
	// HostMemPeakMiB is anonymous and shared memory, without page cache.
	HostMemPeakMiB int64
	CPUMilli       int64
	Duration       time.Duration
	// GPUOOM tells that an allocation on the GPU was refused, so that the peak
	// is a lower bound of what it needs.
	GPUOOM bool
	// PowerW is the mean power of each of its GPUs, Steps how many it took.
	PowerW, Steps int64
	// Profile is what else was seen, nil when nothing was.
	Profile *Profile
}

// MaxProfileSpans bounds Profile.Neighbours.
const MaxProfileSpans = 8

// Profile is what an agent saw of an attempt while it ran, beside its Usage.
// Zero means not measured. Values are immutable.
type Profile struct {
	// GPUMemMeanMiB is the mean over time of what the attempt's processes held
	// on one GPU, of the GPU where it is highest.
	GPUMemMeanMiB int64
	// MilliP95 is the utilization that the attempt caused on one of its GPUs
	// and that it passed for a twentieth of the time; at most 33
	// thousandths of the GPU too high or too low.
	MilliP95 int64
	// MemActivity is the mean part of the time in which the memory of its GPUs
	// was read or written, in thousandths, neighbours' part included.
	MemActivity int64
	// EnergyJ is its part of what its GPUs used: that of each moment is split
	// by utilization among those on the card, evenly when nobody computed.
	EnergyJ int64
	// HighWaterMiB is the kernel's own mark of the most host memory, page cache
	// included, where Usage.HostMemPeakMiB is anonymous and shared memory only.
	HighWaterMiB int64
	// ReadBytes and WrittenBytes went from and to storage.
	ReadBytes, WrittenBytes int64
	// Sampled is how long it was looked at, Gap how long nobody looked, as while
	// the agent was restarted.
	Sampled, Gap time.Duration
	// Neighbours are the longest times that others lay on one of its GPUs, in
	// order of their beginning; MoreNeighbours were dropped.
	Neighbours     []NeighbourSpan
	MoreNeighbours int
}

// NeighbourSpan is a time in which another job lay on one of an attempt's
// GPUs.
type NeighbourSpan struct {
	Job JobID
	// From is counted from the attempt's start.
	From, For time.Duration
	// Milli is the mean utilization that the neighbour caused then on what they
	// shared, in thousandths of a GPU.
	Milli int64
}

// Serving is how a replica of a service stands, since when and why.
type Serving struct {
	State service.State
	Since Time
	Why   string
	// First is when it took requests for the first time, 0 before.
	First Time
}

// Progress is how far an attempt says that it is: what its program wrote into the file
// that BERTH_PROGRESS names. It is believed of nobody but the job itself: whatever it
// says, a time limit stays one, and nothing else of the job is changed by it.
type Progress struct {
	// At is when it was at Step. Steps are whatever the program counts.
	At   Time
	Step int64
	// Total is how many steps it wants to take, and StepTime how long one took
	// lately; 0 is unknown.
	Total    int64
	StepTime time.Duration
	// Seen is what it said of the metric of its study, nil while it said nothing.
	Seen *study.Seen
}

// ProgressVar is the variable that names a job the file in which it says how far it is.
const ProgressVar = "BERTH_PROGRESS"

// MaxStep bounds steps, and the time that one may take is MaxStepTime.
const (
	MaxStep     = 1_000_000_000_000
	MaxStepTime = MaxTimeDays * 24 * time.Hour
)

// Clip returns p within its bounds: a total that is below the step says nothing.
func (p Progress) Clip() Progress {
	p.Step = min(max(p.Step, 0), MaxStep)
	p.StepTime = min(max(p.StepTime, 0), MaxStepTime)
	if p.Total = min(p.Total, MaxStep); p.Total < p.Step {
		p.Total = 0
	}
	return p
}

// Rest is how long the steps that are missing take from At on; ok is false where that
// cannot be said. p may be nil.
func (p *Progress) Rest() (rest time.Duration, ok bool) {
	if p == nil || p.Total == 0 || p.StepTime == 0 {
		return 0, false
	}
	if n := p.Total - p.Step; n < int64(MaxStepTime/p.StepTime) {
		return time.Duration(n) * p.StepTime, true
	}
	return MaxStepTime, true
}

// Milli is how much of its steps it has taken, in thousandths; ok is false where the
// total is unknown. p may be nil.
func (p *Progress) Milli() (milli int64, ok bool) {
	if p == nil || p.Total == 0 {
		return 0, false
	}
	return p.Step * 1000 / p.Total, true
}

// News reports whether now says so much more than p, which is what is known, that it is
// worth remembering: a twentieth of all steps, an end that is another one by a tenth of
// the time that is left and a minute, or, where nobody knows how many steps there are,
// half as many steps again. A job that goes on as foreseen is so written down some
// twenty times in its life, however often it tells. p may be nil.
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

// Pull is how far an image is that is being fetched to the node of an attempt, or to the
// slowest of its nodes.
type Pull struct {
	// Layers is 0 while the registry has not said what the image consists of: other images
	// are fetched first, or it does not answer. A layer is done when all of it is here.
	Layers, Done uint32
	// Bytes are those of all layers as the registry sends them, and Got those that are here.
	Bytes, Got int64
}

// MaxPullBytes bounds how large a layer, or an image, is taken to be: a registry may say
// anything.
const MaxPullBytes = 1 << 50

// Clip returns p within its bounds: no more is here than there is.
func (p Pull) Clip() Pull {
	p.Done = min(p.Done, p.Layers)
	p.Bytes = min(max(p.Bytes, 0), MaxPullBytes)
	p.Got = min(max(p.Got, 0), p.Bytes)
	return p
}

// Behind reports whether p is less far than o; either may be nil, and no pull is done.
func (p *Pull) Behind(o *Pull) bool {
	switch {
	case p == nil || o == nil:
		return p != nil
	case p.Layers == 0 || o.Layers == 0:
		return p.Layers == 0
	}
	return float64(p.Got)*float64(max(o.Bytes, 1)) < float64(o.Got)*float64(max(p.Bytes, 1))
}

// String is p in words, such as "its image is being fetched: 3 of 7 layers, 120 of 1250 MiB (9 %)".
func (p *Pull) String() string {
	if p.Layers == 0 {
		return "its image is not here, and is being asked for"
	}
	if p.Done == p.Layers {
		return fmt.Sprintf("all %d MiB of its image are here, and are being unpacked", mib(p.Bytes))
	}
	return fmt.Sprintf("its image is being fetched: %d of %d layers, %d of %d MiB (%d %%)", p.Done, p.Layers, p.Got>>20, mib(p.Bytes), p.Got*100/max(p.Bytes, 1))
}

// mib is a number of bytes in MiB, the last one begun.
func mib(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }

// Objective is what a job's GPU type is chosen for, as users say it (DOPE-ML).
type Objective string

// The objectives. The empty one leaves the choice to the cluster's policy.
const (
	// ObjectiveLatency takes the type on which the job ends first.
	ObjectiveLatency Objective = "latency"
	// ObjectiveThroughput takes the least of the cluster: the type of which it
	// needs the smallest part of a card for the shortest time.
	ObjectiveThroughput Objective = "throughput"
	// ObjectiveEnergy takes the least predicted energy, ObjectiveCost the least
	// price.
	ObjectiveEnergy Objective = "energy"
	ObjectiveCost   Objective = "cost"
	// ObjectiveBalanced weighs time, energy and price alike.
	ObjectiveBalanced Objective = "balanced"
)

// Objectives lists them.
func Objectives() []Objective {
	return []Objective{ObjectiveLatency, ObjectiveThroughput, ObjectiveEnergy, ObjectiveCost, ObjectiveBalanced}
}
