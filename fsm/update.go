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
	old := s.roll.Job(cluster.JobID(c.Job))
	spec, err := conv.SpecNamed(c.Spec, s.roll.BulkNamed)
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
	case s.at.Version >= command.ChangeVersion && spec.Array != nil:
		return refuse(cluster.CodeInvalid, "job %d: a job that was submitted cannot become an array; cancel it and submit one", c.Job)
	case s.at.Version >= command.ChangeVersion && !old.State.Waiting() && !slices.Equal(spec.Depends, old.Spec.Depends):
		return refuse(cluster.CodeConflict, "job %d is %s: what it waits for can be changed when it waits again", c.Job, old.State)
	}
	j := old.Clone()
	j.Spec, j.Revision = spec, index
	if err := s.books.MayCharge(old, j); err != nil {
		return Result{Err: err}
	}
	s.blobs.Apart(s.at.Now, spec)
	s.texts.Spec(j.Owner.UID, spec)
	if old.State.Waiting() {
		if err := s.roll.Depends.Look(j); err != nil {
			return Result{Err: err}
		}
		s.roll.Queues.Leave(j)
		j.State = cluster.JobPending
		began := j.Eligible
		s.roll.WaitAgain(j)
		j.Eligible = max(began, spec.Begin)
	}
	s.roll.Depends.Reindex(old, j)
	s.roll.Changed(Change{Job: j.ID, New: old.State.Waiting()})
	return Result{}
}
