package fsm

import (
	"slices"
	"sort"

	"github.com/berth-scheduler/berth/cluster"
)

// putJob puts j in the place of old (nil for a new job) and keeps every index
// true. It does not touch the ledger.
func (s *State) putJob(old, j *cluster.Job) {
	if s.rules >= changeVersion && j.State.Terminal() && !j.InArray() {
		j.Spec = j.Spec.Lean() // nobody runs it again
	}
	s.place(old, j)
	s.tell(old, j)
	if j.State.Terminal() && (old == nil || !old.State.Terminal()) {
		s.addFinished(j)
		if s.rules < arrayVersion { // see applyEntry
			s.forgetOldest()
		}
	}
}

// place does what putJob does but for the order of the finished.
func (s *State) place(old, j *cluster.Job) {
	set := s.setOf(j)
	if old != nil {
		if was := s.inSet(old); was != set {
			was.remove(old.ID)
		}
	}
	if old != nil && old.State.Live() {
		for rank, b := range old.Last().Held() {
			if !j.State.Live() || !j.Last().PartLive(rank) {
				s.nodeJobs[b.Node].remove(old.ID)
			}
		}
	}
	if j.ArrayJobID != 0 {
		s.indexArray(old, j)
	}
	s.indexDepends(old, j)
	s.count(old, j)
	if !j.InArray() {
		s.weigh(old, j)
	}
	if old != nil && old.Fold != nil {
		s.folded[old.State] -= len1(old)
	}
	if j.Fold != nil {
		s.folded[j.State] += len1(j)
	}
	s.jobs.put(j)
	set.put(j)
	s.hash.jobs.touch(j.ID)
	if j.State.Live() {
		for _, b := range j.Last().Held() {
			if s.nodeJobs[b.Node] == nil {
				s.nodeJobs[b.Node] = &jobSet{}
			}
			s.nodeJobs[b.Node].put(j)
		}
	}
}

// addFinished keeps the finished jobs in order of the entry that ended them
// and then of their ids, which a restored replica finds the same.
func (s *State) addFinished(j *cluster.Job) {
	i := len(s.finished)
	for i > 0 && endedBefore(j, s.jobs.get(s.finished[i-1])) {
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
		j := s.jobs.get(id)
		s.forgot = append(s.forgot, j)
		s.byState[j.State].remove(id)
		s.forgetTask(j)
		s.jobs.remove(id)
		s.hash.jobs.touch(id)
	}
}

func (s *State) changed(c Change) { s.changes = append(s.changes, c) }

func (s *State) touchQueue(gpu cluster.GPUID) { s.hash.rest.touch(entity{kindQueue, string(gpu)}) }

func (s *State) setQueue(gpu cluster.GPUID, q []cluster.Waiter) {
	s.touchQueue(gpu)
	if len(q) == 0 {
		delete(s.queues, gpu)
		return
	}
	s.queues[gpu] = q
}

func before(a, b cluster.Waiter) int {
	switch {
	case a.Rank < b.Rank || a.Rank == b.Rank && a.Job < b.Job:
		return -1
	case a == b:
		return 0
	}
	return 1
}

// unqueue takes j out of the queue it is in; the caller puts j.
func (s *State) unqueue(j *cluster.Job) {
	if j.Queue == "" {
		return
	}
	q := s.queues[j.Queue]
	switch i := slices.IndexFunc(q, func(w cluster.Waiter) bool { return w.Job == j.ID }); {
	case i == 0:
		s.setQueue(j.Queue, q[1:])
	case i > 0:
		// A snapshot may hold the old slice: never change it in place.
		s.setQueue(j.Queue, slices.Concat(q[:i], q[i+1:]))
	}
	j.Queue, j.EstStart = "", 0
}

// edit gathers what changes in one queue, so that moving many jobs costs one
// pass over the queue and not one each.
type edit struct {
	drop map[cluster.JobID]struct{}
	add  []cluster.Waiter
}

type edits map[cluster.GPUID]*edit

func (es edits) of(gpu cluster.GPUID) *edit {
	if es[gpu] == nil {
		es[gpu] = &edit{drop: map[cluster.JobID]struct{}{}}
	}
	return es[gpu]
}

// commitEdits makes the new queues. Each queue is independent of the others.
func (s *State) commitEdits(es edits) {
	for _, gpu := range sortedKeys(es) {
		e, old := es[gpu], s.queues[gpu]
		slices.SortFunc(e.add, before)
		q := make([]cluster.Waiter, 0, len(old)+len(e.add))
		add := e.add
		for _, w := range old {
			if _, gone := e.drop[w.Job]; gone {
				continue
			}
			n := sort.Search(len(add), func(i int) bool { return before(w, add[i]) < 0 })
			q = append(append(q, add[:n]...), w)
			add = add[n:]
		}
		s.setQueue(gpu, append(q, add...))
	}
}

// dissolve sends everybody in a GPU's queue back to PENDING.
func (s *State) dissolve(index uint64, gpu cluster.GPUID, why cluster.ReasonCode) {
	q := s.queues[gpu]
	if len(q) == 0 {
		return
	}
	for _, w := range q {
		old := s.jobs.get(w.Job)
		j := old.Clone()
		j.Queue, j.EstStart = "", 0
		j.State, j.Reason, j.Revision = cluster.JobPending, cluster.Reason{Code: why}, index
		s.putJob(old, j)
		s.changed(Change{Job: j.ID, New: true})
	}
	s.setQueue(gpu, nil)
}
