package fsm

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/fsm/jobs"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

var _ = draws.Fixed()

// array is a few tasks whose numbers meet those of others.
func (w *world) array() *cluster.Array {
	text := rapid.SampledFrom([]string{"0-3", "1-4", "0-6:2", "1,2,5-7", "7", "2-9%2", "0-5%1", "3-8%3"}).Draw(w.t, "tasks")
	a, err := cluster.ParseArray(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// on makes a dependency on a job, an array, or a task.
func (w *world) on(d *cluster.Dependency) {
	d.Job = 99
	j, ok := w.pick()
	if !ok {
		return
	}
	if d.Job = w.one(j); j.InArray() && w.draw("whole", 3) > 0 {
		d.Job = j.ArrayJobID
		if w.draw("one", 3) == 0 && d.Kind != cluster.AfterCorr {
			d.OneTask, d.Task = true, uint32(w.draw("task", 9))
		}
	}
	if d.Kind == cluster.After && w.draw("later", 3) == 0 {
		d.Delay = cluster.MaxDependDelay / 365 / 24 / 60 * 3
	}
}

// one is the id of a job, or of any of the tasks that it folds.
func (w *world) one(j *cluster.Job) cluster.JobID {
	if j.Fold == nil {
		return j.ID
	}
	return j.ArrayJobID + cluster.JobID(cluster.SpanRank(j.Fold, w.draw("which", j.Count())))
}

func changeCmd(array cluster.JobID, tasks string, change logv1.TaskChange) *logv1.ChangeTasks {
	c := &logv1.ChangeTasks{Array: uint64(array), Change: change, By: 1000}
	if tasks != "" {
		t, err := cluster.ParseTasks(tasks)
		if err != nil {
			panic(err)
		}
		c.Runs = conv.RunsToLog(&t)
	}
	return c
}

func tasksCmd(c *logv1.ChangeTasks) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_ChangeTasks{ChangeTasks: c}}
}

func (w *world) changeTasks() *logv1.Command {
	jobs, _ := w.f.Jobs(Query{Keep: func(j *cluster.Job) bool { return j.InArray() }})
	id := cluster.JobID(98)
	if len(jobs) > 0 {
		id = jobs[w.draw("array of", len(jobs))].ArrayJobID
	}
	c := changeCmd(id, rapid.SampledFrom([]string{"", "", "1-3", "0-8:2", "2", "5-9", "77"}).Draw(w.t, "some"), rapid.SampledFrom([]logv1.TaskChange{
		logv1.TaskChange_TASK_CHANGE_CANCEL, logv1.TaskChange_TASK_CHANGE_HOLD, logv1.TaskChange_TASK_CHANGE_RELEASE, logv1.TaskChange_TASK_CHANGE_RELEASE,
		logv1.TaskChange_TASK_CHANGE_REQUEUE, logv1.TaskChange_TASK_CHANGE_REQUEUE_HOLD, logv1.TaskChange_TASK_CHANGE_THROTTLE, logv1.TaskChange_TASK_CHANGE_TIME_LIMIT, 0,
	}).Draw(w.t, "change"))
	c.By = uint32(w.draw("by", 2))
	c.Admin, c.Throttle = c.By == 0, uint32(w.draw("throttle", 4))
	c.TimeLimitUs = int64(w.draw("limit", 4)) * 3600e6
	return tasksCmd(c)
}

// checkShown: the planner is shown every job that nothing bars and, of a
// throttled array, as many tasks as may run beside those that do.
func checkShown(s *State, waiting []*cluster.Job) error {
	shown, free := map[cluster.JobID]bool{}, map[cluster.JobID]int{}
	for i, j := range waiting {
		if i > 0 && waiting[i-1].ID >= j.ID || j.Fold != nil || !j.State.Waiting() {
			return fmt.Errorf("job %s is shown in place %d", j.Label(), i)
		}
		shown[j.ID] = true
	}
	want := 0
	for _, j := range s.roll.InStates(cluster.JobPending, cluster.JobQueued) {
		switch {
		case j.Barred(s.at.Now).Code != "":
		case j.InArray() && s.roll.Arrays[j.ArrayJobID].Throttle > 0 && j.State == cluster.JobPending:
			free[j.ArrayJobID] += j.Count()
		default:
			for _, sp := range j.Ranks() {
				for k := sp.From; k <= sp.To; k++ {
					want++
					if !j.InArray() && !shown[j.ID] || j.InArray() && !shown[j.ArrayJobID+cluster.JobID(k)] {
						return fmt.Errorf("job %s is not shown to the planner", j.Label())
					}
				}
			}
		}
	}
	for id, n := range free {
		want += min(n, s.roll.Arrays[id].Room())
	}
	if want != len(waiting) {
		return fmt.Errorf("%d jobs are shown to the planner, want %d", len(waiting), want)
	}
	return nil
}

