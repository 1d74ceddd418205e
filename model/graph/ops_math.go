package graph

import "math"

func inferBinary(c *ctx) bool {
	a, b := c.in(0), c.in(1)
	out, ok := broadcast(a.dims, b.dims)
	if !ok || !c.has(0) || !c.has(1) {
		return false
	}
	if !a.dtype.IsFloat() && b.dtype.IsFloat() {
		c.outs[0].dtype = b.dtype
	}
	c.s.flops = product(out)
	if a.known && b.known && len(out) <= 1 {
		if v, ok := fold(c.n.Op, a.ints, b.ints); ok {
			c.value(v)
		}
	}
	return c.set(0, out)
}

// fold computes integer arithmetic on shapes. Overflow and division by zero
// make the value unknown.
func fold(op string, a, b []int64) ([]int64, bool) {
	n := max(len(a), len(b))
	if len(a) == 0 || len(b) == 0 || (len(a) != n && len(a) != 1) || (len(b) != n && len(b) != 1) {
		return nil, false
	}
	out := make([]int64, n)
	for i := range out {
		x, y := a[min(i, len(a)-1)], b[min(i, len(b)-1)]
		if x > MaxDim || x < -MaxDim || y > MaxDim || y < -MaxDim {
			return nil, false
		}
		switch op {
		case "Add":
			out[i] = x + y
		case "Sub":
			out[i] = x - y
		case "Mul":
			out[i] = x * y // both below 2^31
		case "Div":
			if y == 0 {
				return nil, false
			}
			out[i] = x / y
		case "Mod":
			if y == 0 {
				return nil, false
			}
			out[i] = x % y
		default:
			return nil, false
		}
	}
	return out, true
}

func inferVariadic(c *ctx) bool {
	if !c.has(0) {
		return false
	}
	out := c.in(0).dims
	for i := 1; i < len(c.s.in); i++ {
		var ok bool
		if out, ok = broadcast(out, c.in(i).dims); !ok {
			return false
		}
	}
	c.s.flops = satMul(product(out), int64(len(c.s.in)))
	return c.set(0, out)
}

func inferCompare(c *ctx) bool {
	a, b := c.in(0), c.in(1)
	out, ok := broadcast(a.dims, b.dims)
	if !ok {
		return false
	}
	c.outs[0].dtype = Bool
	c.s.flops = product(out)
	if c.n.Op == "Equal" && a.known && b.known && len(a.ints) == len(b.ints) && len(out) <= 1 {
		v := make([]int64, len(a.ints))
		for i := range v {
			if a.ints[i] == b.ints[i] {
				v[i] = 1
			}
		}
		c.value(v)
	}
	return c.set(0, out)
}

func inferWhere(c *ctx) bool {
	cond, x, y := c.in(0), c.in(1), c.in(2)
	out, ok := broadcast(x.dims, y.dims)
	if !ok {
		return false
	}
	if out, ok = broadcast(out, cond.dims); !ok {
		return false
	}
	c.outs[0].dtype = x.dtype
	c.s.flops = product(out)
	n := len(cond.ints)
	if cond.known && x.known && y.known && len(x.ints) == n && len(y.ints) == n && len(out) <= 1 {
		v := make([]int64, n)
		for i := range v {
			if v[i] = y.ints[i]; cond.ints[i] != 0 {
				v[i] = x.ints[i]
			}
		}
		c.value(v)
	}
	return c.set(0, out)
}

func inferCast(c *ctx) bool {
	t := c.in(0)
	c.outs[0].dtype = DType(int32(c.n.attrInt("to", int64(Float))))
	if t.known && !c.outs[0].dtype.IsFloat() {
		c.value(t.ints)
	}
	c.s.flops = t.elems()
	return c.has(0) && c.set(0, t.dims)
}

func inferIdentity(c *ctx) bool {
	t := c.in(0)
	if t.known {
		c.value(t.ints)
	}
	return c.has(0) && c.set(0, t.dims)
}

func inferDropout(c *ctx) bool {
	if len(c.outs) > 1 {
		c.outs[1].dtype = Bool
	}
	d := c.in(0).dims
	c.s.flops = product(d)
	return c.has(0) && c.set(0, d) && c.set(1, d)
}

// reduceAxes returns which axes an operator removes; empty means all.
func (c *ctx) reduceAxes(rank int) (drop []bool, ok bool) {
	vals, given := c.intsOrAttr(1, "axes")
	if !given && c.has(1) {
		return nil, false // computed at run time
	}
	drop = make([]bool, rank)
	if len(vals) == 0 {
		if c.n.attrInt("noop_with_empty_axes", 0) == 0 {
			for i := range drop {
				drop[i] = true
			}
		}
		return drop, true
	}
	for _, a := range vals {
		i, ok := axis(a, rank)
		if !ok {
			return nil, false
		}
		drop[i] = true
	}
	return drop, true
}

