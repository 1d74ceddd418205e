package fsm

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// plainTask is one task of an array to who knows no folds: each is told of by
// itself.
type plainTask struct {
	number   int
	state    cluster.JobState // JobStarting stands for all that are live
	held     bool
	byAdmin  bool
	attempts int
	asked    string // "cancel", "requeue", or "requeue and hold", while it is live
}

func (p *plainTask) waits() bool { return p.state.Waiting() }

// plainArray is an array, task by task.
type plainArray struct {
	t        *rapid.T
	m        *machine
	id       cluster.JobID
	throttle int
	tasks    []*plainTask
	cards    map[cluster.GPUID]int // which task lies there, by its place plus one
}

func (p *plainArray) draw(what string, n int) int { return rapid.IntRange(0, n-1).Draw(p.t, what) }

func (p *plainArray) count(is func(*plainTask) bool) (n int) {
	for _, t := range p.tasks {
		if is(t) {
			n++
		}
	}
	return n
}

func (p *plainArray) live() int {
	return p.count(func(t *plainTask) bool { return t.state == cluster.JobStarting })
}

func (p *plainArray) queued() int {
	return p.count(func(t *plainTask) bool { return t.state == cluster.JobQueued })
}

// may reports whether a task may start: nobody holds it, and as many run as may,
// those in queues having their places.
func (p *plainArray) may(t *plainTask) bool {
	switch {
	case !t.waits() || t.held:
		return false
	case p.throttle == 0:
		return true
	case t.state == cluster.JobQueued:
		return p.live() < p.throttle
	}
	return p.live()+p.queued() < p.throttle
}

// check holds each task against the machine, and what planners are shown.
func (p *plainArray) check(what string) {
	for k, t := range p.tasks {
		j := p.m.job(p.id + cluster.JobID(k))
		st := j.State
		if st.Live() {
			st = cluster.JobStarting
		}
		if st != t.state || (j.Hold != nil) != t.held || t.held && j.Hold.Admin != t.byAdmin || len(j.Attempts) != t.attempts || int(j.ArrayTaskID) != t.number || j.ArrayJobID != p.id {
			p.t.Fatalf("%s: task %d is %s, held %+v, with %d attempts; task by task it is %+v", what, j.ArrayTaskID, j.State, j.Hold, len(j.Attempts), *t)
		}
	}
	shown := map[cluster.JobID]bool{}
	for _, j := range p.m.f.SchedulerSnapshot().Waiting {
		if j.ArrayJobID == p.id {
			shown[j.ID] = true
		}
	}
	room := len(p.tasks)
	if p.throttle > 0 {
		room = max(0, p.throttle-p.live()-p.queued())
	}
	pending := p.count(func(t *plainTask) bool { return t.state == cluster.JobPending && !t.held })
	if want := min(room, pending) + p.queued(); len(shown) != want {
		p.t.Fatalf("%s: %d tasks are shown to the planner, want %d; %%%d, %d run, %d are queued, %d wait", what, len(shown), want, p.throttle, p.live(), p.queued(), pending)
	}
	for k, t := range p.tasks {
		if got := shown[p.id+cluster.JobID(k)]; got && (!t.waits() || t.held) || !got && t.state == cluster.JobQueued {
			p.t.Fatalf("%s: task %d, %+v, is shown to the planner: %t", what, t.number, *t, got)
		}
	}
}

// some draws which tasks are meant, as a user writes it, and those of them that
// there are.
func (p *plainArray) some() (text string, chosen []*plainTask) {
	text = rapid.SampledFrom([]string{"", "", "1-3", "0-8:2", "2", "5-9", "4,6"}).Draw(p.t, "tasks")
	if text == "" {
		return text, p.tasks
	}
	set, err := cluster.ParseTasks(text)
	if err != nil {
		p.t.Fatalf("%v", err)
	}
	for _, t := range p.tasks {
		if _, has := set.Rank(uint32(t.number)); has {
			chosen = append(chosen, t)
		}
	}
	return text, chosen
}

