package place

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// consolidate keeps the GPUs of a job near each other. An island is the GPUs of one
// class with one NUMA number on one node, or the node if the numbers are unknown. A
// job goes to the island with the fewest GPUs that take it among those that hold it
// all, so that large holes stay large. One wider than every island of a node gets
// whole free islands there, and the rest from the island with the fewest GPUs that
// suffice. Otherwise it waits: an island is never patched together.
//
// Source: the placer of that name in the simulator of Lucid (Hu et al., ASPLOS
// 2023), whose islands are nodes and which takes the rest of a wide job from the
// emptiest; and HiveD (Zhao et al., OSDI 2020) on why.
type consolidate struct{ open }

// island is the GPUs of one that take a task.
type island struct {
	numa  int
	all   int // GPUs it has
	cards []int32
}

func (c consolidate) Choose(p *scene.Scene, t *scene.Task) []int32 {
	var best []int32
	fewest := int(rules.Forever)
	for gi := range p.Fleet.Groups {
		if !p.MayHold(t, int32(gi)) {
			continue
		}
		if cards, room := c.near(p, t, int32(gi)); cards != nil && room < fewest {
			best, fewest = cards, room
		}
	}
	return best
}

// Within implements grouper.
func (c consolidate) Within(p *scene.Scene, t *scene.Task, gi int32) []int32 {
	cards, _ := c.near(p, t, gi)
	return cards
}

// near returns the GPUs of a group that t gets, and how many take it where it goes.
func (c consolidate) near(p *scene.Scene, t *scene.Task, gi int32) (cards []int32, room int) {
	islands := c.islands(p, t, gi)
	widest := 0
	var tight *island
	for i := range islands {
		x := &islands[i]
		widest = max(widest, x.all)
		if len(x.cards) >= t.GPUs && (tight == nil || len(x.cards) < len(tight.cards)) {
			tight = x
		}
	}
	switch {
	case tight != nil:
		return tight.cards[:t.GPUs], len(tight.cards)
	case t.GPUs <= widest:
		return nil, 0
	}
	return c.wide(islands, t.GPUs)
}

// wide takes whole islands, the largest first, and the rest from the one with the
// fewest GPUs that suffice.
func (consolidate) wide(islands []island, want int) (cards []int32, room int) {
	slices.SortStableFunc(islands, func(a, b island) int { return -cmp.Compare(a.all, b.all) })
	left := islands[:0]
	for _, x := range islands {
		room += len(x.cards)
		if len(x.cards) == x.all && len(cards)+x.all <= want {
			cards = append(cards, x.cards...)
		} else {
			left = append(left, x)
		}
	}
	rest := want - len(cards)
	if rest == 0 {
		return cards, room
	}
	best := -1
	for i := range left {
		if n := len(left[i].cards); n >= rest && (best < 0 || n < len(left[best].cards)) {
			best = i
		}
	}
	if best < 0 {
		return nil, 0
	}
	return append(cards, left[best].cards[:rest]...), room
}

// islands lists those of a group, by number.
func (consolidate) islands(p *scene.Scene, t *scene.Task, gi int32) []island {
	var out []island
	for _, ci := range p.Fleet.Groups[gi].Cards {
		numa := p.Fleet.Cards[ci].GPU.NUMA
		i, ok := slices.BinarySearchFunc(out, numa, func(x island, n int) int { return cmp.Compare(x.numa, n) })
		if !ok {
			out = slices.Insert(out, i, island{numa: numa})
		}
		out[i].all++
		if p.Fits(t, ci) {
			out[i].cards = append(out[i].cards, ci)
		}
	}
	return out
}

// Nearest takes GPUs of the smallest NUMA group of a node that holds t, otherwise
// from the largest groups on: what scheduler does with gangs.
func Nearest(p *scene.Scene, t *scene.Task, gi int32) []int32 {
	islands := consolidate{}.islands(p, t, gi)
	tight := -1
	for i := range islands {
		if n := len(islands[i].cards); n >= t.GPUs && (tight < 0 || n < len(islands[tight].cards)) {
			tight = i
		}
	}
	if tight >= 0 {
		return islands[tight].cards[:t.GPUs]
	}
	slices.SortStableFunc(islands, func(a, b island) int { return len(b.cards) - len(a.cards) })
	var out []int32
	for i := range islands {
		out = append(out, islands[i].cards...)
	}
	return out[:t.GPUs]
}
