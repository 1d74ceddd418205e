package cells

import (
	"math/bits"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// charged lists the widths of a tenant's own jobs on a type. Shares of one
// card count once. Jobs on nodes that take no others count too.
func (b *Binding) charged(pl *place, tenant int32) []int {
	width := map[cluster.JobID]int{}
	var order []cluster.JobID
	for i := range pl.on {
		for _, r := range pl.on[i] {
			if r.own && r.tenant == tenant {
				if _, ok := width[r.ID]; !ok {
					order = append(order, r.ID)
				}
				width[r.ID]++
				break // who lies beside it has the card for nothing
			}
		}
	}
	out := make([]int, 0, len(order))
	for _, id := range order {
		out = append(out, width[id])
	}
	return out
}

// holds reports whether cells can hold a job of n cards beside jobs of given
// widths, were all packed anew: with widths rounded up to levels, for which
// packing by decreasing width is exact, or as they are.
func holds(need []int, widths []int, n int) bool {
	return fits(need, widths, n, func(w int) int { return 1 << level(w) }) || fits(need, widths, n, func(w int) int { return w })
}

func fits(need []int, widths []int, n int, size func(int) int) bool {
	rest := packed(need, widths, size)
	return slices.ContainsFunc(rest, func(r room) bool { return r.left >= size(n) })
}

// room is what a cell of a level has left.
type room struct{ level, left int }

// packed lays jobs into cells, the widest first, each where least is left.
// Who fits nowhere lies outside.
func packed(need []int, widths []int, size func(int) int) []room {
	var cells []room
	for l, n := range need {
		for range n {
			cells = append(cells, room{l, 1 << l})
		}
	}
	widths = slices.Clone(widths)
	slices.Sort(widths)
	for i := len(widths) - 1; i >= 0; i-- {
		best := -1
		for k := range cells {
			if cells[k].left >= size(widths[i]) && (best < 0 || cells[k].left < cells[best].left) {
				best = k
			}
		}
		if best >= 0 {
			cells[best].left -= size(widths[i])
		}
	}
	return cells
}

// usedCells counts by level the cells that jobs of given widths take.
func usedCells(need []int, widths []int) []int {
	out := make([]int, len(need))
	if len(widths) == 0 {
		return out
	}
	for _, r := range packed(need, widths, func(w int) int { return w }) {
		if r.left < 1<<r.level {
			out[r.level]++
		}
	}
	return out
}

// Usage is how far a tenant's cells of one type are in use.
type Usage struct {
	GPUType string
	// GPUs are guaranteed, Used taken by its own jobs, Borrowed by jobs that
	// lie where others, or nobody, have a claim and that may be ended.
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
		widths := b.charged(pl, t)
		for _, w := range widths {
			u.Used += w
		}
		for i := range pl.on {
			if slices.ContainsFunc(pl.on[i], func(r *resident) bool { return r.tenant == t && !r.own && !r.Ending }) {
				u.Borrowed++
			}
		}
		for _, r := range packed(pl.need[t], widths, func(w int) int { return 1 << level(w) }) {
			u.Largest = max(u.Largest, 1<<bits.Len(uint(r.left))>>1)
		}
		if u != (Usage{GPUType: name}) {
			out = append(out, u)
		}
	}
	return out
}