// checkOpen: what a job still waits for is there and may yet come.
func checkOpen(s *State, j *cluster.Job, d cluster.Dependency) error {
	b := s.roll.Arrays[d.Job]
	if b != nil && !d.OneTask && d.Kind == cluster.AfterCorr && j.Spec.Array != nil {
		for _, sp := range j.Ranks() {
			for k := sp.From; k <= sp.To; k++ {
				task := j.Spec.Array.Tasks.At(k)
				if rank, has := b.Spec.Array.Tasks.Rank(task); !has || b.Over.Has(rank) {
					return fmt.Errorf("task %d of job %s waits for the one of array %d, which ended: %t", task, j.Label(), d.Job, has)
				}
			}
		}
		return nil
	}
	if b != nil && !d.OneTask {
		if st := b.Standing(d.Kind); st != cluster.DependOpen {
			return fmt.Errorf("job %s waits for %s, which is %s", j.Label(), d, st)
		}
		return nil
	}
	id, has := d.Job, true
	if d.OneTask && b != nil {
		rank := 0
		rank, has = b.Spec.Array.Tasks.Rank(d.Task)
		id += cluster.JobID(rank)
	}
	on := s.roll.Job(id)
	if on == nil || !has || d.OneTask && b == nil {
		return fmt.Errorf("job %s waits for %s, which is gone", j.Label(), d)
	}
	if st := d.Of(on.State, len(on.Attempts) > 0); st != cluster.DependOpen {
		return fmt.Errorf("job %s waits for %s, which is %s", j.Label(), d, st)
	}
	return nil
}

// checkArrays: every task of an array is in one job until it ends, once; and no
// more of them run than may.
func (w *watcher) checkArrays(s *State, _ []*cluster.Job) error {
	if err := jobs.CheckArrays(s.roll); err != nil {
		return err
	}
	now := map[cluster.JobID]*jobs.Array{}
	for id, a := range s.roll.Arrays {
		was := w.arrays[id]
		now[id] = a.Clone()
		if was == nil {
			continue
		}
		for k := range a.Len() {
			if was.Over.Has(k) && (!a.Over.Has(k) || was.Good.Has(k) != a.Good.Has(k)) {
				return fmt.Errorf("rank %d of array %d ended twice", k, id)
			}
		}
		if a.Throttle > 0 && a.Throttle == was.Throttle && a.Live > max(a.Throttle, was.Live) {
			return fmt.Errorf("%d tasks of array %d run, %d may", a.Live, id, a.Throttle)
		}
	}
	w.arrays = now
	return checkArrayIndexes(s)
}

