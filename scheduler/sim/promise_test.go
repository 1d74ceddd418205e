package sim_test

import (
	"testing"
	"time"

	"github.com/berth-scheduler/berth/scheduler/elastic"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// TestPromises: of jobs that are due in the time that two GPUs need at most, a fixed one
// of one GPU is refused, and one of up to two runs on both; the next is refused, as both
// are taken. They take exactly what is predicted, half as long again at most.
func TestPromises(t *testing.T) {
	t.Parallel()
	two := 1.1 / 2 // as long as with one
	due := func(id string, least, most int) workload.Job {
		j := workload.Job{ID: id, GPUs: 1, Milli: 1000, Duration: time.Hour, Deadline: time.Duration(1.5*two*float64(time.Hour)) + time.Second, Exchange: 0.1}
		j.Least, j.Most = least, most
		return j
	}
	for name, c := range map[string]struct {
		jobs            []workload.Job
		part            float64
		inTime, refused float64
	}{
		"fixed":              {[]workload.Job{due("a", 0, 0)}, 1, 0, 1},
		"two":                {[]workload.Job{due("a", 1, 2)}, 1, 1, 0},
		"both are taken":     {[]workload.Job{due("a", 1, 2), due("b", 1, 2)}, 1, 1, 1},
		"less is predicted":  {[]workload.Job{due("a", 0, 0)}, 0.5, 0, 0}, // and it is late
		"none has deadlines": {[]workload.Job{{ID: "a", GPUs: 1, Milli: 1000, Duration: time.Hour}}, 1, -1, 0},
	} {
		b := sim.NewBerth("ffd", 1)
		b.Policy.DeadlineShareMilli = 1000
		p := sim.NewSized(b, elastic.Rules{})
		f := workload.Homogeneous(1, 2, "gpu", 0)
		r, err := sim.Run(t.Context(), &workload.Workload{Jobs: c.jobs}, &f, sim.Options{Planner: p, Promise: p.Site(), Errors: sim.Errors{Bias: c.part}, Preemptible: true, NoZoom: true})
		if err != nil {
			t.Fatal(err)
		}
		got := -1.0
		if r.InTime != nil {
			got = *r.InTime
		}
		if got != c.inTime || float64(r.Unplaced) != c.refused || r.Completed != len(c.jobs)-r.Unplaced {
			t.Errorf("%s: %g in time, %d refused, %d completed, want %g and %g", name, got, r.Unplaced, r.Completed, c.inTime, c.refused)
		}
	}
}
