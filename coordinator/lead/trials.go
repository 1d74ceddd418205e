package lead

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/study"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// trialsEvery is how often the trials of studies are checked.
const trialsEvery = time.Second

// trials records how good trials are when they reach a rung of their study, and
// ends those that its rule or its budget does not let continue, until ctx ends. All
// its criteria are in the state, so that a new leader judges alike.
func (l *Leader) trials(ctx context.Context) error { return (&judges{Leader: l}).run(ctx) }

// judges do a leader's work on the trials of studies.
type judges struct{ *Leader }

func (l *judges) run(ctx context.Context) error {
	marks := map[cluster.JobID]int{} // of studies when last judged
	var state stateSeen
	var running []*cluster.Job
	for wait.Sleep(ctx, trialsEvery) {
		if state.changed(l.fsm) {
			running, _ = l.fsm.Jobs(fsm.Query{States: []cluster.JobState{cluster.JobRunning}, Keep: func(j *cluster.Job) bool {
				return j.Spec.Study.Searches() && j.InArray() && j.Live() != nil
			}})
		}
		l.noteTrials(ctx, running)
		there := map[cluster.JobID]int{}
		for _, j := range running {
			id := j.ArrayJobID
			if _, done := there[id]; done {
				continue
			}
			all, _ := l.fsm.Jobs(fsm.Query{After: id - 1, Until: id + cluster.JobID(j.Spec.Array.Tasks.Len()) - 1, Keep: func(j *cluster.Job) bool { return j.ArrayJobID == id }})
			n := 0
			for _, t := range all {
				if s := t.Seen(); s != nil {
					n += len(s.Marks)
				}
			}
			if was, known := marks[id]; !known || was != n {
				l.judge(ctx, j.Spec.Study, all)
			}
			there[id] = n
			if b := j.Spec.Study.Budget; b > 0 {
				l.holdToBudget(ctx, b, all)
			}
		}
		marks = there
	}
	return ctx.Err()
}

// noteTrials records the reports of running trials that have reached a rung.
func (l *judges) noteTrials(ctx context.Context, running []*cluster.Job) {
	var news []*logv1.AttemptProgress
	for _, j := range running {
		a := j.Live()
		id := cluster.AttemptID{Job: j.ID, No: a.No}
		u, _ := l.useOf(id, a)
		if u.Progress == nil || u.Progress.Seen == nil {
			continue
		}
		var was *study.Seen
		if a.Progress != nil {
			was = a.Progress.Seen
		}
		if j.Spec.Study.News(j.ArrayTaskID, was, u.Progress.Step) {
			news = append(news, conv.NoteProgress(id, u.Progress))
		}
	}
	l.writeDown(ctx, news)
}

// judge ends the running trials of a study that its rule does not let continue.
func (l *judges) judge(ctx context.Context, s *study.Study, all []*cluster.Job) {
	var trials []study.Trial
	for _, j := range all {
		if seen := j.Seen(); seen != nil {
			trials = append(trials, study.Trial{No: j.ArrayTaskID, Seen: seen, Over: j.State != cluster.JobRunning || j.Preempting()})
		}
	}
	if s.Rule == study.RulePBT {
		l.exploit(ctx, s, all, trials)
		return
	}
	field := s.Field(trials)
	for _, j := range all {
		a := j.Live()
		if a == nil || a.Started == 0 || a.Progress == nil {
			continue
		}
		if why := field.Verdict(study.Trial{No: j.ArrayTaskID, Seen: a.Progress.Seen}); why != "" {
			l.endTrial(ctx, j, why)
		}
	}
}

// exploit restarts running trials of a population that do worse than others from
// the state of one that does better.
func (l *judges) exploit(ctx context.Context, s *study.Study, all []*cluster.Job, trials []study.Trial) {
	for _, j := range all {
		a := j.Live()
		if a == nil || a.Started == 0 || a.Progress == nil || a.Preempt != nil || j.Unrequeueable() != "" {
			continue
		}
		from, why, ok := s.Exploit(trials, study.Trial{No: j.ArrayTaskID, Seen: a.Progress.Seen}, j.Copy())
		i := slices.IndexFunc(all, func(o *cluster.Job) bool { return o.ArrayTaskID == from && o.Seen() != nil })
		if !ok || i < 0 {
			continue
		}
		next := s.Explore(j.ArrayTaskID, j.Copy(), from, all[i].Copy())
		_, err := l.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_RequeueJob{RequeueJob: &logv1.RequeueJob{Job: uint64(j.ID), Admin: true, Why: why, Copy: conv.CopyToLog(next)}}})
		switch {
		case err != nil && ctx.Err() == nil:
			l.log.WarnContext(ctx, "cannot let a trial go on from another one", "job", j.ID.String(), "err", err)
		case err == nil:
			l.log.InfoContext(ctx, "trial goes on from another one", "job", j.ID.String(), "reason", why)
		}
	}
}

// holdToBudget ends all trials of a study that has used its budget.
func (l *judges) holdToBudget(ctx context.Context, budget time.Duration, all []*cluster.Job) {
	used, now := time.Duration(0), cluster.TimeOf(l.clock())
	for _, j := range all {
		used += j.GPUTime(now)
	}
	if used < budget {
		return
	}
	cmd := endTasks(all, fmt.Sprintf("the trials have used the %.6g GPU-hours that their study may", budget.Hours()))
	if cmd == nil {
		return
	}
	if _, err := l.prop.One(ctx, cmd); err != nil && ctx.Err() == nil {
		l.log.WarnContext(ctx, "cannot end a study", "array", all[0].ArrayJobID.String(), "err", err)
	}
}

// endTasks returns the command that ends the unfinished ones of some jobs of an
// array, and all that they fold; nil if there are none.
func endTasks(of []*cluster.Job, why string) *logv1.Command {
	var ranks []cluster.Span
	var array *cluster.Job
	for _, j := range of {
		if !j.State.Terminal() && j.Cancel == nil {
			array, ranks = j, cluster.SpanOr(ranks, j.Ranks())
		}
	}
	if array == nil {
		return nil
	}
	tasks, err := cluster.ParseTasks(array.Spec.Array.Tasks.Format(ranks))
	if err != nil {
		return nil // never: they are of an array
	}
	return &logv1.Command{Kind: &logv1.Command_ChangeTasks{ChangeTasks: &logv1.ChangeTasks{
		Array: uint64(array.ArrayJobID), Runs: conv.RunsToLog(&tasks), Change: logv1.TaskChange_TASK_CHANGE_CANCEL, Admin: true, Why: why,
	}}}
}

func (l *judges) endTrial(ctx context.Context, j *cluster.Job, why string) {
	if j.Cancel != nil {
		return
	}
	_, err := l.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_CancelJob{CancelJob: &logv1.CancelJob{Job: uint64(j.ID), Admin: true, Why: why}}})
	switch {
	case err != nil && ctx.Err() == nil:
		l.log.WarnContext(ctx, "cannot end a trial", "job", j.ID.String(), "err", err)
	case err == nil:
		l.log.InfoContext(ctx, "trial ends early", "job", j.ID.String(), "reason", why)
	}
}
