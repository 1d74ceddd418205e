package cluster

import (
	"sort"
	"time"
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
	// "graph", "catalogue", "none".
	Source string
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
