package fsm

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/jobs"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// changeTasks does one thing to tasks of an array.
func (s *State) changeTasks(index uint64, c *logv1.ChangeTasks) Result {
	a := s.roll.Arrays[cluster.JobID(c.Array)]
	if a == nil {
		return refuse(cluster.CodeNotFound, "job array %d is not known", c.Array)
	}
	ranks := a.Spec.Array.Tasks.All()
	if len(c.Runs) > 0 {
		some, err := conv.RunsFromLog(c.Runs)
		if err != nil {
			return refuse(cluster.CodeInvalid, "%v", err)
		}
		if ranks = a.Spec.Array.Tasks.In(&some); len(ranks) == 0 {
			return refuse(cluster.CodeNotFound, "array %d has none of the tasks %s; its tasks are %s", c.Array, jobs.Short(some.String()), jobs.Short(a.Spec.Array.Tasks.String()))
		}
	}
	if c.Change == logv1.TaskChange_TASK_CHANGE_THROTTLE {
		return s.throttle(index, a, c)
	}
	r := Result{}
	left := cluster.SpanLen(ranks)
	for _, old := range s.roll.Overlapping(a, ranks) {
		part := cluster.SpanAnd(old.Ranks(), ranks)
		n := cluster.SpanLen(part)
		left -= n
		switch err, over := s.changeTask(index, old, part, c); {
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

// changeTask does so to those tasks of a job that are asked for.
func (s *State) changeTask(index uint64, old *cluster.Job, part []cluster.Span, c *logv1.ChangeTasks) (err *cluster.Error, over bool) {
	if old.State.Terminal() {
		return nil, true
	}
	mine := func() *cluster.Job {
		if old.Fold == nil {
			return old
		}
		return s.roll.Split(old, part)
	}
	switch c.Change {
	case logv1.TaskChange_TASK_CHANGE_CANCEL:
		s.cancelJob(index, mine(), cluster.UID(c.By), c.Admin)
	case logv1.TaskChange_TASK_CHANGE_HOLD, logv1.TaskChange_TASK_CHANGE_RELEASE:
		h := &logv1.HoldJob{By: c.By, Admin: c.Admin, Release: c.Change == logv1.TaskChange_TASK_CHANGE_RELEASE}
		if err := unholdable(old, h); err != nil {
			return err, false
		}
		if holdIsNews(old, h) {
			s.holdJob(index, mine(), h)
		}
	case logv1.TaskChange_TASK_CHANGE_REQUEUE, logv1.TaskChange_TASK_CHANGE_REQUEUE_HOLD:
		if why := old.Unrequeueable(); why != "" {
			return cluster.Errorf(cluster.CodeConflict, "job %s cannot be requeued: %s", old.Label(), why), false
		}
		s.requeueJob(index, old, &logv1.RequeueJob{By: c.By, Admin: c.Admin, Hold: c.Change == logv1.TaskChange_TASK_CHANGE_REQUEUE_HOLD})
	case logv1.TaskChange_TASK_CHANGE_TIME_LIMIT:
		return s.limitTask(index, old, mine, c), false
	default:
		return cluster.Errorf(cluster.CodeInvalid, "tasks cannot be changed by %d", c.Change), false
	}
	return nil, false
}

// throttle sets how many tasks of an array may run at once. Those that run go on;
// who stands in a queue waits apart from then on.
func (s *State) throttle(index uint64, a *jobs.Array, c *logv1.ChangeTasks) Result {
	if c.Throttle > cluster.MaxThrottle {
		return refuse(cluster.CodeInvalid, "throttle: %d is outside 0 to %d", c.Throttle, cluster.MaxThrottle)
	}
	r := Result{}
	r.Tasks.Done = a.Len() - a.Over.N
	if a.Done() {
		return refuse(cluster.CodeConflict, "array %d has ended", a.ID)
	}
	if int(c.Throttle) == a.Throttle {
		return r
	}
	a.Throttle = int(c.Throttle)
	s.roll.Digests.Arrays.Touch(a.ID)
	for _, old := range s.roll.Overlapping(a, a.Spec.Array.Tasks.All()) {
		if !old.State.Waiting() {
			continue
		}
		j := old.Clone()
		s.roll.Queues.Leave(j)
		j.State, j.Revision = cluster.JobPending, index
		if j.Reason = j.Barred(s.at.Now); j.Reason.Code == "" {
			j.Reason = s.fleet.WaitsFor(j.Spec)
		}
		s.roll.Change(old, j, Change{New: true})
	}
	return r
}