func (c *ctx) reduced(dims []int64, drop []bool) []int64 {
	out := make([]int64, 0, len(dims))
	for i, d := range dims {
		switch {
		case !drop[i]:
			out = append(out, d)
		case c.n.attrInt("keepdims", 1) != 0:
			out = append(out, 1)
		}
	}
	return out
}

func inferReduce(c *ctx) bool {
	t := c.in(0)
	drop, ok := c.reduceAxes(len(t.dims))
	if !ok || !c.has(0) {
		return false
	}
	c.s.flops = t.elems()
	if t.known && c.n.Op == "ReduceProd" {
		p := int64(1)
		for _, v := range t.ints {
			if v < 0 || v > MaxDim {
				return false
			}
			p = satMul(p, v)
		}
		c.value([]int64{min(p, math.MaxInt32)})
	}
	return c.set(0, c.reduced(t.dims, drop))
}

func inferArg(c *ctx) bool {
	t := c.in(0)
	a, ok := axis(c.n.attrInt("axis", 0), len(t.dims))
	if !ok {
		return false
	}
	drop := make([]bool, len(t.dims))
	drop[a] = true
	c.outs[0].dtype = Int64
	c.s.flops = t.elems()
	return c.set(0, c.reduced(t.dims, drop))
}

func inferTopK(c *ctx) bool {
	t := c.in(0)
	a, ok := axis(c.n.attrInt("axis", -1), len(t.dims))
	k, known := c.ints(1)
	if v := c.n.attr("k"); v != nil {
		k, known = []int64{v.I}, true
	}
	if !ok || !known || len(k) != 1 {
		return false
	}
	out := append([]int64{}, t.dims...)
	out[a] = k[0]
	if len(c.outs) > 1 {
		c.outs[1].dtype = Int64
	}
	c.s.flops = satMul(t.elems(), 8)
	return c.set(0, out) && c.set(1, out)
}

func inferQuantize(c *ctx) bool {
	c.outs[0].dtype = Uint8
	if c.has(2) {
		c.outs[0].dtype = c.in(2).dtype
	}
	c.s.flops = c.in(0).elems()
	return c.has(0) && c.set(0, c.in(0).dims)
}

func inferDequantize(c *ctx) bool {
	c.outs[0].dtype = Float
	c.s.flops = c.in(0).elems()
	return c.has(0) && c.set(0, c.in(0).dims)
}

func inferRange(c *ctx) bool {
	a, okA := c.ints(0)
	b, okB := c.ints(1)
	d, okD := c.ints(2)
	if !okA || !okB || !okD || len(a) != 1 || len(b) != 1 || len(d) != 1 || d[0] <= 0 {
		return false
	}
	if b[0] > MaxDim || a[0] < -MaxDim || d[0] > MaxDim {
		return false
	}
	n := max(0, (b[0]-a[0]+d[0]-1)/d[0])
	if n <= maxConstInts {
		v := make([]int64, n)
		for i := range v {
			v[i] = a[0] + int64(i)*d[0]
		}
		c.value(v)
	}
	return c.set(0, []int64{n})
}

func inferConstant(c *ctx) bool {
	a := c.n.attr("value")
	switch {
	case a != nil && a.Tensor != nil:
		t := a.Tensor
		c.outs[0].dtype, c.outs[0].role, c.outs[0].floats = t.Type, roleConstant, t.Floats
		if t.Ints != nil && int64(len(t.Ints)) == t.Elems() {
			c.value(t.Ints)
		}
		return c.set(0, t.Dims)
	case c.n.attr("value_int") != nil:
		c.outs[0].dtype = Int64
		c.value([]int64{c.n.attrInt("value_int", 0)})
		return c.set(0, nil)
	case c.n.attr("value_ints") != nil:
		v := c.n.attrInts("value_ints")
		c.outs[0].dtype = Int64
		c.value(v)
		return c.set(0, []int64{int64(len(v))})
	case c.n.attr("value_float") != nil:
		c.outs[0].dtype, c.outs[0].role = Float, roleConstant
		return c.set(0, nil)
	case c.n.attr("value_floats") != nil:
		c.outs[0].dtype, c.outs[0].role = Float, roleConstant
		return c.set(0, []int64{int64(len(c.n.attr("value_floats").Floats))})
	}
	return false
}

func inferConstantOfShape(c *ctx) bool {
	dims, ok := c.ints(0)
	if !ok {
		return false
	}
	c.outs[0].dtype = Float
	fill, isInt := int64(0), false
	if a := c.n.attr("value"); a != nil && a.Tensor != nil {
		c.outs[0].dtype = a.Tensor.Type
		if len(a.Tensor.Ints) == 1 {
			fill, isInt = a.Tensor.Ints[0], true
		}
	}
	if !c.set(0, dims) {
		return false
	}
	if n := product(dims); isInt && n <= maxConstInts {
		v := make([]int64, n)
		for i := range v {
			v[i] = fill
		}
		c.value(v)
	}
	return true
}
