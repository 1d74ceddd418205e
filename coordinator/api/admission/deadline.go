package admission

import (
	"context"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// deadline turns a duration into a deadline, and refuses one that has passed.
func deadline(e *Entry) error {
	s, now := e.Job.Spec, e.Now
	if s.DeadlineIn > 0 {
		s.Deadline, s.DeadlineIn = now.Add(s.DeadlineIn), 0
	}
	if s.Deadline > 0 && s.Deadline <= now {
		return cluster.Errorf(cluster.CodeInvalid, "deadline: %s has passed; it is %s", s.Deadline.Std().UTC().Format(time.RFC3339), now.Std().UTC().Format(time.RFC3339))
	}
	return nil
}

// energy makes a job wait that may wait for cheaper power.
func (a *Admission) energy(e *Entry) error {
	s := e.Job.Spec
	if s.Defer > 0 && s.Begin > 0 {
		return cluster.Errorf(cluster.CodeInvalid, "defer and begin: a job that may wait for cheaper power begins when that is cheapest; give only one of them")
	}
	if w := a.lead.Defer(e.Job, e.Now); w != "" {
		e.warn(w)
	}
	return nil
}

// admitted proposes cmd, which submits jobs, if their deadlines can be met along
// with those already promised. Promises are made one at a time: each is checked,
// and in the state, before the next one is. What jobs of elastic size are promised
// is told with the answer.
func (a *Admission) admitted(ctx context.Context, e *Entry, jobs []*cluster.Job, cmd *logv1.SubmitJob) (fsm.Result, error) {
	if slices.ContainsFunc(jobs, func(j *cluster.Job) bool { return j.Spec.Deadline > 0 }) {
		done, err := a.Promising(ctx)
		if err != nil {
			return fsm.Result{}, err
		}
		defer done()
		if e.Promises, err = a.Promise(jobs, e.Now); err != nil {
			return fsm.Result{}, err
		}
	}
	return a.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_SubmitJob{SubmitJob: cmd}})
}

// Promising waits until no other promise is being made. The next one waits until
// done is called.
func (a *Admission) Promising(ctx context.Context) (done func(), err error) {
	select {
	case a.promising <- struct{}{}:
		return func() { <-a.promising }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// unnamed is the id of an array that is not submitted yet.
const unnamed = 1 << 61

// tasksOf returns jobs with each task of their arrays on its own.
func tasksOf(jobs []*cluster.Job) []*cluster.Job {
	var out []*cluster.Job
	for _, j := range jobs {
		ranks := j.Fold
		if j.Spec.Array != nil && j.ID == 0 {
			as := *j
			as.ArrayJobID = unnamed
			j, ranks = &as, []cluster.Span{{To: j.Spec.Len() - 1}}
		}
		if ranks == nil {
			out = append(out, j)
		}
		for k := range cluster.SpanLen(ranks) {
			out = append(out, j.Task(cluster.SpanRank(ranks, k)))
		}
	}
	return out
}

// Promise refuses jobs whose deadlines cannot be met, and says what those of elastic
// size, on several nodes, or on whole ones have for theirs. Each task of an array is promised its own, or none is. A job
// that waits already is promised it anew.
func (a *Admission) Promise(jobs []*cluster.Job, now cluster.Time) (words []string, err error) {
	jobs = tasksOf(jobs)
	snap, _ := a.fsm.SchedulerSnapshotAt(now)
	snap.Waiting = slices.DeleteFunc(slices.Clone(snap.Waiting), func(j *cluster.Job) bool {
		return slices.ContainsFunc(jobs, func(n *cluster.Job) bool { return n.ID == j.ID })
	})
	for i, j := range jobs { // they have no ids yet; any in order will do
		if j.ID == 0 || j.ArrayJobID == unnamed {
			j.ID = cluster.JobID(1<<62 + i)
			defer func() { j.ID = 0 }()
		}
	}
	promises, err := site.Admit(snap, jobs, &a.lead.Scheduling().Site)
	for _, j := range jobs {
		if c, ok := promises[j]; ok && j.ArrayJobID == 0 && c.Words(j) != "" {
			words = append(words, c.Words(j))
		}
	}
	return words, err
}
