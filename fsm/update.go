package fsm

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// updateJob puts a changed spec in place of the job's. One that waits leaves its
// queue and is looked at anew; of one that runs only what concerns its end, or
// its next attempt, is the leader's to allow.
func (s *State) updateJob(index uint64, c *logv1.UpdateJob) Result {
	old := s.job(cluster.JobID(c.Job))
	spec, err := conv.SpecNamed(c.Spec, s.bulkNamed)
	switch {
	case old == nil:
		return refuse(cluster.CodeNotFound, "job %d is not known", c.Job)
	case err != nil:
		return refuseSpec(fmt.Sprintf("job %d", c.Job), err)
	case old.InArray():
		return refuse(cluster.CodeConflict, "job %s is of an array, whose tasks are all alike: how many run at once can be changed, the rest not; cancel it and submit another", old.Label())
	case old.State.Terminal():
		return refuse(cluster.CodeConflict, "job %d has ended as %s and cannot be changed", c.Job, old.State)
	case old.Revision != c.Base:
		return refuse(cluster.CodeConflict, "job %d changed meanwhile", c.Job)
	case s.fleet.NoPartition(spec) != nil:
		return Result{Err: s.fleet.NoPartition(spec)}
	case s.rules >= command.ChangeVersion && spec.Array != nil:
		return refuse(cluster.CodeInvalid, "job %d: a job that was submitted cannot become an array; cancel it and submit one", c.Job)
	case s.rules >= command.ChangeVersion && !old.State.Waiting() && !slices.Equal(spec.Depends, old.Spec.Depends):
		return refuse(cluster.CodeConflict, "job %d is %s: what it waits for can be changed when it waits again", c.Job, old.State)
	}
	j := old.Clone()
	j.Spec, j.Revision = spec, index
	if err := s.books.MayCharge(old, j); err != nil {
		return Result{Err: err}
	}
	s.blobs.Apart(s.now, spec)
	s.texts.Spec(j.Owner.UID, spec)
	if old.State.Waiting() {
		if err := s.depend(j); err != nil {
			return Result{Err: err}
		}
		s.queues.Leave(j)
		j.State = cluster.JobPending
		began := j.Eligible
		s.waitAgain(j)
		j.Eligible = max(began, spec.Begin)
	}
	s.reindex(old, j)
	s.changed(Change{Job: j.ID, New: old.State.Waiting()})
	return Result{}
}

// reindex puts j, of which the spec changed, in the place of old: jobs are also
// found by their names and by whom they wait for.
func (s *State) reindex(old, j *cluster.Job) {
	s.putJob(old, j)
	if from, to := nameOf(old), nameOf(j); from != to {
		s.rename(j.ID, from, to)
		if first := s.jobs.Get(s.firstNamed(from)); first != nil {
			s.unsettled = append(s.unsettled, first)
		}
	}
	if !j.State.Waiting() || j.Depend() == cluster.DependMet {
		return
	}
	for i, d := range j.Spec.Depends {
		if d.Job == 0 || j.Depends[i] != cluster.DependOpen {
			continue
		}
		key, ok := s.keyFor(d)
		if !ok {
			continue
		}
		// In order, as a restored replica finds them.
		on := s.dependents[key]
		if at, there := slices.BinarySearch(on, j.ID); !there {
			s.dependents[key] = slices.Insert(on, at, j.ID)
		}
	}
	s.unsettled = append(s.unsettled, j)
}

// rename moves a job that has not ended from one name to another.
func (s *State) rename(id cluster.JobID, from, to nameKey) {
	if q := s.names[from]; q != nil {
		q.ids = slices.DeleteFunc(q.ids, func(o cluster.JobID) bool { return o == id })
		if q.live--; q.live == 0 {
			delete(s.names, from)
		}
	}
	q := s.names[to]
	if q == nil {
		q = &names{}
		s.names[to] = q
	}
	at, _ := slices.BinarySearch(q.ids, id)
	q.ids = slices.Insert(q.ids, at, id)
	q.live++
}
