package lead

import (
	"testing"
	"testing/synctest"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// TestReplicasLeaveADrainedNode: one that runs elsewhere is healthy before one there ends, if
// the service can have one more; else they move one at a time, and the only one stays.
func TestReplicasLeaveADrainedNode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		replicas, most int
		least          int // of those that take requests meanwhile
		stay           bool
	}{
		"one more fits":  {replicas: 2, most: 4, least: 2},
		"all are wanted": {replicas: 3, most: 3, least: 2},
		"one of several": {replicas: 1, most: 2, least: 1},
		"the only one":   {replicas: 1, most: 1, least: 1, stay: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newTown(t)
				l.machine("n2", 8, nil)
				l.loop(l.l.services)
				id := l.serve(c.replicas, c.most, c.replicas, func(s *service.Service) { s.Min = c.replicas })
				l.live(5)
				l.do(&logv1.Command{Kind: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Node: "n1", Drain: true, Reason: "new fans"}}})
				l.at = "n2"
				for range 90 {
					l.live(1)
					if n := len(l.ready()); n < c.least || n > c.replicas+1 {
						t.Fatalf("%d take requests, want %d to %d", n, c.least, c.replicas+1)
					}
				}
				on := map[cluster.NodeID]int{}
				for _, j := range l.f.Services()[0].Jobs {
					if a := j.Live(); a != nil {
						on[a.Berth.Node]++
					}
				}
				if n := len(l.ready()); n != c.replicas || c.stay != (on["n1"] == 1) || !c.stay && on["n1"] != 0 || on["n1"]+on["n2"] != n {
					t.Errorf("in the end %d of %d take requests, they run on %v", n, c.replicas, on)
				}
				if a, _ := l.f.Array(id); a.Throttle != c.replicas {
					t.Errorf("%d may run, want %d", a.Throttle, c.replicas)
				}
			})
		})
	}
}
