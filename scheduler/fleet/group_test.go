package fleet

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// oneNode is a fleet of a node whose cards lie in the given NUMA groups; those of
// taken hold a job.
func oneNode(numa []int, taken ...int) *Fleet {
	n := schedtest.Node("n", len(numa), "A")
	for i := range numa {
		n.GPUs[i].NUMA = numa[i]
	}
	led := dispatch.NewLedger([]*cluster.Node{n})
	for _, i := range taken {
		led.Take(&cluster.Berth{Node: "n", GPUs: []cluster.GPUShare{{GPU: n.GPUs[i].ID, Share: cluster.Share{MemMiB: 1, Milli: 1}}}})
	}
	pol := rules.Default()
	return New([]*cluster.Node{n}, led, nil, &pol, nil)
}

// TestNearestCards: cards of the smallest NUMA group that holds all, else of the
// largest groups, each by hand.
func TestNearestCards(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		numa  []int
		taken []int
		n     int
		cards []int32
		group int
	}{
		{"one group", []int{0, 0, 0}, nil, 2, []int32{0, 1}, 0},
		{"the smaller group that holds them", []int{0, 0, 0, 1, 1}, nil, 2, []int32{3, 4}, 1},
		{"of equal groups the lower number", []int{1, 1, 0, 0}, nil, 2, []int32{2, 3}, 0},
		{"no group holds them: the largest first", []int{0, 1, 1, 1, 2, 2}, nil, 4, []int32{1, 2, 3, 4}, -1},
		{"the next of equals by number", []int{2, 1, 1, 0}, nil, 3, []int32{1, 2, 3}, -1},
		{"what is taken does not count", []int{0, 0, 0, 1, 1, 1}, []int{0}, 2, []int32{1, 2}, 0},
		{"and may leave no group", []int{0, 0, 1, 1}, []int{0, 2}, 2, []int32{1, 3}, -1},
		{"groups that take turns", []int{0, 1, 0, 1}, nil, 2, []int32{0, 2}, 0},
		{"a single one of the smallest group", []int{0, 0, 1}, nil, 1, []int32{2}, 1},
		{"all of them", []int{0, 1, 0}, nil, 3, []int32{0, 1, 2}, -1},
	} {
		f := oneNode(c.numa, c.taken...)
		k := &f.Classes[0]
		before := []int32{99}
		to := slices.Clone(before)
		if got := f.Nearest(k, &k.Groups[0], c.n, &Room{}, &to); got != c.group || !slices.Equal(to, append(before, c.cards...)) {
			t.Errorf("%s: cards %v of group %d, want %v of %d", c.name, to[1:], got, c.cards, c.group)
		}
		if got := f.Nearest(k, &k.Groups[0], c.n, &Room{}, nil); got != c.group {
			t.Errorf("%s: asked for the group alone %d, want %d", c.name, got, c.group)
		}
	}
}

// TestNearestIsNearest: the cards are as many as wanted, empty and in order; they
// touch no more NUMA groups than any other choice would, and where one group is
// enough, no smaller one is. By all choices of so many cards.
func TestNearestIsNearest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		numa := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 8).Draw(t, "NUMA")
		var taken []int
		free := map[int]int{} // by group
		empty := 0
		for i := range numa {
			if rapid.IntRange(0, 3).Draw(t, "taken") == 0 {
				taken = append(taken, i)
				continue
			}
			free[numa[i]]++
			empty++
		}
		if empty == 0 {
			return
		}
		n := rapid.IntRange(1, empty).Draw(t, "wanted")
		fewest, smallest := len(numa), len(numa)
		for set := range 1 << len(numa) {
			groups, count := map[int]bool{}, 0
			for i := range numa {
				if set>>i&1 == 1 && !slices.Contains(taken, i) {
					groups[numa[i]] = true
					count++
				}
			}
			if count != n {
				continue
			}
			fewest = min(fewest, len(groups))
			if len(groups) == 1 {
				for g := range groups {
					smallest = min(smallest, free[g])
				}
			}
		}
		f := oneNode(numa, taken...)
		k := &f.Classes[0]
		var to []int32
		at := f.Nearest(k, &k.Groups[0], n, &Room{}, &to)
		groups := map[int]bool{}
		for i, c := range to {
			groups[numa[c]] = true
			if slices.Contains(taken, int(c)) || i > 0 && to[i-1] >= c {
				t.Fatalf("cards %v: taken are %v", to, taken)
			}
		}
		if len(to) != n || len(groups) != fewest {
			t.Fatalf("%v of %v without %v touch %d groups, %d are enough for %d", to, numa, taken, len(groups), fewest, n)
		}
		switch {
		case fewest > 1 && at != -1:
			t.Fatalf("group %d is said to hold %d of %v without %v", at, n, numa, taken)
		case fewest == 1 && (at != numa[to[0]] || free[at] != smallest):
			t.Fatalf("group %d with %d free, want one with %d", at, free[at], smallest)
		}
	})
}

// TestOpenUntil: an empty card that is kept from some time on takes who is gone by
// then, to the microsecond.
func TestOpenUntil(t *testing.T) {
	t.Parallel()
	f := oneNode([]int{0, 0}, 1)
	for _, c := range []struct {
		card        int
		until, want int64
		closed      bool
		open        bool
	}{
		{0, 100, 100, false, true}, {0, 100, 101, false, false}, {0, rules.Forever, 101, false, true},
		{1, rules.Forever, 1, false, false}, {0, rules.Forever, 1, true, false},
	} {
		card := f.Cards[c.card]
		card.Until, card.Use.Closed = c.until, c.closed
		if got := card.Open(&Room{Until: c.want}); got != c.open {
			t.Errorf("%+v: open is %t", c, got)
		}
	}
}

