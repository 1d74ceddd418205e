package scheduler

import "github.com/berth-scheduler/berth/scheduler/rules"

// loadLeaf is one card as a place to wait: how much time of it is spoken
// for, and what its node has in all. In the inner nodes of the tree it is the
// least load and the most of the rest below.
type loadLeaf struct {
	load      int64
	cpu, host int64 // capacity of the node
	count     int64 // cards of the class on the node
}

// loadTree finds the card with the least load on a node large enough.
type loadTree struct {
	leaves int
	at     []loadLeaf
}

func newLoadTree(n int) *loadTree {
	t := &loadTree{leaves: 1}
	for t.leaves < n {
		t.leaves *= 2
	}
	t.at = make([]loadLeaf, 2*t.leaves)
	for i := range t.at {
		t.at[i] = loadLeaf{load: rules.Forever, cpu: -1, host: -1, count: -1}
	}
	return t
}

func (t *loadTree) build() {
	for i := t.leaves - 1; i >= 1; i-- {
		t.at[i] = best(&t.at[2*i], &t.at[2*i+1])
	}
}

func best(a, b *loadLeaf) loadLeaf {
	return loadLeaf{min(a.load, b.load), max(a.cpu, b.cpu), max(a.host, b.host), max(a.count, b.count)}
}

func (t *loadTree) setLoad(i int, load int64) {
	i += t.leaves
	t.at[i].load = load
	for i /= 2; i >= 1; i /= 2 {
		m := min(t.at[2*i].load, t.at[2*i+1].load)
		if m == t.at[i].load {
			return
		}
		t.at[i].load = m
	}
}

func (l *loadLeaf) large(want *loadLeaf) bool {
	return l.cpu >= want.cpu && l.host >= want.host && l.count >= want.count
}

// least returns the leftmost place with the least load among those large
// enough for want, or -1.
func (t *loadTree) least(want *loadLeaf) int {
	found := -1
	t.search(1, 0, t.leaves, want, &found)
	return found
}

// search looks through the subtree i over width leaves from lo on.
func (t *loadTree) search(i, lo, width int, want *loadLeaf, found *int) {
	l := &t.at[i]
	if !l.large(want) {
		return
	}
	if *found >= 0 {
		if b := t.at[t.leaves+*found].load; l.load > b || l.load == b && lo > *found {
			return
		}
	}
	if i >= t.leaves {
		*found = lo
		return
	}
	width /= 2
	// The better half first, so that the other is cut off at once.
	if t.at[2*i+1].load < t.at[2*i].load {
		t.search(2*i+1, lo+width, width, want, found)
		t.search(2*i, lo, width, want, found)
		return
	}
	t.search(2*i, lo, width, want, found)
	t.search(2*i+1, lo+width, width, want, found)
}

// nth is what would stand at place n of the loads if they were sorted
// (quickselect: Hoare, CACM 1961). It moves them about.
func nth(loads []int64, n int) int64 {
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
