package deadline

import (
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// TestWhoIsLate: who shared its card and has outrun a confident prediction by the
// limit and by more than nine in ten err.
func TestWhoIsLate(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	now := cluster.Time(1_700_000_000_000_000)
	for _, c := range []struct {
		name       string
		ran        time.Duration
		confidence int64
		shares     int
		neighbours []cluster.JobID
		limit      int64
		want       bool
	}{
		{"beyond both", 91 * m, 1000, 2, nil, 1500, true},
		{"just at them", 90 * m, 1000, 2, nil, 1500, false},
		{"beyond the limit, within the error", 100 * m, 500, 2, nil, 1500, false},
		{"beyond the error of a less sure one", 136 * m, 500, 2, nil, 1500, true},
		{"within a wide limit", 3*h - m, 1000, 2, nil, 3000, false},
		{"beyond a wide one", 3*h + m, 1000, 2, nil, 3000, true},
		{"alone", 9 * h, 1000, 1, nil, 1500, false},
		{"alone by now", 91 * m, 1000, 1, []cluster.JobID{7}, 1500, true},
		{"a guess", 9 * h, 100, 2, nil, 1500, false},
		{"no limit", 9 * h, 1000, 2, nil, 0, false},
	} {
		pol := rules.Default()
		pol.MaxSlowdownMilli = c.limit
		j := &cluster.Job{ID: 1, State: cluster.JobRunning, Spec: &cluster.Spec{GPUs: 1}, Attempts: []cluster.Attempt{{
			No: 1, State: cluster.JobRunning, Started: now.Add(-c.ran), Placed: now.Add(-c.ran), Neighbours: c.neighbours,
			Estimate: cluster.Estimate{GPUType: "A", Duration: h, ConfidenceMilli: c.confidence},
		}}}
		if got := rules.Overran(j, int64(now), c.shares, &pol); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}
