package scene

import (
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
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
