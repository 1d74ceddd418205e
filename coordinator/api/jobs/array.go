package jobs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// named returns the job with an id, or one task of the array with that id. For the
// id of an array alone it returns its first task that has not ended, or its first.
func (c *Jobs) named(id uint64, task *uint32) (*cluster.Job, error) {
	if task == nil {
		if a, ok := c.fsm.Array(cluster.JobID(id)); ok {
			return a.First, nil
		}
		if j, ok := c.fsm.Job(cluster.JobID(id)); ok {
			return j, nil
		}
		return nil, noJob(id)
	}
	a, ok := c.fsm.Array(cluster.JobID(id))
	if !ok {
		if _, there := c.fsm.Job(cluster.JobID(id)); there {
			return nil, cluster.Errorf(cluster.CodeNotFound, "job %d is not an array and has no task %d", id, *task)
		}
		return nil, noJob(id)
	}
	rank, has := a.Spec.Array.Tasks.Rank(*task)
	if !has {
		return nil, cluster.Errorf(cluster.CodeNotFound, "array %d has no task %d; its tasks are %s", id, *task, clip(a.Spec.Array.Tasks.String()))
	}
	j, ok := c.fsm.Job(a.ID + cluster.JobID(rank))
	if !ok {
		return nil, cluster.Errorf(cluster.CodeNotFound, "task %d of array %d ended long ago and was forgotten", *task, id)
	}
	return j, nil
}

// explained is named except for an array as a whole of which most tasks that have
// not ended wait: then it returns the first of those.
func (c *Jobs) explained(id uint64, task *uint32) (*cluster.Job, error) {
	j, err := c.named(id, task)
	a, ok := c.fsm.Array(cluster.JobID(id))
	if err != nil || task != nil || !ok || j.State.Waiting() {
		return j, err
	}
	waiting, live := 0, 0
	for st, n := range c.fsm.ArrayStates(cluster.JobID(id)) {
		switch {
		case st.Waiting():
			waiting += n
		case !st.Terminal():
			live += n
		}
	}
	for rank := 0; waiting > live && rank < a.Spec.Array.Tasks.Len(); rank++ {
		if t, ok := c.fsm.Job(a.ID + cluster.JobID(rank)); ok && t.State.Waiting() {
			return t, nil
		}
	}
	return j, nil
}

// arrayInfo describes the array with an id, of which j is a task; nil if there is
// none.
func (c *Jobs) arrayInfo(id uint64, j *cluster.Job) *apiv1.ArrayInfo {
	if !j.InArray() || uint64(j.ArrayJobID) != id || j.Spec == nil || j.Spec.Array == nil {
		return nil
	}
	m := &apiv1.ArrayInfo{Tasks: j.Spec.Array.Tasks.String(), Size: uint32(j.Spec.Array.Tasks.Len())}
	m.Ended = m.Size
	a, ok := c.fsm.Array(cluster.JobID(id))
	if !ok {
		return m // all of it is only in the history
	}
	m.Ended, m.Completed = uint32(a.Over), uint32(a.Good)
	states := c.fsm.ArrayStates(cluster.JobID(id))
	for st := cluster.JobPending; st <= cluster.JobDeadline; st++ {
		if n := states[st]; n > 0 {
			m.States = append(m.States, &apiv1.ArrayCount{State: st.String(), Count: uint32(n)})
		}
	}
	return m
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}

// throttleDetail says how many tasks of the array of j run and may run, or that others of
// it are before j.
func (c *Jobs) throttleDetail(j *cluster.Job) string {
	a, ok := c.fsm.Array(j.ArrayJobID)
	if !ok {
		return ""
	}
	if a.Live+a.Queued < a.Throttle {
		return fmt.Sprintf("at most %d tasks of array %d may run at once (%%%d), and those before this one wait; berth why %d says for what", a.Throttle, a.ID, a.Throttle, a.ID)
	}
	return fmt.Sprintf("%d tasks of array %d run or are about to, and at most %d may at once (%%%d); berth update %d --throttle N changes that",
		a.Live+a.Queued, a.ID, a.Throttle, a.Throttle, a.ID)
}

