package policies_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// revise gives a new revision to each job that changed, as the state machine
// does.
func revise(w *World, was map[cluster.JobID]string) {
	for id, j := range w.Jobs {
		now := fmt.Sprint(j.State, j.Queue, len(j.Attempts))
		if was[id] != now {
			was[id] = now
			j.Revision++
		}
	}
}

// TestMemoryChangesNothing lets a cluster live on: jobs come, start by the plan
// and end, nodes fall silent and come back. A policy that remembers must plan
// what one does that sees each snapshot for the first time, and must leave the
// snapshot's ledger as it found it.
func TestMemoryChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(policies.Names()).Draw(t, "placement") + "+" + rapid.SampledFrom(policies.Orders()).Draw(t, "order")
		p, err := policies.New(name, policies.Options{Seed: 3, Age: rapid.SampledFrom([]time.Duration{0, 0, time.Hour}).Draw(t, "age")})
		if err != nil {
			t.Fatal(err)
		}
		keeps, ok := p.(interface {
			Remember() interface {
				Name() string
				Plan(*dispatch.Snapshot) dispatch.Plan
			}
		})
		if !ok {
			t.Skip("it has no memory")
		}
		mem := keeps.Remember()
		w, was, id := NewWorld(drawNodes(t)), map[cluster.JobID]string{}, cluster.JobID(0)
		for range rapid.IntRange(2, 8).Draw(t, "rounds") {
			for range rapid.IntRange(0, 6).Draw(t, "batch") {
				id++
				w.Submit(drawJob(t, id))
			}
			if rapid.IntRange(0, 5).Draw(t, "turns") == 0 {
				i := rapid.IntRange(0, len(w.Nodes)-1).Draw(t, "node")
				n := *w.Nodes[i]
				n.State = rapid.SampledFrom([]cluster.NodeState{cluster.NodeReady, cluster.NodeUnreachable}).Draw(t, "state")
				w.Nodes[i] = &n
				w.Ledg.SetNode(&n)
			}
			revise(w, was)
			snap := w.Snapshot()
			before := snap.Ledger.Clone()
			want, got := p.Plan(snap), mem.Plan(snap)
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("%s plans something else with memory (-without +with):\n%s", name, d)
			}
			if !snap.Ledger.Equal(before) {
				t.Fatalf("%s left something in the ledger", name)
			}
			w.Apply(&want)
			w.Advance(time.Duration(rapid.IntRange(1, 5000).Draw(t, "seconds")) * time.Second)
		}
	})
}
