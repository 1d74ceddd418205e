package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

func hooked(j *cluster.Job) {
	j.Spec.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: time.Minute}
}

// yielding is a node of so many cards on which jobs 1 to n have run alone for so
// long, those that come for a day.
func yielding(cards int, ran time.Duration, jobs ...*cluster.Job) *World {
	w := NewWorld([]*cluster.Node{Node("n1", cards, a100)})
	w.Runs = func(*cluster.Job) time.Duration { return 1000 * time.Hour }
	for _, j := range jobs {
		w.Submit(j)
	}
	p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
	w.Apply(&p)
	w.Advance(ran)
	return w
}

// come submits a job now.
func come(w *World, j *cluster.Job) {
	w.Submit(j)
	j.Submitted, j.Eligible = w.Clock, w.Clock
}

func asked(p *dispatch.Plan) (ids []cluster.JobID) {
	for i := range p.Preempt {
		ids = append(ids, p.Preempt[i].Job)
	}
	slices.Sort(ids)
	return ids
}

// TestJobsWithMuchLeftMakeRoom: who has waited and has much less left takes the place
// of one with a hook; nobody else is asked.
func TestJobsWithMuchLeftMakeRoom(t *testing.T) {
	t.Parallel()
	day, short := Lasts(24*time.Hour), Limit(10*time.Minute)
	for _, c := range []struct {
		name   string
		runs   []JobOption
		waits  []JobOption
		waited time.Duration
		pol    func(*scheduler.Policy)
		want   bool
	}{
		{"much less left", []JobOption{Exclusive, day, hooked}, []JobOption{Exclusive, short}, 2 * time.Minute, nil, true},
		{"it has just come", []JobOption{Exclusive, day, hooked}, []JobOption{Exclusive, short}, time.Minute, nil, false},
		{"no hook", []JobOption{Exclusive, day}, []JobOption{Exclusive, short}, time.Hour, nil, false},
		{"as much left", []JobOption{Exclusive, day, hooked}, []JobOption{Exclusive, Lasts(20 * time.Hour)}, time.Hour, nil, false},
		{"half as much left, less what it costs", []JobOption{Exclusive, day, hooked}, []JobOption{Exclusive, Lasts(11*time.Hour + 29*time.Minute)}, time.Hour, nil, false},
		{"nobody predicted either", []JobOption{Exclusive, hooked}, []JobOption{Exclusive}, time.Hour, nil, false},
		{"a deadline", []JobOption{Exclusive, day, hooked, func(j *cluster.Job) { j.Spec.Deadline = cluster.Time(1) << 55 }}, []JobOption{Exclusive, short}, time.Hour, nil, false},
		{"other partitions", []JobOption{Exclusive, day, hooked, func(j *cluster.Job) { j.Spec.Partition = "a" }}, []JobOption{Exclusive, short}, time.Hour, nil, false},
		{"switched off", []JobOption{Exclusive, day, hooked}, []JobOption{Exclusive, short}, time.Hour, func(p *scheduler.Policy) { p.YieldAfter = 0 }, false},
		{"often enough", []JobOption{Exclusive, day, hooked}, []JobOption{Exclusive, short}, time.Hour, func(p *scheduler.Policy) { p.YieldMost = 0 }, false},
		{"as long as a job may run, whatever its user declares", []JobOption{Exclusive, day, hooked}, []JobOption{Exclusive, Lasts(time.Second), Limit(20 * time.Hour)}, time.Hour, nil, false},
		{"several nodes", []JobOption{Exclusive, day, hooked}, []JobOption{Exclusive, short, Nodes(2)}, time.Hour, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := yielding(1, time.Hour, Job(1, c.runs...))
			come(w, Job(2, c.waits...))
			w.Advance(c.waited)
			pol := scheduler.Default()
			if c.pol != nil {
				c.pol(&pol)
			}
			p := scheduler.Schedule(w.Snapshot(), pol)
			if got := asked(&p); (len(got) == 1) != c.want || len(got) > 1 {
				t.Fatalf("asked %v, want one: %t", got, c.want)
			}
			if c.want && (p.Preempt[0].For != 2 || !strings.Contains(p.Preempt[0].Why, "it has ~23 h left, and that one ~10 min and has waited for ~2 min")) {
				t.Errorf("preemption %+v", p.Preempt[0])
			}
		})
	}
}

