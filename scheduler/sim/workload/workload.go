// Package workload describes a simulation's truth: jobs, and the machines that they
// run on.
package workload

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Job is one job of a workload: what it asks for and what is true of it. Zero is
// unknown.
type Job struct {
	// ID is unique in the workload; rows without one are named by their values.
	ID string
	// Submit is the time since the workload began, Duration the run time alone on a
	// GPU of the reference type.
	Submit, Duration time.Duration
	// GPUs is how many GPUs it needs, each as far as Milli says: Milli is the
	// declared share of each GPU in thousandths, 0 if the trace does not declare
	// one.
	GPUs  int
	Milli int64
	// Nodes is on how many nodes it runs, with as many GPUs on each; 0 is one.
	Nodes int
	// Least and Most bound how many GPUs it may run with, 0 for always as many as
	// GPUs, with which it takes Duration. Exchange says how it speeds up: n GPUs
	// are n/(1+Exchange*(n-1)) times as fast as one.
	Least, Most int
	Exchange    float64
	// CPUMilli and HostMemMiB are what it takes of its node.
	CPUMilli, HostMemMiB int64
	// MemMiB and UsedMilli are the true peak memory on each GPU and the true
	// utilization of each in thousandths.
	MemMiB, UsedMilli int64
	// On overrides the figures above for types of GPU; empty means all alike.
	On []OnType
	// Types are the GPUs it may run on, empty for any.
	Types []string
	// Model names its program for tables of pairs, User and Group its owner.
	Model, User, Group string
	// Deadline is when it must have ended, since the workload began; 0 is none.
	Deadline time.Duration
	// Priority is larger for more urgent jobs.
	Priority int
	// Stages are the shares of an iteration, in thousandths, that a job spends on
	// the GPU, on cores and disk, and on the network; all 0 is unknown. They may
	// add up to more than 1000, if stages of one iteration overlap those of the
	// next. Iteration is how long one takes alone, 0 is unknown.
	Stages    [3]int64
	Iteration time.Duration
	// Batch is the samples of a step on one GPU, Steps how many steps it takes, for
	// a predictor; Inference means that it does not train.
	Batch, Steps int64
	Inference    bool
	// Predicted is what a predictor said of it for types of GPU; empty is the
	// truth, with the errors of the run.
	Predicted []cluster.Estimate
	// Row is its row in the file, the head being row 1; 0 is none.
	Row int
	// Partition is where it goes in a fleet that has partitions. Serves means that
	// it is a replica of a service: its run time is unknown, and it is never
	// preempted.
	Partition string
	Serves    bool
	// Image and Data are what it reads, see Options.Fetch of a run.
	Image string
	Data  []string
}

// OnType is what is true of a job on one type of GPU.
type OnType struct {
	Type              string
	Duration          time.Duration
	MemMiB, UsedMilli int64
}

// Figures returns the figures for a type of GPU.
func (j *Job) Figures(gpuType string) OnType {
	out := OnType{Type: gpuType, Duration: j.Duration, MemMiB: j.MemMiB, UsedMilli: j.UsedMilli}
	for _, o := range j.On {
		if o.Type != gpuType {
			continue
		}
		if o.Duration > 0 {
			out.Duration = o.Duration
		}
		if o.MemMiB > 0 {
			out.MemMiB = o.MemMiB
		}
		if o.UsedMilli > 0 {
			out.UsedMilli = o.UsedMilli
		}
	}
	return out
}

// Elastic reports whether it may run with several numbers of GPUs.
func (j *Job) Elastic() bool { return 0 < j.Least && j.Least < j.Most }

// Slower returns how many times as long it takes with n GPUs as with GPUs.
func (j *Job) Slower(n int) float64 {
	if n == j.GPUs || n < 1 {
		return 1
	}
	speed := func(n int) float64 { return float64(n) / (1 + j.Exchange*float64(n-1)) }
	return speed(j.GPUs) / speed(n)
}

