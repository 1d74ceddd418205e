package cells

import (
	"slices"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
)

// TestGuaranteedOnSeveralNodes: cells that are nodes, or several, hold a part of a job on
// each; two smaller ones may be on the same node, and hold none. There are four nodes
// of four cards.
func TestGuaranteedOnSeveralNodes(t *testing.T) {
	t.Parallel()
	on := func(id cluster.JobID, node string, n int) Job {
		return Job{ID: id, Tenant: "x", GPUs: gpus(node, []int{0, 1, 2, 3}[:n]...)}
	}
	gang := Job{ID: 9, Tenant: "x", GPUs: append(gpus("a", 0, 1), gpus("b", 0, 1)...)}
	soft := gang
	soft.Preemptible = true
	for _, c := range []struct {
		name        string
		cells       []string
		jobs        []Job
		gpus, nodes int
		want        bool
	}{
		{"two nodes", []string{"4=2"}, nil, 4, 2, true},
		{"one card of each", []string{"4=2"}, nil, 1, 2, true},
		{"one node", []string{"4=1", "2=2"}, nil, 2, 2, false},
		{"halves of nodes", []string{"2=4"}, nil, 2, 2, false},
		{"a cell of two nodes", []string{"8=1"}, nil, 4, 2, true},
		{"and one more node", []string{"8=1", "4=1"}, nil, 4, 3, true},
		{"three of two", []string{"8=1"}, nil, 1, 3, false},
		{"wider than a node", []string{"8=1"}, nil, 5, 1, false},
		{"two small jobs are packed on one node", []string{"4=3"}, []Job{on(1, "a", 2), on(2, "b", 2)}, 4, 2, true},
		{"a gang takes two, whatever it has of each", []string{"4=3"}, []Job{gang}, 4, 2, false},
		{"and leaves two of four", []string{"4=4"}, []Job{gang}, 4, 2, true},
		{"of which it has too much", []string{"8=1"}, []Job{gang, on(1, "a", 4)}, 3, 2, false},
		{"beside it on both", []string{"8=1"}, []Job{soft}, 2, 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := Bind([]*cluster.Node{node("a", 4), node("b", 4), node("c", 4), node("d", 4)}, []Tenant{tenant("x", c.cells...)}, c.jobs)
			if got := b.GuaranteedOn("x", "g", c.gpus, c.nodes); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}

// TestGangsLieNear: of nodes that have room those of one rack are taken.
func TestGangsLieNear(t *testing.T) {
	t.Parallel()
	nodes := []*cluster.Node{inRack(node("a", 4), "r1"), inRack(node("b", 4), "r2"), inRack(node("c", 4), "r3"), inRack(node("d", 4), "r3")}
	a := Bind(nodes, nil, nil).Place(Request{ID: 1, GPUType: "g", GPUs: 1, Nodes: 2}, nil)
	if want := append(gpus("c", 0), gpus("d", 0)...); !a.Now || !slices.Equal(a.GPUs, want) {
		t.Errorf("lies on %v, want %v", a.GPUs, want)
	}
}

// TestAGangUnderAnotherBinding: y's gang has room on two nodes if x's cell is the one
// that is lent; what was tried leaves nothing behind.
func TestAGangUnderAnotherBinding(t *testing.T) {
	t.Parallel()
	b := Bind([]*cluster.Node{inRack(node("a", 4), "r1"), inRack(node("b", 4), "r2"), inRack(node("c", 4), "r3")}, []Tenant{tenant("x", "4=1"), tenant("y", "4=2")},
		[]Job{{ID: 1, Preemptible: true, GPUs: gpus("c", 0)}})
	if of, _ := b.Holder(gpu("a", 0)); of != "x" {
		t.Fatalf("node a is in a cell of %q; the test wants it to be x's", of)
	}
	a := b.Place(Request{ID: 2, Tenant: "y", GPUType: "g", GPUs: 4, Nodes: 2}, nil)
	if want := append(gpus("a", 0, 1, 2, 3), gpus("b", 0, 1, 2, 3)...); !a.Now || !slices.Equal(a.GPUs, want) {
		t.Errorf("lies on %v, want %v", a.GPUs, want)
	}
	if slices.ContainsFunc(b.places["g"].claim, func(c int32) bool { return c != free }) {
		t.Errorf("cards are claimed: %v", b.places["g"].claim)
	}
}
