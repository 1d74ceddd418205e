package graph

import "slices"

func inferReshape(c *ctx) bool {
	t := c.in(0)
	want, ok := c.intsOrAttr(1, "shape")
	if !ok || len(want) > MaxRank {
		return false
	}
	out := make([]int64, len(want))
	rest, at := int64(1), -1
	for i, d := range want {
		switch {
		case d == 0 && c.n.attrInt("allowzero", 0) == 0:
			if i >= len(t.dims) {
				return false
			}
			d = t.dims[i]
		case d == -1:
			if at >= 0 {
				return false
			}
			at = i
			continue
		case d < 0:
			return false
		}
		out[i] = d
		rest = satMul(rest, d)
	}
	total := t.elems()
	if at >= 0 {
		if rest == 0 || total%rest != 0 {
			return false
		}
		out[at] = total / rest
	} else if rest != total {
		// A shape with a literal batch, although the input's is symbolic.
		if len(out) == 0 || rest == 0 || total%(rest/out[0]) != 0 {
			return false
		}
		out[0] = total / (rest / out[0])
	}
	if t.known {
		c.value(t.ints)
	}
	return c.set(0, out)
}

func inferFlatten(c *ctx) bool {
	d := c.in(0).dims
	a := c.n.attrInt("axis", 1)
	if a < 0 {
		a += int64(len(d))
	}
	if a < 0 || a > int64(len(d)) {
		return false
	}
	return c.set(0, []int64{product(d[:a]), product(d[a:])})
}

func inferSqueeze(c *ctx) bool {
	t := c.in(0)
	vals, given := c.intsOrAttr(1, "axes")
	if !given && c.has(1) {
		return false
	}
	drop := make([]bool, len(t.dims))
	for _, v := range vals {
		a, ok := axis(v, len(t.dims))
		if !ok {
			return false
		}
		drop[a] = true
	}
	out := make([]int64, 0, len(t.dims))
	for i, d := range t.dims {
		if drop[i] || (len(vals) == 0 && d == 1) {
			continue
		}
		out = append(out, d)
	}
	if t.known {
		c.value(t.ints)
	}
	return c.has(0) && c.set(0, out)
}

func inferUnsqueeze(c *ctx) bool {
	t := c.in(0)
	vals, ok := c.intsOrAttr(1, "axes")
	rank := len(t.dims) + len(vals)
	if !ok || rank > MaxRank {
		return false
	}
	out := make([]int64, rank)
	for _, v := range vals {
		a, ok := axis(v, rank)
		if !ok || out[a] != 0 {
			return false
		}
		out[a] = -1
	}
	j := 0
	for i := range out {
		if out[i] == -1 {
			out[i] = 1
			continue
		}
		out[i] = t.dims[j]
		j++
	}
	if t.known {
		c.value(t.ints)
	}
	return c.set(0, out)
}

func inferTranspose(c *ctx) bool {
	d := c.in(0).dims
	perm := c.n.attrInts("perm")
	out := make([]int64, len(d))
	if perm == nil {
		for i := range d {
			out[i] = d[len(d)-1-i]
		}
		return c.has(0) && c.set(0, out)
	}
	if len(perm) != len(d) {
		return false
	}
	for i, p := range perm {
		a, ok := axis(p, len(d))
		if !ok {
			return false
		}
		out[i] = d[a]
	}
	return c.set(0, out)
}

func inferConcat(c *ctx) bool {
	out := slices.Clone(c.in(0).dims)
	a, ok := axis(c.n.attrInt("axis", 1), len(out))
	if !ok {
		return false
	}
	value, known := []int64{}, len(out) == 1
	var sum int64
	for i := range c.s.in {
		t := c.in(i)
		if len(t.dims) != len(out) {
			return false
		}
		sum = satAdd(sum, t.dims[a])
		if known = known && t.known && len(value) <= maxConstInts; known {
			value = append(value, t.ints...)
		}
	}
	out[a] = sum
	if known {
		c.value(value)
	}
	return c.set(0, out)
}

