package cells

import (
	"slices"
)

// A job on several nodes has a part of the same width on each, and runs in cells
// that are nodes or hold several. It takes the smallest of the racks and halves of
// racks in which enough nodes could have a part.

// onNode returns the node of an option.
func (q *query) onNode(o *option) int32 { return q.pl.f.leaves[o.leaves[0]].node }

// parts returns the best option of each node that would have its part, the best
// node first.
func (q *query) parts(opts []option) []*option {
	var out []*option
	have := map[int32]struct{}{}
	for i := range opts {
		o := &opts[i]
		if _, twice := have[q.onNode(o)]; twice || q.answer(o).GPUs == nil {
			continue
		}
		have[q.onNode(o)] = struct{}{}
		out = append(out, o)
	}
	return out
}

// bestSpan returns the GPUs of as many nodes as asked for, as close together as
// possible, with the fewest victims there.
func (q *query) bestSpan(opts []option) Answer {
	f, parts := q.pl.f, q.parts(opts)
	if len(parts) < q.r.nodes() {
		return Answer{}
	}
	for l := f.whole + 1; l < len(f.levels); l++ {
		var best *Answer
		for _, b := range f.levels[l] {
			in := slices.DeleteFunc(slices.Clone(parts), func(o *option) bool {
				return o.leaves[0] < f.blocks[b].lo || o.leaves[0] >= f.blocks[b].hi
			})
			if len(in) < q.r.nodes() {
				continue
			}
			if a := q.together(in[:q.r.nodes()]); best == nil || len(a.Victims) < len(best.Victims) {
				best = &a
			}
		}
		if best != nil {
			return *best
		}
	}
	return q.together(parts[:q.r.nodes()])
}

// inOneCell reports whether a cell of several nodes of the tenant is large enough for a
// request on several.
func (q *query) inOneCell() bool {
	for l := q.pl.f.whole + 1; l <= MaxLevel; l++ {
		if n := q.r.nodes(); n > 1 && n <= 1<<(l-q.pl.f.whole) && q.pl.need[q.t][l] > 0 {
			return true
		}
	}
	return false
}

// together returns the answer for parts on several nodes. A job in the way on two
// of them is ended once.
func (q *query) together(parts []*option) Answer {
	a := Answer{Guaranteed: q.guaranteed, Now: true}
	for _, o := range parts {
		for _, i := range o.leaves {
			a.GPUs = append(a.GPUs, q.pl.f.leaves[i].gpu)
			a.Now = a.Now && len(q.pl.on[i]) == 0
		}
		for _, v := range o.victims {
			if !slices.Contains(a.Victims, v.ID) {
				a.Victims = append(a.Victims, v.ID)
			}
		}
	}
	slices.Sort(a.GPUs)
	slices.Sort(a.Victims)
	return a
}

// rebindSpan is rebind for several nodes: each in turn is claimed if all cells
// still have a block then.
func (q *query) rebindSpan(opts []option) Answer {
	var parts []*option
	var cells []bound
	claim := func(o *option, whose int32) {
		for _, l := range o.leaves {
			q.pl.claim[l] = whose
		}
	}
	for i := 0; i < len(opts) && len(parts) < q.r.nodes() && (i < rebinds || !q.pl.broke); i++ {
		o := &opts[i]
		if slices.ContainsFunc(parts, func(x *option) bool { return q.onNode(x) == q.onNode(o) }) || q.answer(o).GPUs == nil {
			continue
		}
		claim(o, q.t)
		more, ok := q.pl.problem(q.b).solve()
		if !ok {
			claim(o, free)
			continue
		}
		parts, cells = append(parts, o), slices.Clone(more)
	}
	for _, o := range parts {
		claim(o, free)
	}
	if len(parts) < q.r.nodes() {
		return Answer{}
	}
	q.pl.adopt(cells)
	return q.together(parts)
}