// TestUnpredictedJobsMakeRoomByWhatTheyHad: of jobs that nobody predicted the one that
// ran for longest makes room, once it ran for twice as long as a job is taken to, and
// when it waits again it stands behind the one that came.
func TestUnpredictedJobsMakeRoomByWhatTheyHad(t *testing.T) {
	t.Parallel()
	w := yielding(2, time.Hour, Job(1, Exclusive, hooked))
	w.Submit(Job(2, Exclusive, hooked))
	p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
	w.Apply(&p)
	w.Advance(30 * time.Minute)
	come(w, Job(3, Exclusive))
	w.Advance(33 * time.Minute)
	if p = scheduler.Schedule(w.Snapshot(), scheduler.Default()); len(p.Preempt) > 0 {
		t.Fatalf("asked %v after 2 h 3 min of an hour that is assumed, and 2 min to start anew", asked(&p))
	}
	w.Advance(2 * time.Minute)
	p = scheduler.Schedule(w.Snapshot(), scheduler.Default())
	if got := asked(&p); !slices.Equal(got, []cluster.JobID{1}) {
		t.Fatalf("asked %v, want job 1, which ran for longest", got)
	}
	w.End(1)
	j := w.Jobs[1]
	j.State, j.Eligible = cluster.JobPending, w.Clock
	j.Attempts[0].State, j.Attempts[0].Preempt = cluster.JobPreempted, &cluster.PreemptRequest{At: w.Clock, For: 3}
	p = scheduler.Schedule(w.Snapshot(), scheduler.Default())
	if len(p.Starts) != 1 || p.Starts[0].Job != 3 {
		t.Errorf("starts %+v, want job 3", p.Starts)
	}
}

// TestOneMakesRoomForMany: whoever leaves makes room for all who fit where it was, and
// nobody is asked twice.
func TestOneMakesRoomForMany(t *testing.T) {
	t.Parallel()
	w := yielding(4, time.Hour, Job(1, GPUs(2), hooked, Lasts(100*time.Hour)), Job(2, GPUs(2), Lasts(100*time.Hour)))
	for id := cluster.JobID(3); id <= 5; id++ {
		come(w, Job(id, Exclusive, Lasts(10*time.Minute)))
	}
	w.Advance(3 * time.Minute)
	p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
	if got := asked(&p); !slices.Equal(got, []cluster.JobID{1}) {
		t.Fatalf("asked %v, want job 1 alone", got)
	}
	w.Jobs[1].Live().Preempt = &cluster.PreemptRequest{At: w.Clock, For: p.Preempt[0].For}
	p = scheduler.Schedule(w.Snapshot(), scheduler.Default())
	if got := asked(&p); len(got) > 0 {
		t.Errorf("asked %v while job 1 leaves", got)
	}
	said := fmt.Sprint(scheduler.Explain(w.Snapshot(), w.Jobs[3], scheduler.Default()))
	if !strings.Contains(said, "job 1 saves its state and makes room for this one") {
		t.Errorf("job 3 is told %s", said)
	}
}

// TestRoomIsMadeByTheFewest: nobody leaves for a job for which somebody leaves already,
// without whom it fits too, who goes before it, or whose place is not worth what
// leaving it costs.
func TestRoomIsMadeByTheFewest(t *testing.T) {
	t.Parallel()
	day, half, minutes := Lasts(24*time.Hour), []JobOption{Mem(1000), Util(500)}, func(n time.Duration) JobOption { return Limit(n * time.Minute) }
	with := func(of []JobOption, more ...JobOption) []JobOption { return append(slices.Clone(of), more...) }
	for _, c := range []struct {
		name  string
		cards int
		runs  []*cluster.Job
		comes *cluster.Job
		snap  func(*World, *dispatch.Snapshot)
		want  []cluster.JobID
	}{
		{name: "somebody leaves already", cards: 2, runs: []*cluster.Job{Job(1, Exclusive, day, hooked), Job(2, Exclusive, day, hooked)}, comes: Job(9, Exclusive, minutes(10)),
			snap: func(w *World, _ *dispatch.Snapshot) {
				w.Jobs[2].Live().Preempt = &cluster.PreemptRequest{At: w.Clock, For: 9}
			}},
		{name: "not without need", cards: 2, runs: []*cluster.Job{Job(1, with(half, Lasts(1000*time.Hour), hooked)...), Job(2, with(half, day)...), Job(3, Exclusive, day, hooked)},
			comes: Job(9, Exclusive, minutes(10)), want: []cluster.JobID{3}},
		{name: "it goes before", cards: 1, runs: []*cluster.Job{Job(1, Exclusive, day, hooked, inQOS("urgent"))}, comes: Job(9, Exclusive, minutes(10)),
			snap: func(_ *World, s *dispatch.Snapshot) { ranked(s) }},
		{name: "of the same class", cards: 1, runs: []*cluster.Job{Job(1, Exclusive, day, hooked, inQOS("idle"))}, comes: Job(9, Exclusive, minutes(10), inQOS("idle")),
			snap: func(_ *World, s *dispatch.Snapshot) { ranked(s) }, want: []cluster.JobID{1}},
		{name: "its place is not worth it, another's is", cards: 2, runs: []*cluster.Job{Job(1, Exclusive, Lasts(83*time.Minute), hooked), Job(2, with(half, Lasts(90*time.Minute), hooked)...), Job(3, with(half, day)...)},
			comes: Job(9, with(half, minutes(9))...), want: []cluster.JobID{2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := yielding(c.cards, time.Hour, c.runs...)
			come(w, c.comes)
			w.Advance(3 * time.Minute)
			if c.snap == nil {
				c.snap = func(*World, *dispatch.Snapshot) {}
			}
			s := w.Snapshot()
			c.snap(w, s)
			p := scheduler.Schedule(s, scheduler.Default())
			if got := asked(&p); !slices.Equal(got, c.want) {
				t.Errorf("asked %v, want %v; starts %+v, %+v", got, c.want, p.Starts, p)
			}
		})
	}
}

