package fleet

import (
	"math/bits"
)

// Room is what a place has left for one more job or, in the inner nodes of a tree,
// the most of each that any place below has. As a demand it is what a job wants.
type Room struct {
	Mem, Milli, Slots int64
	CPU, Host         int64
	// Until is the time by which a newcomer must be gone, forever if no older job
	// waits for the place.
	Until int64
}

// Nowhere returns the room of a place that takes no job.
func Nowhere() Room { return Room{-1, -1, -1, -1, -1, -1} }

// Holds reports whether everything that want asks for is there.
func (r *Room) Holds(want *Room) bool {
	return r.Mem >= want.Mem && r.Milli >= want.Milli && r.Slots >= want.Slots &&
		r.CPU >= want.CPU && r.Host >= want.Host && r.Until >= want.Until
}

// Most returns the larger of each resource.
func (r *Room) Most(o *Room) Room {
	return Room{
		max(r.Mem, o.Mem), max(r.Milli, o.Milli), max(r.Slots, o.Slots),
		max(r.CPU, o.CPU), max(r.Host, o.Host), max(r.Until, o.Until),
	}
}

// Tree is a tournament tree: first fit in logarithmic time instead of a scan. The
// maxima are per resource, so a subtree may promise a place that it does not hold;
// the search then backtracks, and finds what a scan from the left would find.
type Tree struct {
	places int
	leaves int // a power of two
	At     []Room
}

// NewTree returns a tree of n places that take no job.
func NewTree(n int) *Tree {
	t := &Tree{places: n, leaves: 1}
	for t.leaves < n {
		t.leaves *= 2
	}
	t.At = make([]Room, 2*t.leaves)
	for i := range t.At {
		t.At[i] = Nowhere()
	}
	return t
}

// again returns a tree of n places that may hold anything, t if it has as many.
func (t *Tree) again(n int) *Tree {
	if t == nil || t.places != n {
		return NewTree(n)
	}
	return t
}

// Put sets a leaf without updating its ancestors; Build does so for all.
func (t *Tree) Put(i int, r Room) { t.At[t.leaves+i] = r }

// Build computes the inner nodes.
func (t *Tree) Build() {
	for i := t.leaves - 1; i >= 1; i-- {
		t.At[i] = t.At[2*i].Most(&t.At[2*i+1])
	}
}

// Set changes leaf i.
func (t *Tree) Set(i int, r Room) {
	i += t.leaves
	if t.At[i] == r {
		return
	}
	t.At[i] = r
	for i /= 2; i >= 1; i /= 2 {
		m := t.At[2*i].Most(&t.At[2*i+1])
		if m == t.At[i] {
			return
		}
		t.At[i] = m
	}
}

// May reports whether the search for want is worth the walk.
func (t *Tree) May(want *Room) bool { return t.At[1].Holds(want) }

// First returns the leftmost leaf at or right of from that holds want, or -1.
func (t *Tree) First(from int, want *Room) int {
	if from >= t.leaves || !t.May(want) {
		return -1
	}
	i := 1
	if from > 0 {
		i = t.leaves + from
	}
	for {
		if t.At[i].Holds(want) {
			if i >= t.leaves {
				return i - t.leaves
			}
			i *= 2
			continue
		}
		for i&1 == 1 { // the right child of its parent, or the root
			i /= 2
		}
		if i == 0 {
			return -1
		}
		i++
	}
}

// bitset is a set of small integers.
type bitset []uint64

func (b bitset) add(i int)    { b[i/64] |= 1 << (i % 64) }
func (b bitset) remove(i int) { b[i/64] &^= 1 << (i % 64) }

// Next returns the least member at or above i, or -1.
func (b bitset) Next(i int) int {
	for w := i / 64; w < len(b); w++ {
		v := b[w]
		if w == i/64 {
			v &= ^uint64(0) << (i % 64)
		}
		if v != 0 {
			return w*64 + bits.TrailingZeros64(v)
		}
	}
	return -1
}

// Leaf returns what a place holds.
func (t *Tree) Leaf(i int) *Room { return &t.At[t.leaves+i] }
