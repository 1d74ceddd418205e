package scheduler

import (
	"cmp"
	"slices"
)

// GPUs of one NUMA group speak to each other faster than across groups: a
// gang packed on one socket is up to 1.3 times faster (Topology-Aware, SC
// 2017). A gang of whole GPUs therefore goes to a node where one group holds
// it, the smallest that does; where none is free it waits for one for a while,
// then takes what there is, from as few groups as will do.

// open reports whether an empty card may be taken until the time that want asks
// for.
func (c *card) open(want *room) bool {
	return c.use.Shares == 0 && c.until >= want.until && c.use.FreeShares() > 0
}

// nearest appends n empty cards of a node to to, if that is not nil: those of
// the smallest NUMA group that holds them, else from the largest groups on. It
// returns that group, -1 when no single one holds them.
func (f *fleet) nearest(k *class, g *group, n int, want *room, to *[]int32) int {
	type part struct{ numa, free int }
	var buf [8]part
	parts := buf[:0]
	for _, i := range k.cards[g.lo:g.hi] {
		c := &f.cards[i]
		if !c.open(want) {
			continue
		}
		at := slices.IndexFunc(parts, func(x part) bool { return x.numa == c.gpu.NUMA })
		if at < 0 {
			at = len(parts)
			parts = append(parts, part{numa: c.gpu.NUMA})
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
		for _, i := range k.cards[g.lo:g.hi] {
			if c := &f.cards[i]; len(*to) < end && c.gpu.NUMA == x.numa && c.open(want) {
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

// strict reports whether a gang still waits for GPUs of one group: for a tenth
// of its run, at most NearAge, where some node of the class has such a group.
func (ft *fitter) strict(it *item, k *class, dur int64) bool {
	if !k.parted || it.gpus > k.largest || it.kept || it.job.Spec.Deadline > 0 {
		return false
	}
	return ft.now < int64(it.job.Eligible)+min(dur/10, ft.pol.NearAge.Microseconds())
}

// groupParts notes whether nodes of a class have several NUMA groups, and the
// largest of one.
func (f *fleet) groupParts(k *class) {
	for i := range k.groups {
		g, count := &k.groups[i], map[int]int{}
		first := f.cards[k.cards[g.lo]].gpu.NUMA
		same := true
		for _, c := range k.cards[g.lo:g.hi] {
			same = same && f.cards[c].gpu.NUMA == first
		}
		if same {
			k.largest = max(k.largest, int(g.hi-g.lo))
			continue
		}
		k.parted = true
		for _, c := range k.cards[g.lo:g.hi] {
			count[f.cards[c].gpu.NUMA]++
			k.largest = max(k.largest, count[f.cards[c].gpu.NUMA])
		}
	}
}
