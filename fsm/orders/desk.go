package orders

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/jobs"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// Desk handles the orders of users and administrators for jobs: to submit, change,
// hold, requeue or cancel them.
type Desk struct {
	roll *jobs.Roll
	// Requests holds the answers to submissions.
	Requests Requests
}

// New returns a desk for the jobs of a roll.
func New(h *table.Hash, roll *jobs.Roll) *Desk { return &Desk{roll, NewRequests(h)} }

// Apply applies a command about jobs.
func (d *Desk) Apply(cmd *logv1.Command) command.Result {
	switch k := cmd.Kind.(type) {
	case *logv1.Command_SubmitJob:
		return d.submit(k.SubmitJob)
	case *logv1.Command_CancelJob:
		return d.cancel(k.CancelJob)
	case *logv1.Command_HoldJob:
		return d.hold(k.HoldJob)
	case *logv1.Command_RequeueJob:
		return d.requeue(k.RequeueJob)
	case *logv1.Command_ChangeTasks:
		return d.changeTasks(k.ChangeTasks)
	case *logv1.Command_UpdateJob:
		return d.updateJob(k.UpdateJob)
	case *logv1.Command_EstimateJobs:
		return d.estimateJobs(k.EstimateJobs)
	case *logv1.Command_ExpireJobs:
		return d.expireJobs(k.ExpireJobs)
	case *logv1.Command_NoteLoads:
		return d.noteLoads(k.NoteLoads)
	}
	panic(fmt.Sprintf("orders: %T is not for this machine", cmd.Kind))
}

// cancel ends a waiting job at once, and asks the agent to end a live one.
func (d *Desk) cancel(c *logv1.CancelJob) command.Result {
	if len(c.Why) > maxWhy {
		return command.Refuse(cluster.CodeInvalid, "cancel of job %d: a reason of %d bytes, at most %d are kept", c.Job, len(c.Why), maxWhy)
	}
	old := d.roll.Job(cluster.JobID(c.Job))
	if old != nil && !old.State.Terminal() {
		old = d.roll.Own(old.ID)
	}
	return command.Result{Cancel: d.cancelJob(old, cluster.CancelRequest{By: cluster.UID(c.By), Admin: c.Admin, Why: c.Why})}
}

// maxWhy bounds the reason of a cancel, in bytes.
const maxWhy = 1024

// cancelJob cancels a job, or all tasks that it folds.
func (d *Desk) cancelJob(old *cluster.Job, asked cluster.CancelRequest) command.CancelOutcome {
	switch {
	case old == nil:
		return command.NotFound
	case old.State.Terminal():
		return command.Finished
	case old.Cancel != nil:
		return command.Cancelled // in progress; the first request stays on record
	}
	j := old.Clone()
	asked.At = d.roll.At.Now
	j.Cancel = &asked
	if j.State.Waiting() {
		d.roll.Queues.Leave(j)
		j.Hold = nil
		j.State, j.Ended, j.Reason = cluster.JobCancelled, d.roll.At.Now, jobs.CancelReason(j)
	}
	d.roll.Change(old, j, command.Change{})
	return command.Cancelled
}

// expireJobs ends those of the jobs that wait and whose deadline has passed by the
// log's clock. Running jobs go on: they may still be of use, and their owners see
// that they are late.
func (d *Desk) expireJobs(c *logv1.ExpireJobs) command.Result {
	var r command.Result
	for _, id := range c.Jobs {
		old := d.roll.Jobs.Get(cluster.JobID(id))
		if old == nil || !old.State.Waiting() || !jobs.Expired(old, d.roll.At.Now) {
			continue
		}
		j := old.Clone()
		d.roll.Queues.Leave(j)
		j.Ended = d.roll.At.Now
		jobs.EndLate(d.roll, old, j, nil)
		r.Jobs = append(r.Jobs, j.ID)
	}
	return r
}
