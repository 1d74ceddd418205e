package policies_test

import (
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestGangsOnOneSwitch: under every policy a gang lies below one switch where it can, and
// starts at once where it cannot.
func TestGangsOnOneSwitch(t *testing.T) {
	t.Parallel()
	world := func() *scene {
		return newScene(Node("n1", 2, a100, Switch("core:a")), Node("n2", 2, a100, Switch("core:b")), Node("n3", 2, a100, Switch("core:a")),
			Node("n4", 2, a100, Switch("core:c")), Node("n5", 2, a100, Switch("core:c")), Node("n6", 2, a100))
	}
	for _, name := range policies.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on := func(plan *[]cluster.NodeID, s *scene, want int) {
				t.Helper()
				p := must(t, name, policies.Options{}).Plan(s.snap(t))
				if len(p.Starts) != 1 || 1+len(p.Starts[0].Rest) != want {
					t.Fatalf("starts %v, want one on %d nodes", startsOf(&p), want)
				}
				for _, b := range p.Starts[0].Berths() {
					*plan = append(*plan, b.Node)
				}
			}
			var pair, rest, four []cluster.NodeID
			on(&pair, world().waits(Job(1, GPUs(2), Nodes(2), Lasts(time.Hour))), 2)
			if !(pair[0] == "n1" && pair[1] == "n3" || pair[0] == "n4" && pair[1] == "n5") {
				t.Errorf("two nodes: %v, want n1 and n3, or n4 and n5", pair)
			}
			on(&rest, world().runs(8, 80000, 1000, time.Hour, time.Minute, "n1-00").waits(Job(1, GPUs(2), Nodes(2), Lasts(time.Hour))), 2)
			if rest[0] != "n4" || rest[1] != "n5" {
				t.Errorf("two nodes while one of a is taken: %v, want n4 and n5", rest)
			}
			on(&four, world().runs(8, 80000, 1000, time.Hour, time.Minute, "n1-00").waits(Job(1, GPUs(2), Nodes(5), Lasts(time.Hour))), 5)
		})
	}
}
