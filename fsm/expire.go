package fsm

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// expireJobs ends those of the jobs that wait and whose deadline has passed by
// the log's clock. What runs goes on: it may still be of use, and its owner
// sees that it is late.
func (s *State) expireJobs(index uint64, c *logv1.ExpireJobs) Result {
	var r Result
	for _, id := range c.Jobs {
		old := s.roll.Jobs.Get(cluster.JobID(id))
		if old == nil || !old.State.Waiting() || !expired(old, s.at.Now) {
			continue
		}
		j := old.Clone()
		s.roll.Queues.Leave(j)
		j.Revision, j.Ended = index, s.at.Now
		s.endLate(old, j, nil)
		r.Jobs = append(r.Jobs, j.ID)
	}
	return r
}

// endLate ends j, a changed copy of old that would wait and whose deadline has
// passed.
func (s *State) endLate(old, j *cluster.Job, freed []cluster.GPUID) {
	j.Hold = nil
	j.State, j.Reason = cluster.JobDeadline, cluster.Reason{Code: cluster.ReasonDeadline, Detail: "its deadline passed before it could start"}
	s.roll.Change(old, j, Change{Released: freed})
}

func expired(j *cluster.Job, now cluster.Time) bool {
	return j.Spec.Deadline > 0 && j.Spec.Deadline <= now
}

// Expired returns the waiting jobs whose deadline has passed by now, by id.
func (f JobsReader) Expired(now cluster.Time) []cluster.JobID {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var out []cluster.JobID
	for _, set := range f.st.roll.Sets([]cluster.JobState{cluster.JobPending, cluster.JobQueued}) {
		for j := range set.All {
			if expired(j, now) {
				out = append(out, j.ID)
			}
		}
	}
	slices.Sort(out)
	return out
}
