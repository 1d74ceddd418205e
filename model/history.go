package model

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/model/gpuspec"
)

// Bounds of a History, beyond which the oldest entries are dropped.
const (
	MaxSignatures   = 4096
	maxTypesPerJob  = 16
	maxRunsPerEntry = 16
)

// Sample is what one finished run measured. Numbers that were not measured are 0.
type Sample struct {
	// Seq numbers the samples of a cluster in the order in which runs ended, from
	// 1; 0 outside a cluster.
	Seq       uint64
	Signature string
	// Program is the result of Features.Program for its command, "" for unknown.
	Program string
	// Numbers are those of its command, as DecodeNumbers returns them; nil for
	// unknown.
	Numbers   []float64
	GPUType   string
	Driver    string // version of the driver it ran under; "" for unknown
	PeakMiB   int64  // as NVML showed it, CUDA context included
	UtilMilli int64
	Seconds   float64
	Steps     int64 // that the run took; 0 if unknown
	HostMiB   int64
	CPUMilli  int64
	// PowerW is the mean power of each of its GPUs, including its neighbours' part.
	// Neighbours is the number of others with which it shared them.
	PowerW     int64
	Neighbours int
	// Censored means that a limit ended the run: its true peak is PeakMiB or more,
	// and its other numbers do not count.
	Censored bool
	// HostCensored means that the limit was that of host memory: HostMiB is a lower
	// bound, and PeakMiB is 0.
	HostCensored bool
	// Features describe the job; the zero value means that only its signature is
	// known.
	Features Features
	// User is who ran it, so that no single user's samples outweigh the others';
	// empty counts as one user.
	User string
}

// observed is what the runs of one job on one GPU type measured together.
type observed struct {
	gpuType    string // normalized
	driver     string // under which the newest measured one ran
	runs       int    // uncensored
	peakMiB    int64  // largest of them
	leastMiB   int64  // smallest of those measured
	measured   int    // runs with measured memory
	boundMiB   int64  // largest censored peak: the job needs more
	hostMiB    int64
	hostBound  int64 // largest censored one: the job needs more
	util       mean
	cpu        mean
	seconds    mean // of runs with undeclared steps
	perStep    mean
	power      mean // of runs that had their GPUs alone
	memorySeen bool
	// commands is how many commands of a program ran, and trends how their runs
	// depend on the numbers in them; nil without any.
	commands int
	trends   *trends
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

// History answers from earlier runs of the same job. It is immutable and safe for
// concurrent use.
type History struct {
	jobs     map[string][]observed // per signature, by GPU type
	programs map[string][]observed // per program
	own      map[ownKind][]ownRun  // the newest first
	floors   map[floorKind][]driverRuns
}

// NewHistory builds a history from samples, oldest first. It keeps the
// MaxSignatures jobs that ran last and the last 16 runs of each per GPU type, and
// as many programs. Equal samples in equal order give an equal history.
func NewHistory(samples []Sample) *History {
	h := &History{own: make(map[ownKind][]ownRun), floors: make(map[floorKind][]driverRuns)}
	h.jobs = observe(samples, func(s *Sample) string { return s.Signature }, func(s *Sample) { h.noteOwn(s); h.noteFloor(s) })
	h.programs = observe(samples, func(s *Sample) string { return s.Program }, func(*Sample) {})
	return h
}

// observe adds up samples by a name, and calls takes for those it uses, newest
// first.
func observe(samples []Sample, name func(*Sample) string, takes func(*Sample)) map[string][]observed {
	type key struct{ name, gpu string }
	type command struct {
		key
		signature string
	}
	out := make(map[string][]observed)
	runs := make(map[key]int)
	var keep []int // newest first
	for i := len(samples) - 1; i >= 0; i-- {
		s := &samples[i]
		of := name(s)
		if of == "" || s.PeakMiB < 0 {
			continue
		}
		if _, ok := out[of]; !ok {
			if len(out) == MaxSignatures {
				continue
			}
			out[of] = nil
		}
		takes(s)
		k := key{of, gpuspec.Normalize(s.GPUType)}
		if runs[k] < maxRunsPerEntry {
			runs[k]++
			keep = append(keep, i)
		}
	}
	seen := map[command]struct{}{}
	for _, i := range slices.Backward(keep) {
		s := &samples[i]
		of := name(s)
		o := entry(out, of, gpuspec.Normalize(s.GPUType))
		if o == nil {
			continue
		}
		c := command{key{of, o.gpuType}, s.Signature}
		if _, ran := seen[c]; !ran && !s.Censored {
			seen[c] = struct{}{}
			o.commands++
		}
		o.add(s)
		if of == s.Program {
			o.note(s)
		}
	}
	return out
}

// Jobs returns the number of jobs in the history.
func (h *History) Jobs() int { return len(h.jobs) }

// entry returns where the runs of one name on a GPU type are added up; nil if the
// name has too many types already.
func entry(in map[string][]observed, name, gpu string) *observed {
	job := in[name]
	i, ok := slices.BinarySearchFunc(job, gpu, func(o observed, g string) int { return cmp.Compare(o.gpuType, g) })
	if !ok {
		if len(job) == maxTypesPerJob {
			return nil
		}
		job = slices.Insert(job, i, observed{gpuType: gpu})
		in[name] = job
	}
	return &job[i]
}

func (o *observed) add(s *Sample) {
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
		o.driver = s.Driver
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
	}
	if s.Features.Steps == 0 { // the number of steps is unknown before it runs
		o.seconds.add(s.Seconds)
	}
	o.memorySeen = o.memorySeen || s.PeakMiB > 0
}

// find returns what is known of a job on a GPU type; exact is false if it is from
// another type: the one with most runs, the first by name among equals. Runs on
// cores say nothing about GPUs.
func (h *History) find(sig, gpu string) (o *observed, exact bool) {
	if h == nil {
		return nil, false
	}
	return find(h.jobs, sig, gpu)
}

// find is History's in one of its maps.
func find(in map[string][]observed, name, gpu string) (o *observed, exact bool) {
	if name == "" {
		return nil, false
	}
	job := in[name]
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

// hostBound returns the largest host memory that was too little for a job, whatever
// it ran on; 0 if none was.
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