// TestFamily: classes that differ in nothing but their realm, and no other.
func TestFamily(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var f Fleet
		for _, gpuType := range []string{"A", "B"} {
			for _, sellable := range []int64{80, 100} {
				for _, shared := range []bool{false, true} {
					for realm := range int32(rapid.IntRange(0, 3).Draw(t, "realms")) {
						f.Classes = append(f.Classes, Class{ClassKey: rules.ClassKey{GPUType: gpuType, Sellable: sellable, Shareable: shared, Realm: realm}})
					}
				}
			}
		}
		for c := range f.Classes {
			lo, hi := f.Family(c)
			for i := range f.Classes {
				a, b := f.Classes[c].ClassKey, f.Classes[i].ClassKey
				a.Realm, b.Realm = 0, 0
				if (a == b) != (i >= lo && i < hi) {
					t.Fatalf("the family of %d is %d to %d; %d is %+v, %+v", c, lo, hi, i, f.Classes[i].ClassKey, f.Classes[c].ClassKey)
				}
			}
		}
	})
}

// TestCardsOutOfService: those drained or not sound of nodes that take jobs are
// counted by type; those of nodes that take none are told of elsewhere.
func TestCardsOutOfService(t *testing.T) {
	t.Parallel()
	lost := func(k ...int) schedtest.NodeOption {
		return func(n *cluster.Node) {
			for _, i := range k {
				n.GPUs[i].State = cluster.GPULost
			}
		}
	}
	drained := func(n *cluster.Node) {
		n.Orders = []cluster.GPUOrder{{GPU: n.GPUs[0].ID, Drain: true}, {GPU: n.GPUs[1].ID}}
	}
	nodes := []*cluster.Node{
		schedtest.Node("a", 4, "A", lost(0, 2)), schedtest.Node("b", 2, "A", drained), schedtest.Node("c", 2, "B", lost(1)),
		schedtest.Node("d", 2, "B", lost(0), schedtest.Drained), schedtest.Node("e", 2, "C"),
	}
	pol := rules.Default()
	f := New(nodes, dispatch.NewLedger(nodes), nil, &pol, nil)
	for gpuType, want := range map[string]string{"A": "; 3 GPUs drained or not sound", "B": "; 1 GPU drained or not sound", "C": "", "D": ""} {
		if got := f.ClosedWords(gpuType); got != want {
			t.Errorf("%s: %q, want %q", gpuType, got, want)
		}
	}
	if got := f.ClosedInAll(); got != 4 {
		t.Errorf("%d in all, want 4", got)
	}
}

// TestForeignQueue: nobody is laid on a node where somebody waits whom the snapshot
// does not hold, and no job without GPUs either.
func TestForeignQueue(t *testing.T) {
	t.Parallel()
	f := oneNode([]int{0, 0}, 1)
	h := &f.Hosts[0]
	h.ForeignQueue = true
	f.Refresh(0)
	for i := range f.Cards {
		if got := f.Room(&f.Cards[i]); got != Nowhere() {
			t.Errorf("card %d has %+v", i, got)
		}
	}
	if got := f.HostRoom(h); got != Nowhere() {
		t.Errorf("the node has %+v", got)
	}
	if f.Classes[0].Empty.May(&Room{}) || f.Classes[0].Used.May(&Room{}) || f.Plain.May(&Room{}) {
		t.Error("a tree still promises room")
	}
}

// TestRegretAndKept: nobody joins a card where somebody is slower than the limit, and
// an empty card regrets nothing; what is kept of a node for others, and from jobs
// without GPUs, is not offered.
func TestRegretAndKept(t *testing.T) {
	t.Parallel()
	f := oneNode([]int{0, 0}, 1)
	for i := range f.Cards {
		f.Cards[i].Regretted = true
	}
	if a, b := f.Room(&f.Cards[0]).Slots, f.Room(&f.Cards[1]).Slots; a != 3 || b != 0 {
		t.Errorf("%d slots on the empty card, %d on the used one, want 3 and 0", a, b)
	}
	h := &f.Hosts[0]
	h.KeptCPU, h.KeptMem, h.PlainCPU, h.PlainMem = 60_000, 500<<10, 1_000, 2048
	f.Keeps(0, nil)
	// Of 64 cores and 512 GiB; the idle card keeps 2 cores and 2 GiB.
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"cores on the empty card", f.Classes[0].Empty.Leaf(0).CPU, 4_000}, {"memory", f.Classes[0].Empty.Leaf(0).Host, 12 << 10},
		{"cores on the used card", f.Classes[0].Used.Leaf(1).CPU, 4_000}, {"memory", f.Classes[0].Used.Leaf(1).Host, 12 << 10},
		{"cores without GPUs", f.Plain.Leaf(0).CPU, 3_000}, {"memory", f.Plain.Leaf(0).Host, 10 << 10},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.what, c.got, c.want)
		}
	}
	if !h.KeepsEnough(4_000, 12<<10, 1) || h.KeepsEnough(4_001, 1, 1) || h.KeepsEnough(1, 12<<10+1, 0) {
		t.Error("what a newcomer may have at most is another amount than the leaf says")
	}
}
