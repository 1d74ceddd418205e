package scheduler_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/explain"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestRegretClosesTheCard: one of two on a card was predicted to take an hour
// alone; the limit is 1.5, and nine in ten such predictions are below 1.65.
func TestRegretClosesTheCard(t *testing.T) {
	t.Parallel()
	predicted := Predict(a100, 20000, 300, time.Hour)
	for _, c := range []struct {
		name   string
		first  *cluster.Job
		alone  bool
		after  time.Duration
		closed bool
	}{
		{"within the limit", Job(1, predicted), false, 89 * time.Minute, false},
		{"within the error", Job(1, predicted), false, 98 * time.Minute, false},
		{"slowed down", Job(1, predicted), false, 100 * time.Minute, true},
		{"alone it was mispredicted", Job(1, predicted), true, 100 * time.Minute, false},
		{"not confident", Job(1, Mem(20000), Util(300), Lasts(time.Hour)), false, 10 * time.Hour, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld([]*cluster.Node{Node("n1", 1, a100)})
			w.Runs = func(*cluster.Job) time.Duration { return 100 * time.Hour }
			w.Submit(c.first)
			if !c.alone {
				w.Submit(Job(2, Mem(1000), Util(100), Lasts(100*time.Hour)))
			}
			pol := scheduler.Default()
			p := scheduler.Schedule(w.Snapshot(), pol)
			w.Apply(&p)
			w.Advance(c.after)
			j := Job(3, Mem(1000), Util(100), queued("n1-00", 0))
			w.Submit(j)
			asShort(w)
			p, fast := scheduler.Schedule(w.Snapshot(), pol), scheduler.OnRelease(w, []cluster.GPUID{"n1-00"}, pol)
			if (len(p.Starts) == 0) != c.closed || (len(fast.Starts) == 0) != c.closed {
				t.Fatalf("pass %v, fast path %v, want the card closed: %t", p.Starts, fast.Starts, c.closed)
			}
			said := slices.ContainsFunc(scheduler.Explain(w.Snapshot(), j, pol), func(e explain.Explanation) bool {
				return e.Reason.Code == cluster.ReasonSharing && strings.Contains(e.Reason.Detail, "job 1 shared it and runs for ~2 h, predicted ~60 min alone") ||
					e.Reason.Code == cluster.ReasonSharing && strings.Contains(e.Reason.Detail, "job 1 shared it and runs for ~100 min, predicted ~60 min alone")
			})
			if said != c.closed {
				t.Errorf("explained %t by %v", said, scheduler.Explain(w.Snapshot(), j, pol))
			}
			pol.MaxSlowdownMilli = 0
			if p := scheduler.Schedule(w.Snapshot(), pol); len(p.Starts) == 0 {
				t.Error("closed without a limit")
			}
		})
	}
}

// TestRegretPartsTheNewest: of those who may be ended, and only on a card that
// was closed.
func TestRegretPartsTheNewest(t *testing.T) {
	t.Parallel()
	w := NewWorld([]*cluster.Node{Node("n1", 2, a100)})
	w.Runs = func(*cluster.Job) time.Duration { return 100 * time.Hour }
	start := func(js ...*cluster.Job) {
		for _, j := range js {
			w.Submit(j)
		}
		p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
		w.Apply(&p)
	}
	start(Job(1, Predict(a100, 20000, 300, time.Hour)), Job(2, Mem(1000), Util(100)), Job(9, Mem(70000), Util(900), Lasts(100*time.Hour)))
	w.Advance(time.Minute)
	start(Job(3, Mem(1000), Util(100), Lasts(100*time.Hour)))
	w.Advance(2 * time.Hour)
	s := w.Snapshot()
	if p := scheduler.Schedule(s, scheduler.Default()); len(p.Preempt) > 0 {
		t.Fatalf("ends %v, whom nobody called preemptible", p.Preempt)
	}
	s.Terms = map[cluster.JobID]dispatch.Terms{2: {Preemptible: true}, 3: {Preemptible: true}, 9: {Preemptible: true}}
	want := []dispatch.Preemption{{Job: 3, Attempt: 1, Why: "job 1 shared it and runs for ~2 h, predicted ~60 min alone; the limit is 1.5×, so nobody joins it"}}
	if d := cmp.Diff(want, scheduler.Schedule(s, scheduler.Default()).Preempt); d != "" {
		t.Errorf("preemptions (-want +got):\n%s", d)
	}
	asked := func(id cluster.JobID, ago time.Duration) {
		i := slices.IndexFunc(s.Running, func(j *cluster.Job) bool { return j.ID == id })
		s.Running[i] = s.Running[i].Clone()
		s.Running[i].Last().Preempt = &cluster.PreemptRequest{At: s.Now.Add(-ago)}
	}
	asked(3, time.Second)
	if p := scheduler.Schedule(s, scheduler.Default()); len(p.Preempt) > 0 {
		t.Errorf("ends %v, while job 3 leaves the card", p.Preempt)
	}
}

