package site

import (
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// replicaOf makes a job a replica of the service that begins with a job.
func replicaOf(first cluster.JobID) schedtest.JobOption {
	return func(j *cluster.Job) {
		j.Spec.Service = &service.Service{Name: "web", Replicas: 1, Min: 1, Max: 8}
		j.ArrayJobID, j.ArrayTaskID = first, uint32(j.ID-first)
	}
}

// byNode counts the replicas of a service on each node.
func byNode(w *schedtest.World, first cluster.JobID) map[cluster.NodeID]int {
	out := map[cluster.NodeID]int{}
	for _, j := range w.Jobs {
		if a := j.Live(); a != nil && j.ArrayJobID == first {
			out[a.Berth.Node]++
		}
	}
	return out
}

// TestReplicasKeepApart on nodes under whatever policy, where there is room, and go where
// there is room where there is none.
func TestReplicasKeepApart(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"ffd", "slot", "ffd+fairshare", "slot+las", "lucid"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			s := &Site{Chosen: byName(t, policy)}
			nodes := []*cluster.Node{schedtest.Node("n1", 8, "A100"), schedtest.Node("n2", 8, "A100"), schedtest.Node("n3", 8, "A100"), schedtest.Node("n4", 1, "A100"), schedtest.Node("n5", 4, "A100", schedtest.Drained)}
			w := schedtest.NewWorld(nodes)
			w.Submit(schedtest.Job(90, schedtest.Exclusive, schedtest.On("n4"))) // nobody else has room there
			run := func() {
				for range 20 {
					snap := w.Snapshot()
					Prepare(snap, s, Full)
					plan := Plan(snap, s, Full)
					w.Apply(&plan)
					w.Advance(0)
				}
			}
			run()
			for id := range cluster.JobID(15) {
				w.Submit(schedtest.Job(100+id, replicaOf(100), schedtest.Mem(2000), schedtest.Util(100)))
			}
			w.Submit(schedtest.Job(150, schedtest.Mem(2000), schedtest.Util(100)))
			run()
			if got := byNode(w, 100); got["n1"] != 5 || got["n2"] != 5 || got["n3"] != 5 {
				t.Errorf("15 replicas are on %v", got)
			}
			if w.Jobs[150].Live() == nil || len(w.Rejected) > 0 {
				t.Errorf("the other job waits: %v, refused: %v", w.Jobs[150].State, w.Rejected)
			}
			// Of another service all want what one node alone has: they go there.
			for id := range cluster.JobID(2) {
				w.Submit(schedtest.Job(200+id, replicaOf(200), schedtest.On("n2"), schedtest.Mem(2000), schedtest.Util(100)))
			}
			run()
			if got := byNode(w, 200); got["n2"] != 2 {
				t.Errorf("two for n2 are on %v", got)
			}
		})
	}
}

// TestNobodyServes: without replicas that wait, and on one node, nothing is looked at twice.
func TestNobodyServes(t *testing.T) {
	t.Parallel()
	two := []*cluster.Node{schedtest.Node("n1", 4, "A100"), schedtest.Node("n2", 4, "A100")}
	if got := spread(schedtest.NewWorld(two, schedtest.Job(1)).Snapshot(), 0); got != nil {
		t.Errorf("without replicas: %v", got)
	}
	if got := spread(schedtest.NewWorld(two[:1], schedtest.Job(1, replicaOf(1))).Snapshot(), 0); got != nil {
		t.Errorf("on one node: %v", got)
	}
	w := schedtest.NewWorld(two, schedtest.Job(1, replicaOf(1)), schedtest.Job(2, replicaOf(1)), schedtest.Job(3))
	snap := w.Snapshot()
	if got := spread(snap, 0); got == nil || len(got.Waiting) != 2 || len(snap.Waiting) != 3 || got.Ledger == snap.Ledger {
		t.Errorf("of two replicas and a job: %v", got)
	}
}
