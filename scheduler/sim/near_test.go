package sim_test

import (
	"testing"
	"time"

	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// TestWhatJobsReadByHand: an image is fetched once by each node and a data set is there or
// not; a scheduler that knows of both sends jobs where they are. With the log and without.
func TestWhatJobsReadByHand(t *testing.T) {
	t.Parallel()
	minute := time.Minute
	w := &workload.Workload{Jobs: []workload.Job{
		{ID: "1", Submit: 0, Duration: 10 * minute, GPUs: 1, Milli: 1000, Image: "a"},
		{ID: "2", Submit: minute, Duration: minute, GPUs: 1, Milli: 1000, Data: []string{"coco"}},
		{ID: "3", Submit: 20 * minute, Duration: minute, GPUs: 1, Milli: 1000, Image: "a", Data: []string{"coco", "mnist"}},
		{ID: "4", Submit: 40 * minute, Duration: minute, GPUs: 1, Milli: 1000, Image: "a"},
		{ID: "5", Submit: 60 * minute, Duration: minute, GPUs: 1, Milli: 1000, Image: "a", Data: []string{"mnist"}},
	}}
	f := &workload.Fleet{MaxShares: 1, Nodes: []workload.NodeSpec{{Count: 1, GPUs: 2}, {Count: 1, GPUs: 2, Data: "coco"}, {Count: 1, GPUs: 2, Data: "coco+mnist"}}}
	for _, c := range []struct {
		name               string
		blind              bool
		fetched, elsewhere int
		lost               time.Duration // by all
	}{
		// All on the first node, which has none of the data sets.
		{"blind", true, 1, 4, 2*minute + 4*5*minute},
		// The first fetches a on the first node, the third on the third: data counts more.
		{"knowing", false, 2, 0, 2 * 2 * minute},
	} {
		for _, log := range []bool{false, true} {
			r, err := sim.Run(t.Context(), w, f, sim.Options{
				Planner: sim.NewBerth(scheduler.ModeSlot, 1), Log: log, Fetch: sim.Fetch{Image: 2 * minute, Data: 5 * minute, Blind: c.blind},
			})
			if err != nil {
				t.Fatal(err)
			}
			if *r.ImagesFetched != c.fetched || *r.DataElsewhere != c.elsewhere || *r.MeanJCT != (14*minute+c.lost).Seconds()/5 {
				t.Errorf("%s, log %t: %d images fetched, %d data sets elsewhere, mean %g s; want %d, %d, %g", c.name, log,
					*r.ImagesFetched, *r.DataElsewhere, *r.MeanJCT, c.fetched, c.elsewhere, (14*minute+c.lost).Seconds()/5)
			}
		}
	}
}
