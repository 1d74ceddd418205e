package jobs

import "github.com/berth-scheduler/berth/cluster"

// States holds the jobs by state.
type States struct {
	ByState [cluster.JobDeadline + 1]Set
	Folded  [cluster.JobDeadline + 1]int // tasks in a state beyond one for each job
	Barred  Set                          // pending jobs that were barred when stored; they are not in ByState
}

// InSet returns the set that old is in now. What barred it when it was stored may
// have passed.
func (s *States) InSet(old *cluster.Job) *Set {
	if old.State == cluster.JobPending && s.Barred.Len() > 0 && s.Barred.Get(old.ID) != nil {
		return &s.Barred
	}
	return &s.ByState[old.State]
}

// Sets returns the jobs in each of the given states; states may repeat.
func (s *States) Sets(states []cluster.JobState) []*Set {
	var seen [len(s.ByState)]bool
	var out []*Set
	for _, st := range states {
		if st.Valid() && !seen[st] {
			seen[st] = true
			out = append(out, &s.ByState[st])
			if st == cluster.JobPending && s.Barred.Len() > 0 {
				out = append(out, &s.Barred)
			}
		}
	}
	return out
}

// InStates returns the jobs in the given states, by id.
func (s *States) InStates(states ...cluster.JobState) []*cluster.Job {
	return inSets(s.Sets(states)...)
}

// inSets returns the jobs of disjoint sets, by id.
func inSets(sets ...*Set) []*cluster.Job {
	n := 0
	for _, set := range sets {
		n += set.Len()
	}
	out := make([]*cluster.Job, 0, n)
	Merge(sets, 0, func(j *cluster.Job) bool {
		out = append(out, j)
		return true
	})
	return out
}

// ByPartition counts the waiting and running jobs of each partition, each task of an
// array as one.
func (s *States) ByPartition() (waiting, live map[string]int) {
	waiting, live = map[string]int{}, map[string]int{}
	for _, j := range s.Unended() {
		if j.State.Waiting() {
			waiting[j.Spec.Partition] += j.Count()
		} else {
			live[j.Spec.Partition]++
		}
	}
	return waiting, live
}

// Unended returns the jobs that wait or run.
func (s *States) Unended() []*cluster.Job {
	return s.InStates(cluster.JobPending, cluster.JobQueued, cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable)
}

// Running returns the jobs with an attempt.
func (s *States) Running() []*cluster.Job {
	return s.InStates(cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable)
}
