package fsm

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/jobs"
)

// putJob puts j in the place of old (nil for a new job) and keeps every index
// true. It does not touch the ledger.
func (s *State) putJob(old, j *cluster.Job) {
	if s.rules >= command.ChangeVersion && j.State.Terminal() && !j.InArray() {
		j.Spec = j.Spec.Lean() // nobody runs it again
	}
	s.place(old, j)
	s.tell(old, j)
	if j.State.Terminal() && (old == nil || !old.State.Terminal()) {
		s.addFinished(j)
		if s.rules < command.ArrayVersion { // see applyEntry
			s.forgetOldest()
		}
	}
}

// place does what putJob does but for the order of the finished.
func (s *State) place(old, j *cluster.Job) {
	set := s.setOf(j)
	if old != nil {
		if was := s.inSet(old); was != set {
			was.Remove(old.ID)
		}
	}
	if old != nil && old.State.Live() {
		for rank, b := range old.Last().Held() {
			if !j.State.Live() || !j.Last().PartLive(rank) {
				s.nodeJobs[b.Node].Remove(old.ID)
			}
		}
	}
	if j.ArrayJobID != 0 {
		s.indexArray(old, j)
	}
	s.indexDepends(old, j)
	s.books.Count(old, j)
	if !j.InArray() {
		s.blobs.Weigh(old, j)
	}
	if old != nil && old.Fold != nil {
		s.folded[old.State] -= len1(old)
	}
	if j.Fold != nil {
		s.folded[j.State] += len1(j)
	}
	s.jobs.Put(j)
	set.Put(j)
	s.digests.jobs.Touch(j.ID)
	if j.State.Live() {
		for _, b := range j.Last().Held() {
			if s.nodeJobs[b.Node] == nil {
				s.nodeJobs[b.Node] = &jobs.Set{}
			}
			s.nodeJobs[b.Node].Put(j)
		}
	}
}

// addFinished keeps the finished jobs in order of the entry that ended them
// and then of their ids, which a restored replica finds the same.
func (s *State) addFinished(j *cluster.Job) {
	i := len(s.finished)
	for i > 0 && endedBefore(j, s.jobs.Get(s.finished[i-1])) {
		i--
	}
	s.finished = slices.Insert(s.finished, i, j.ID)
	s.endedNow = true
}

// endedBefore orders finished jobs: nothing changes them after their end, so
// that their revision is its index.
func endedBefore(a, b *cluster.Job) bool {
	return a.Revision < b.Revision || a.Revision == b.Revision && a.ID < b.ID
}

// forgetOldest keeps the number of finished jobs within the configured bound.
func (s *State) forgetOldest() {
	for keep := s.keepOf(); len(s.finished) > keep; {
		id := s.finished[0]
		s.finished = s.finished[1:]
		j := s.jobs.Get(id)
		s.forgot = append(s.forgot, j)
		s.byState[j.State].Remove(id)
		s.forgetTask(j)
		s.jobs.Remove(id)
		s.digests.jobs.Touch(id)
	}
}

func (s *State) changed(c Change) { s.changes = append(s.changes, c) }

// dissolve sends everybody in a GPU's queue back to PENDING.
func (s *State) dissolve(index uint64, gpu cluster.GPUID, why cluster.ReasonCode) {
	q := s.queues.Of(gpu)
	if len(q) == 0 {
		return
	}
	for _, w := range q {
		old := s.jobs.Get(w.Job)
		j := old.Clone()
		j.Queue, j.EstStart = "", 0
		j.State, j.Reason, j.Revision = cluster.JobPending, cluster.Reason{Code: why}, index
		s.putJob(old, j)
		s.changed(Change{Job: j.ID, New: true})
	}
	s.queues.Set(gpu, nil)
}