func inferSplit(c *ctx) bool {
	d := c.in(0).dims
	a, ok := axis(c.n.attrInt("axis", 0), len(d))
	n := int64(len(c.outs))
	if !ok || n == 0 {
		return false
	}
	parts, given := c.intsOrAttr(1, "split")
	if given && int64(len(parts)) != n {
		return false
	}
	each := (d[a] + n - 1) / n
	left := d[a]
	for i := range c.outs {
		out := slices.Clone(d)
		if out[a] = min(each, left); given {
			out[a] = parts[i]
		}
		left -= out[a]
		c.outs[i].dtype = c.in(0).dtype
		if !c.set(i, out) {
			return false
		}
	}
	return true
}

// sliceArgs reads starts, ends, axes and steps from inputs or attributes.
func (c *ctx) sliceArgs(rank int) (starts, ends, axes, steps []int64, ok bool) {
	starts, ok1 := c.intsOrAttr(1, "starts")
	ends, ok2 := c.intsOrAttr(2, "ends")
	axes, okA := c.intsOrAttr(3, "axes")
	if !okA {
		for i := range starts {
			axes = append(axes, int64(i))
		}
	}
	steps, okS := c.ints(4)
	if !c.has(4) || !okS {
		steps = slices.Repeat([]int64{1}, len(starts))
	}
	n := len(starts)
	ok = ok1 && ok2 && len(ends) == n && len(axes) == n && len(steps) == n && n <= rank
	return starts, ends, axes, steps, ok && (okA || !c.has(3)) && (okS || !c.has(4))
}

func inferSlice(c *ctx) bool {
	t := c.in(0)
	starts, ends, axes, steps, ok := c.sliceArgs(len(t.dims))
	if !ok {
		return false
	}
	out := slices.Clone(t.dims)
	for i := range starts {
		a, ok := axis(axes[i], len(out))
		if !ok || steps[i] == 0 {
			return false
		}
		n := out[a]
		from, to := clampIndex(starts[i], n), clampIndex(ends[i], n)
		switch st := steps[i]; {
		case st > 0 && st <= MaxDim:
			out[a] = max(0, (to-from+st-1)/st)
		case st >= -MaxDim: // backwards; an end before the first element includes it
			from = min(from, n-1)
			if ends[i] < -n {
				to = -1
			}
			out[a] = max(0, (from-to-st-1)/-st)
		default:
			return false
		}
		if t.known && len(t.dims) == 1 && steps[i] == 1 && from <= to && to <= int64(len(t.ints)) {
			c.value(t.ints[from:to])
		}
	}
	return c.set(0, out)
}

func clampIndex(v, n int64) int64 {
	if v < 0 {
		v = max(v, -n) + n
	}
	return min(v, n)
}

func inferExpand(c *ctx) bool {
	want, ok := c.ints(1)
	if !ok {
		return false
	}
	out, ok := broadcast(c.in(0).dims, want)
	return ok && c.set(0, out)
}

func inferTile(c *ctx) bool {
	d := c.in(0).dims
	rep, ok := c.ints(1)
	if !ok || len(rep) != len(d) {
		return false
	}
	out := make([]int64, len(d))
	for i := range d {
		if rep[i] < 0 {
			return false
		}
		out[i] = satMul(d[i], rep[i])
	}
	return c.set(0, out)
}

func inferPad(c *ctx) bool {
	d := c.in(0).dims
	pads, ok := c.intsOrAttr(1, "pads")
	if !ok || len(pads) != 2*len(d) || c.has(3) {
		return false
	}
	out := make([]int64, len(d))
	for i := range d {
		if bad(pads[i], -MaxDim) || bad(pads[len(d)+i], -MaxDim) {
			return false
		}
		out[i] = d[i] + pads[i] + pads[len(d)+i]
	}
	return c.set(0, out)
}

