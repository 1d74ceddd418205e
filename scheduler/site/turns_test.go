package site

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestWhoseTurnItIs on a node: of those who head its queues for too long the oldest's,
// by time and then by id; to that partition the others are not shown.
func TestWhoseTurnItIs(t *testing.T) {
	t.Parallel()
	n := schedtest.Node("n1", 3, "T4")
	old, young := int64(schedtest.Now), int64(3)<<58
	q := func(ws ...dispatch.Waiter) []dispatch.Waiter { return ws }
	for name, c := range map[string]struct {
		heads     [][]dispatch.Waiter
		turn      string
		strangers bool // to a
	}{
		"nobody waits":             {nil, "a", false},
		"nobody is old":            {[][]dispatch.Waiter{q(dispatch.Waiter{Job: 21, Rank: young})}, "a", false},
		"its own":                  {[][]dispatch.Waiter{q(dispatch.Waiter{Job: 11, Rank: old})}, "a", false},
		"another one's":            {[][]dispatch.Waiter{q(dispatch.Waiter{Job: 21, Rank: old})}, "b", true},
		"behind an own head":       {[][]dispatch.Waiter{q(dispatch.Waiter{Job: 11, Rank: old}, dispatch.Waiter{Job: 21, Rank: old + 1})}, "a", false},
		"the older of two":         {[][]dispatch.Waiter{q(dispatch.Waiter{Job: 21, Rank: old + 5}), q(dispatch.Waiter{Job: 11, Rank: old})}, "a", true},
		"the older of two, other":  {[][]dispatch.Waiter{q(dispatch.Waiter{Job: 11, Rank: old + 5}), nil, q(dispatch.Waiter{Job: 21, Rank: old})}, "b", true},
		"equally old":              {[][]dispatch.Waiter{q(dispatch.Waiter{Job: 21, Rank: old}), q(dispatch.Waiter{Job: 11, Rank: old})}, "a", true},
		"one whom nobody shows":    {[][]dispatch.Waiter{q(dispatch.Waiter{Job: 99, Rank: old})}, "a", false},
		"the second of a stranger": {[][]dispatch.Waiter{q(dispatch.Waiter{Job: 21, Rank: old}, dispatch.Waiter{Job: 11, Rank: old + 1}), q(dispatch.Waiter{Job: 12, Rank: old - 1})}, "a", true},
	} {
		snap := &dispatch.Snapshot{Nodes: []*cluster.Node{n}, Queues: map[cluster.GPUID][]dispatch.Waiter{}}
		for i, ws := range c.heads {
			if ws != nil {
				snap.Queues[n.GPUs[i].ID] = ws
			}
		}
		d := &division{
			snap: snap, of: map[cluster.JobID]string{11: "a", 12: "a", 21: "b"}, at: map[cluster.NodeID]*cluster.Node{"n1": n},
			live: map[cluster.NodeID][]*cluster.Job{},
		}
		p := &partPass{name: "a", part: partition(t, "a", "ALL"), chosen: &Chosen{}}
		turn, strangers := d.turn("n1", p)
		if turn != c.turn || strangers != c.strangers {
			t.Errorf("%s: the turn of %s, strangers %t; want %s, %t", name, turn, strangers, c.turn, c.strangers)
		}
		want := map[cluster.GPUID][]dispatch.Waiter{}
		for g, ws := range snap.Queues {
			for _, w := range ws {
				if !c.strangers || c.turn != "a" || d.of[w.Job] == "a" {
					want[g] = append(want[g], w)
				}
			}
		}
		if d := cmp.Diff(want, d.view(p).Queues); d != "" {
			t.Errorf("%s: the queues that a sees: %s", name, d)
		}
	}
}

// TestTheOldestOfAPartition says how old the partition is, whatever its id.
func TestTheOldestOfAPartition(t *testing.T) {
	t.Parallel()
	w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 1, "T4")})
	waits(w, 1, "x", 9*time.Hour)
	waits(w, 2, "y", 7*time.Hour)
	waits(w, 3, "x", 5*time.Hour)
	waits(w, 4, "a", time.Hour)
	waits(w, 5, "z", 7*time.Hour)
	snap := w.Snapshot()
	for _, name := range []string{"a", "x", "y", "z"} {
		snap.Partitions = append(snap.Partitions, partition(t, name, "ALL"))
	}
	s := &Site{Chosen: byName(t, "ffd")}
	d := &division{snap: snap, site: s, of: map[cluster.JobID]string{}}
	d.divide()
	var order []string
	for _, p := range d.parts {
		order = append(order, p.name)
	}
	if d := cmp.Diff([]string{"x", "y", "z", "a"}, order); d != "" {
		t.Error(d)
	}
}

// TestWhoLeavesAQueue: the queue that was given stays, and one that is empty is none.
func TestWhoLeavesAQueue(t *testing.T) {
	t.Parallel()
	given := []dispatch.Waiter{{Job: 1, Rank: 1}, {Job: 2, Rank: 2}}
	queues := map[cluster.GPUID][]dispatch.Waiter{"g": given, "h": {{Job: 3}}}
	leave(queues, &cluster.Job{ID: 1, Queue: "g"})
	leave(queues, &cluster.Job{ID: 3, Queue: "h"})
	leave(queues, &cluster.Job{ID: 4})
	if d := cmp.Diff(map[cluster.GPUID][]dispatch.Waiter{"g": {{Job: 2, Rank: 2}}}, queues); d != "" || given[0].Job != 1 || given[1].Job != 2 {
		t.Errorf("%s; given were %v", d, given)
	}
}

// TestWithinSeesAGangOnce on however many of its nodes it runs.
func TestWithinSeesAGangOnce(t *testing.T) {
	t.Parallel()
	w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 1, "T4"), schedtest.Node("n2", 1, "T4"), schedtest.Node("n3", 1, "T4")})
	lies(w, 1, "a", on("n1", 0, 100), on("n2", 0, 100))
	lies(w, 2, "a", on("n3", 0, 100))
	lies(w, 3, "b", on("n3", 0, 100), on("n2", 0, 100))
	snap := w.Snapshot()
	for nodes, want := range map[string]string{"n[1-2]": "1 3", "n3": "2 3", "n1": "1", "n[1-3]": "1 2 3"} {
		if got := sight(&dispatch.Snapshot{Running: Within(snap, partition(t, "a", nodes)).Running}); got != "waiting ; running "+want+"; nodes ; queues " {
			t.Errorf("of %s it sees: %s, want %s", nodes, got, want)
		}
	}
}
