package scheduler_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

var _ = draws.Fixed()

// TestArrivalsEqualPasses: jobs that come one by one are laid where a pass
// over the whole snapshot lays each.
func TestArrivalsEqualPasses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t)
		pol := scheduler.Default()
		pol.MaxShares = rapid.IntRange(1, 4).Draw(t, "policy's shares")
		pol.FragNodes = rapid.SampledFrom([]int{0, 1, 3, 64}).Draw(t, "nodes looked at")
		w := NewWorld(nodes)
		a := scheduler.NewArrivals(nodes, w.Ledg, pol)
		for id := range cluster.JobID(rapid.IntRange(1, 25).Draw(t, "jobs")) {
			j := drawJob(t, id+1)
			w.Clock = w.Clock.Add(time.Second)
			w.Submit(j)
			p := scheduler.Schedule(w.Snapshot(), pol)
			got, ok := a.Offer(w.Clock, 0, j)
			if ok != (len(p.Starts) == 1) || ok && cmp.Diff(p.Starts[0], got) != "" {
				t.Fatalf("job %d: the pass %+v, offered %t %s", j.ID, p.Starts, ok, cmp.Diff(p.Starts, []dispatch.Start{got}))
			}
			p.Moves, p.Unplaced = nil, nil
			w.Apply(&p)
			if !ok {
				delete(w.Jobs, j.ID)
			}
		}
	})
}
