package fleet

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// Freeing is when a GPU has room.
type Freeing struct {
	Card int32
	At   int64
}

// Open reports whether an empty GPU may be taken until the time that want asks for.
func (c *Card) Open(want *Room) bool {
	return c.Use.Shares == 0 && c.Until >= want.Until && c.Use.FreeShares() > 0
}

// GroupOn returns the group of a class on a node, nil if it has none.
func (f *Fleet) GroupOn(node cluster.NodeID, k *Class) *Group {
	h, ok := f.HostAt[node]
	if !ok {
		return nil
	}
	i, ok := slices.BinarySearchFunc(k.Groups, h, func(g Group, h int32) int { return cmp.Compare(g.Host, h) })
	if !ok {
		return nil
	}
	return &k.Groups[i]
}

// Family returns the classes of GPUs that are like those of class c, except for
// where they are.
func (f *Fleet) Family(c int) (lo, hi int) {
	lo, hi = c, c+1
	for lo > 0 && f.Classes[c].Alike(&f.Classes[lo-1].ClassKey) {
		lo--
	}
	for hi < len(f.Classes) && f.Classes[c].Alike(&f.Classes[hi].ClassKey) {
		hi++
	}
	return lo, hi
}

// IsEmpty reports whether no job is on a node.
func (f *Fleet) IsEmpty(h *Host) bool {
	if h.Use.UsedCPU > 0 || h.Use.UsedMem > 0 {
		return false
	}
	for i := h.Lo; i < h.Hi; i++ {
		if f.Cards[i].Use.Shares > 0 {
			return false
		}
	}
	return true
}

// Nearest appends n empty GPUs of a node to to, unless that is nil: those of the
// smallest NUMA group that holds them, otherwise from the largest groups on. It
// returns that group, -1 if no single one holds them.
func (f *Fleet) Nearest(k *Class, g *Group, n int, want *Room, to *[]int32) int {
	type part struct{ numa, free int }
	var buf [8]part
	parts := buf[:0]
	for _, i := range k.Cards[g.Lo:g.Hi] {
		c := &f.Cards[i]
		if !c.Open(want) {
			continue
		}
		at := slices.IndexFunc(parts, func(x part) bool { return x.numa == c.GPU.NUMA })
		if at < 0 {
			at = len(parts)
			parts = append(parts, part{numa: c.GPU.NUMA})
		}
		parts[at].free++
	}
	whole := part{numa: -1}
	for _, x := range parts {
		if x.free >= n && (whole.free == 0 || x.free < whole.free || x.free == whole.free && x.numa < whole.numa) {
			whole = x
		}
	}
	if to == nil {
		if whole.free == 0 {
			return -1
		}
		return whole.numa
	}
	if whole.free > 0 {
		parts = append(parts[:0], whole)
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Or(cmp.Compare(b.free, a.free), cmp.Compare(a.numa, b.numa)) })
	end := len(*to) + n
	for _, x := range parts {
		for _, i := range k.Cards[g.Lo:g.Hi] {
			if c := &f.Cards[i]; len(*to) < end && c.GPU.NUMA == x.numa && c.Open(want) {
				*to = append(*to, i)
			}
		}
	}
	slices.Sort((*to)[max(0, end-n):])
	if whole.free == 0 {
		return -1
	}
	return whole.numa
}

// groupParts records whether nodes of a class have several NUMA groups, and the
// size of the largest.
func (f *Fleet) groupParts(k *Class) {
	for i := range k.Groups {
		g := &k.Groups[i]
		first := f.Cards[k.Cards[g.Lo]].GPU.NUMA
		same := true
		for _, c := range k.Cards[g.Lo:g.Hi] {
			same = same && f.Cards[c].GPU.NUMA == first
		}
		if same {
			k.Largest = max(k.Largest, int(g.Hi-g.Lo))
			continue
		}
		k.Parted = true
		count := map[int]int{}
		for _, c := range k.Cards[g.Lo:g.Hi] {
			count[f.Cards[c].GPU.NUMA]++
			k.Largest = max(k.Largest, count[f.Cards[c].GPU.NUMA])
		}
	}
}
