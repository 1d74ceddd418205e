package fit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func TestForestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		rows, y := dataset(rapid.IntRange(1, 200).Draw(t, "rows"), seed, additive)
		f, err := Boost(rows, y, nil, Options{Trees: rapid.IntRange(1, 20).Draw(t, "trees"), MinLeaf: 3, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		f = f.First(rapid.IntRange(0, 25).Draw(t, "first"))
		b := f.Append([]byte("before"))
		g, rest, err := ReadForest(append(b[len("before"):], "behind"...), 4)
		if err != nil || string(rest) != "behind" {
			t.Fatalf("%q left, error %v", rest, err)
		}
		if !bytes.Equal(g.Append([]byte("before")), b) {
			t.Fatal("decoding and encoding changed the bytes")
		}
		if g.Trees() != f.Trees() || g.Nodes() != f.Nodes() {
			t.Fatalf("%d trees and %d nodes became %d and %d", f.Trees(), f.Nodes(), g.Trees(), g.Nodes())
		}
		for _, r := range rows {
			if f.Predict(r) != g.Predict(r) {
				t.Fatalf("%v before, %v after", f.Predict(r), g.Predict(r))
			}
		}
	})
}

func TestFirstAndRange(t *testing.T) {
	t.Parallel()
	rows, y := dataset(300, 12, additive)
	f := boost(t, rows, y, nil, Options{Trees: 20})
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(-2, 25).Draw(t, "first")
		first, row := f.First(k), rows[rapid.IntRange(0, len(rows)-1).Draw(t, "row")]
		n := min(max(k, 0), 20)
		if first.Trees() != n || first.Predict(row) != f.Range(row, 0, n) {
			t.Fatalf("%d trees say %v, the range %v", first.Trees(), first.Predict(row), f.Range(row, 0, n))
		}
		if all := f.Range(row, 0, n) + f.Range(row, n, 20); math.Abs(all-f.Predict(row)) > 1e-12 {
			t.Fatalf("two parts say %v, the whole %v", all, f.Predict(row))
		}
		if f.Range(row, n, n) != 0 {
			t.Fatal("an empty range must say 0")
		}
	})
	var none *Forest
	if none.Trees() != 0 || none.Nodes() != 0 || none.Predict(nil) != 0 || none.First(3) != nil {
		t.Error("the nil forest must say 0 and have nothing")
	}
	if len(none.Append(nil)) != 8 {
		t.Error("the nil forest must take its head alone")
	}
	if g, rest, err := ReadForest(none.Append(nil), 4); g != nil || len(rest) != 0 || err != nil {
		t.Errorf("the nil forest became %v, error %v", g, err)
	}
}

// encoded writes a forest as Append does, from parts that need not fit.
func encoded(columns, trees, nodes int, lengths []int, ns []node) []byte {
	b := binary.LittleEndian.AppendUint16(nil, uint16(columns))
	b = binary.LittleEndian.AppendUint16(b, uint16(trees))
	b = binary.LittleEndian.AppendUint32(b, uint32(nodes))
	for _, n := range lengths {
		b = binary.LittleEndian.AppendUint16(b, uint16(n))
	}
	for _, n := range ns {
		b = append(b, n.column)
		b = binary.LittleEndian.AppendUint16(b, n.right)
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(n.value))
	}
	return b
}

func TestReadForestRefuses(t *testing.T) {
	t.Parallel()
	leaf, fork := node{value: 1}, node{value: 0.5, right: 2}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	whole := encoded(2, 1, 3, []int{3}, []node{fork, leaf, leaf})
	if _, _, err := ReadForest(whole, 2); err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if _, _, err := ReadForest(whole[:n], 2); !errors.Is(err, ErrData) {
			t.Errorf("cut to %d bytes: error %v, must be ErrData", n, err)
		}
	}
	for _, tc := range []struct {
		name string
		b    []byte
	}{
		{"other columns", encoded(3, 1, 1, []int{1}, []node{leaf})},
		{"no trees, but nodes", encoded(2, 0, 1, nil, []node{leaf})},
		{"trees without nodes", encoded(2, 2, 0, []int{0, 0}, nil)},
		{"an empty tree", encoded(2, 2, 1, []int{1, 0}, []node{leaf})},
		{"an empty first tree", encoded(2, 2, 1, []int{0, 1}, []node{leaf})},
		{"lengths beyond the nodes", encoded(2, 1, 1, []int{2}, []node{leaf, leaf})},
		{"lengths short of the nodes", encoded(2, 1, 2, []int{1}, []node{leaf, leaf})},
		{"more nodes than are allowed", encoded(2, 1, MaxNodes+1, []int{1}, make([]node, MaxNodes+1))},
		{"as many nodes as can be said", encoded(2, 1, 1<<32-1, []int{1}, nil)},
		{"a child outside", encoded(2, 1, 3, []int{3}, []node{{right: 3}, leaf, leaf})},
		{"a child in the next tree", encoded(2, 2, 4, []int{2, 2}, []node{{right: 2}, leaf, leaf, leaf})},
		{"a fork that ends its tree", encoded(2, 1, 1, []int{1}, []node{{right: 1}})},
		{"a far child", encoded(2, 1, 3, []int{3}, []node{{right: math.MaxUint16}, leaf, leaf})},
		{"a column that is not there", encoded(2, 1, 3, []int{3}, []node{{right: 2, column: 2}, leaf, leaf})},
		{"a leaf of NaN", encoded(2, 1, 1, []int{1}, []node{{value: nan}})},
		{"an infinite leaf", encoded(2, 1, 1, []int{1}, []node{{value: inf}})},
		{"a threshold of NaN", encoded(2, 1, 3, []int{3}, []node{{value: nan, right: 2}, leaf, leaf})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, _, err := ReadForest(tc.b, 2); !errors.Is(err, ErrData) {
				t.Fatalf("error %v, must be ErrData", err)
			}
		})
	}
}

