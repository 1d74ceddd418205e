package site

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// off is a node whose power is in a state.
func off(state cluster.PowerState, asked bool) schedtest.NodeOption {
	return func(n *cluster.Node) {
		n.Power = cluster.Power{State: state, Asked: asked}
		if n.Power.Off() {
			n.State = cluster.NodeUnreachable
		}
	}
}

func usual() *Site { return &Site{Chosen: Chosen{Policy: scheduler.Default()}} }

func whole(id cluster.JobID, gpus int, more ...schedtest.JobOption) *cluster.Job {
	return schedtest.Job(id, append([]schedtest.JobOption{schedtest.GPUs(gpus), schedtest.Exclusive, schedtest.Mem(1000), schedtest.Lasts(time.Hour)}, more...)...)
}

func TestNeeded(t *testing.T) {
	t.Parallel()
	up := func(id cluster.NodeID) *cluster.Node { return schedtest.Node(id, 2, "T4") }
	down := func(id cluster.NodeID) *cluster.Node {
		return schedtest.Node(id, 2, "T4", off(cluster.PoweredDown, false))
	}
	coming := func(id cluster.NodeID) *cluster.Node {
		return schedtest.Node(id, 2, "T4", off(cluster.PoweringUp, false))
	}
	for name, c := range map[string]struct {
		nodes []*cluster.Node
		jobs  []*cluster.Job
		wake  []cluster.NodeID
		used  string
	}{
		"nobody waits":                        {[]*cluster.Node{down("n1")}, nil, nil, ""},
		"one waits":                           {[]*cluster.Node{down("n1"), down("n2")}, []*cluster.Job{whole(1, 2)}, []cluster.NodeID{"n1"}, "n1"},
		"there is room on one that is up":     {[]*cluster.Node{down("n1"), up("n2")}, []*cluster.Job{whole(1, 2)}, nil, "n2"},
		"there will be on one that comes up":  {[]*cluster.Node{down("n1"), coming("n2")}, []*cluster.Job{whole(1, 2)}, nil, "n2"},
		"and not for a second":                {[]*cluster.Node{down("n1"), down("n3"), coming("n2")}, []*cluster.Job{whole(1, 2), whole(2, 2)}, []cluster.NodeID{"n1"}, "n1 n2"},
		"on several nodes":                    {[]*cluster.Node{down("n1"), up("n2"), down("n3")}, []*cluster.Job{whole(1, 2, schedtest.Nodes(3))}, []cluster.NodeID{"n1", "n3"}, "n1 n2 n3"},
		"on more than there are":              {[]*cluster.Node{down("n1"), up("n2"), down("n3")}, []*cluster.Job{whole(1, 2, schedtest.Nodes(4))}, nil, ""},
		"more cards than a node has":          {[]*cluster.Node{down("n1")}, []*cluster.Job{whole(1, 3)}, nil, ""},
		"another node is asked for":           {[]*cluster.Node{down("n1"), down("n2")}, []*cluster.Job{whole(1, 1, schedtest.On("n2"))}, []cluster.NodeID{"n2"}, "n2"},
		"another type":                        {[]*cluster.Node{down("n1")}, []*cluster.Job{whole(1, 1, schedtest.Type("H100-SXM5-80GB"))}, nil, ""},
		"an administrator powered it down":    {[]*cluster.Node{schedtest.Node("n1", 2, "T4", off(cluster.PoweredDown, true))}, []*cluster.Job{whole(1, 2)}, nil, ""},
		"it is drained":                       {[]*cluster.Node{schedtest.Node("n1", 2, "T4", off(cluster.PoweredDown, false), schedtest.Drained)}, []*cluster.Job{whole(1, 2)}, nil, ""},
		"it did not come back":                {[]*cluster.Node{schedtest.Node("n1", 2, "T4", off(cluster.PowerFailed, false))}, []*cluster.Job{whole(1, 2)}, nil, ""},
		"it is still going down":              {[]*cluster.Node{schedtest.Node("n1", 2, "T4", off(cluster.PoweringDown, false))}, []*cluster.Job{whole(1, 2)}, nil, ""},
		"no GPUs at all":                      {[]*cluster.Node{down("n1")}, []*cluster.Job{schedtest.Job(1, schedtest.GPUs(0))}, []cluster.NodeID{"n1"}, "n1"},
		"as many as wait, and no node beyond": {[]*cluster.Node{down("n1"), down("n2"), down("n3")}, []*cluster.Job{whole(1, 1), whole(2, 1), whole(3, 1)}, []cluster.NodeID{"n1", "n2"}, "n1 n2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snap := schedtest.NewWorld(c.nodes, c.jobs...).Snapshot()
			got := Needed(snap, usual())
			if d := cmp.Diff(c.wake, got.Wake); d != "" {
				t.Error(d)
			}
			if used := words(got.Used); used != c.used {
				t.Errorf("used %q, want %q", used, c.used)
			}
		})
	}
}