// Shortest returns the least run time over the types of a fleet.
func (j *Job) Shortest(types []string) time.Duration {
	best := time.Duration(math.MaxInt64)
	for _, t := range types {
		if j.MayUse(t) {
			best = min(best, j.Figures(t).Duration)
		}
	}
	if best == math.MaxInt64 {
		return j.Duration
	}
	return best
}

// Workload is a list of jobs with the name of its source.
type Workload struct {
	Name string
	Jobs []Job
	// Form is how the trace was written, for defaults that go with it.
	Form string
	// Nodes is the cluster that the trace describes, if it does.
	Nodes []NodeSpec
	// Notes say what had to be assumed to make jobs from the rows.
	Notes []string
}

// Sort orders the jobs by arrival. Ties go by id and then by what the job asks for,
// so that the order of a file's rows does not matter.
func (w *Workload) Sort() {
	slices.SortFunc(w.Jobs, func(a, b Job) int {
		return cmp.Or(cmp.Compare(a.Submit, b.Submit), compareIDs(a.ID, b.ID), cmp.Compare(a.GPUs, b.GPUs),
			cmp.Compare(a.Duration, b.Duration), cmp.Compare(a.Milli, b.Milli), strings.Compare(a.Model, b.Model),
			cmp.Compare(a.CPUMilli, b.CPUMilli), cmp.Compare(a.HostMemMiB, b.HostMemMiB))
	})
}

// compareIDs puts "j9" before "j10".
func compareIDs(a, b string) int {
	if len(a) != len(b) {
		return cmp.Compare(len(a), len(b))
	}
	return strings.Compare(a, b)
}

// Check returns an error for the first job that no simulation can run.
func (w *Workload) Check() error {
	for i := range w.Jobs {
		j := &w.Jobs[i]
		switch {
		case j.Submit < 0 || j.Duration <= 0:
			return fmt.Errorf("job %s: arrives at %s and runs for %s; want 0 or later, and longer than 0", j.ID, j.Submit, j.Duration)
		case j.GPUs < 0 || j.GPUs > maxGPUs:
			return fmt.Errorf("job %s: %d GPUs, want 0 to %d", j.ID, j.GPUs, maxGPUs)
		case j.Most > cluster.MaxGPUsPerJob || j.Least > 0 && !j.Elastic() || j.Exchange < 0 || j.Exchange > 3:
			return fmt.Errorf("job %s: %d to %d GPUs with an exchange of %g, want two numbers up to %d, the smaller one first, and 0 to 3", j.ID, j.Least, j.Most, j.Exchange, cluster.MaxGPUsPerJob)
		case j.Nodes < 0 || j.Nodes > cluster.MaxNodes || j.Nodes > 1 && (j.GPUs%j.Nodes > 0 || j.GPUs == 0 || j.Elastic()):
			return fmt.Errorf("job %s: %d GPUs on %d nodes, want as many on each of at most %d", j.ID, j.GPUs, j.Nodes, cluster.MaxNodes)
		case j.Milli < 0 || j.Milli > 1000 || j.UsedMilli < 0 || j.UsedMilli > 1000:
			return fmt.Errorf("job %s: share %d or utilization %d is outside 0 to 1000 thousandths", j.ID, j.Milli, j.UsedMilli)
		}
	}
	return nil
}

const maxGPUs = 1 << 16

// Chance returns the random numbers of one job for one purpose. They depend on the
// seed and the job's id alone, not on the other jobs in the workload.
func Chance(seed uint64, id, purpose string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(id))
	h.Write([]byte{0})
	h.Write([]byte(purpose))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// Signature identifies the program of a job to learners of how programs slow each
// other down.
func (j *Job) Signature() string { return fmt.Sprintf("%s/%d", j.Model, j.GPUs) }

// MayUse reports whether a job may run on GPUs of a type.
func (j *Job) MayUse(t string) bool {
	return len(j.Types) == 0 || slices.Contains(j.Types, t)
}

// Fraction returns the declared share of a GPU; a job that declares none has one.
func (j *Job) Fraction() float64 {
	if j.Milli > 0 {
		return float64(j.Milli) / 1000
	}
	return 1
}
