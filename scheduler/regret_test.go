package scheduler_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
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
			said := slices.ContainsFunc(scheduler.Explain(w.Snapshot(), j, pol), func(e scheduler.Explanation) bool {
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
	s.Terms = map[cluster.JobID]cluster.Terms{2: {Preemptible: true}, 3: {Preemptible: true}, 9: {Preemptible: true}}
	want := []cluster.Preemption{{Job: 3, Attempt: 1, Why: "job 1 shared it and runs for ~2 h, predicted ~60 min alone; the limit is 1.5×, so nobody joins it"}}
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