// taskWish is a request for one job or for tasks of an array.
type taskWish struct {
	id    uint64
	array bool
	tasks string
}

// wishes returns the requests for ids, some of which may be arrays, and for tasks
// of arrays.
func (s *jobServer) wishes(ids []uint64, tasks []*apiv1.ArrayTasks) []taskWish {
	var out []taskWish
	for _, id := range ids {
		_, isArray := s.c.fsm.Array(cluster.JobID(id))
		out = append(out, taskWish{id: id, array: isArray})
	}
	for _, t := range tasks {
		out = append(out, taskWish{t.Array, true, t.Tasks})
	}
	return out
}

// changeCommand returns the log command for an array, without the action, and the
// ranks of its tasks that it concerns: those of the list that exist.
func (s *jobServer) changeCommand(who authorize.Caller, w taskWish) (*logv1.ChangeTasks, []cluster.Span, error) {
	a, ok := s.c.fsm.Array(cluster.JobID(w.id))
	if !ok {
		if _, there := s.c.fsm.Job(cluster.JobID(w.id)); there && w.tasks != "" {
			return nil, nil, cluster.Errorf(cluster.CodeNotFound, "job %d is not an array and has no tasks", w.id)
		}
		return nil, nil, noJob(w.id)
	}
	if err := s.c.auth.May(who, authorize.Cancel, &a.Owner); err != nil {
		return nil, nil, err
	}
	c := &logv1.ChangeTasks{Array: w.id, By: uint32(who.UID), Admin: a.Owner.UID != who.UID}
	tasks := &a.Spec.Array.Tasks
	if w.tasks == "" {
		return c, tasks.All(), nil
	}
	t, err := cluster.ParseTasks(w.tasks)
	if err != nil {
		return nil, nil, err
	}
	ranks := tasks.In(&t)
	if len(ranks) == 0 {
		return nil, nil, cluster.Errorf(cluster.CodeNotFound, "array %d has none of the tasks %s; its tasks are %s", w.id, clip(t.String()), clip(tasks.String()))
	}
	some := tasks.Select(ranks)
	c.Runs = conv.RunsToLog(&some)
	return c, ranks, nil
}

// asked collects the commands of one call. Requests for tasks of one array are one
// command, however often they are named: each costs as much as its array has jobs.
type asked struct {
	cmds []*logv1.Command
	of   map[uint64]int // commands by array
	want []wanted
}

// wanted is what answers one wish: a command and, for an array, ranks.
type wanted struct {
	cmd   int
	ranks []cluster.Span
}

// add adds a command for a job.
func (a *asked) add(cmd *logv1.Command) {
	a.want = append(a.want, wanted{cmd: len(a.cmds)})
	a.cmds = append(a.cmds, cmd)
}

// addTasks adds a command for tasks of an array, all if there are no ranks.
func (a *asked) addTasks(c *logv1.ChangeTasks, ranks []cluster.Span) {
	at, ok := a.of[c.Array]
	if !ok {
		if a.of == nil {
			a.of = map[uint64]int{}
		}
		at = len(a.cmds)
		a.of[c.Array] = at
		a.cmds = append(a.cmds, &logv1.Command{Kind: &logv1.Command_ChangeTasks{ChangeTasks: c}})
	}
	a.want = append(a.want, wanted{at, ranks})
}

