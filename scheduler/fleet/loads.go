package fleet

import "github.com/berth-scheduler/berth/scheduler/rules"

// LoadLeaf is one GPU as a place to wait: how much of its time is spoken for, and
// what its node has in all. An inner node of the tree holds the least load and the
// most of the rest below it.
type LoadLeaf struct {
	Load      int64
	CPU, Host int64 // capacity of the node
	Count     int64 // GPUs of the class on the node
}

// LoadTree finds the GPU with the least load on a node large enough.
type LoadTree struct {
	places int
	Leaves int
	At     []LoadLeaf
}

// NewLoadTree returns a tree of n places where no job can wait.
func NewLoadTree(n int) *LoadTree {
	t := &LoadTree{places: n, Leaves: 1}
	for t.Leaves < n {
		t.Leaves *= 2
	}
	t.At = make([]LoadLeaf, 2*t.Leaves)
	for i := range t.At {
		t.At[i] = LoadLeaf{Load: rules.Forever, CPU: -1, Host: -1, Count: -1}
	}
	return t
}

// BeginLoads gives the class a tree of which all places are to be set.
func (k *Class) BeginLoads() {
	if k.Loads = k.loads; k.Loads == nil || k.Loads.places != len(k.Cards) {
		k.Loads = NewLoadTree(len(k.Cards))
	}
}

// Build computes the inner nodes.
func (t *LoadTree) Build() {
	for i := t.Leaves - 1; i >= 1; i-- {
		t.At[i] = best(&t.At[2*i], &t.At[2*i+1])
	}
}

func best(a, b *LoadLeaf) LoadLeaf {
	return LoadLeaf{min(a.Load, b.Load), max(a.CPU, b.CPU), max(a.Host, b.Host), max(a.Count, b.Count)}
}

// SetLoad changes the load of leaf i.
func (t *LoadTree) SetLoad(i int, load int64) {
	i += t.Leaves
	t.At[i].Load = load
	for i /= 2; i >= 1; i /= 2 {
		m := min(t.At[2*i].Load, t.At[2*i+1].Load)
		if m == t.At[i].Load {
			return
		}
		t.At[i].Load = m
	}
}

// Large reports whether a node is large enough.
func (l *LoadLeaf) Large(want *LoadLeaf) bool {
	return l.CPU >= want.CPU && l.Host >= want.Host && l.Count >= want.Count
}

// Least returns the leftmost place with the least load among those large
// enough for want, or -1.
func (t *LoadTree) Least(want *LoadLeaf) int {
	found := -1
	t.search(1, 0, t.Leaves, want, &found)
	return found
}

// search searches the subtree i over width leaves from lo on.
func (t *LoadTree) search(i, lo, width int, want *LoadLeaf, found *int) {
	l := &t.At[i]
	if !l.Large(want) {
		return
	}
	if *found >= 0 {
		if b := t.At[t.Leaves+*found].Load; l.Load > b || l.Load == b && lo > *found {
			return
		}
	}
	if i >= t.Leaves {
		*found = lo
		return
	}
	width /= 2
	// The better half first, so that the other is cut off at once.
	if t.At[2*i+1].Load < t.At[2*i].Load {
		t.search(2*i+1, lo+width, width, want, found)
		t.search(2*i, lo, width, want, found)
		return
	}
	t.search(2*i, lo, width, want, found)
	t.search(2*i+1, lo+width, width, want, found)
}

// Nth returns what would be at index n of the loads if they were sorted
// (quickselect: Hoare, CACM 1961). It reorders them.
func Nth(loads []int64, n int) int64 {
	lo, hi := 0, len(loads)-1
	for lo < hi {
		pivot, i, j := loads[lo+(hi-lo)/2], lo, hi
		for i <= j {
			for loads[i] < pivot {
				i++
			}
			for loads[j] > pivot {
				j--
			}
			if i <= j {
				loads[i], loads[j] = loads[j], loads[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case n <= j:
			hi = j
		case n >= i:
			lo = i
		default:
			return pivot
		}
	}
	return loads[n]
}