// change is what one command makes of tasks, and of how many of them.
func (p *plainArray) change() string {
	text, chosen := p.some()
	kind := rapid.SampledFrom([]logv1.TaskChange{
		logv1.TaskChange_TASK_CHANGE_CANCEL, logv1.TaskChange_TASK_CHANGE_HOLD, logv1.TaskChange_TASK_CHANGE_HOLD, logv1.TaskChange_TASK_CHANGE_RELEASE, logv1.TaskChange_TASK_CHANGE_RELEASE,
		logv1.TaskChange_TASK_CHANGE_REQUEUE, logv1.TaskChange_TASK_CHANGE_REQUEUE_HOLD,
	}).Draw(p.t, "change")
	if kind == logv1.TaskChange_TASK_CHANGE_CANCEL && text == "" {
		text, chosen = "2", nil
		for _, t := range p.tasks {
			if t.number == 2 {
				chosen = append(chosen, t)
			}
		}
	}
	c := changeCmd(p.id, text, kind)
	c.Admin = p.draw("admin", 2) == 0
	r := p.m.do(tasksCmd(c))[0]
	if len(chosen) == 0 {
		if r.Err == nil || r.Err.Code != cluster.CodeNotFound {
			p.t.Fatalf("%s of tasks %s that there are none of: %v", kind, text, r.Err)
		}
		return "none of them"
	}
	done, finished, refused := 0, 0, 0
	for _, t := range chosen {
		switch {
		case t.state.Terminal():
			finished++
		case p.apply(t, kind, c.Admin):
			done++
		default:
			refused++
		}
	}
	if r.Err != nil || r.Tasks.Done != done || r.Tasks.Finished != finished || r.Tasks.Refused != refused || (r.Tasks.Why != nil) != (refused > 0) {
		p.t.Fatalf("%s of tasks %q: %v, %+v; task by task %d are done, %d had ended, %d are refused", kind, text, r.Err, r.Tasks, done, finished, refused)
	}
	return kind.String()
}

// apply does it to one task, and reports whether that is allowed.
func (p *plainArray) apply(t *plainTask, kind logv1.TaskChange, admin bool) bool {
	switch kind {
	case logv1.TaskChange_TASK_CHANGE_CANCEL:
		if t.waits() {
			t.state, t.held = cluster.JobCancelled, false
		} else {
			t.asked = "cancel"
		}
	case logv1.TaskChange_TASK_CHANGE_HOLD:
		if t.held && (t.byAdmin || !admin) {
			return true // it is held already
		}
		t.held, t.byAdmin = true, admin
		if t.waits() {
			t.state = cluster.JobPending
		}
	case logv1.TaskChange_TASK_CHANGE_RELEASE:
		if t.held && t.byAdmin && !admin {
			return false
		}
		if t.held && t.waits() {
			t.state = cluster.JobPending
		}
		t.held = false
	default:
		if t.waits() || t.asked != "" {
			return false
		}
		t.asked = "requeue"
		if kind == logv1.TaskChange_TASK_CHANGE_REQUEUE_HOLD {
			t.asked = "requeue and hold"
			if admin {
				t.asked = "requeue and hold as an administrator"
			}
		}
	}
	return true
}

// limit changes how many run at once: who stands in a queue leaves it.
func (p *plainArray) limit() string {
	over := p.count(func(t *plainTask) bool { return t.state.Terminal() })
	c := changeCmd(p.id, "", logv1.TaskChange_TASK_CHANGE_THROTTLE)
	c.Throttle = uint32(p.draw("throttle", 5))
	r := p.m.do(tasksCmd(c))[0]
	if over == len(p.tasks) {
		if r.Err == nil || r.Err.Code != cluster.CodeConflict {
			p.t.Fatalf("the throttle of an array that is over: %v", r.Err)
		}
		return "throttle of what is over"
	}
	if r.Err != nil || r.Tasks.Done != len(p.tasks)-over {
		p.t.Fatalf("throttle: %v, %+v; %d tasks have not ended", r.Err, r.Tasks, len(p.tasks)-over)
	}
	if int(c.Throttle) == p.throttle {
		return "the same throttle"
	}
	p.throttle = int(c.Throttle)
	for _, t := range p.tasks {
		if t.waits() {
			t.state = cluster.JobPending
		}
	}
	return "throttle"
}

func (p *plainArray) which(is func(*plainTask) bool) (int, bool) {
	var at []int
	for k, t := range p.tasks {
		if is(t) {
			at = append(at, k)
		}
	}
	if len(at) == 0 {
		return 0, false
	}
	return at[p.draw("which", len(at))], true
}