// TestWhatAJobSaysOfItsEnd: a job that says that it is nearly done is let finish, and
// one that says that it has much left makes room before its prediction is over; nobody
// who waits gets a place by saying so.
func TestWhatAJobSaysOfItsEnd(t *testing.T) {
	t.Parallel()
	says := func(step, total int64, each time.Duration) func(*World, *cluster.Job) {
		return func(w *World, j *cluster.Job) {
			j.Last().Progress = &cluster.Progress{At: w.Clock, Step: step, Total: total, StepTime: each}
		}
	}
	for _, c := range []struct {
		name string
		runs time.Duration
		says func(*World, *cluster.Job)
		want []cluster.JobID
	}{
		{"nothing", 24 * time.Hour, func(*World, *cluster.Job) {}, []cluster.JobID{1}},
		{"it is nearly done", 24 * time.Hour, says(95, 100, time.Minute), nil},
		{"it has just begun", 70 * time.Minute, says(5, 100, time.Hour), []cluster.JobID{1}},
		{"nobody knows how many steps there are", 24 * time.Hour, says(95, 0, time.Minute), []cluster.JobID{1}},
	} {
		w := yielding(1, time.Hour, Job(1, Exclusive, Lasts(c.runs), hooked))
		come(w, Job(2, Exclusive, Limit(10*time.Minute)))
		w.Advance(3 * time.Minute)
		c.says(w, w.Jobs[1])
		p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
		if got := asked(&p); !slices.Equal(got, c.want) {
			t.Errorf("it says %s: asked %v, want %v", c.name, got, c.want)
		}
	}
	w := yielding(1, time.Hour, Job(1, Exclusive, Lasts(24*time.Hour), hooked))
	liar := Job(2, Exclusive, hooked)
	liar.Attempts = []cluster.Attempt{{No: 1, State: cluster.JobPreempted, Started: w.Clock.Add(-20 * time.Hour), Ended: w.Clock,
		Progress: &cluster.Progress{At: w.Clock, Step: 999, Total: 1000, StepTime: time.Second}}}
	come(w, liar)
	w.Advance(3 * time.Minute)
	p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
	if got := asked(&p); len(got) > 0 {
		t.Errorf("asked %v for a job that had 20 hours and says that it has a second left", got)
	}
}

// TestForecastsByProgress: whoever waits is told when the job before it ends by what
// that says itself.
func TestForecastsByProgress(t *testing.T) {
	t.Parallel()
	w := yielding(1, 10*time.Minute, Job(1, Exclusive))
	come(w, Job(2, Exclusive, Limit(time.Minute)))
	w.Jobs[1].Last().Progress = &cluster.Progress{At: w.Clock, Step: 1, Total: 4, StepTime: 100 * time.Second}
	p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
	w.Apply(&p)
	if said := fmt.Sprint(scheduler.Explain(w.Snapshot(), w.Jobs[2], scheduler.Default())); !strings.Contains(said, "it ends in ~5 min") {
		t.Errorf("job 2 is told %s", said)
	}
	f, ok := scheduler.ForecastStart(w.Snapshot(), w.Jobs[2], scheduler.Default())
	if !ok || f.P50.Sub(w.Clock) != 5*time.Minute || f.P90.Sub(w.Clock) != 450*time.Second || !strings.Contains(f.Missing, "1 job ends in ~5 min") {
		t.Errorf("job 2 starts in %s to %s: %s", f.P50.Sub(w.Clock), f.P90.Sub(w.Clock), f.Missing)
	}
}
