package site

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// runs makes a job that has run for a while on cards of one node, with a limit of
// its own.
func runs(id cluster.JobID, since, limit time.Duration, node cluster.NodeID, cards ...cluster.GPUID) *cluster.Job {
	j := schedtest.Job(id, schedtest.GPUs(len(cards)), schedtest.Limit(limit))
	b := cluster.Berth{Node: node, CPUMilli: 1000, MemMiB: 1024}
	for _, c := range cards {
		b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: c, Share: cluster.Share{Milli: 1000, Exclusive: true}})
	}
	at := schedtest.Now.Add(-since)
	j.State, j.Started = cluster.JobRunning, at
	j.Attempts = []cluster.Attempt{{No: 1, State: cluster.JobRunning, Berth: b, Placed: at, Started: at}}
	return j
}

// TestWhoIsInTheWay: those of others who lie on what a reservation holds, by a
// list of all that each holds, and may run on when the next window begins. Jobs on
// loan that save their state on demand are none, except of maintenance.
func TestWhoIsInTheWay(t *testing.T) {
	t.Parallel()
	nodes := fourNodes()
	rapid.Check(t, func(t *rapid.T) {
		r := drawReservation(t, "r")
		r.Maint = rapid.IntRange(0, 2).Draw(t, "maint") == 0
		snap := &dispatch.Snapshot{Now: schedtest.Now, Nodes: nodes, Reservations: dispatch.Reservations{r}}
		held := holds(r, nodes)
		var want []cluster.JobID
		next := windowsOf(r, schedtest.Now)
		for id := cluster.JobID(1); id <= 6; id++ {
			node := nodes[rapid.IntRange(0, 3).Draw(t, "node")]
			var cards []cluster.GPUID
			for _, g := range node.GPUs {
				if rapid.Bool().Draw(t, "card") {
					cards = append(cards, g.ID)
				}
			}
			since := time.Duration(rapid.IntRange(0, 5).Draw(t, "since")) * time.Hour
			limit := since + time.Duration(rapid.IntRange(1, 2500).Draw(t, "left"))*time.Hour
			if rapid.IntRange(0, 3).Draw(t, "endless") == 0 {
				limit = 0 // nobody knows when it ends
			}
			j := runs(id, since, limit, node.ID, cards...)
			own := rapid.IntRange(0, 3).Draw(t, "own") == 0
			if own {
				j.Spec.Where = &cluster.Where{Reservation: "r"}
			}
			hook, lent := rapid.Bool().Draw(t, "hook"), rapid.IntRange(0, 3).Draw(t, "lent") == 0
			if hook {
				j.Spec.Checkpoint = cluster.Checkpoint{Signal: "TERM", Grace: time.Minute}
			}
			if lent {
				j.Last().Loan = "serve"
			}
			snap.Running = append(snap.Running, j)
			lies := held[string(node.ID)]
			for _, c := range cards {
				lies = lies || held[string(c)]
			}
			late := len(next) > 0 && (limit == 0 || schedtest.Now.Add(limit-since) > next[0].from)
			if lies && late && !own && (!hook || !lent || r.Maint) {
				want = append(want, id)
			}
		}
		var got []cluster.JobID
		for _, j := range InTheWay(r, snap, schedtest.Now) {
			got = append(got, j.ID)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("in the way of %+v: %v, want %v", *r, got, want)
		}
	})
}

// drawFleet draws nodes of 0 to 4 cards, some out of service, with jobs on single
// cards that end within two days.
func drawFleet(t *rapid.T) *dispatch.Snapshot {
	snap := &dispatch.Snapshot{Now: schedtest.Now}
	id := cluster.JobID(0)
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		n := schedtest.Node(cluster.NodeID("n"+string(rune('1'+i))), rapid.IntRange(0, 4).Draw(t, "cards"), rapid.SampledFrom([]string{"T4", "V100"}).Draw(t, "type"))
		n.Features = rapid.SampledFrom([][]string{nil, {"ib"}}).Draw(t, "features")
		switch rapid.IntRange(0, 9).Draw(t, "state") {
		case 0:
			schedtest.Drained(n)
		case 1:
			schedtest.Silent(n)
		}
		snap.Nodes = append(snap.Nodes, n)
		for _, g := range n.GPUs {
			for range rapid.IntRange(0, 2).Draw(t, "residents") {
				id++
				snap.Running = append(snap.Running, runs(id, time.Hour, time.Duration(rapid.IntRange(2, 48).Draw(t, "ends"))*time.Hour, n.ID, g.ID))
			}
		}
	}
	return snap
}