// start tries to start a task that waits, whatever speaks against it.
func (p *plainArray) start() string {
	k, ok := p.which((*plainTask).waits)
	if !ok {
		return ""
	}
	card := cluster.GPUID("")
	for _, n := range []string{"n1-g0", "n1-g1", "n1-g2", "n1-g3", "n1-g4", "n1-g5", "n1-g6", "n1-g7"} {
		if p.cards[cluster.GPUID(n)] == 0 {
			card = cluster.GPUID(n)
		}
	}
	if card == "" {
		return ""
	}
	st := p.m.startOf(p.id+cluster.JobID(k), share1(card, 8000, 300))
	st.Overtook = "of no matter here"
	r := p.m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{st}}))
	t := p.tasks[k]
	if want := p.may(t); (len(r.Plan.Started) == 1) != want {
		p.t.Fatalf("task %d, %+v, starts: %+v; task by task it may: %t; %%%d, %d run, %d are queued", t.number, *t, r.Plan, want, p.throttle, p.live(), p.queued())
	} else if !want {
		return "a start that may not be"
	}
	t.state, p.cards[card] = cluster.JobStarting, k+1
	t.attempts++
	return "start"
}

// queue puts a task into a card's queue, or out of it.
func (p *plainArray) queue() string {
	k, ok := p.which((*plainTask).waits)
	if !ok {
		return ""
	}
	t := p.tasks[k]
	mv := dispatch.QueueMove{Job: p.id + cluster.JobID(k), GPU: cluster.GPUID(fmt.Sprintf("n1-g%d", p.draw("card", 3))), Rank: int64(k), Reason: cluster.ReasonResources}
	out := p.draw("out", 4) == 0
	if out {
		mv.GPU = ""
	}
	r := p.m.must(planCmd(dispatch.Plan{Moves: []dispatch.QueueMove{mv}}))
	if want := p.may(t); (r.Plan.Moved == 1) != want {
		p.t.Fatalf("task %d, %+v, is queued: %+v; task by task it may: %t; %%%d, %d run, %d are queued", t.number, *t, r.Plan, want, p.throttle, p.live(), p.queued())
	} else if !want {
		return "a move that may not be"
	}
	if t.state = cluster.JobQueued; out {
		t.state = cluster.JobPending
	}
	return "move"
}

// end has a live task end, or wait again.
func (p *plainArray) end() string {
	k, ok := p.which(func(t *plainTask) bool { return t.state == cluster.JobStarting })
	if !ok {
		return ""
	}
	t, id := p.tasks[k], p.id+cluster.JobID(k)
	to := rapid.SampledFrom([]cluster.JobState{cluster.JobRunning, cluster.JobCompleted, cluster.JobFailed, cluster.JobCancelled}).Draw(p.t, "ends as")
	if to == cluster.JobCancelled && t.asked == "" {
		to = cluster.JobCompleted
	}
	p.m.report(id, to)
	if to == cluster.JobRunning {
		return "running"
	}
	for c, at := range p.cards {
		if at == k+1 {
			delete(p.cards, c)
		}
	}
	switch asked := t.asked; {
	case asked == "cancel":
		t.state, t.held = cluster.JobCancelled, false
	case asked != "" && to == cluster.JobCancelled:
		t.state = cluster.JobPending
		if asked != "requeue" {
			t.held, t.byAdmin = true, asked == "requeue and hold as an administrator"
		}
	default:
		t.state, t.held = to, false
	}
	t.asked = ""
	return to.String()
}

// TestArraysTaskByTask: whatever befalls the tasks of an array, alone and together,
// each is as it is to somebody who keeps a list of them; it starts and is queued
// exactly when it may beside the others, and the planner is shown those that may.
func TestArraysTaskByTask(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := &plainArray{t: t, m: newMachine(t), cards: map[cluster.GPUID]int{}}
		p.m.must(initCmd("c1", 1000))
		p.m.must(registerCmd(node("n1", "boot1", 8)))
		s := spec(1)
		text := rapid.SampledFrom([]string{"0-5", "1-7:2%2", "0-6%1", "2-9%3", "1,2,5-7"}).Draw(t, "array")
		var err error
		if s.Array, err = cluster.ParseArray(text); err != nil {
			t.Fatal(err)
		}
		s.Hold = p.draw("held", 5) == 0
		p.id, p.throttle = p.m.submit(s), s.Array.Throttle
		for k := range s.Array.Tasks.Len() {
			p.tasks = append(p.tasks, &plainTask{number: int(s.Array.Tasks.At(k)), state: cluster.JobPending, held: s.Hold})
		}
		p.check("submit")
		steps := []func() string{p.change, p.change, p.limit, p.start, p.start, p.start, p.queue, p.queue, p.end, p.end}
		for range rapid.IntRange(8, 40).Draw(t, "steps") {
			if what := steps[p.draw("step", len(steps))](); what != "" {
				p.check(what)
			}
		}
		p.m.f = restored(t, snapshotOf(t, p.m.f))
		p.check("a restore")
	})
}
