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

// On returns how the job loads a GPU of a type. A user's declaration counts as it
// does for the scheduler.
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
