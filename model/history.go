package model

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/model/gpuspec"
)

// Bounds of a History: beyond them the oldest are forgotten.
const (
	MaxSignatures   = 4096
	maxTypesPerJob  = 16
	maxRunsPerEntry = 16
)

// Sample is what one finished run showed. Numbers that were not measured are 0.
type Sample struct {
	// Seq numbers the samples of a cluster in the order in which runs ended,
	// from 1; 0 outside of one.
	Seq       uint64
	Signature string
	GPUType   string
	PeakMiB   int64 // as NVML showed it, CUDA context included
	UtilMilli int64
	Seconds   float64
	Steps     int64 // that the run took; 0 if unknown
	HostMiB   int64
	CPUMilli  int64
	// PowerW is the mean power of each of its GPUs, the part of those beside it
	// included. Neighbours is with how many others it shared them.
	PowerW     int64
	Neighbours int
	// Censored says that a limit ended the run: its true peak is PeakMiB or
	// more, and its other numbers do not count.
	Censored bool
	// HostCensored says that the limit was that of host memory: HostMiB is a lower
	// bound, and PeakMiB is 0.
	HostCensored bool
	// Features describe the job; the zero value means that only its signature
	// is known.
	Features Features
	// User is who ran it, so that no one user's samples outweigh the others';
	// empty counts as one user.
	User string
}

// observed is what the runs of one job on one GPU type showed together.
type observed struct {
	gpuType    string // normal form
	runs       int    // uncensored
	peakMiB    int64  // largest of them
	leastMiB   int64  // smallest of those measured
	measured   int    // whose memory was measured
	boundMiB   int64  // largest censored peak: the job needs more
	hostMiB    int64
	hostBound  int64 // largest censored one: the job needs more
	util       mean
	cpu        mean
	seconds    mean // of runs whose steps are unknown
	perStep    mean
	power      mean // of runs that had their GPUs alone
	memorySeen bool
}

// mean adds up in the order of the samples, so it is deterministic.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v float64) {
	if v > 0 && v < 1e12 {
		m.sum += v
		m.n++
	}
}

func (m mean) value() float64 { return m.sum / float64(max(1, m.n)) }

// History answers from what the same job took before. It is immutable and
// safe for concurrent use.
type History struct {
	jobs map[string][]observed // per signature, by GPU type
	own  map[ownKind][]ownRun  // the newest first
}

// NewHistory builds a history from samples, oldest first. It keeps the
// MaxSignatures jobs that ran last and the last 16 runs of each on a GPU type.
// Equal samples in equal order give an equal history.
func NewHistory(samples []Sample) *History {
	type key struct{ sig, gpu string }
	h := &History{jobs: make(map[string][]observed), own: make(map[ownKind][]ownRun)}
	runs := make(map[key]int)
	var keep []int // newest first
	for i := len(samples) - 1; i >= 0; i-- {
		s := &samples[i]
		if s.Signature == "" || s.PeakMiB < 0 {
			continue
		}
		if _, ok := h.jobs[s.Signature]; !ok {
			if len(h.jobs) == MaxSignatures {
				continue
			}
			h.jobs[s.Signature] = nil
		}
		h.noteOwn(s)
		k := key{s.Signature, gpuspec.Normalize(s.GPUType)}
		if runs[k] < maxRunsPerEntry {
			runs[k]++
			keep = append(keep, i)
		}
	}
	for _, i := range slices.Backward(keep) {
		h.add(&samples[i])
	}
	return h
}

// Jobs is the number of jobs that the history knows.
func (h *History) Jobs() int { return len(h.jobs) }

func (h *History) add(s *Sample) {
	gpu := gpuspec.Normalize(s.GPUType)
	job := h.jobs[s.Signature]
	i, ok := slices.BinarySearchFunc(job, gpu, func(o observed, g string) int { return cmp.Compare(o.gpuType, g) })
	if !ok {
		if len(job) == maxTypesPerJob {
			return
		}
		job = slices.Insert(job, i, observed{gpuType: gpu})
		h.jobs[s.Signature] = job
	}
	o := &job[i]
	if s.Censored {
		o.boundMiB = max(o.boundMiB, s.PeakMiB)
		if s.HostCensored {
			o.hostBound = max(o.hostBound, s.HostMiB)
		}
		return
	}
	o.runs++
	o.peakMiB = max(o.peakMiB, s.PeakMiB)
	if s.PeakMiB > 0 {
		if o.measured++; o.measured == 1 || s.PeakMiB < o.leastMiB {
			o.leastMiB = s.PeakMiB
		}
	}
	o.hostMiB = max(o.hostMiB, s.HostMiB)
	o.util.add(float64(min(s.UtilMilli, 1000)))
	o.cpu.add(float64(s.CPUMilli))
	if s.Neighbours == 0 {
		o.power.add(float64(s.PowerW))
	}
	if s.Steps > 0 {
		o.perStep.add(s.Seconds / float64(s.Steps))
	} else {
		o.seconds.add(s.Seconds)
	}
	o.memorySeen = o.memorySeen || s.PeakMiB > 0
}

// find returns what is known of a job on a GPU type; exact is false when it is
// another type's: the one with most runs, the first by name among equals. Runs
// on cores say nothing about GPUs.
func (h *History) find(sig, gpu string) (o *observed, exact bool) {
	if h == nil || sig == "" {
		return nil, false
	}
	job := h.jobs[sig]
	for i := range job {
		if job[i].gpuType == gpu {
			return &job[i], true
		}
		if onCores(job[i].gpuType) {
			continue
		}
		if o == nil || job[i].runs > o.runs {
			o = &job[i]
		}
	}
	return o, false
}

// hostBound is the largest host memory that was too little for a job, whatever it
// ran on; 0 when none was.
func (h *History) hostBound(sig string) (mib int64) {
	if h == nil || sig == "" {
		return 0
	}
	for i := range h.jobs[sig] {
		mib = max(mib, h.jobs[sig][i].hostBound)
	}
	return mib
}

// onCores returns what is known of a job's runs on cores, or nil.
func (h *History) onCores(sig string) *observed {
	if h == nil || sig == "" {
		return nil
	}
	job := h.jobs[sig]
	for i := range job {
		if onCores(job[i].gpuType) {
			return &job[i]
		}
	}
	return nil
}
