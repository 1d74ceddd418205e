package dispatch

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

func genNode(t *rapid.T, id cluster.NodeID) *cluster.Node {
	n := &cluster.Node{
		ID: id, State: cluster.NodeReady, Drain: rapid.Bool().Draw(t, "drain") && rapid.Bool().Draw(t, "drain again"),
		CPUMilli: rapid.Int64Range(0, 8000).Draw(t, "cpu"), MemMiB: rapid.Int64Range(0, 4096).Draw(t, "mem"),
	}
	for i := range 4 {
		if !rapid.Bool().Draw(t, "has") {
			continue
		}
		n.GPUs = append(n.GPUs, cluster.GPU{
			ID: cluster.GPUID(fmt.Sprintf("%s-%d", id, i)), Type: "T", SellableMiB: rapid.Int64Range(0, 1000).Draw(t, "sellable"),
			MaxShares: rapid.IntRange(0, 4).Draw(t, "max shares"), CapMode: rapid.SampledFrom([]string{"sim", "none"}).Draw(t, "cap"),
		})
	}
	return n
}

func genBerth(t *rapid.T) *cluster.Berth {
	node := cluster.NodeID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "node"))
	b := &cluster.Berth{Node: node, CPUMilli: rapid.Int64Range(0, 3000).Draw(t, "cpu"), MemMiB: rapid.Int64Range(0, 2048).Draw(t, "mem")}
	for i := range 4 {
		if rapid.IntRange(0, 2).Draw(t, "on") > 0 {
			continue
		}
		s := cluster.Share{MemMiB: rapid.Int64Range(0, 600).Draw(t, "share"), Milli: rapid.Int64Range(0, 600).Draw(t, "milli")}
		s.Exclusive = rapid.IntRange(0, 4).Draw(t, "exclusive") == 0
		b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: cluster.GPUID(fmt.Sprintf("%s-%d", node, i)), Share: s})
	}
	return b
}

// recount makes the ledger anew from what is there and what is held.
func recount(nodes map[cluster.NodeID]*cluster.Node, held []*cluster.Berth) *Ledger {
	l := NewLedger(slices.Collect(maps.Values(nodes)))
	for _, b := range held {
		for _, g := range b.GPUs {
			l.Remember(b.Node, g.GPU)
		}
		l.Take(b)
	}
	return l
}

// Whatever is registered, taken, released and removed, and in whatever order:
// the accounts are those of a new count, what Fits lets in never exceeds the
// capacity, and copies are independent.
func TestLedgerProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, nodes, shrunk := NewLedger(nil), map[cluster.NodeID]*cluster.Node{}, false
		var held []*cluster.Berth
		var clone, cloned *Ledger
		t.Repeat(map[string]func(*rapid.T){
			"register": func(t *rapid.T) {
				n := genNode(t, cluster.NodeID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")))
				shrunk = shrunk || len(held) > 0
				l.SetNode(n)
				nodes[n.ID] = n
			},
			"take": func(t *rapid.T) {
				b := genBerth(t)
				if l.Fits(b).Code != "" {
					return
				}
				if !l.Take(b) {
					t.Fatalf("what fits cannot be taken: %+v", b)
				}
				held = append(held, b)
			},
			"release": func(t *rapid.T) {
				if len(held) == 0 {
					return
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				if !l.Release(held[i]) {
					t.Fatalf("what was taken cannot be released: %+v", held[i])
				}
				held = slices.Delete(held, i, i+1)
				shrunk = shrunk && len(held) > 0
			},
			"remove": func(t *rapid.T) {
				id := cluster.NodeID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id"))
				if slices.ContainsFunc(held, func(b *cluster.Berth) bool { return b.Node == id }) {
					return
				}
				l.RemoveNode(id)
				delete(nodes, id)
			},
			"clone": func(*rapid.T) { clone, cloned = l.Clone(), recount(nodes, held) },
			"": func(t *rapid.T) {
				if want := recount(nodes, held); !l.Equal(want) || !want.Equal(l) {
					t.Fatalf("accounts\n%+v\nnew count\n%+v", l, want)
				}
				if clone != nil && !clone.Equal(cloned) {
					t.Fatalf("a copy changed with its original")
				}
				if err := l.Check(); err != nil && !shrunk {
					t.Fatal(err)
				}
			},
		})
	})
}

// Trying things out on a copy, as the scheduler does, leaves the original as
// it was, and undoing them the copy too.
func TestWhatIf(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := NewLedger([]*cluster.Node{genNode(t, "a"), genNode(t, "b"), genNode(t, "c")})
		was, try := l.Clone(), l.Clone()
		var taken []*cluster.Berth
		for range rapid.IntRange(0, 12).Draw(t, "tries") {
			if b := genBerth(t); try.Fits(b).Code == "" {
				try.Take(b)
				taken = append(taken, b)
			}
		}
		if !l.Equal(was) {
			t.Fatal("the original changed")
		}
		for len(taken) > 0 {
			i := rapid.IntRange(0, len(taken)-1).Draw(t, "undo")
			try.Release(taken[i])
			taken = slices.Delete(taken, i, i+1)
		}
		if !try.Equal(was) {
			t.Fatalf("undone and not the same: %+v, was %+v", try, was)
		}
	})
}

func BenchmarkLedgerClone(b *testing.B) {
	var nodes []*cluster.Node
	for i := range 1000 {
		nodes = append(nodes, testNode(cluster.NodeID(fmt.Sprintf("n%d", i)), 8))
	}
	l := NewLedger(nodes)
	for b.Loop() {
		if l.Clone() == nil {
			b.Fatal("no clone")
		}
	}
}

func BenchmarkLedgerFits(b *testing.B) {
	l := NewLedger([]*cluster.Node{testNode("a", 8)})
	try := berthOf("a", part("a-0", 400, 400), part("a-7", 400, 400))
	for b.Loop() {
		if r := l.Fits(try); r.Code != "" {
			b.Fatal(r)
		}
	}
}
