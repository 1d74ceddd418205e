package fsm

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// hold keeps a job from starting, or lets it again. One that runs goes on and is
// held once it waits again. Who asks for what holds already changes nothing.
func (s *State) hold(index uint64, c *logv1.HoldJob) Result {
	old := s.roll.Job(cluster.JobID(c.Job))
	if old == nil {
		return refuse(cluster.CodeNotFound, "job %d is not known", c.Job)
	}
	if err := unholdable(old, c); err != nil {
		return Result{Err: err}
	}
	if !holdIsNews(old, c) {
		return Result{}
	}
	s.holdJob(index, s.roll.Own(old.ID), c)
	return Result{}
}

// unholdable is why a job cannot be held or released.
func unholdable(old *cluster.Job, c *logv1.HoldJob) *cluster.Error {
	switch {
	case old.Hold != nil && old.Hold.Admin && !c.Admin && c.Release:
		return cluster.Errorf(cluster.CodeDenied, "job %s is held by an administrator, who alone releases it", old.Label())
	case old.State.Terminal():
		return cluster.Errorf(cluster.CodeConflict, "job %s has ended as %s", old.Label(), old.State)
	case !c.Release && old.Spec.Deadline > 0:
		return cluster.Errorf(cluster.CodeConflict, "job %s was promised its deadline and cannot be held; cancel it instead", old.Label())
	}
	return nil
}

// holdIsNews reports whether a hold or a release changes anything.
func holdIsNews(old *cluster.Job, c *logv1.HoldJob) bool {
	if c.Release {
		return old.Hold != nil
	}
	return old.Hold == nil || !old.Hold.Admin && c.Admin
}

// holdJob holds a job, or all that it folds, or releases it.
func (s *State) holdJob(index uint64, old *cluster.Job, c *logv1.HoldJob) {
	j := old.Clone()
	j.Revision, j.Hold = index, nil
	if !c.Release {
		j.Hold = &cluster.Hold{At: s.at.Now, By: cluster.UID(c.By), Admin: c.Admin}
	}
	if old.State.Waiting() {
		s.roll.Queues.Leave(j)
		j.State = cluster.JobPending
		s.roll.WaitAgain(j)
	}
	s.roll.Change(old, j, Change{New: c.Release && old.State.Waiting()})
}

// requeue asks the live attempt of a job to end, so that its job waits again:
// what preemption does, for any job and at somebody's wish.
func (s *State) requeue(index uint64, c *logv1.RequeueJob) Result {
	old := s.roll.Job(cluster.JobID(c.Job))
	if old == nil {
		return refuse(cluster.CodeNotFound, "job %d is not known", c.Job)
	}
	if why := old.Unrequeueable(); why != "" {
		return refuse(cluster.CodeConflict, "job %s cannot be requeued: %s", old.Label(), why)
	}
	s.requeueJob(index, old, c)
	return Result{}
}

// requeueJob does so to a job with a live attempt.
func (s *State) requeueJob(index uint64, old *cluster.Job, c *logv1.RequeueJob) {
	j := old.Clone()
	p := &cluster.PreemptRequest{At: s.at.Now, Requeue: true, Hold: c.Hold, By: cluster.UID(c.By), Admin: c.Admin, Why: fmt.Sprintf("by uid %d", c.By)}
	if c.Admin {
		p.Why = "by an administrator"
	}
	j.Last().Preempt = p
	j.Reason, j.Revision = p.Reason(), index
	s.roll.Change(old, j, Change{})
}

// bar notes what keeps j, a new job that is not put yet, from starting.
func (s *State) bar(j *cluster.Job) *cluster.Error {
	if err := s.roll.Depends.Look(j); err != nil {
		return err
	}
	if j.Spec.Hold {
		j.Hold = &cluster.Hold{At: s.at.Now, By: j.Owner.UID}
	}
	if r := j.Barred(s.at.Now); r.Code != "" {
		s.roll.WaitAgain(j)
	}
	return nil
}
