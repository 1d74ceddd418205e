package cells

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// load is what a job takes of cells: so many GPUs on each of so many nodes.
type load struct{ width, nodes int }

// charged lists what a tenant's own jobs take of a type. Shares of one GPU count
// once. Jobs on nodes that take no others count too.
func (b *Binding) charged(pl *place, tenant int32) []load {
	width := map[cluster.JobID]map[int32]int{} // by node
	var order []cluster.JobID
	for i := range pl.on {
		for _, r := range pl.on[i] {
			if r.own && r.tenant == tenant {
				if width[r.ID] == nil {
					order, width[r.ID] = append(order, r.ID), map[int32]int{}
				}
				width[r.ID][pl.f.leaves[i].node]++
				break // other jobs on it have the GPU for nothing
			}
		}
	}
	out := make([]load, 0, len(order))
	for _, id := range order {
		out = append(out, loadOf(width[id]))
	}
	return out
}

// loadOf returns the load of a job with so many GPUs on each of some nodes.
func loadOf(width map[int32]int) load {
	l := load{nodes: len(width)}
	for _, w := range width {
		l.width = max(l.width, w)
	}
	return l
}

// flat returns the cells of a tenant with those of several nodes as so many of one:
// any job in them is on one node, or has a part on each of several.
func (pl *place) flat(tenant int32) []int {
	out := slices.Clone(pl.need[tenant])
	for l := pl.f.whole + 1; l < len(out); l++ {
		out[pl.f.whole] += out[l] << (l - pl.f.whole)
		out[l] = 0
	}
	return out
}

// holds reports whether a tenant's cells can hold a job of n GPUs on each of so
// many nodes along with others, if all were packed anew: with widths rounded up to
// levels, for which packing by decreasing width is exact, or as they are. A job on
// several nodes needs cells that are nodes: two smaller ones may be on the same.
func (pl *place) holds(tenant int32, loads []load, n, nodes int) bool {
	need, least := pl.flat(tenant), 0
	if nodes > 1 {
		least = pl.f.whole
	}
	fits := func(size func(int) int) bool {
		k := 0
		for _, r := range packed(need, pl.f.whole, loads, size) {
			if r.level >= least && r.left >= size(n) {
				k++
			}
		}
		return k >= nodes
	}
	return fits(func(w int) int { return 1 << level(w) }) || fits(func(w int) int { return w })
}

// room is what a cell of a level has left.
type room struct{ level, left int }

// packed packs jobs into cells, the widest first, each where least is left; one on
// several nodes into as many cells that are nodes, of level whole. Jobs that fit
// nowhere are left out.
func packed(need []int, whole int, loads []load, size func(int) int) []room {
	var cells []room
	for l, n := range need {
		for range n {
			cells = append(cells, room{l, 1 << l})
		}
	}
	loads = slices.Clone(loads)
	slices.SortFunc(loads, func(a, b load) int { return cmp.Or(cmp.Compare(b.width, a.width), cmp.Compare(b.nodes, a.nodes)) })
	for _, l := range loads {
		taken := map[int]struct{}{}
		for range l.nodes {
			best := -1
			for k := range cells {
				_, twice := taken[k]
				if !twice && (l.nodes == 1 || cells[k].level >= whole) && cells[k].left >= size(l.width) && (best < 0 || cells[k].left < cells[best].left) {
					best = k
				}
			}
			if best >= 0 {
				taken[best] = struct{}{}
				cells[best].left -= size(l.width)
			}
		}
	}
	return cells
}

// usedCells counts by level the cells that a tenant's jobs take.
func (pl *place) usedCells(tenant int32, loads []load) []int {
	out := make([]int, len(pl.need[tenant]))
	if len(loads) == 0 {
		return out
	}
	for _, r := range packed(pl.need[tenant], pl.f.whole, loads, func(w int) int { return w }) {
		if r.left < 1<<r.level {
			out[r.level]++
		}
	}
	return out
}

// Usage is how much of a tenant's cells of one type is in use.
type Usage struct {
	GPUType string
	// GPUs are guaranteed, Used taken by its own jobs, Borrowed by preemptible jobs
	// that run where others, or no tenant, have a claim.
	GPUs, Used, Borrowed int
	// Largest is the widest job that its cells could hold now.
	Largest int
}

// Usage returns the figures of a tenant by type, for types on which it has
// cells or jobs.
func (b *Binding) Usage(tenant string) []Usage {
	t := b.tenantOf(tenant)
	var out []Usage
	for _, name := range b.names {
		pl := b.places[name]
		u := Usage{GPUType: name}
		for l, n := range pl.need[t] {
			u.GPUs += n << l
		}
		loads := b.charged(pl, t)
		for _, l := range loads {
			u.Used += l.width * l.nodes
		}
		for i := range pl.on {
			if slices.ContainsFunc(pl.on[i], func(r *resident) bool { return r.tenant == t && !r.own && !r.Ending }) {
				u.Borrowed++
			}
		}
		for _, r := range packed(pl.flat(t), pl.f.whole, loads, func(w int) int { return 1 << level(w) }) {
			u.Largest = max(u.Largest, 1<<bits.Len(uint(r.left))>>1)
		}
		if u != (Usage{GPUType: name}) {
			out = append(out, u)
		}
	}
	return out
}