// inferResize uses the sizes if they are known, else the scales.
func inferResize(c *ctx) bool {
	d := c.in(0).dims
	if sizes, ok := c.ints(3); ok && len(sizes) == len(d) {
		c.s.flops = satMul(4, product(sizes))
		return c.set(0, sizes)
	}
	var scales []float32
	if a := c.n.attr("scales"); a != nil {
		scales = a.Floats
	}
	for _, i := range []int{1, 2} {
		if f := c.in(i).floats; len(f) == len(d) {
			scales = f
		}
	}
	if len(scales) != len(d) || len(d) == 0 {
		return false
	}
	out := make([]int64, len(d))
	for i := range d {
		v := float64(d[i]) * float64(scales[i])
		if !(v >= 0 && v <= MaxDim) {
			return false
		}
		out[i] = int64(v)
	}
	c.s.flops = satMul(4, product(out))
	return c.set(0, out)
}

func inferDepthToSpace(c *ctx) bool {
	d, b := c.in(0).dims, c.n.attrInt("blocksize", 0)
	if len(d) != 4 || b < 1 || b > 1<<15 || d[1]%(b*b) != 0 {
		return false
	}
	return c.set(0, []int64{d[0], d[1] / (b * b), satMul(d[2], b), satMul(d[3], b)})
}

func inferSpaceToDepth(c *ctx) bool {
	d, b := c.in(0).dims, c.n.attrInt("blocksize", 0)
	if len(d) != 4 || b < 1 || b > 1<<15 || d[2]%b != 0 || d[3]%b != 0 {
		return false
	}
	return c.set(0, []int64{d[0], satMul(d[1], b*b), d[2] / b, d[3] / b})
}

func inferGather(c *ctx) bool {
	t, idx := c.in(0), c.in(1)
	a, ok := axis(c.n.attrInt("axis", 0), len(t.dims))
	if !ok || !c.has(1) {
		return false
	}
	out := append(append(slices.Clone(t.dims[:a]), idx.dims...), t.dims[a+1:]...)
	if t.known && len(t.dims) == 1 && idx.known {
		v := make([]int64, len(idx.ints))
		for i, j := range idx.ints {
			k, ok := axis(j, len(t.ints))
			if !ok {
				return false
			}
			v[i] = t.ints[k]
		}
		c.value(v)
	}
	return c.set(0, out)
}

func inferGatherElements(c *ctx) bool { return c.has(1) && c.set(0, c.in(1).dims) }

func inferGatherND(c *ctx) bool {
	d, idx := c.in(0).dims, c.in(1).dims
	b := c.n.attrInt("batch_dims", 0)
	if len(idx) == 0 || b < 0 {
		return false
	}
	skip := satAdd(b, idx[len(idx)-1])
	if skip > int64(len(d)) {
		return false
	}
	return c.set(0, append(slices.Clone(idx[:len(idx)-1]), d[skip:]...))
}

func inferOneHot(c *ctx) bool {
	depth, ok := c.ints(1)
	d := c.in(0).dims
	a, inside := axis(c.n.attrInt("axis", -1), len(d)+1)
	if !ok || len(depth) != 1 || !inside {
		return false
	}
	c.outs[0].dtype = c.in(2).dtype
	return c.set(0, slices.Insert(slices.Clone(d), a, depth[0]))
}

func inferShapeOf(c *ctx) bool {
	d := c.in(0).dims
	from, to := clampIndex(c.n.attrInt("start", 0), int64(len(d))), int64(len(d))
	if a := c.n.attr("end"); a != nil {
		to = clampIndex(a.I, int64(len(d)))
	}
	if !c.has(0) || from > to {
		return false
	}
	c.outs[0].dtype = Int64
	c.value(slices.Clone(d[from:to]))
	return c.set(0, []int64{to - from})
}

func inferSizeOf(c *ctx) bool {
	c.outs[0].dtype = Int64
	if n := c.in(0).elems(); n <= MaxDim {
		c.value([]int64{n})
	}
	return c.has(0) && c.set(0, nil)
}