// TestNeededOfWhoStandsInAQueue: who waits for a busy card has a node woken as well.
func TestNeededOfWhoStandsInAQueue(t *testing.T) {
	t.Parallel()
	w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 1, "T4"), schedtest.Node("n2", 1, "T4", off(cluster.PoweredDown, false))}, whole(1, 1))
	first := Plan(w.Snapshot(), usual(), Full)
	w.Apply(&first)
	w.Submit(whole(2, 1))
	second := Plan(w.Snapshot(), usual(), Full)
	w.Apply(&second)
	if j := w.Jobs[2]; j.State != cluster.JobQueued {
		t.Fatalf("job 2 is %s", j.State)
	}
	got := Needed(w.Snapshot(), usual())
	if d := cmp.Diff([]cluster.NodeID{"n2"}, got.Wake); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[cluster.JobID][]cluster.NodeID{2: {"n2"}}, got.For); d != "" {
		t.Error(d)
	}
}

// TestNeededByAJobOnSeveralNodes: it is not started on what is left of those that are up,
// so the scheduler keeps nothing for it before there are enough of them.
func TestNeededByAJobOnSeveralNodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		off  []cluster.NodeID
		span int
		wake []cluster.NodeID
	}{
		"too few are up":                     {[]cluster.NodeID{"n3"}, 3, []cluster.NodeID{"n3"}},
		"enough are, once the other is done": {[]cluster.NodeID{"n3"}, 2, nil},
		"there are not enough at all":        {[]cluster.NodeID{"n3"}, 4, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := []*cluster.Node{schedtest.Node("n1", 1, "T4"), schedtest.Node("n2", 1, "T4"), schedtest.Node("n3", 1, "T4", off(cluster.PoweredDown, false))}
			w := schedtest.NewWorld(nodes, whole(1, 1), whole(2, 1))
			first := Plan(w.Snapshot(), usual(), Full)
			w.Apply(&first)
			w.Submit(whole(3, 1, schedtest.Nodes(c.span)))
			got := Needed(w.Snapshot(), usual())
			if d := cmp.Diff(c.wake, got.Wake); d != "" {
				t.Error(d)
			}
		})
	}
}

func words(set map[cluster.NodeID]struct{}) string {
	var ids []string
	for id := range set {
		ids = append(ids, string(id))
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// TestWhoIsWokenIsUsed: each node is woken for somebody who would not start without, and
// the snapshot stays as it was.
func TestWhoIsWokenIsUsed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		states := []cluster.PowerState{cluster.PowerUp, cluster.PoweredDown, cluster.PoweredDown, cluster.PoweringDown, cluster.PowerFailed}
		var nodes []*cluster.Node
		for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
			nodes = append(nodes, schedtest.Node(cluster.NodeID(fmt.Sprint("n", i)), rapid.IntRange(0, 3).Draw(t, "gpus"), "T4",
				off(rapid.SampledFrom(states).Draw(t, "power"), rapid.IntRange(0, 3).Draw(t, "asked") == 0)))
		}
		var jobs []*cluster.Job
		for i := range rapid.IntRange(0, 5).Draw(t, "jobs") {
			j := whole(cluster.JobID(i+1), rapid.IntRange(0, 3).Draw(t, "of gpus"))
			if j.Spec.Exclusive = j.Spec.GPUs > 0 && rapid.Bool().Draw(t, "whole"); j.Spec.GPUs > 0 && rapid.IntRange(0, 3).Draw(t, "gang") == 0 {
				j.Spec.Nodes = 2
			}
			jobs = append(jobs, j)
		}
		w := schedtest.NewWorld(nodes, jobs...)
		snap := w.Snapshot()
		before := w.Snapshot()
		got := Needed(snap, usual())
		if d := cmp.Diff(before.Nodes, snap.Nodes) + cmp.Diff(before.Waiting, snap.Waiting) + cmp.Diff(before.Queues, snap.Queues); d != "" || len(snap.Running) != len(before.Running) {
			t.Fatal("the snapshot was changed: ", d)
		}
		named := map[cluster.NodeID]bool{}
		for id, on := range got.For {
			for _, n := range on {
				named[n] = true
				if _, ok := got.Used[n]; !ok {
					t.Fatalf("job %d waits for node %s, which is not used", id, n)
				}
			}
		}
		for _, n := range nodes {
			if slices.Contains(got.Wake, n.ID) && (!n.Wakeable() || n.Power.State != cluster.PoweredDown || !named[n.ID]) {
				t.Fatalf("node %s is to be woken, for somebody: %t; %+v", n.ID, named[n.ID], n.Power)
			}
		}
		if !slices.IsSorted(got.Wake) || len(slices.Compact(slices.Clone(got.Wake))) < len(got.Wake) {
			t.Fatalf("woken out of order, or twice: %v", got.Wake)
		}
		for _, st := range Plan(w.Snapshot(), usual(), Full).Starts {
			if on := got.For[st.Job]; len(on) > 0 {
				t.Fatalf("job %d starts at once, and %v are woken for it", st.Job, on)
			}
		}
	})
}

// TestNeededKeepsReservations: a node that is reserved for others is not woken for who may
// not use it.
func TestNeededKeepsReservations(t *testing.T) {
	t.Parallel()
	hosts, err := cluster.ParseHostList("n1")
	if err != nil {
		t.Fatal(err)
	}
	snap := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 2, "T4", off(cluster.PoweredDown, false))}, whole(1, 1)).Snapshot()
	snap.Reservations = dispatch.Reservations{{Name: "r", Start: schedtest.Now, Duration: time.Hour, Nodes: hosts, Users: []string{"eve"}}}
	if got := Needed(snap, usual()); len(got.Wake) > 0 {
		t.Errorf("woken for somebody else than it is reserved for: %v", got.Wake)
	}
}