// merge makes the commands cover everything requested of their arrays.
func (a *asked) merge(tasksOf func(array uint64) *cluster.Tasks) {
	parts := map[int][][]cluster.Span{}
	for _, w := range a.want {
		if w.ranks != nil {
			parts[w.cmd] = append(parts[w.cmd], w.ranks)
		}
	}
	for at, ranks := range parts {
		if len(ranks) < 2 {
			continue
		}
		c := a.cmds[at].GetChangeTasks()
		tasks := tasksOf(c.Array)
		all := cluster.SpanOr(slices.Concat(ranks...), nil)
		c.Runs = nil
		if tasks != nil && cluster.SpanLen(all) < tasks.Len() {
			some := tasks.Select(all)
			c.Runs = conv.RunsToLog(&some)
		}
	}
}

// tasksOf returns the tasks of an array, nil if it is gone.
func (s *jobServer) tasksOf(array uint64) *cluster.Tasks {
	a, ok := s.c.fsm.Array(cluster.JobID(array))
	if !ok {
		return nil
	}
	return &a.Spec.Array.Tasks
}

// counts returns the outcome for the tasks of one wish.
func (w *wanted) counts(r *fsm.Result) fsm.TaskCounts {
	if w.ranks == nil {
		return r.Tasks
	}
	some := r.Tasks
	some.Done = cluster.SpanLen(cluster.SpanAnd(w.ranks, r.Tasks.DoneRanks))
	if some.Refused = cluster.SpanLen(cluster.SpanAnd(w.ranks, r.Tasks.RefusedRanks)); some.Refused == 0 {
		some.Why = nil
	}
	some.Finished = cluster.SpanLen(w.ranks) - some.Done - some.Refused
	return some
}

var taskChanges = map[apiv1.JobAction]logv1.TaskChange{
	apiv1.JobAction_JOB_ACTION_HOLD:         logv1.TaskChange_TASK_CHANGE_HOLD,
	apiv1.JobAction_JOB_ACTION_RELEASE:      logv1.TaskChange_TASK_CHANGE_RELEASE,
	apiv1.JobAction_JOB_ACTION_REQUEUE:      logv1.TaskChange_TASK_CHANGE_REQUEUE,
	apiv1.JobAction_JOB_ACTION_REQUEUE_HOLD: logv1.TaskChange_TASK_CHANGE_REQUEUE_HOLD,
	apiv1.JobAction_JOB_ACTION_THROTTLE:     logv1.TaskChange_TASK_CHANGE_THROTTLE,
}

func (s *jobServer) controlWish(who authorize.Caller, req *apiv1.ControlJobsRequest, w taskWish) (*logv1.Command, []cluster.Span, error) {
	if !w.array {
		j, ok := s.c.fsm.Job(cluster.JobID(w.id))
		if !ok {
			return nil, nil, noJob(w.id)
		}
		if req.Action == apiv1.JobAction_JOB_ACTION_THROTTLE {
			return nil, nil, cluster.Errorf(cluster.CodeConflict, "job %d is not an array", w.id)
		}
		if err := s.c.auth.May(who, authorize.Cancel, &j.Owner); err != nil {
			return nil, nil, err
		}
		switch req.Action {
		case apiv1.JobAction_JOB_ACTION_REQUEUE, apiv1.JobAction_JOB_ACTION_REQUEUE_HOLD:
			if j.Spec.Deadline > 0 && j.Live() != nil {
				return nil, nil, cluster.Errorf(cluster.CodeConflict, "job %s was promised its deadline and cannot be requeued; cancel it instead", j.Label())
			}
		}
		return controlCommand(who, req, w.id), nil, nil
	}
	if req.Action == apiv1.JobAction_JOB_ACTION_THROTTLE && (req.Throttle > cluster.MaxThrottle || w.tasks != "") {
		return nil, nil, cluster.Errorf(cluster.CodeInvalid, "throttle: %d of tasks %q; want 0 to %d, for a whole array", req.Throttle, w.tasks, cluster.MaxThrottle)
	}
	a, _ := s.c.fsm.Array(cluster.JobID(w.id))
	scales := req.Action == apiv1.JobAction_JOB_ACTION_THROTTLE && a.Spec != nil && a.Spec.Service != nil
	if scales && req.Throttle == 0 && a.Spec.Service.Min > 0 {
		return nil, nil, cluster.Errorf(cluster.CodeInvalid, "throttle: a service of at least %d replicas cannot have none; berth service delete ends it", a.Spec.Service.Min)
	}
	c, ranks, err := s.changeCommand(who, w)
	if err != nil {
		return nil, nil, err
	}
	if a.Spec != nil && a.Spec.Deadline > 0 && req.Action != apiv1.JobAction_JOB_ACTION_RELEASE {
		return nil, nil, cluster.Errorf(cluster.CodeConflict, "the tasks of array %d were promised their deadline, so that they cannot be held, requeued or limited; cancel them instead", w.id)
	}
	c.Change, c.Throttle, c.Scales = taskChanges[req.Action], req.Throttle, scales
	c.Admin = who.Admin && (!req.AsUser || c.Change == logv1.TaskChange_TASK_CHANGE_RELEASE)
	return &logv1.Command{Kind: &logv1.Command_ChangeTasks{ChangeTasks: c}}, ranks, nil
}