// checkArrayIndexes: what is derived of arrays is what a new count gives.
func checkArrayIndexes(s *State) error {
	var ids []cluster.JobID
	for id := range s.roll.Arrays {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	if !slices.Equal(ids, s.roll.ArrayIDs) {
		return fmt.Errorf("arrays %v, index %v", ids, s.roll.ArrayIDs)
	}
	services := slices.DeleteFunc(slices.Clone(ids), func(id cluster.JobID) bool { return s.roll.Arrays[id].Spec.Service == nil })
	if !slices.Equal(services, s.roll.ServiceIDs) {
		return fmt.Errorf("services %v, index %v", services, s.roll.ServiceIDs)
	}
	var folded [len(s.roll.Folded)]int
	type count struct {
		Entries, Live, Queued, Begun int
		ByState                      [cluster.JobDeadline + 1]int
	}
	counts := map[cluster.JobID]*count{}
	folds := map[cluster.JobID][]cluster.JobID{}
	for _, j := range s.roll.Jobs.List() {
		folded[j.State] += j.Count() - 1
		if !j.InArray() {
			continue
		}
		c := counts[j.ArrayJobID]
		if c == nil {
			c = &count{}
			counts[j.ArrayJobID] = c
		}
		c.Entries++
		c.ByState[j.State] += j.Count()
		if a := s.roll.Arrays[j.ArrayJobID]; a != nil && a.Owner != j.Owner {
			return fmt.Errorf("array %d of %v is %v's", a.ID, j.Owner, a.Owner)
		}
		if j.State.Live() {
			c.Live++
		}
		if j.State == cluster.JobQueued {
			c.Queued++
		}
		if !j.State.Terminal() && len(j.Attempts) > 0 {
			c.Begun++
		}
		if j.Fold != nil {
			folds[j.ArrayJobID] = append(folds[j.ArrayJobID], j.ID)
		}
	}
	if folded != s.roll.Folded {
		return fmt.Errorf("folded tasks by state %v, want %v", s.roll.Folded, folded)
	}
	for id, a := range s.roll.Arrays {
		have := &count{a.Entries, a.Live, a.Queued, a.Begun, a.ByState}
		if d := gocmp.Diff(counts[id], have); d != "" {
			return fmt.Errorf("array %d: %s", id, d)
		}
		slices.Sort(a.Folds)
		if !slices.Equal(a.Folds, folds[id]) {
			return fmt.Errorf("array %d folds %v, want %v", id, a.Folds, folds[id])
		}
	}
	return nil
}

// sameArrays: replicas know the same of arrays.
func sameArrays(a, b *State) error {
	return cmp.Or(checkArrayIndexes(a), checkArrayIndexes(b), func() error {
		for id, x := range a.roll.Arrays {
			y := b.roll.Arrays[id]
			if y == nil || x.Throttle != y.Throttle || x.Named != y.Named || !reflect.DeepEqual(x.Over, y.Over) || !reflect.DeepEqual(x.Good, y.Good) {
				return fmt.Errorf("array %d: %+v and %+v", id, x, y)
			}
		}
		return nil
	}())
}

// TestForgottenTasksAreFinished: of tasks that ended and were forgotten whoever changes
// them hears what is heard of those that ended: they are over.
func TestForgottenTasksAreFinished(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(initCmd("c1", 2))
	s := spec(1)
	s.Array, _ = cluster.ParseArray("0-5")
	id := m.submit(s)
	for k := range cluster.JobID(4) {
		m.must(cancelCmd(id+k, 0))
	}
	if _, there := m.f.Job(id + 1); there {
		t.Fatal("task 1 is not forgotten")
	}
	for tasks, want := range map[string]TaskCounts{"0-1": {Finished: 2}, "1,2": {Finished: 2}, "": {Done: 2, Finished: 4}, "3-4": {Done: 1, Finished: 1}} {
		r := m.must(tasksCmd(changeCmd(id, tasks, logv1.TaskChange_TASK_CHANGE_HOLD)))
		if r.Tasks.Done != want.Done || r.Tasks.Finished != want.Finished || r.Tasks.Refused != 0 {
			t.Errorf("tasks %q: %+v, want %+v", tasks, r.Tasks, want)
		}
	}
}

// TestTasksBeyondTheThrottle wait for their array although fewer of it run than may: those
// before them wait for something else.
func TestTasksBeyondTheThrottle(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(registerCmd(node("n1", "b1", 3)))
	s := spec(1)
	s.Array, _ = cluster.ParseArray("0-5%3")
	id := m.submit(s)
	barred := func(j cluster.JobID) cluster.ReasonCode { return m.f.Barred(m.job(j), m.f.Now()).Code }
	if got := barred(id + 5); got != "" {
		t.Errorf("all are one job, some of which may start: %q", got)
	}
	m.start(id, share1("n1-g0", 8000, 300))
	waits := func(j cluster.JobID) dispatch.QueueMove {
		return dispatch.QueueMove{Job: j, Reason: cluster.ReasonTenantCells}
	}
	m.must(planCmd(dispatch.Plan{Moves: []dispatch.QueueMove{waits(id + 1), waits(id + 2)}}))
	if next, last := barred(id+2), barred(id+3); next != "" || last != cluster.ReasonArrayLimit {
		t.Errorf("the next task: %q, want none; the one after it: %q, want JobArrayTaskLimit", next, last)
	}
	m.must(holdCmd(id+1, 1, false))
	m.must(holdCmd(id+3, 1, false))
	m.must(holdCmd(id+3, 1, true))
	if next, last := barred(id+3), barred(id+4); next != "" || last != cluster.ReasonArrayLimit {
		t.Errorf("when another is held, the next task: %q, want none; the one after it: %q, want JobArrayTaskLimit", next, last)
	}
}
