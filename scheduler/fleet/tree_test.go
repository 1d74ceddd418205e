package fleet

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"

	"github.com/berth-scheduler/berth/scheduler/rules"
)

var _ = draws.Fixed()

func drawRoom(t *rapid.T) Room {
	v := func(what string) int64 { return rapid.Int64Range(-1, 4).Draw(t, what) }
	return Room{v("mem"), v("milli"), v("slots"), v("cpu"), v("host"), v("until")}
}

func TestTreeFindsWhatAScanFinds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 40).Draw(t, "leaves")
		leaves := make([]Room, n)
		tr := NewTree(n)
		for i := range leaves {
			leaves[i] = drawRoom(t)
			tr.Put(i, leaves[i])
		}
		tr.Build()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if n > 0 && rapid.Bool().Draw(t, "change") {
				i := rapid.IntRange(0, n-1).Draw(t, "at")
				leaves[i] = drawRoom(t)
				tr.Set(i, leaves[i])
			}
			want := drawRoom(t)
			want.Mem = max(0, want.Mem) // no place beyond the last holds that
			from := rapid.IntRange(0, n).Draw(t, "from")
			scan := -1
			for i := from; i < n && scan < 0; i++ {
				if leaves[i].Holds(&want) {
					scan = i
				}
			}
			if got := tr.First(from, &want); got != scan {
				t.Fatalf("first(%d, %+v) = %d, a scan finds %d", from, want, got, scan)
			}
		}
	})
}

func TestLoadTreeFindsTheLeast(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "leaves")
		v := func(what string) int64 { return rapid.Int64Range(0, 3).Draw(t, what) }
		tr := NewLoadTree(n)
		leaves := make([]LoadLeaf, n)
		for i := range leaves {
			leaves[i] = LoadLeaf{v("load"), v("cpu"), v("host"), v("count")}
			tr.At[tr.Leaves+i] = leaves[i]
		}
		tr.Build()
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "change") {
				i := rapid.IntRange(0, n-1).Draw(t, "at")
				leaves[i].Load = v("new load")
				tr.SetLoad(i, leaves[i].Load)
			}
			want := LoadLeaf{CPU: v("cpu wanted"), Host: v("host wanted"), Count: v("count wanted")}
			scan := -1
			for i := range leaves {
				if leaves[i].Large(&want) && (scan < 0 || leaves[i].Load < leaves[scan].Load) {
					scan = i
				}
			}
			if got := tr.Least(&want); got != scan {
				t.Fatalf("least(%+v) = %d, a scan finds %d", want, got, scan)
			}
		}
	})
}

func TestBitset(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := make(bitset, 3)
		in := map[int]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, 191).Draw(t, "i")
			if in[i] = rapid.Bool().Draw(t, "add"); in[i] {
				b.add(i)
			} else {
				b.remove(i)
			}
			from := rapid.IntRange(0, 192).Draw(t, "from")
			want := -1
			for k := from; k < 192 && want < 0; k++ {
				if in[k] {
					want = k
				}
			}
			if got := b.Next(from); got != want {
				t.Fatalf("next(%d) = %d, want %d", from, got, want)
			}
		}
	})
}

func TestNth(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		loads := rapid.SliceOfN(rapid.Int64Range(0, 30), 1, 50).Draw(t, "loads")
		sorted := slices.Sorted(slices.Values(loads))
		n := rapid.IntRange(0, len(loads)-1).Draw(t, "n")
		if got := Nth(loads, n); got != sorted[n] {
			t.Fatalf("place %d of %v: got %d, want %d", n, sorted, got, sorted[n])
		}
	})
}

// TestBitsetAtEdges: members beside and at the ends of words.
func TestBitsetAtEdges(t *testing.T) {
	t.Parallel()
	for _, members := range [][]int{{0}, {63}, {64}, {127}, {0, 63, 64, 127}, {62, 63}, {64, 65}, {1, 126}, {}} {
		b := make(bitset, 2)
		for _, m := range members {
			b.add(m)
		}
		for from := range 130 {
			want := -1
			for _, m := range members {
				if m >= from {
					want = m
					break
				}
			}
			if got := b.Next(from); got != want {
				t.Errorf("%v: next from %d is %d, want %d", members, from, got, want)
			}
		}
		for _, m := range members {
			b.remove(m)
		}
		if got := b.Next(0); got != -1 {
			t.Errorf("%v: %d is left", members, got)
		}
	}
}

// TestTreeAtEdges: first fit over each number of places up to five, for each of them
// and from each.
func TestTreeAtEdges(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 5; n++ {
		for full := range 1 << n { // bit i: place i holds it
			tree := NewTree(n)
			for i := range n {
				r := Nowhere()
				if full>>i&1 == 1 {
					r = Room{Mem: 5, Milli: 5, Slots: 1, CPU: 5, Host: 5, Until: rules.Forever}
				}
				tree.Put(i, r)
			}
			tree.Build()
			want := Room{Mem: 5, Milli: 1, Slots: 1}
			for from := range n + 2 {
				first := -1
				for i := from; i < n; i++ {
					if full>>i&1 == 1 {
						first = i
						break
					}
				}
				if got := tree.First(from, &want); got != first {
					t.Fatalf("%d places, %b hold it: first from %d is %d, want %d", n, full, from, got, first)
				}
			}
		}
	}
}

// TestLoadsAsSorted: the n-th least of some loads, and the order of severity, by the
// library's sort.
func TestLoadsAsSorted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		xs := rapid.SliceOfN(rapid.Int64Range(0, 9), 1, 12).Draw(t, "loads")
		n := rapid.IntRange(0, len(xs)-1).Draw(t, "n")
		want := slices.Sorted(slices.Values(xs))[n]
		if got := Nth(slices.Clone(xs), n); got != want {
			t.Fatalf("%d-th of %v is %d, want %d", n, xs, got, want)
		}
	})
}
