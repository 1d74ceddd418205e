package orders

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// hold keeps a job from starting, or releases it. A running job goes on and is held
// once it is requeued. Repeating it changes nothing.
func (d *Desk) hold(c *logv1.HoldJob) command.Result {
	old := d.roll.Job(cluster.JobID(c.Job))
	if old == nil {
		return command.Refuse(cluster.CodeNotFound, "job %d is not known", c.Job)
	}
	if err := unholdable(old, c); err != nil {
		return command.Result{Err: err}
	}
	if !holdIsNews(old, c) {
		return command.Result{}
	}
	d.holdJob(d.roll.Own(old.ID), c)
	return command.Result{}
}

// unholdable returns why a job cannot be held or released.
func unholdable(old *cluster.Job, c *logv1.HoldJob) *cluster.Error {
	switch {
	case old.Hold != nil && old.Hold.Admin && !c.Admin && c.Release:
		return cluster.Errorf(cluster.CodeDenied, "job %s was held by an administrator; only an administrator can release it", old.Label())
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

// holdJob holds or releases a job, or all tasks that it folds.
func (d *Desk) holdJob(old *cluster.Job, c *logv1.HoldJob) {
	j := old.Clone()
	j.Hold = nil
	if !c.Release {
		j.Hold = &cluster.Hold{At: d.roll.At.Now, By: cluster.UID(c.By), Admin: c.Admin}
	}
	if old.State.Waiting() {
		d.roll.Queues.Leave(j)
		d.roll.WaitAgain(j)
	}
	d.roll.Change(old, j, command.Change{New: c.Release && old.State.Waiting()})
}

// requeue asks the live attempt of a job to end so that the job is requeued: like
// preemption, but for any job and on request.
func (d *Desk) requeue(c *logv1.RequeueJob) command.Result {
	old := d.roll.Job(cluster.JobID(c.Job))
	if old == nil {
		return command.Refuse(cluster.CodeNotFound, "job %d is not known", c.Job)
	}
	if why := old.Unrequeueable(); why != "" {
		return command.Refuse(cluster.CodeConflict, "job %s cannot be requeued: %s", old.Label(), why)
	}
	if copied := conv.CopyFromLog(c.Copy); copied != nil {
		if err := copied.Check(old.Spec.Study); err != nil {
			return command.Refuse(cluster.CodeInvalid, "job %s: %v", old.Label(), err)
		}
		if was := old.Copy(); was != nil && copied.Generation <= was.Generation {
			return command.Refuse(cluster.CodeConflict, "job %s is of generation %d already", old.Label(), was.Generation)
		}
	}
	d.requeueJob(old, c)
	return command.Result{}
}

// requeueJob requeues a job with a live attempt.
func (d *Desk) requeueJob(old *cluster.Job, c *logv1.RequeueJob) {
	j := old.Clone()
	p := &cluster.PreemptRequest{At: d.roll.At.Now, Requeue: true, Hold: c.Hold, By: cluster.UID(c.By), Admin: c.Admin, Why: fmt.Sprintf("by uid %d", c.By)}
	if c.Admin {
		p.Why = "by an administrator"
	}
	if p.Copy = conv.CopyFromLog(c.Copy); c.Why != "" && (old.Spec.Service != nil || p.Copy != nil) {
		p.Why = service.ClipWhy(c.Why)
	}
	j.Last().Preempt = p
	j.Reason = p.Reason()
	d.roll.Change(old, j, command.Change{})
}
