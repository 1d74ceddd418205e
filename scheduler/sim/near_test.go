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

// TestSharedLinksByHand: jobs on several nodes that share the uplink of a node, or of a
// switch when they are below several, divide it; a scheduler that counts them keeps to
// other nodes.
func TestSharedLinksByHand(t *testing.T) {
	t.Parallel()
	minute := time.Minute
	gangs := func(n int) *workload.Workload {
		return &workload.Workload{Jobs: []workload.Job{
			{ID: "1", Duration: 10 * minute, GPUs: n, Nodes: n, Milli: 1000},
			{ID: "2", Submit: time.Second, Duration: 10 * minute, GPUs: n, Nodes: n, Milli: 1000},
		}}
	}
	var three []workload.NodeSpec // gangs of three nodes are across two of three switches
	for _, path := range []string{"a", "a", "b", "b", "c", "c"} {
		three = append(three, workload.NodeSpec{Count: 1, GPUs: 1, Switch: path})
	}
	for name, c := range map[string]struct {
		n      int
		nodes  []workload.NodeSpec
		blind  bool
		uplink int
		each   time.Duration
	}{
		// Half of the time they compute, and half of the time they have half a link. The
		// first is alone for a second, and so is the other at the end.
		"blind":           {2, []workload.NodeSpec{{Count: 4, GPUs: 2}}, true, 1, 15*minute - time.Second/2},
		"knowing":         {2, []workload.NodeSpec{{Count: 4, GPUs: 2}}, false, 1, 10 * minute},
		"no others":       {2, []workload.NodeSpec{{Count: 2, GPUs: 2}}, false, 1, 15*minute - time.Second/2},
		"over one switch": {3, three, false, 1, 15*minute - time.Second/2},
		"which has two":   {3, three, false, 2, 10 * minute},
	} {
		b := sim.NewBerth(scheduler.ModeSlot, 1)
		b.Policy.Linkless = c.blind
		r, err := sim.Run(t.Context(), gangs(c.n), &workload.Fleet{MaxShares: 1, Nodes: c.nodes}, sim.Options{Planner: b, Exchange: 0.5, Uplink: c.uplink, Paranoid: true})
		if err != nil {
			t.Fatal(err)
		}
		if *r.MeanJCT != c.each.Seconds() || r.Completed != 2 {
			t.Errorf("%s: %d completed in %g s, want %g", name, r.Completed, *r.MeanJCT, c.each.Seconds())
		}
	}
}
