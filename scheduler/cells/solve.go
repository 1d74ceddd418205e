package cells

import (
	"cmp"
	"slices"
)

// What holds a leaf or a block, besides the index of a tenant.
const (
	free  = -1 // no job that may not be ended
	mixed = -2 // several tenants, or hardware that is gone
)

// tries bounds the search for a binding. The first try is right unless a tenant
// that uses more than its guarantee is in more cells than it has.
const tries = 512

// bound is a cell of a tenant with the block that stands for it.
type bound struct {
	tenant int32
	block  int32
}

// problem is the question whether every cell of every tenant can have a block of
// its own that holds no other tenant's job that may not be ended.
type problem struct {
	f    *forest
	need [][]int // by tenant, level
	used [][]int // how many of them the tenant's jobs take when packed well
	firm []int32 // holder by leaf
	busy []bool  // by leaf: some job runs there

	status []int32 // holder by block
	count  []int32 // leaves with a holder, by block
	load   []int32 // busy leaves, by block
	roomy  []int8  // the level of the largest free block around, by block
	taken  []bool
	out    []bound
	budget int
	short  [][]int // filled by partial
}

func newProblem(f *forest, need, used [][]int, firm []int32, busy []bool) *problem {
	n := len(f.blocks)
	p := &problem{f: f, need: need, used: used, firm: firm, busy: busy,
		status: make([]int32, n), count: make([]int32, n), load: make([]int32, n), roomy: make([]int8, n), taken: make([]bool, n), budget: tries}
	for i := n - 1; i >= 0; i-- { // halves come after the whole
		b := &f.blocks[i]
		if b.level == 0 {
			p.status[i] = firm[b.lo]
			if firm[b.lo] != free {
				p.count[i] = 1
			}
			if busy[b.lo] {
				p.load[i] = 1
			}
			continue
		}
		l, r := p.status[b.left], p.status[b.right]
		switch {
		case l == r, r == free:
			p.status[i] = l
		case l == free:
			p.status[i] = r
		default:
			p.status[i] = mixed
		}
		p.count[i], p.load[i] = p.count[b.left]+p.count[b.right], p.load[b.left]+p.load[b.right]
	}
	for i := range f.blocks {
		b := &f.blocks[i]
		p.roomy[i] = int8(b.level)
		if b.parent >= 0 && p.status[b.parent] == free {
			p.roomy[i] = p.roomy[b.parent]
		}
	}
	return p
}

// solve returns a block for each cell; ok is false if there is none or the search
// was given up. It tries three ways, from the one that leaves tenants most room in
// their unused cells to the exhaustive one.
func (p *problem) solve() (out []bound, ok bool) {
	if p.greedy(true) || p.greedy(false) {
		return p.out, true
	}
	p.reset()
	if p.search(MaxLevel, 0, make([]int, len(p.need))) {
		return p.out, true
	}
	return nil, false
}

// partial gives as many cells a block as it can, the large ones first, and records
// in short how many are missing.
func (p *problem) partial() []bound {
	p.greedy(false)
	return p.out
}

func (p *problem) reset() {
	clear(p.taken)
	p.out = p.out[:0]
	p.short = make([][]int, len(p.need))
	for t := range p.short {
		p.short[t] = make([]int, MaxLevel+1)
	}
}

// greedy goes from the largest level down. With roomy only the cells that a
// tenant's jobs take are bound where they run, and the rest to free blocks, so that
// they are wholly its own; without, every cell is first bound where the tenant
// already runs, which leaves most to others.
func (p *problem) greedy(roomy bool) bool {
	p.reset()
	ok := true
	for l := MaxLevel; l >= 0; l-- {
		for t := range p.need {
			want := p.need[t][l]
			if want == 0 {
				continue
			}
			mine := p.open(l, int32(t))
			p.fullest(mine)
			first := want
			if roomy {
				first = min(want, p.used[t][l])
			}
			n := min(first, len(mine))
			p.bind(t, mine[:n])
			rest := p.open(l, free)
			p.idlest(rest)
			k := min(want-n, len(rest))
			p.bind(t, rest[:k])
			if lack := want - n - k; lack > 0 {
				m := min(lack, len(mine)-n)
				p.bind(t, mine[n:n+m])
				p.short[t][l] = lack - m
				ok = ok && lack == m
			}
		}
	}
	return ok
}

