package scheduler_test

import (
	stdcmp "cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestForecastRange: the middle goes by predictions, the tail by their
// confidence and never beyond the time limits.
func TestForecastRange(t *testing.T) {
	t.Parallel()
	h := time.Hour
	for _, c := range []struct {
		name     string
		on       *cluster.Job
		p50, p90 time.Duration
	}{
		{"a guess", Job(1, Exclusive, Lasts(h)), h, 3 * h},
		{"a guess with a limit", Job(1, Exclusive, Lasts(h), Limit(2*h)), h, 2 * h},
		{"only a limit", Job(1, Exclusive, Limit(2*h)), 2 * h, 2 * h},
		{"confident", Job(1, Exclusive, Predict(a100, 100, 100, h)), h, 99 * time.Minute},
		{"confident with a limit", Job(1, Exclusive, Predict(a100, 100, 100, h), Limit(70*time.Minute)), h, 70 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld([]*cluster.Node{Node("n1", 1, a100)}, c.on)
			p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
			w.Apply(&p)
			j := Job(2, Exclusive)
			w.Submit(j)
			f, ok := scheduler.ForecastStart(w.Snapshot(), j, scheduler.Default())
			if !ok || f.P50.Sub(Now) != c.p50 || f.P90.Sub(Now) != c.p90 {
				t.Errorf("start in %s to %s (%t), want %s to %s", f.P50.Sub(Now), f.P90.Sub(Now), ok, c.p50, c.p90)
			}
		})
	}
}

// TestForecastSeesWhoMakesRoom: who was asked to is gone when its grace is over, and
// not when its work would be done.
func TestForecastSeesWhoMakesRoom(t *testing.T) {
	t.Parallel()
	for asked, want := range map[time.Duration]time.Duration{0: 30 * time.Second, 20 * time.Second: 10 * time.Second, time.Minute: time.Second} {
		w := NewWorld([]*cluster.Node{Node("n1", 1, a100)})
		j := Job(1, Exclusive, Limit(10*time.Hour))
		j.Spec.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: 30 * time.Second}
		running(w, j, "n1-00", whole(80000))
		leaves := w.Jobs[1].Clone()
		leaves.Last().Preempt = &cluster.PreemptRequest{At: Now.Add(-asked), For: 2}
		w.Jobs[1] = leaves
		w.Submit(Job(2, Exclusive))
		f, ok := scheduler.ForecastStart(w.Snapshot(), w.Jobs[2], scheduler.Default())
		if !ok || f.P50.Sub(Now) != want || f.P90.Sub(Now) != want {
			t.Errorf("asked %s ago: start in %s to %s (%t), want %s", asked, f.P50.Sub(Now), f.P90.Sub(Now), ok, want)
		}
	}
}

// TestForecastCountsTheQueue: those who stand before a job have their turn
// first, and cards next to each other do not wait for each other.
func TestForecastCountsTheQueue(t *testing.T) {
	t.Parallel()
	w := NewWorld([]*cluster.Node{Node("n1", 2, a100)})
	running(w, Job(1, Lasts(time.Hour)), "n1-00", whole(80000))
	running(w, Job(2, Lasts(30*time.Minute)), "n1-01", whole(80000))
	for id := range cluster.JobID(4) {
		w.Submit(Job(10+id, Exclusive, Lasts(10*time.Minute), queued(GPU("n1", int(id%2)), time.Hour)))
	}
	for id, want := range map[cluster.JobID]time.Duration{10: time.Hour, 11: 30 * time.Minute, 12: 70 * time.Minute, 13: 40 * time.Minute} {
		f, ok := scheduler.ForecastStart(w.Snapshot(), w.Jobs[id], scheduler.Default())
		if !ok || f.P50.Sub(Now) != want || f.GPU.ID != w.Jobs[id].Queue {
			t.Errorf("job %d starts in %s on %s, want %s on %s", id, f.P50.Sub(Now), f.GPU.ID, want, w.Jobs[id].Queue)
		}
	}
}

func TestForecastOfNowhere(t *testing.T) {
	t.Parallel()
	for name, j := range map[string]*cluster.Job{
		"too large": Job(1, Mem(200000)), "no such node": Job(1, On("n9")), "too many": Job(1, GPUs(3)), "too many cores": Job(1, GPUs(0), Cores(65000)),
	} {
		w := NewWorld([]*cluster.Node{Node("n1", 2, a100), Node("n2", 4, a100, Drained)}, j)
		if f, ok := scheduler.ForecastStart(w.Snapshot(), j, scheduler.Default()); ok {
			t.Errorf("%s: forecast %+v", name, f)
		}
	}
}

// TestForecastHolds: when jobs take as long as predicted and nobody else
// comes, the only waiter has started by P50.
func TestForecastHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pol := scheduler.Default()
		pol.PatienceMilli = 0
		w := NewWorld(drawNodes(t))
		for id := range cluster.JobID(rapid.IntRange(1, 25).Draw(t, "jobs")) {
			w.Submit(drawJob(t, id+1))
		}
		w.Runs = func(j *cluster.Job) time.Duration { // as the scheduler expects
			d := stdcmp.Or(j.Last().Estimate.Duration, j.Spec.Duration, j.Spec.TimeLimit, pol.AssumedDuration)
			if l := j.Spec.TimeLimit; l > 0 {
				d = min(d, l)
			}
			return d
		}
		p := scheduler.Schedule(w.Snapshot(), pol)
		p.Moves = nil
		w.Apply(&p)
		for _, j := range w.Snapshot().Waiting {
			delete(w.Jobs, j.ID)
		}
		j := drawJob(t, 99)
		w.Submit(j)
		f, ok := scheduler.ForecastStart(w.Snapshot(), j, pol)
		if !ok {
			if p := scheduler.Schedule(w.Snapshot(), pol); len(p.Starts) > 0 {
				t.Fatal("it starts at once, although no place was found")
			}
			return
		}
		if f.P50 < Now || f.P90 < f.P50 || f.Missing == "" {
			t.Fatalf("forecast %+v", f)
		}
		w.Advance(f.P50.Sub(Now))
		if p = scheduler.Schedule(w.Snapshot(), pol); len(p.Starts) != 1 {
			t.Fatalf("at P50, %s from now, it does not start: %+v", f.P50.Sub(Now), p.Unplaced)
		}
	})
}

// TestForecastIsAFunction: of the snapshot, in whatever order it is listed.
func TestForecastIsAFunction(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, pol := drawWorld(t, true), scheduler.Default()
		s, r := w.Snapshot(), w.Snapshot()
		rnd := rand.New(rand.NewPCG(1, uint64(rapid.IntRange(0, 99).Draw(t, "order"))))
		r.Nodes = slices.Clone(r.Nodes)
		rnd.Shuffle(len(r.Nodes), func(a, b int) { r.Nodes[a], r.Nodes[b] = r.Nodes[b], r.Nodes[a] })
		rnd.Shuffle(len(r.Running), func(a, b int) { r.Running[a], r.Running[b] = r.Running[b], r.Running[a] })
		for _, j := range s.Waiting {
			f, _ := scheduler.ForecastStart(s, j, pol)
			g, _ := scheduler.ForecastStart(r, j, pol)
			if d := cmp.Diff(f, g); d != "" {
				t.Fatalf("job %d (-listed +shuffled):\n%s", j.ID, d)
			}
		}
	})
}