// TestWhoPartsByRule: four on one card, of whom the first is late. Of those who may
// be ended the last to become leaves, who had its rest; nobody leaves an empty card.
func TestWhoPartsByRule(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	ended := func(ago time.Duration) func(*cluster.Job) { // an earlier attempt made room
		return func(j *cluster.Job) {
			j.Attempts = append([]cluster.Attempt{{No: 0, State: cluster.JobPreempted, Ended: Now.Add(-ago), Preempt: &cluster.PreemptRequest{At: Now.Add(-ago)}}}, j.Attempts...)
		}
	}
	for _, c := range []struct {
		name  string
		may   []cluster.JobID
		alone bool
		edit  map[cluster.JobID]func(*cluster.Job)
		want  []cluster.JobID
	}{
		{name: "the last to become", may: []cluster.JobID{2, 3}, want: []cluster.JobID{3}},
		{name: "of those who may be ended", may: []cluster.JobID{2}, want: []cluster.JobID{2}},
		{name: "nobody, if nobody may", want: nil},
		{name: "the late one itself, if it alone may", may: []cluster.JobID{1}, want: []cluster.JobID{1}},
		{name: "not who was ended a minute ago", may: []cluster.JobID{2, 3}, edit: map[cluster.JobID]func(*cluster.Job){3: ended(time.Minute)}, want: []cluster.JobID{2}},
		{name: "nobody where nobody else is by now", may: []cluster.JobID{1}, alone: true,
			edit: map[cluster.JobID]func(*cluster.Job){1: func(j *cluster.Job) { j.Last().Neighbours = []cluster.JobID{77} }}, want: nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld([]*cluster.Node{Node("n1", 1, a100)})
			w.Clock = Now.Add(-3 * h)
			share := cluster.Share{MemMiB: 1000, Milli: 100}
			for id := cluster.JobID(1); id <= 3 && (id == 1 || !c.alone); id++ { // ten minutes apart
				j := Job(id, Lasts(100*h))
				if id == 1 {
					j.Spec.Duration = h
				}
				running(w, j, "n1-00", share)
				w.Clock = w.Clock.Add(10 * time.Minute)
			}
			w.Clock = Now
			s := w.Snapshot()
			s.Terms = map[cluster.JobID]dispatch.Terms{}
			for _, id := range c.may {
				s.Terms[id] = dispatch.Terms{Preemptible: true}
			}
			for i := range s.Running {
				s.Running[i] = s.Running[i].Clone()
				if s.Running[i].ID == 1 {
					s.Running[i].Last().Estimate.ConfidenceMilli = 1000
				}
				if f := c.edit[s.Running[i].ID]; f != nil {
					f(s.Running[i])
				}
			}
			var got []cluster.JobID
			for _, x := range scheduler.Schedule(s, scheduler.Default()).Preempt {
				got = append(got, x.Job)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("ends %v, want %v", got, c.want)
			}
		})
	}
}
