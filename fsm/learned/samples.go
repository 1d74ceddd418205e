package learned

import (
	"slices"
	"sort"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const (
	maxSamples   = 4096
	perSignature = 64
	perUser      = maxSamples / 4
)

// sample returns the sample with the given number, or nil.
func (l *Store) sample(seq uint64) *Sample {
	i := sort.Search(len(l.samples), func(i int) bool { return l.samples[i].Seq >= seq })
	if i < len(l.samples) && l.samples[i].Seq == seq {
		return &l.samples[i]
	}
	return nil
}

// Run is an ended attempt to learn from.
type Run struct {
	Job     *cluster.Job
	Attempt *cluster.Attempt
	// Report is its agent's report.
	Report *logv1.ReportAttempt
	// Card is its first GPU, nil if that is gone.
	Card *cluster.GPU
	// Driver is the version of its node's driver, "" if that is unknown.
	Driver string
	// Company returns the jobs with which it shared its GPUs.
	Company func() []Company
}

// gpuType is derived from stored values: the ledger's accounts are not stored.
func (r *Run) gpuType() string {
	switch {
	case len(r.Attempt.Berth.GPUs) == 0:
		return cluster.CPUType
	case r.Attempt.Estimate.GPUType == "" && r.Card != nil:
		return r.Card.Type
	}
	return r.Attempt.Estimate.GPUType
}

// Learn keeps a sample of an attempt that used a GPU, or could have, and whose end
// is informative: one that was cancelled, lost or failed early would teach that the
// job is small. Running out of memory teaches a lower bound, of GPU or host memory.
// It returns false if the figures are impossible: one such sample would spoil many
// predictions.
func (l *Store) Learn(at command.Entry, r Run) bool {
	j, a := r.Job, r.Attempt
	oom := a.State == cluster.JobOutOfMemory && a.Usage.GPUOOM
	hostOOM := at.Version >= command.HostVersion && a.State == cluster.JobOutOfMemory && !a.Usage.GPUOOM
	switch {
	case len(a.Berth.GPUs) == 0 && !j.Spec.OrCPU || a.Usage == (cluster.Usage{}) || j.Spec.Signature == "":
		return true
	case a.State != cluster.JobCompleted && a.State != cluster.JobTimeout && !oom && !hostOOM:
		return true
	}
	gpuType := r.gpuType()
	if gpuType == "" {
		return true
	}
	if at.Version >= command.CheckedVersion && Absurd(r.Report, a, r.Card) {
		return false
	}
	if u := r.Report.GetUsage(); at.Version >= command.ChangeVersion && gpuType == cluster.CPUType && u.GetGpuMemPeakMib() != 0 {
		return false
	}
	l.seq++
	x := Sample{
		Seq: l.seq, Signature: j.Spec.Signature, GPUType: gpuType, GPUMemPeakMiB: a.Usage.GPUMemPeakMiB, Milli: a.Usage.Milli,
		HostMemMiB: a.Usage.HostMemPeakMiB, CPUMilli: a.Usage.CPUMilli,
		Censored: a.Usage.GPUOOM, UID: j.Owner.UID, Features: j.Spec.Features, Program: j.Spec.Program, Numbers: j.Spec.Numbers, Driver: r.Driver,
	}
	if hostOOM { // the kernel killed it at its cap, whatever else it had by then
		x.Censored, x.HostCensored, x.GPUMemPeakMiB, x.HostMemMiB = true, true, 0, max(x.HostMemMiB, a.Berth.MemMiB)
	}
	if a.State == cluster.JobCompleted {
		x.Duration = a.Ended.Sub(max(a.Started, a.Placed))
	}
	if n := a.Size(j.Spec); j.Spec.Elastic() && n > 0 { // it is predicted by the least that it runs with
		least, _, _ := j.Spec.Sizes()
		if n != least || a.Gang.Changed() {
			x.Duration = 0
		}
		if j.Spec.GPURange.Max > 0 { // the rest is per node
			x.HostMemMiB, x.CPUMilli = x.HostMemMiB*int64(least)/int64(n), x.CPUMilli*int64(least)/int64(n)
		}
	}
	if at.Version >= command.CheckedVersion {
		x.PowerW, x.Steps, x.Neighbours = a.Usage.PowerW, a.Usage.Steps, len(a.Neighbours)
		x.Predicted, x.At = a.Estimate, a.Ended
	}
	if a.Slowed() { // its GPUs were held below their speed
		x.Duration, x.PowerW = 0, 0
	}
	if at.Version >= command.CompanyVersion {
		if x.Company = r.Company(); len(x.Company) > 0 && r.Card != nil {
			x.CapMode = r.Card.CapMode
		}
	}
	addEarlier(j, &x)
	l.share(&x)
	l.samples = append(l.samples, x)
	l.digests.samples.Touch(x.Seq)
	l.boundSamples(&x)
	return true
}

// addEarlier completes the sample of the last attempt of j if earlier ones were
// preempted: each did a part of the work, and time and steps are the totals. Parts
// on other types of GPU say nothing of this one's time. Such a sample lists no
// neighbours, as they differed between its parts.
func addEarlier(j *cluster.Job, x *Sample) {
	known := x.Duration > 0
	for i := range len(j.Attempts) - 1 {
		a := &j.Attempts[i]
		if a.Preempt == nil || a.State != cluster.JobPreempted || !j.Spec.Checkpoint.Set() {
			continue
		}
		known = known && a.Estimate.GPUType == x.GPUType && !a.Slowed()
		x.Duration += a.Ended.Sub(max(a.Started, a.Placed))
		if x.Steps > 0 && a.Usage.Steps > 0 {
			x.Steps = min(x.Steps+a.Usage.Steps, maxSteps)
		} else {
			x.Steps = 0
		}
		x.Neighbours = max(x.Neighbours, len(a.Neighbours))
		x.Company, x.CapMode = nil, ""
	}
	if !known {
		x.Duration = 0
	}
}

// boundSamples drops one sample if there is one too many: the oldest of its job, of
// its user if the user has more than a quarter of a full reservoir, or of all. So
// no user can displace what the others taught.
func (l *Store) boundSamples(x *Sample) {
	same, mine := 0, 0
	for i := range l.samples {
		if l.samples[i].Signature == x.Signature {
			same++
		}
		if l.samples[i].UID == x.UID {
			mine++
		}
	}
	switch {
	case same > perSignature:
		l.dropSample(func(o *Sample) bool { return o.Signature == x.Signature })
	case len(l.samples) > maxSamples && mine > perUser:
		l.dropSample(func(o *Sample) bool { return o.UID == x.UID })
	case len(l.samples) > maxSamples:
		l.dropSample(func(*Sample) bool { return true })
	}
}

func (l *Store) dropSample(match func(*Sample) bool) {
	for i := range l.samples {
		if match(&l.samples[i]) {
			l.digests.samples.Touch(l.samples[i].Seq)
			l.samples = slices.Delete(l.samples, i, i+1)
			return
		}
	}
}