// TestHostileNodes: whatever the nodes say, a forest is refused, or each walk
// through it ends at a leaf after fewer steps than there are nodes.
func TestHostileNodes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3))
		var lengths []int
		var ns []node
		for range rapid.IntRange(1, 4).Draw(t, "trees") {
			n := r.IntN(8) + 1
			lengths = append(lengths, n)
			for i := range n {
				x := node{value: float32(r.NormFloat64()), column: uint8(r.IntN(3))}
				if left := n - i - 1; left > 0 && r.IntN(3) > 0 {
					x.right = uint16(1 + r.IntN(left+r.IntN(2)))
				}
				ns = append(ns, x)
			}
		}
		f, _, err := ReadForest(encoded(3, len(lengths), len(ns), lengths, ns), 3)
		if err != nil {
			return
		}
		walk(t, f, []float64{r.NormFloat64(), r.NormFloat64(), r.NormFloat64()})
	})
}

// walk fails when a tree has no end.
func walk(t interface{ Fatalf(string, ...any) }, f *Forest, row []float64) {
	sum := 0.0
	for tree, start := range f.starts {
		at, end := start, int32(len(f.nodes))
		if tree+1 < len(f.starts) {
			end = f.starts[tree+1]
		}
		for steps := 0; f.nodes[at].right != 0; steps++ {
			last := at
			if row[f.nodes[at].column] <= float64(f.nodes[at].value) {
				at++
			} else {
				at += int32(f.nodes[at].right)
			}
			if at <= last || at >= end || steps > len(f.nodes) {
				t.Fatalf("tree %d goes from node %d to %d of %d", tree, last-start, at-start, end-start)
			}
		}
		sum += float64(f.nodes[at].value)
	}
	if got := f.Predict(row); got != sum || math.IsNaN(got) {
		t.Fatalf("the forest says %v, its leaves %v", got, sum)
	}
}

func FuzzReadForest(f *testing.F) {
	rows, y := dataset(100, 1, additive)
	g, err := Boost(rows, y, nil, Options{Trees: 5, MinLeaf: 5})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(g.Append(nil))
	f.Add(g.First(1).Append(nil))
	f.Add((*Forest)(nil).Append(nil))
	f.Add(encoded(4, 1, 3, []int{3}, []node{{right: 2}, {value: 1}, {value: 2}}))
	f.Add(encoded(4, 65535, 1<<32-1, nil, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, rest, err := ReadForest(b, 4)
		if err != nil {
			if !errors.Is(err, ErrData) {
				t.Fatalf("error %v does not wrap ErrData", err)
			}
			return
		}
		if !bytes.Equal(append(g.Append(nil), rest...), b) {
			t.Fatal("decoding and encoding changed the bytes")
		}
		if g != nil && nodeBytes*g.Nodes() > len(b) {
			t.Fatalf("%d nodes out of %d bytes", g.Nodes(), len(b))
		}
		for _, row := range [][]float64{{0, 0, 0, 0}, {-1e300, 1e300, math.NaN(), math.Inf(1)}} {
			if g != nil {
				walk(t, g, row)
			}
		}
	})
}

func BenchmarkForest(b *testing.B) {
	rows, y := dataset(2000, 1, additive)
	f := boost(b, rows, y, nil, Options{})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		f.Predict(rows[i%len(rows)])
	}
}

func BenchmarkBoost(b *testing.B) {
	rows, y := dataset(2000, 1, additive)
	for b.Loop() {
		boost(b, rows, y, nil, Options{})
	}
}
