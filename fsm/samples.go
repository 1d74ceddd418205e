package fsm

import (
	"slices"
	"sort"

	"github.com/berth-scheduler/berth/cluster"
)

// sample returns the one with the given number, or nil.
func (s *State) sample(seq uint64) *Sample {
	i := sort.Search(len(s.samples), func(i int) bool { return s.samples[i].Seq >= seq })
	if i < len(s.samples) && s.samples[i].Seq == seq {
		return &s.samples[i]
	}
	return nil
}

// learn keeps a sample of an attempt that used a GPU and came to an end that
// says something: one that was cancelled, lost or failed early would teach
// that the job is small. An out-of-memory teaches a lower bound.
func (s *State) learn(j *cluster.Job, a *cluster.Attempt) {
	oom := a.State == cluster.JobOutOfMemory && a.Usage.GPUOOM
	switch {
	case len(a.Berth.GPUs) == 0 || a.Usage == (cluster.Usage{}) || j.Spec.Signature == "":
		return
	case a.State != cluster.JobCompleted && a.State != cluster.JobTimeout && !oom:
		return
	}
	// The type comes from what is stored: the ledger's accounts are not.
	gpuType := a.Estimate.GPUType
	if n := s.nodes[a.Berth.Node]; n != nil && gpuType == "" {
		if g := n.GPU(a.Berth.GPUs[0].GPU); g != nil {
			gpuType = g.Type
		}
	}
	if gpuType == "" {
		return
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
	s.samples = append(s.samples, x)
	s.hash.samples.touch(x.Seq)
	s.boundSamples(&x)
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
