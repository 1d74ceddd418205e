package fsm

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/jobs"
)

// ArrayInfo is what there is to know of an array as a whole.
type ArrayInfo struct {
	ID    cluster.JobID
	Spec  *cluster.Spec
	Owner cluster.Owner
	// Throttle is how many tasks may run at once now, 0 is any number.
	Throttle int
	// Live tasks run, Queued ones stand in the queue of a GPU; Over have ended,
	// Good of them as COMPLETED.
	Live, Queued, Over, Good int
	// First is the first of its tasks that has not ended and, when all have, the
	// first that is not forgotten; a copy made of what folds it.
	First *cluster.Job
}

// Array returns the array with an id, which is that of its first task.
func (f JobsReader) Array(id cluster.JobID) (ArrayInfo, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s := f.st
	a := s.roll.Arrays[id]
	if a == nil {
		return ArrayInfo{}, false
	}
	out := ArrayInfo{ID: id, Spec: a.Spec, Throttle: a.Throttle, Live: a.Live, Queued: a.Queued, Over: a.Over.N, Good: a.Good.N}
	for k := 0; k < a.Len() && !a.Done(); k++ {
		if !a.Over.Has(k) {
			out.First = s.roll.Job(id + cluster.JobID(k))
			break
		}
	}
	jobs.Merge([]*jobs.Set{&s.roll.Jobs}, id-1, func(j *cluster.Job) bool {
		if out.Owner = j.Owner; out.First == nil {
			out.First = j.Task(j.Ranks()[0].From)
		}
		return false
	})
	return out, true
}

// ArrayStates returns how many tasks of an array are in each state. Those that
// were forgotten are in none.
func (f JobsReader) ArrayStates(id cluster.JobID) map[cluster.JobState]int {
	return read(f.held, func(s *State) map[cluster.JobState]int {
		a := s.roll.Arrays[id]
		if a == nil {
			return nil
		}
		out := map[cluster.JobState]int{}
		for _, j := range s.roll.Overlapping(a, a.Spec.Array.Tasks.All()) {
			out[j.State] += j.Count()
		}
		return out
	})
}

// AnyArray reports whether one of some ids is that of an array.
func (f JobsReader) AnyArray(ids []uint64) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, id := range ids {
		if len(f.st.roll.Arrays) > 0 && f.st.roll.Arrays[cluster.JobID(id)] != nil {
			return true
		}
	}
	return false
}

// Barred is why a waiting job may not be planned at a time, however much is
// free; the zero Reason is that it may.
func (f JobsReader) Barred(j *cluster.Job, now cluster.Time) cluster.Reason {
	return read(f.held, func(s *State) cluster.Reason { return s.roll.BarredBy(j, now) })
}

// Throttle is how many tasks of an array may run at once, 0 for any number.
func (f JobsReader) Throttle(id cluster.JobID) int {
	return read(f.held, func(s *State) int {
		if a := s.roll.Arrays[id]; a != nil {
			return a.Throttle
		}
		return 0
	})
}

// Entry returns what Jobs lists under an id: a job, or several tasks of an
// array, of which the last has the id.
func (f JobsReader) Entry(id cluster.JobID) (*cluster.Job, bool) {
	j := read(f.held, func(s *State) *cluster.Job { return s.roll.Jobs.Get(id) })
	return j, j != nil
}