// tellTasks describes the outcome for tasks. If nothing was done it says why.
func tellTasks(res *apiv1.ControlResult, cmd *logv1.Command, r *fsm.Result) {
	res.Count = uint32(r.Tasks.Done)
	switch {
	case r.Err != nil:
		blame(res, r.Err)
	case cmd.GetChangeTasks() == nil || r.Tasks.Done > 0:
	case r.Tasks.Why != nil:
		blame(res, r.Tasks.Why)
	default:
		blame(res, cluster.Errorf(cluster.CodeConflict, "all of these tasks of array %d have ended", res.Id))
	}
}

// codeOf returns the code of an error, that of internal errors for what users may
// not see.
func codeOf(err error) cluster.Code {
	if e, ok := errors.AsType[*cluster.Error](err); ok {
		return e.Code
	}
	return cluster.CodeInternal
}

// reasonNow returns why a job waits if that is another reason than the stored one:
// its array, nodes that are powered up for it, or the cut of a GPU.
func (c *Jobs) reasonNow(j *cluster.Job) cluster.Reason {
	if j.InArray() && j.State == cluster.JobPending {
		r := c.fsm.Barred(j, cluster.TimeOf(c.clock()))
		switch {
		case r.Code == cluster.ReasonBeginTime && j.Spec.Service != nil:
			r.Detail = restartDetail(j)
			return r
		case r.Code == cluster.ReasonArrayLimit || r.Code == cluster.ReasonStandby:
			return r
		}
	}
	if !j.State.Waiting() {
		return cluster.Reason{}
	}
	if r := waking(c.lead.WaitsFor(j.ID)); r.Code != "" {
		return r
	}
	return c.cuts(j.ID)
}

// restartDetail says how the last attempt of a replica ended, and when the next one
// begins; "" for one that never ran.
func restartDetail(j *cluster.Job) string {
	a := j.Last()
	if a == nil {
		return ""
	}
	text, exit := fmt.Sprintf("attempt %d ended as %s", a.No, a.State), ""
	switch {
	case a.Exit != nil && a.Exit.Signal != 0:
		exit = fmt.Sprintf("signal %d", a.Exit.Signal)
	case a.Exit != nil:
		exit = fmt.Sprintf("exit code %d", a.Exit.Code)
	}
	if exit != "" && !strings.Contains(a.Reason.Detail, exit) {
		text += ", " + exit
	}
	if a.Reason.Code != "" && a.Reason.Code != cluster.ReasonNone {
		text += " (" + a.Reason.String() + ")"
	}
	return text + "; the next one begins at " + j.DependAt.Std().UTC().Format(time.RFC3339)
}

// throttleOf returns how many tasks of the array of j may run at once now.
func (c *Jobs) throttleOf(j *cluster.Job) int {
	if !j.InArray() {
		return 0
	}
	return c.fsm.Throttle(j.ArrayJobID)
}
