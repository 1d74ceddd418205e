package policies_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

func drawArrivals(t *rapid.T) *World {
	var nodes []*cluster.Node
	for i := range rapid.IntRange(1, 9).Draw(t, "nodes") {
		nodes = append(nodes, Node(cluster.NodeID(fmt.Sprintf("n%d", i)), rapid.IntRange(1, 4).Draw(t, "gpus"),
			rapid.SampledFrom([]string{a100, "T4"}).Draw(t, "type"), Host(rapid.Int64Range(2, 16).Draw(t, "cores")*1000, 64<<10)))
	}
	w := NewWorld(nodes)
	for id := range rapid.IntRange(1, 60).Draw(t, "jobs") {
		j := Job(cluster.JobID(id+1), Mem(rapid.Int64Range(1, 14000).Draw(t, "mem")), Util(rapid.Int64Range(1, 1000).Draw(t, "milli")),
			Cores(rapid.Int64Range(0, 3).Draw(t, "cores")*700), GPUs(rapid.SampledFrom([]int{1, 1, 1, 1, 2, 3}).Draw(t, "gpus")),
			Lasts(time.Duration(rapid.IntRange(1, 9).Draw(t, "hours"))*time.Hour))
		j.Spec.Exclusive = rapid.IntRange(0, 4).Draw(t, "alone") == 0
		w.Submit(j)
	}
	return w
}

// TestArrivalsEqualPlans: jobs that come one by one are laid where a plan for
// the whole snapshot lays each.
func TestArrivalsEqualPlans(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"firstfit", "bestfit", "random", "fgd", "ffd"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				drawn := drawArrivals(t)
				w := NewWorld(drawn.Nodes)
				pol, err := policies.New(name, policies.Options{Seed: 7})
				if err != nil {
					t.Fatal(err)
				}
				short, ok := pol.(interface {
					Arrivals([]*cluster.Node, *dispatch.Ledger) (scheduler.Offers, bool)
				}).Arrivals(w.Nodes, w.Ledg)
				if !ok {
					t.Fatal("it knows no short way")
				}
				for id := range cluster.JobID(len(drawn.Jobs)) {
					j := drawn.Jobs[id+1]
					if rapid.IntRange(0, 7).Draw(t, "plain") == 0 {
						GPUs(0)(j)
					}
					w.Clock = w.Clock.Add(time.Second)
					w.Submit(j)
					s := w.Snapshot()
					p := pol.Plan(s)
					got, ok := short.Offer(s.Now, s.Index, j)
					if ok != (len(p.Starts) == 1) || ok && fmt.Sprint(p.Starts[0]) != fmt.Sprint(got) {
						t.Fatalf("job %d: planned %+v, offered %t %+v", j.ID, p.Starts, ok, got)
					}
					p.Moves = nil
					w.Apply(&p)
					if !ok {
						delete(w.Jobs, j.ID)
					}
				}
			})
		})
	}
}
