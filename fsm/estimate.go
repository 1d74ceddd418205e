package fsm

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// estimateJobs gives jobs that wait other estimates: something was learned since
// they were submitted. The leader predicts, and this only stores. Jobs that began or
// ended meanwhile keep what they were placed by, and one that stands in a queue keeps
// its place there until the next pass looks at it.
func (s *State) estimateJobs(index uint64, c *logv1.EstimateJobs) Result {
	groups := make([][]cluster.Estimate, len(c.GetGroups()))
	for i, g := range c.GetGroups() {
		es := conv.EstimatesFromLog(g.GetEstimates())
		for k := range es {
			if k > 0 && es[k-1].GPUType >= es[k].GPUType {
				return refuse(cluster.CodeInvalid, "estimates of group %d: %q and %q are not in order", i, es[k-1].GPUType, es[k].GPUType)
			}
			s.texts.Estimate(&es[k])
		}
		groups[i] = slices.Clip(es)
	}
	for i, g := range c.GetGroups() {
		for _, id := range g.GetJobs() {
			old := s.roll.Jobs.Get(cluster.JobID(id)) // a fold, too
			if old == nil || !old.State.Waiting() {
				continue
			}
			j := old.Clone()
			j.Estimates, j.Estimated, j.Revision = groups[i], s.at.Now, index
			s.roll.Change(old, j, Change{New: true})
		}
	}
	return Result{}
}
