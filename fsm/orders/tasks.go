package orders

import (
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/jobs"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// changeTasks applies one change to tasks of an array.
func (d *Desk) changeTasks(c *logv1.ChangeTasks) command.Result {
	a := d.roll.Arrays[cluster.JobID(c.Array)]
	if a == nil {
		return command.Refuse(cluster.CodeNotFound, "job array %d is not known", c.Array)
	}
	if len(c.Why) > maxWhy {
		return command.Refuse(cluster.CodeInvalid, "tasks of %d: a reason of %d bytes, at most %d are kept", c.Array, len(c.Why), maxWhy)
	}
	ranks := a.Spec.Array.Tasks.All()
	if len(c.Runs) > 0 {
		some, err := conv.RunsFromLog(c.Runs)
		if err != nil {
			return command.Refuse(cluster.CodeInvalid, "%v", err)
		}
		if ranks = a.Spec.Array.Tasks.In(&some); len(ranks) == 0 {
			return command.Refuse(cluster.CodeNotFound, "array %d has none of the tasks %s; its tasks are %s", c.Array, jobs.Short(some.String()), jobs.Short(a.Spec.Array.Tasks.String()))
		}
	}
	if c.Change == logv1.TaskChange_TASK_CHANGE_THROTTLE {
		return d.throttle(a, c)
	}
	r := command.Result{}
	left := cluster.SpanLen(ranks)
	for _, old := range d.roll.Overlapping(a, ranks) {
		part := cluster.SpanAnd(old.Ranks(), ranks)
		n := cluster.SpanLen(part)
		left -= n
		switch err, over := d.changeTask(old, part, c); {
		case over:
			r.Tasks.Finished += n
		case err != nil:
			r.Tasks.Refused += n
			r.Tasks.Why = err
			r.Tasks.RefusedRanks = append(r.Tasks.RefusedRanks, part...)
		default:
			r.Tasks.Done += n
			r.Tasks.DoneRanks = append(r.Tasks.DoneRanks, part...)
		}
	}
	r.Tasks.DoneRanks, r.Tasks.RefusedRanks = cluster.SpanOr(r.Tasks.DoneRanks, nil), cluster.SpanOr(r.Tasks.RefusedRanks, nil)
	r.Tasks.Finished += left // and forgotten
	return r
}

// changeTask applies it to the requested tasks of a job.
func (d *Desk) changeTask(old *cluster.Job, part []cluster.Span, c *logv1.ChangeTasks) (err *cluster.Error, over bool) {
	if old.State.Terminal() {
		return nil, true
	}
	mine := func() *cluster.Job {
		if old.Fold == nil {
			return old
		}
		return d.roll.Split(old, part)
	}
	switch c.Change {
	case logv1.TaskChange_TASK_CHANGE_CANCEL:
		d.cancelJob(mine(), cluster.CancelRequest{By: cluster.UID(c.By), Admin: c.Admin, Why: c.Why})
	case logv1.TaskChange_TASK_CHANGE_HOLD, logv1.TaskChange_TASK_CHANGE_RELEASE:
		h := &logv1.HoldJob{By: c.By, Admin: c.Admin, Release: c.Change == logv1.TaskChange_TASK_CHANGE_RELEASE}
		if err := unholdable(old, h); err != nil {
			return err, false
		}
		if holdIsNews(old, h) {
			d.holdJob(mine(), h)
		}
	case logv1.TaskChange_TASK_CHANGE_REQUEUE, logv1.TaskChange_TASK_CHANGE_REQUEUE_HOLD:
		if why := old.Unrequeueable(); why != "" {
			return cluster.Errorf(cluster.CodeConflict, "job %s cannot be requeued: %s", old.Label(), why), false
		}
		d.requeueJob(old, &logv1.RequeueJob{By: c.By, Admin: c.Admin, Hold: c.Change == logv1.TaskChange_TASK_CHANGE_REQUEUE_HOLD})
	case logv1.TaskChange_TASK_CHANGE_TIME_LIMIT:
		return d.limitTask(old, mine, c), false
	default:
		return cluster.Errorf(cluster.CodeInvalid, "tasks cannot be changed by %d", c.Change), false
	}
	return nil, false
}

// throttle sets how many tasks of an array may run at once. Running ones go on;
// queued ones leave their queue.
func (d *Desk) throttle(a *jobs.Array, c *logv1.ChangeTasks) command.Result {
	if c.Throttle > cluster.MaxThrottle {
		return command.Refuse(cluster.CodeInvalid, "throttle: %d is outside 0 to %d", c.Throttle, cluster.MaxThrottle)
	}
	r := command.Result{}
	r.Tasks.Done = a.Len() - a.Over.N
	if a.Done() {
		return command.Refuse(cluster.CodeConflict, "array %d has ended", a.ID)
	}
	if c.Scales && a.Spec.Service != nil && a.Scaled != int(c.Throttle)+1 {
		a.Scaled = int(c.Throttle) + 1
		d.roll.Digests.Arrays.Touch(a.ID)
	}
	if int(c.Throttle) == a.Throttle {
		return r
	}
	a.Throttle = int(c.Throttle)
	d.roll.Digests.Arrays.Touch(a.ID)
	for _, old := range d.roll.Overlapping(a, a.Spec.Array.Tasks.All()) {
		if !old.State.Waiting() {
			continue
		}
		j := old.Clone()
		d.roll.Queues.Leave(j)
		if j.Reason = j.Barred(d.roll.At.Now); j.Reason.Code == "" {
			j.Reason = d.roll.Fleet.WaitsFor(j.Spec)
		}
		d.roll.Change(old, j, command.Change{New: true})
	}
	return r
}

// limitTask gives a task, or those that wait with it, another time limit. A waiting
// one leaves its queue and is considered again; for a running one the agent is
// told. mine returns the job to change once nothing refuses it.
func (d *Desk) limitTask(old *cluster.Job, mine func() *cluster.Job, c *logv1.ChangeTasks) *cluster.Error {
	limit, now := time.Duration(c.TimeLimitUs)*time.Microsecond, old.Spec.TimeLimit
	switch {
	case c.TimeLimitUs < 0 || c.TimeLimitUs > int64(cluster.MaxTimeDays)*24*3600*1e6 || limit > 0 && limit < time.Second:
		return cluster.Errorf(cluster.CodeInvalid, "time: %s is outside 1 s to %d days", cluster.TimeText(limit), cluster.MaxTimeDays)
	case limit == now:
		return nil
	case !c.Admin && cluster.LongerLimit(limit, now):
		return cluster.Errorf(cluster.CodeDenied, "time: only administrators may raise a submitted job's time limit, here from %s of %s; lower it, or cancel the job and submit it again", cluster.LimitText(now), old.Label())
	}
	old = mine()
	j := old.Clone()
	spec := *old.Spec
	spec.TimeLimit = limit
	j.Spec, j.OwnLimit = &spec, &limit
	if old.State.Waiting() {
		d.roll.Queues.Leave(j)
		if j.Reason = j.Barred(d.roll.At.Now); j.Reason.Code == "" {
			j.Reason = d.roll.Fleet.WaitsFor(j.Spec)
		}
	}
	d.roll.Change(old, j, command.Change{New: old.State.Waiting()})
	return nil
}
