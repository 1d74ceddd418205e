package cells

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// forest is the buddy trees of one GPU type: a node of 8 is a tree of 8, 4, 2, 1;
// one of 6 is a tree of 4 and one of 2. The largest nodes of a rack, if their size
// is a power of two, are halves of larger trees: three of 8 are a tree of 16 and
// one of 8.
type forest struct {
	gpuType string
	leaves  []leaf
	blocks  []block
	levels  [][]int32 // blocks by level, in the order of nodes
	nodes   []span    // all leaves of a node
	whole   int       // the level of the largest nodes; blocks above it hold several
	leafAt  map[cluster.GPUID]int32
}

// leaf is one GPU.
type leaf struct {
	gpu  cluster.GPUID
	node int32 // its place in forest.nodes
	gone bool  // of a node that takes no jobs
}

type span struct{ lo, hi int32 }

// block is an aligned group of 2^level leaves.
type block struct {
	span
	level  int
	parent int32 // -1 for a root
	left   int32 // the halves are left and right, -1 for a leaf
	right  int32
}

func (f *forest) at(level int) []int32 {
	if level >= len(f.levels) {
		return nil
	}
	return f.levels[level]
}

// shelf is the GPUs of one type on a node.
type shelf struct {
	node *cluster.Node
	rack string // its lowest switch, or else what its agent names as its rack
	gpus []*cluster.GPU
}

// forests builds the trees of all types, over racks by name and nodes and GPUs by
// id.
func forests(nodes []*cluster.Node) map[string]*forest {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b *cluster.Node) int { return cmp.Compare(a.ID, b.ID) })
	shelves := map[string][]shelf{}
	for _, n := range nodes {
		byType := map[string][]*cluster.GPU{}
		for i := range n.GPUs {
			byType[n.GPUs[i].Type] = append(byType[n.GPUs[i].Type], &n.GPUs[i])
		}
		for t, gs := range byType {
			shelves[t] = append(shelves[t], shelf{n, n.SwitchPath(), gs})
		}
	}
	out := map[string]*forest{}
	for t, all := range shelves {
		f := &forest{gpuType: t, leafAt: map[cluster.GPUID]int32{}}
		f.plant(all)
		out[t] = f
	}
	return out
}

// plant builds the trees of a type: rack by rack, the largest nodes of each first,
// those with one tree over as many of them as possible.
func (f *forest) plant(all []shelf) {
	for i := range all {
		f.whole = max(f.whole, bits.Len(uint(len(all[i].gpus)))-1)
	}
	full := func(s shelf) int {
		if len(s.gpus) == 1<<f.whole {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b shelf) int { return cmp.Or(cmp.Compare(a.rack, b.rack), cmp.Compare(full(a), full(b))) })
	for i := 0; i < len(all); {
		lo := int32(len(f.leaves))
		f.add(all[i])
		k := i + 1
		for ; full(all[i]) == 0 && k < len(all) && all[k].rack == all[i].rack && full(all[k]) == 0; k++ {
			f.add(all[k])
		}
		i = k
		for hi := int32(len(f.leaves)); lo < hi; {
			l := min(MaxLevel, bits.Len(uint(hi-lo))-1)
			f.tree(l, lo, -1)
			lo += 1 << l
		}
	}
}

// add appends a node's GPUs. Those of one NUMA group are adjacent if the groups are
// equal powers of two, so that small cells do not cross them.
func (f *forest) add(s shelf) {
	n, gs := s.node, s.gpus
	numa := evenGroups(gs)
	slices.SortFunc(gs, func(a, b *cluster.GPU) int {
		near := 0
		if numa {
			near = cmp.Compare(a.NUMA, b.NUMA)
		}
		return cmp.Or(near, cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
	})
	lo := int32(len(f.leaves))
	for _, g := range gs {
		f.leafAt[g.ID] = int32(len(f.leaves))
		f.leaves = append(f.leaves, leaf{g.ID, int32(len(f.nodes)), !n.Schedulable() || !n.Open(g) || g.SellableMiB <= 0})
	}
	f.nodes = append(f.nodes, span{lo, int32(len(f.leaves))})
}

// tree appends the block of a level that begins at a leaf, and the blocks in it.
func (f *forest) tree(level int, lo, parent int32) int32 {
	i := int32(len(f.blocks))
	f.blocks = append(f.blocks, block{span{lo, lo + 1<<level}, level, parent, -1, -1})
	for len(f.levels) <= level {
		f.levels = append(f.levels, nil)
	}
	f.levels[level] = append(f.levels[level], i)
	if level > 0 {
		left := f.tree(level-1, lo, i)
		right := f.tree(level-1, lo+1<<(level-1), i)
		f.blocks[i].left, f.blocks[i].right = left, right
	}
	return i
}

// evenGroups reports whether the GPUs are in NUMA groups of one size, a power of
// two.
func evenGroups(gs []*cluster.GPU) bool {
	n := map[int]int{}
	for _, g := range gs {
		n[g.NUMA]++
	}
	size := len(gs) / len(n)
	if bits.OnesCount(uint(size)) != 1 {
		return false
	}
	for _, c := range n {
		if c != size {
			return false
		}
	}
	return true
}
