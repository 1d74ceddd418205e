package scene

import (
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// TestFactsByHand: what was done before counts for who goes on from there, and as
// time of all of its cards.
func TestFactsByHand(t *testing.T) {
	t.Parallel()
	const m = cluster.Time(60_000_000)
	now := int64(100 * m)
	attempt := func(from, to cluster.Time, live bool) cluster.Attempt {
		a := cluster.Attempt{State: cluster.JobPreempted, Started: from, Ended: to}
		if live {
			a.State, a.Ended = cluster.JobRunning, 0
		}
		return a
	}
	for _, c := range []struct {
		name           string
		attempts       []cluster.Attempt
		may            bool
		ran, left, had cluster.Time
	}{
		{"new", nil, true, 0, 60 * m, 0},
		{"was ended and goes on", []cluster.Attempt{attempt(10*m, 30*m, false)}, true, 20 * m, 40 * m, 40 * m},
		{"was ended and begins anew", []cluster.Attempt{attempt(10*m, 30*m, false)}, false, 20 * m, 60 * m, 40 * m},
		{"runs", []cluster.Attempt{attempt(80*m, 0, true)}, false, 20 * m, 40 * m, 40 * m},
		{"runs again", []cluster.Attempt{attempt(10*m, 30*m, false), attempt(90*m, 0, true)}, true, 30 * m, 30 * m, 60 * m},
		{"runs longer than it should", []cluster.Attempt{attempt(10*m, 0, true)}, true, 90 * m, 1, 180 * m},
		{"was placed and never ran", []cluster.Attempt{{State: cluster.JobPreempted}}, true, 0, 60 * m, 0},
	} {
		j := &cluster.Job{ID: 1, Spec: &cluster.Spec{GPUs: 2}, Attempts: c.attempts}
		f := factsOf(j, dispatch.Terms{Preemptible: c.may}, int64(60*m), now)
		if f.ran != int64(c.ran) || f.Left != int64(c.left) || f.Attained != int64(c.had) || f.GPUTime() != 2*int64(c.left) || f.Weight != 1000 {
			t.Errorf("%s: ran %d, left %d, had %d, want %d, %d, %d", c.name, f.ran, f.Left, f.Attained, c.ran, c.left, c.had)
		}
	}
}

// TestProgressTellsTheEnd: what a running job says of how far it is counts more than
// what was predicted.
func TestProgressTellsTheEnd(t *testing.T) {
	t.Parallel()
	now := cluster.Time(0).Add(100 * time.Hour)
	for _, c := range []struct {
		name     string
		progress *cluster.Progress
		want     time.Duration // from now on
	}{
		{"predicted", nil, time.Hour},
		{"half done", &cluster.Progress{At: now.Add(-time.Minute), Step: 50, Total: 100, StepTime: 6 * time.Second}, 4 * time.Minute},
		{"far behind", &cluster.Progress{At: now, Step: 1, Total: 101, StepTime: 6 * time.Minute}, 10 * time.Hour},
	} {
		j := &cluster.Job{ID: 1, State: cluster.JobRunning, Spec: &cluster.Spec{GPUs: 1}, Attempts: []cluster.Attempt{{
			State: cluster.JobRunning, Started: now.Add(-time.Hour), Progress: c.progress, Estimate: cluster.Estimate{Duration: 2 * time.Hour},
		}}}
		led := dispatch.NewLedger(nil)
		p := New(&dispatch.Snapshot{Now: now, Running: []*cluster.Job{j}, Ledger: led}, led, &Settings{Pol: rules.Default()}, &Memory{})
		if got := cluster.Time(p.Fleet.Runs[0].End).Sub(now); got != c.want {
			t.Errorf("%s: ends in %s, want %s", c.name, got, c.want)
		}
	}
}
