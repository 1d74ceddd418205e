package fsm

import (
	"slices"
	"sort"

	"github.com/berth-scheduler/berth/cluster"
)

// putJob puts j in the place of old (nil for a new job) and keeps every index
// true. It does not touch the ledger.
func (s *State) putJob(old, j *cluster.Job) {
	if old != nil {
		s.unindex(old)
	}
	s.jobs[j.ID] = j
	s.hash.touch(kindJob, jobKey(j.ID))
	s.counts[j.State]++
	switch {
	case j.State.Waiting():
		s.waiting.add(j.ID)
	case j.State.Live():
		s.running.add(j.ID)
		b := &j.Last().Berth
		if s.nodeJobs[b.Node] == nil {
			s.nodeJobs[b.Node] = map[cluster.JobID]struct{}{}
		}
		s.nodeJobs[b.Node][j.ID] = struct{}{}
	default:
		if old == nil || !old.State.Terminal() {
			s.addFinished(j)
			s.forgetOldest()
		}
	}
}

func (s *State) unindex(old *cluster.Job) {
	s.counts[old.State]--
	switch {
	case old.State.Waiting():
		s.waiting.remove(old.ID)
	case old.State.Live():
		s.running.remove(old.ID)
		delete(s.nodeJobs[old.Last().Berth.Node], old.ID)
	}
}

// addFinished keeps the finished jobs in order of the entry that ended them
// and then of their ids, which a restored replica finds the same.
func (s *State) addFinished(j *cluster.Job) {
	i := len(s.finished)
	for i > 0 {
		prev := s.jobs[s.finished[i-1]]
		if prev.Revision < j.Revision || prev.Revision == j.Revision && prev.ID < j.ID {
			break
		}
		i--
	}
	s.finished = slices.Insert(s.finished, i, j.ID)
}

// forgetOldest keeps the number of finished jobs within the configured bound.
func (s *State) forgetOldest() {
	keep := int(s.config.GetKeepFinished())
	if keep == 0 {
		keep = defaultKeep
	}
	for len(s.finished) > keep {
		id := s.finished[0]
		s.finished = s.finished[1:]
		s.counts[s.jobs[id].State]--
		delete(s.jobs, id)
		s.hash.touch(kindJob, jobKey(id))
	}
}

// enqueue puts a job into the queue of a GPU by rank.
func (s *State) enqueue(gpu cluster.GPUID, w cluster.Waiter) {
	q := s.queues[gpu]
	i := sort.Search(len(q), func(i int) bool { return less(w, q[i]) })
	s.hash.touch(kindQueue, string(gpu))
	if i == len(q) {
		// Whoever holds the old slice does not see beyond its end.
		s.queues[gpu] = append(q, w)
		return
	}
	out := make([]cluster.Waiter, 0, len(q)+1)
	out = append(append(append(out, q[:i]...), w), q[i:]...)
	s.queues[gpu] = out
}

func less(a, b cluster.Waiter) bool {
	return a.Rank < b.Rank || a.Rank == b.Rank && a.Job < b.Job
}

// unqueue takes j out of the queue it is in; the caller puts j.
func (s *State) unqueue(j *cluster.Job) {
	if j.Queue == "" {
		return
	}
	q := s.queues[j.Queue]
	i := slices.IndexFunc(q, func(w cluster.Waiter) bool { return w.Job == j.ID })
	switch {
	case i == 0 && len(q) > 1:
		s.queues[j.Queue] = q[1:]
	case i >= 0:
		// A snapshot may hold the old slice: never change it in place.
		out := append(append(make([]cluster.Waiter, 0, len(q)-1), q[:i]...), q[i+1:]...)
		if len(out) == 0 {
			delete(s.queues, j.Queue)
		} else {
			s.queues[j.Queue] = out
		}
	}
	s.hash.touch(kindQueue, string(j.Queue))
	j.Queue, j.EstStart = "", 0
}

// dissolve sends everybody in a GPU's queue back to PENDING.
func (s *State) dissolve(index uint64, gpu cluster.GPUID, why cluster.ReasonCode) {
	for _, w := range s.queues[gpu] {
		old := s.jobs[w.Job]
		j := old.Clone()
		j.Queue, j.EstStart = "", 0
		j.State, j.Reason, j.Revision = cluster.JobPending, cluster.Reason{Code: why}, index
		s.putJob(old, j)
		s.changes = append(s.changes, Change{Job: j.ID, New: true})
	}
	if len(s.queues[gpu]) > 0 {
		delete(s.queues, gpu)
		s.hash.touch(kindQueue, string(gpu))
	}
}
