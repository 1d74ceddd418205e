package fsm

import (
	"slices"
	"sort"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// sample returns the one with the given number, or nil.
func (s *State) sample(seq uint64) *Sample {
	i := sort.Search(len(s.samples), func(i int) bool { return s.samples[i].Seq >= seq })
	if i < len(s.samples) && s.samples[i].Seq == seq {
		return &s.samples[i]
	}
	return nil
}

// learn keeps a sample of an attempt that used a GPU, or could have, and came
// to an end that says something: one that was cancelled, lost or failed early
// would teach that the job is small. An out-of-memory teaches a lower bound. It returns
// false when the figures cannot be: one such sample would spoil many
// predictions.
func (s *State) learn(j *cluster.Job, a *cluster.Attempt, r *logv1.ReportAttempt) bool {
	oom := a.State == cluster.JobOutOfMemory && a.Usage.GPUOOM
	switch {
	case len(a.Berth.GPUs) == 0 && !j.Spec.OrCPU || a.Usage == (cluster.Usage{}) || j.Spec.Signature == "":
		return true
	case a.State != cluster.JobCompleted && a.State != cluster.JobTimeout && !oom:
		return true
	}
	// The type comes from what is stored: the ledger's accounts are not.
	gpuType, card := a.Estimate.GPUType, (*cluster.GPU)(nil)
	if len(a.Berth.GPUs) == 0 {
		gpuType = cluster.CPUType
	} else if n := s.nodes[a.Berth.Node]; n != nil {
		card = n.GPU(a.Berth.GPUs[0].GPU)
	}
	if gpuType == "" && card != nil {
		gpuType = card.Type
	}
	if gpuType == "" {
		return true
	}
	if s.rules >= checkedVersion && absurd(r, a, card) {
		return false
	}
	if u := r.GetUsage(); s.rules >= changeVersion && gpuType == cluster.CPUType && u.GetGpuMemPeakMib() != 0 {
		return false
	}
	s.sampleNo++
	x := Sample{
		Seq: s.sampleNo, Signature: j.Spec.Signature, GPUType: gpuType, GPUMemPeakMiB: a.Usage.GPUMemPeakMiB, Milli: a.Usage.Milli,
		HostMemMiB: a.Usage.HostMemPeakMiB, CPUMilli: a.Usage.CPUMilli,
		Censored: a.Usage.GPUOOM, UID: j.Owner.UID, Features: j.Spec.Features,
	}
	if a.State == cluster.JobCompleted {
		x.Duration = a.Ended.Sub(max(a.Started, a.Placed))
	}
	if s.rules >= checkedVersion {
		x.PowerW, x.Steps, x.Neighbours = a.Usage.PowerW, a.Usage.Steps, len(a.Neighbours)
		x.Predicted, x.At = a.Estimate, a.Ended
	}
	if s.rules >= companyVersion {
		if x.Company = s.companyOf(a); len(x.Company) > 0 && card != nil {
			x.CapMode = card.CapMode
		}
	}
	s.addEarlier(j, &x)
	s.cache.sample(&x)
	s.samples = append(s.samples, x)
	s.hash.samples.touch(x.Seq)
	s.boundSamples(&x)
	return true
}

// Bounds of what an attempt can have taken.
const (
	maxPowerW  = 10_000 // of one GPU
	maxSteps   = 1_000_000_000_000
	longestRun = 366 * 24 * time.Hour
)

// absurd tells that a report holds numbers that no run can have: negative
// ones, more memory than its card has by a twentieth, more than a whole GPU,
// or an end before the start. card may be nil.
func absurd(r *logv1.ReportAttempt, a *cluster.Attempt, card *cluster.GPU) bool {
	u := r.GetUsage()
	for _, v := range []struct{ got, most int64 }{
		{u.GetGpuMemPeakMib(), cluster.MaxMemMiB}, {u.GetMilli(), cluster.WholeGPU}, {u.GetHostMemPeakMib(), cluster.MaxMemMiB},
		{u.GetCpuMilli(), maxCPUMilli}, {u.GetDurationUs(), longestRun.Microseconds()}, {u.GetPowerW(), maxPowerW}, {u.GetSteps(), maxSteps},
	} {
		if v.got < 0 || v.got > v.most {
			return true
		}
	}
	if card != nil && card.MemMiB > 0 && u.GetGpuMemPeakMib() > card.MemMiB+card.MemMiB/20 {
		return true
	}
	return r.EndedUs > 0 && r.EndedUs < r.StartedUs || a.Ended.Sub(max(a.Started, a.Placed)) > longestRun
}

// boundSamples drops the oldest sample that is one too many: of its job,
// of its user when the user has more than a quarter of a full reservoir, or of
// all. So no user can push out what the others taught.
func (s *State) boundSamples(x *Sample) {
	same, mine := 0, 0
	for i := range s.samples {
		if s.samples[i].Signature == x.Signature {
			same++
		}
		if s.samples[i].UID == x.UID {
			mine++
		}
	}
	switch {
	case same > perSignature:
		s.dropSample(func(o *Sample) bool { return o.Signature == x.Signature })
	case len(s.samples) > maxSamples && mine > perUser:
		s.dropSample(func(o *Sample) bool { return o.UID == x.UID })
	case len(s.samples) > maxSamples:
		s.dropSample(func(*Sample) bool { return true })
	}
}

func (s *State) dropSample(match func(*Sample) bool) {
	for i := range s.samples {
		if match(&s.samples[i]) {
			s.hash.samples.touch(s.samples[i].Seq)
			s.samples = slices.Delete(s.samples, i, i+1)
			return
		}
	}
}
