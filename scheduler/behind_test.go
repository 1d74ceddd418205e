package scheduler_test

import (
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestSpanBehindAReservation: a job on two nodes that must wait until a reservation of one
// of them is over is not held up longer by who begins on the other meanwhile, and who is
// gone by then begins.
func TestSpanBehindAReservation(t *testing.T) {
	t.Parallel()
	nodes, err := cluster.ParseHostList("n0")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		from, length time.Duration
		repeat       dispatch.Repeat
		waited       time.Duration
		other        time.Duration // how long the other job is predicted to take
		starts       bool
	}{
		"it would be there longer":           {5 * time.Minute, 10 * time.Minute, "", time.Hour, time.Hour, false},
		"it is gone by then":                 {5 * time.Minute, 10 * time.Minute, "", time.Hour, 14 * time.Minute, true},
		"the reservation is open":            {-5 * time.Minute, 20 * time.Minute, "", time.Hour, time.Hour, false},
		"open, and it is gone by then":       {-5 * time.Minute, 20 * time.Minute, "", time.Hour, 14 * time.Minute, true},
		"the job came a moment ago":          {5 * time.Minute, 10 * time.Minute, "", time.Second, time.Hour, true},
		"it is over in more than a day":      {5 * time.Minute, 25 * time.Hour, "", time.Hour, 26 * time.Hour, true},
		"it comes again every day":           {5 * time.Minute, 10 * time.Minute, dispatch.RepeatDaily, time.Hour, time.Hour, true},
		"the job may begin before it begins": {2 * time.Hour, 10 * time.Minute, "", time.Hour, time.Hour, true},
	} {
		w := NewWorld(farmOf(2, 2, a100))
		w.Submit(Job(1, GPUs(2), Exclusive, onNodes(2), Predict(a100, 1000, 500, 20*time.Minute)))
		w.Jobs[1].Spec.TimeLimit = 20 * time.Minute
		w.Advance(c.waited)
		w.Submit(Job(2, GPUs(2), Exclusive, Predict(a100, 1000, 500, c.other)))
		snap := w.Snapshot()
		snap.Reservations = dispatch.Reservations{{Name: "r", Start: snap.Now.Add(c.from), Duration: c.length, Repeat: c.repeat, Nodes: nodes, Users: []string{"u7"}}}
		p := scheduler.Schedule(snap, scheduler.Default())
		started := false
		for _, s := range p.Starts {
			started = started || s.Job == 2 || name == "the job may begin before it begins" && s.Job == 1
		}
		if started != c.starts {
			t.Errorf("%s: starts %+v", name, p.Starts)
		}
	}
}
