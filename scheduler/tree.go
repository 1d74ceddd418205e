package scheduler

import (
	"math/bits"
)

// room is what a place has left for one more job or, in the inner nodes of a
// tree, the most that any place below has of each. used as a demand it is
// what a job wants.
type room struct {
	mem, milli, slots int64
	cpu, host         int64
	// until is the time by which a newcomer must be gone, forever where
	// nobody older waits for the place.
	until int64
}

// nowhere is the room of a place that takes nobody.
func nowhere() room { return room{-1, -1, -1, -1, -1, -1} }

// holds reports whether all that want asks for is there.
func (r *room) holds(want *room) bool {
	return r.mem >= want.mem && r.milli >= want.milli && r.slots >= want.slots &&
		r.cpu >= want.cpu && r.host >= want.host && r.until >= want.until
}

func (r *room) most(o *room) room {
	return room{
		max(r.mem, o.mem), max(r.milli, o.milli), max(r.slots, o.slots),
		max(r.cpu, o.cpu), max(r.host, o.host), max(r.until, o.until),
	}
}

// tree is a tournament tree: first fit in logarithmic time instead of a scan.
// The maxima are per resource, so that a subtree may promise a place that it
// does not hold; the search then goes back, and what it finds is what a scan
// from the left would find.
type tree struct {
	leaves int // a power of two
	at     []room
}

func newTree(n int) *tree {
	t := &tree{leaves: 1}
	for t.leaves < n {
		t.leaves *= 2
	}
	t.at = make([]room, 2*t.leaves)
	for i := range t.at {
		t.at[i] = nowhere()
	}
	return t
}

// put sets a leaf without telling its ancestors; build does so for all.
func (t *tree) put(i int, r room) { t.at[t.leaves+i] = r }

func (t *tree) build() {
	for i := t.leaves - 1; i >= 1; i-- {
		t.at[i] = t.at[2*i].most(&t.at[2*i+1])
	}
}

// set changes leaf i.
func (t *tree) set(i int, r room) {
	i += t.leaves
	if t.at[i] == r {
		return
	}
	t.at[i] = r
	for i /= 2; i >= 1; i /= 2 {
		m := t.at[2*i].most(&t.at[2*i+1])
		if m == t.at[i] {
			return
		}
		t.at[i] = m
	}
}

// may reports whether the search for want is worth the walk.
func (t *tree) may(want *room) bool { return t.at[1].holds(want) }

// first returns the leftmost leaf at or right of from that holds want, or -1.
func (t *tree) first(from int, want *room) int {
	if from >= t.leaves || !t.may(want) {
		return -1
	}
	i := 1
	if from > 0 {
		i = t.leaves + from
	}
	for {
		if t.at[i].holds(want) {
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

// next returns the least member at or above i, or -1.
func (b bitset) next(i int) int {
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