// endOf is when the last job on a card, or with "" on any of a node, has ended by
// its limit: 0 where nobody is.
func endOf(snap *dispatch.Snapshot, node cluster.NodeID, card cluster.GPUID) (end cluster.Time) {
	for _, j := range snap.Running {
		b := &j.Attempts[0].Berth
		on := b.Node == node && (card == "" || slices.ContainsFunc(b.GPUs, func(g cluster.GPUShare) bool { return g.GPU == card }))
		if on {
			end = max(end, j.Attempts[0].Started.Add(j.Spec.TimeLimit))
		}
	}
	return end
}

// invalid reports whether an error refuses what a user asks for, in words that
// name the field.
func invalid(err error, field string) bool {
	e, ok := errors.AsType[*cluster.Error](err)
	return ok && e.Code == cluster.CodeInvalid && strings.HasPrefix(e.Msg, field+":")
}

// TestNodesThatAreChosen: of the nodes that take jobs, have the features and are in
// no other reservation then, those that everybody has left first, and of equals the
// first by name; one more than there are is refused, and all when none is asked for.
func TestNodesThatAreChosen(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		snap := drawFleet(t)
		other := &dispatch.Reservation{Name: "other", Start: schedtest.Now.Add(5 * time.Hour), Duration: time.Hour, Nodes: hosts(t, rapid.SampledFrom([]string{"n1", "n[2-3]"}).Draw(t, "other"))}
		snap.Reservations = dispatch.Reservations{other}
		r := &dispatch.Reservation{Name: "r", Start: schedtest.Now.Add(time.Duration(rapid.IntRange(2, 7).Draw(t, "start")) * time.Hour), Duration: 2 * time.Hour}
		r.Maint = rapid.IntRange(0, 4).Draw(t, "maint") == 0
		want := Want{Nodes: rapid.IntRange(0, 4).Draw(t, "count"), Overlap: rapid.IntRange(0, 4).Draw(t, "overlap") == 0}
		if rapid.Bool().Draw(t, "featured") {
			want.Features = "ib"
		}
		meets := r.Start < other.End() && other.Start < r.End()
		var able []cluster.NodeID
		for _, n := range snap.Nodes {
			out := n.Drain || n.State != cluster.NodeReady || want.Features != "" && len(n.Features) == 0
			if !out && (r.Maint || want.Overlap || !meets || !other.Nodes.Holds(n.ID)) {
				able = append(able, n.ID)
			}
		}
		slices.SortStableFunc(able, func(a, b cluster.NodeID) int { return cmp.Compare(endOf(snap, a, ""), endOf(snap, b, "")) })
		count := want.Nodes
		if count == 0 {
			count = len(able)
		}
		err := ChooseNodes(r, &want, snap)
		if count == 0 || count > len(able) {
			if !invalid(err, "nodes") || r.Nodes.String() != "" {
				t.Fatalf("%d of %v: %v, %s", count, able, err, r.Nodes)
			}
			return
		}
		got := r.Nodes.Names()
		slices.Sort(got)
		chosen := slices.Sorted(slices.Values(able[:count]))
		if err != nil || !slices.Equal(got, chosen) || len(r.GPUs) != 0 || r.Features != want.Features {
			t.Fatalf("%d of %v: %v, %v", count, able, r.Nodes, err)
		}
	})
}