// open lists the blocks of a level and a holder that are not bound to a cell yet.
func (p *problem) open(level int, holder int32) []int32 {
	var out []int32
	for _, b := range p.f.at(level) {
		if p.status[b] == holder && !p.covered(b) {
			out = append(out, b)
		}
	}
	return out
}

func (p *problem) covered(b int32) bool {
	for ; b >= 0; b = p.f.blocks[b].parent {
		if p.taken[b] {
			return true
		}
	}
	return false
}

func (p *problem) bind(t int, blocks []int32) {
	for _, b := range blocks {
		p.taken[b] = true
		p.out = append(p.out, bound{int32(t), b})
	}
}

func (p *problem) unbind(n int) {
	for _, b := range p.out[n:] {
		p.taken[b.block] = false
	}
	p.out = p.out[:n]
}

// fullest sorts blocks by how much a tenant has in them, the most first.
func (p *problem) fullest(bs []int32) {
	slices.SortFunc(bs, func(a, b int32) int { return cmp.Or(-cmp.Compare(p.count[a], p.count[b]), cmp.Compare(a, b)) })
}

// idlest sorts blocks that split the least first (buddy allocation: the smallest
// free block that holds the cell), then those where the fewest would have to leave.
func (p *problem) idlest(bs []int32) {
	slices.SortFunc(bs, func(a, b int32) int {
		return cmp.Or(cmp.Compare(p.roomy[a], p.roomy[b]), cmp.Compare(p.load[a], p.load[b]), cmp.Compare(a, b))
	})
}

// search tries, for a tenant in more blocks of a level than it has cells, every
// choice among those that differ. Nothing else needs a choice: a block with only
// the tenant in it is as good for it as a free one and worse for all others, and
// free blocks of one level are alike, since sizes divide each other.
func (p *problem) search(l, t int, lack []int) bool {
	mark := len(p.out)
	switch {
	case p.budget <= 0:
		return false
	case l < 0:
		return true
	case t == len(p.need):
		rest := p.open(l, free)
		p.idlest(rest)
		for o, n := range lack {
			if n > len(rest) {
				p.budget--
				p.unbind(mark)
				return false
			}
			p.bind(o, rest[:n])
			rest = rest[n:]
		}
		if p.search(l-1, 0, make([]int, len(p.need))) {
			return true
		}
		p.unbind(mark)
		return false
	case p.need[t][l] == 0:
		return p.search(l, t+1, lack)
	}
	mine := p.open(l, int32(t))
	if n := p.need[t][l]; n < len(mine) {
		return p.choose(l, t, lack, p.kinds(mine), n)
	}
	p.bind(t, mine)
	lack[t] = p.need[t][l] - len(mine)
	if p.search(l, t+1, lack) {
		return true
	}
	lack[t] = 0
	p.unbind(mark)
	return false
}

// kinds groups blocks by their shape, the fullest first.
func (p *problem) kinds(bs []int32) [][]int32 {
	p.fullest(bs)
	at := map[string]int{}
	var out [][]int32
	for _, b := range bs {
		s := p.shape(b)
		i, ok := at[s]
		if !ok {
			i = len(out)
			at[s] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], b)
	}
	return out
}

// shape is equal for blocks that differ only in the order of their halves.
func (p *problem) shape(b int32) string {
	k := &p.f.blocks[b]
	switch {
	case p.count[b] == 0:
		return "."
	case k.level == 0:
		return "x"
	}
	l, r := p.shape(k.left), p.shape(k.right)
	if l < r {
		l, r = r, l
	}
	return "(" + l + r + ")"
}

func (p *problem) choose(l, t int, lack []int, kinds [][]int32, n int) bool {
	mark := len(p.out)
	if n == 0 {
		return p.search(l, t+1, lack)
	}
	if len(kinds) == 0 {
		return false
	}
	for k := min(n, len(kinds[0])); k >= 0; k-- {
		p.bind(t, kinds[0][:k])
		if p.choose(l, t, lack, kinds[1:], n-k) {
			return true
		}
		p.unbind(mark)
	}
	return false
}
