package cluster

import "time"

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