// TestCardsThatAreChosen: as many as asked for, of the type, each in service and of
// no other reservation, its node named. Of cards that are all free by the start no
// choice takes fewer nodes, by trial of all sets of nodes; what one node has is
// taken from the node where the fewest are left over; and a single card is one of
// those that are free first.
func TestCardsThatAreChosen(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		snap := drawFleet(t)
		other := &dispatch.Reservation{Name: "other", Start: schedtest.Now.Add(5 * time.Hour), Duration: time.Hour, Nodes: hosts(t, "n1"), GPUs: []cluster.GPUID{"n1-00"}}
		snap.Reservations = dispatch.Reservations{other}
		r := &dispatch.Reservation{Name: "r", Start: schedtest.Now.Add(time.Duration(rapid.SampledFrom([]int{3, 5, 60}).Draw(t, "start")) * time.Hour), Duration: 3 * time.Hour}
		want := Want{GPUs: rapid.IntRange(1, 7).Draw(t, "count"), GPUType: rapid.SampledFrom([]string{"", "T4"}).Draw(t, "of"), Overlap: rapid.IntRange(0, 4).Draw(t, "overlap") == 0}
		meets := r.Start < other.End() && other.Start < r.End()
		able := map[cluster.GPUID]cluster.Time{} // when each is free, not before the start
		per := map[cluster.NodeID]int{}
		for _, n := range snap.Nodes {
			for _, g := range n.GPUs {
				if n.Drain || n.State != cluster.NodeReady || want.GPUType != "" && g.Type != want.GPUType || !want.Overlap && meets && g.ID == "n1-00" {
					continue
				}
				able[g.ID] = max(r.Start, endOf(snap, n.ID, g.ID))
				per[n.ID]++
			}
		}
		err := ChooseGPUs(r, &want, snap)
		if want.GPUs > len(able) {
			if !invalid(err, "gpus") || len(r.GPUs) != 0 {
				t.Fatalf("%d of %v: %v", want.GPUs, able, err)
			}
			return
		}
		if err != nil || len(r.GPUs) != want.GPUs || !slices.IsSorted(r.GPUs) || len(slices.Compact(slices.Clone(r.GPUs))) != want.GPUs {
			t.Fatalf("%d of %v: %v, %v", want.GPUs, able, r.GPUs, err)
		}
		used := map[cluster.NodeID]bool{}
		waits := false
		for _, at := range able {
			waits = waits || at > r.Start
		}
		for _, g := range r.GPUs {
			if _, ok := able[g]; !ok {
				t.Fatalf("card %s is not to be had: %v", g, able)
			}
			used[cluster.NodeID(strings.Split(string(g), "-")[0])] = true
		}
		names := r.Nodes.Names()
		for _, n := range names {
			if !used[n] {
				t.Fatalf("node %s is named, the cards are %v", n, r.GPUs)
			}
		}
		if len(names) != len(used) {
			t.Fatalf("nodes %v for cards %v", names, r.GPUs)
		}
		if want.GPUs == 1 {
			for g, at := range able {
				if at < able[r.GPUs[0]] {
					t.Fatalf("card %s is free before %s", g, r.GPUs[0])
				}
			}
		}
		if waits {
			return
		}
		if least := fewest(per, want.GPUs); len(used) != least {
			t.Fatalf("%d cards on %d nodes, %d would do: %v", want.GPUs, len(used), least, per)
		}
		if len(used) == 1 {
			for n, k := range per {
				if k >= want.GPUs && k < per[names[0]] {
					t.Fatalf("%d cards of node %s, node %s would have fewer left over: %v", want.GPUs, names[0], n, per)
				}
			}
		}
	})
}

// fewest is the least number of nodes that have so many cards, by trial.
func fewest(per map[cluster.NodeID]int, want int) int {
	var sizes []int
	for _, k := range per {
		sizes = append(sizes, k)
	}
	least := len(sizes) + 1
	for set := range 1 << len(sizes) {
		sum, nodes := 0, 0
		for i, k := range sizes {
			if set&(1<<i) != 0 {
				sum, nodes = sum+k, nodes+1
			}
		}
		if sum >= want {
			least = min(least, nodes)
		}
	}
	return least
}

// TestChoosingRefuses: a partition that is not there, features that are none; what
// was chosen before stays.
func TestChoosingRefuses(t *testing.T) {
	t.Parallel()
	snap := &dispatch.Snapshot{Now: schedtest.Now, Nodes: fourNodes(), Partitions: []*cluster.Partition{partition(t, "p", "n[2-3]")}}
	for _, want := range []Want{{Nodes: 1, GPUs: 1, Partition: "q"}, {Nodes: 1, GPUs: 1, Features: "&"}, {Nodes: 5, GPUs: 7}} {
		for _, choose := range []func(*dispatch.Reservation, *Want, *dispatch.Snapshot) error{ChooseNodes, ChooseGPUs} {
			r := &dispatch.Reservation{Name: "r", Start: schedtest.Now, Duration: time.Hour, Nodes: hosts(t, "n1")}
			if err := choose(r, &want, snap); err == nil || r.Nodes.String() != "n1" {
				t.Errorf("%+v: %v, nodes %s", want, err, r.Nodes)
			}
		}
	}
	r := &dispatch.Reservation{Name: "r", Start: schedtest.Now, Duration: time.Hour}
	if err := ChooseNodes(r, &Want{Partition: "p"}, snap); err != nil || r.Nodes.String() != "n[2-3]" {
		t.Errorf("all of a partition: %s, %v", r.Nodes, err)
	}
	// A reservation that is chosen anew is not in its own way.
	snap.Reservations = dispatch.Reservations{{Name: "r", Start: schedtest.Now, Duration: time.Hour, Nodes: hosts(t, "ALL")}}
	if err := ChooseNodes(r, &Want{Nodes: 4}, snap); err != nil || len(r.Nodes.Names()) != 4 {
		t.Errorf("all nodes of its own: %s, %v", r.Nodes, err)
	}
}
