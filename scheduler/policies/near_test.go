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

// TestFewSwitches: under every policy a gang that asks for one switch waits until one has
// room or its wait is over, and keeps none like it from starting.
func TestFewSwitches(t *testing.T) {
	t.Parallel()
	asks := func(most int) JobOption {
		return func(j *cluster.Job) {
			j.Spec.Where = &cluster.Where{Switches: cluster.Switches{Most: most, Wait: 5 * time.Minute}}
		}
	}
	for _, name := range policies.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			starts := func(busy cluster.GPUID, opts ...JobOption) string {
				t.Helper()
				s := newScene(Node("n1", 2, a100, Switch("core:a")), Node("n2", 2, a100, Switch("core:b")), Node("n3", 2, a100, Switch("core:b")), Node("n4", 2, a100, Switch("core:c")))
				s.runs(8, 80000, 1000, time.Hour, time.Minute, busy)
				s.waits(Job(1, append([]JobOption{GPUs(2), Nodes(2), Lasts(time.Hour)}, opts...)...))
				p := must(t, name, policies.Options{}).Plan(s.snap(t))
				out := ""
				for _, st := range p.Starts {
					for _, b := range st.Berths() {
						out += string(b.Node) + " "
					}
				}
				return out
			}
			if got := starts("n1-00", asks(1)); got != "n2 n3 " {
				t.Errorf("one of two switches has room: %q", got)
			}
			if got := starts("n2-00", asks(1)); got != "" {
				t.Errorf("no switch has room: %q", got)
			}
			if got := starts("n2-00", asks(2)); len(got) != len("n1 n3 ") {
				t.Errorf("two switches have room: %q", got)
			}
			if got := starts("n2-00", asks(1), Waited(5*time.Minute)); len(got) != len("n1 n3 ") {
				t.Errorf("its wait is over: %q", got)
			}
			// None of fewer switches is below a lower one, and who comes after it may take any.
			s := newScene(Node("n1", 2, a100, Switch("x:a")), Node("n2", 2, a100, Switch("x:b")), Node("n3", 2, a100, Switch("x:c")), Node("n4", 2, a100, Switch("x:c")))
			s.waits(Job(1, GPUs(2), Nodes(3), Lasts(time.Hour), asks(2)))
			p := must(t, name, policies.Options{}).Plan(s.snap(t))
			if len(p.Starts) != 1 || p.Starts[0].Rest[0].Node != "n3" || p.Starts[0].Rest[1].Node != "n4" {
				t.Errorf("three nodes on two switches: %v", startsOf(&p))
			}
			s = newScene(Node("n1", 2, a100, Switch("x:a")), Node("n2", 2, a100, Switch("x:b")))
			s.waits(Job(1, GPUs(2), Nodes(2), Lasts(time.Minute), Waited(time.Second), asks(1)))
			s.waits(Job(2, GPUs(2), Nodes(2), Lasts(time.Minute)))
			if p = must(t, name, policies.Options{}).Plan(s.snap(t)); len(p.Starts) != 1 || p.Starts[0].Job != 2 {
				t.Errorf("who comes after it: %v", startsOf(&p))
			}
		})
	}
}
