package learner

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/model/interfere"
)

// Sharer is a job that would share a GPU.
type Sharer struct {
	ID        cluster.JobID // 0 for one that is not submitted
	Spec      *cluster.Spec
	Estimates []cluster.Estimate
}

// On is how the job loads a GPU of a type. What a user declares counts as the
// scheduler counts it.
func (s *Sharer) On(gpuType string) interfere.Job {
	j := interfere.Job{Signature: s.Spec.Signature, Family: FamilyIn(s.Spec), Util: interfere.Unknown, Bandwidth: interfere.Unknown}
	milli := s.Spec.GPUMilli
	if e, ok := cluster.EstimateFor(s.Estimates, gpuType); ok && milli == 0 {
		milli = e.Milli
	}
	if milli > 0 {
		j.Util = float64(min(milli, cluster.WholeGPU)) / cluster.WholeGPU
	}
	return j
}
