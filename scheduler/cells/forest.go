package cells

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// forest is the buddy trees of one GPU type: a node of 8 is one tree of
// 8, 4, 2, 1; one of 6 is a tree of 4 and one of 2.
type forest struct {
	gpuType string
	leaves  []leaf
	blocks  []block
	levels  [][]int32 // blocks by level, in the order of nodes
	nodes   []span    // all leaves of a node
	leafAt  map[cluster.GPUID]int32
}

// leaf is one card.
type leaf struct {
	gpu  cluster.GPUID
	node cluster.NodeID
	gone bool // of a node that takes no jobs
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

// forests builds the trees of all types, over nodes and cards by id.
func forests(nodes []*cluster.Node) map[string]*forest {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b *cluster.Node) int { return cmp.Compare(a.ID, b.ID) })
	out := map[string]*forest{}
	for _, n := range nodes {
		byType := map[string][]*cluster.GPU{}
		for i := range n.GPUs {
			byType[n.GPUs[i].Type] = append(byType[n.GPUs[i].Type], &n.GPUs[i])
		}
		for t, gs := range byType {
			f := out[t]
			if f == nil {
				f = &forest{gpuType: t, leafAt: map[cluster.GPUID]int32{}}
				out[t] = f
			}
			f.add(n, gs)
		}
	}
	return out
}

// add appends the trees of a node's cards. Cards of one NUMA group stand
// beside each other when the groups are equal powers of two, so that small
// cells do not cross them.
func (f *forest) add(n *cluster.Node, gs []*cluster.GPU) {
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
		f.leaves = append(f.leaves, leaf{g.ID, n.ID, !n.Schedulable() || !n.Open(g) || g.SellableMiB <= 0})
	}
	hi := int32(len(f.leaves))
	f.nodes = append(f.nodes, span{lo, hi})
	for lo < hi {
		l := min(MaxLevel, bits.Len(uint(hi-lo))-1)
		f.tree(l, lo, -1)
		lo += 1 << l
	}
}

// tree appends the block of a level that begins at a leaf, and those in it.
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

// evenGroups reports whether the cards lie in NUMA groups of one size, a power
// of two.
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
