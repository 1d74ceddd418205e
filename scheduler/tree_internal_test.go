package scheduler

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawRoom(t *rapid.T) room {
	v := func(what string) int64 { return rapid.Int64Range(-1, 4).Draw(t, what) }
	return room{v("mem"), v("milli"), v("slots"), v("cpu"), v("host"), v("until")}
}

func TestTreeFindsWhatAScanFinds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 40).Draw(t, "leaves")
		leaves := make([]room, n)
		tr := newTree(n)
		for i := range leaves {
			leaves[i] = drawRoom(t)
			tr.put(i, leaves[i])
		}
		tr.build()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if n > 0 && rapid.Bool().Draw(t, "change") {
				i := rapid.IntRange(0, n-1).Draw(t, "at")
				leaves[i] = drawRoom(t)
				tr.set(i, leaves[i])
			}
			want := drawRoom(t)
			want.mem = max(0, want.mem) // no place beyond the last holds that
			from := rapid.IntRange(0, n).Draw(t, "from")
			scan := -1
			for i := from; i < n && scan < 0; i++ {
				if leaves[i].holds(&want) {
					scan = i
				}
			}
			if got := tr.first(from, &want); got != scan {
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
		tr := newLoadTree(n)
		leaves := make([]loadLeaf, n)
		for i := range leaves {
			leaves[i] = loadLeaf{v("load"), v("cpu"), v("host"), v("count")}
			tr.at[tr.leaves+i] = leaves[i]
		}
		tr.build()
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "change") {
				i := rapid.IntRange(0, n-1).Draw(t, "at")
				leaves[i].load = v("new load")
				tr.setLoad(i, leaves[i].load)
			}
			want := loadLeaf{cpu: v("cpu wanted"), host: v("host wanted"), count: v("count wanted")}
			scan := -1
			for i := range leaves {
				if leaves[i].large(&want) && (scan < 0 || leaves[i].load < leaves[scan].load) {
					scan = i
				}
			}
			if got := tr.least(&want); got != scan {
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
			if got := b.next(from); got != want {
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
		if got := nth(loads, n); got != sorted[n] {
			t.Fatalf("place %d of %v: got %d, want %d", n, sorted, got, sorted[n])
		}
	})
}
