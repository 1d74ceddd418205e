package graph

// ctx is what a rule sees of one node: its inputs with bound shapes, and the
// outputs to fill in.
type ctx struct {
	p    *plan
	n    *Node
	s    *step
	outs []tensor
}

var noTensor = tensor{dtype: Float, role: roleConstant}

// in returns the i-th input, or an empty scalar if it is missing.
func (c *ctx) in(i int) tensor {
	if i >= len(c.s.in) || c.s.in[i] < 0 {
		return noTensor
	}
	return c.p.tensors[c.s.in[i]]
}

func (c *ctx) has(i int) bool { return i < len(c.s.in) && c.s.in[i] >= 0 }

// set sets the shape of the i-th output; dims beyond the limits are refused.
func (c *ctx) set(i int, dims []int64) bool {
	if len(dims) > MaxRank {
		return false
	}
	for _, d := range dims {
		if d < 0 || d > MaxDim {
			return false
		}
	}
	if i < len(c.outs) {
		c.outs[i].dims = dims
	}
	return true
}

// ints returns the value of the i-th input if it is known.
func (c *ctx) ints(i int) ([]int64, bool) {
	t := c.in(i)
	return t.ints, t.known
}

// intsOrAttr returns a list that older opsets keep in an attribute and newer ones
// in an input.
func (c *ctx) intsOrAttr(input int, attr string) (vals []int64, ok bool) {
	if a := c.n.attr(attr); a != nil {
		return a.Ints, true
	}
	if c.has(input) {
		return c.ints(input)
	}
	return nil, false
}

// maxValues bounds the constant values that one analysis keeps, so that many small
// constants do not add up to gigabytes.
const maxValues = 1 << 20

// value records the output's known content.
func (c *ctx) value(v []int64) {
	if len(v) <= maxConstInts && c.p.values64+len(v) <= maxValues {
		c.p.values64 += len(v)
		c.outs[0].ints, c.outs[0].known = v, true
	}
}

// axis resolves a possibly negative axis of a tensor of the given rank.
func axis(a int64, rank int) (int, bool) {
	if a < 0 {
		a += int64(rank)
	}
	return int(a), a >= 0 && a < int64(rank)
}

// guess gives the outputs of an operator without a rule the shapes that the
// exporter declared, else that of the first input.
func (c *ctx) guess() {
	for i := range c.outs {
		c.outs[i].dims = c.in(0).dims
		if c.in(0).role == roleWeight && len(c.s.in) > 1 {
			c.outs[i].dims = c.in(1).dims
		}
		c.outs[i].known, c.outs[i].ints = false, nil
	}
	for i, name := range c.n.Outputs {
		if v := c.p.declared(name); v != nil {
			dims := make([]int64, len(v.Dims))
			for j, d := range v.Dims {
				if dims[j] = d.Value; d.Value < 0 {
					dims[j], _ = c.p.bind(d.Param, j)
				}
			}
			c.outs[i].dims, c.outs[i].dtype = dims, v.Type
		}
	}
}

// declared returns what the file says about a value's shape.
func (p *plan) declared(name string) *Value {
	if p.values == nil {
		p.values = make(map[string]*Value, len(p.g.Values)+len(p.g.Outputs))
		for _, vs := range [][]Value{p.g.Outputs, p.g.Values} {
			for i := range vs {
				if vs[i].Known {
					p.values[vs[i].Name] = &vs[i]
				}
			}
		}
	}
	return p.values[name]
}

// alias makes output id share its input's memory where the rule says so. A view of
// a weight or a constant does not count: it costs nothing.
func (c *ctx) alias(id int32) {
	if !c.s.rule.view || !c.has(0) {
		return
	}
	src := c.s.in[0]
	c.p.tensors[id].root = c.p.tensors[src].root
	if r := c.p.tensors[src].role; r == roleWeight || r == roleConstant {
		c.p.tensors[id].role = roleConstant
	}
}

// broadcast joins two shapes by numpy's rule.
func broadcast(a, b []int64) ([]int64, bool) {
	if len(a) < len(b) {
		a, b = b, a
	}
	out := make([]int64, len(a))
	copy(out, a)
	off := len(a) - len(b)
	for i, d := range b {
		switch {
		case out[off+i] == d || d == 1:
		case out[off+i] == 1:
			out[off+i] = d
		default:
			return nil, false
		}
	}
	return out, true
}

// sameShape returns the rule of element-wise operators with one data input.
func sameShape(flopsPerElem int64) func(*ctx) bool {
	return func(c *ctx) bool {
		t := c.in(0)
		c.s.flops = satMul(t.elems(), flopsPerElem)
		return c.has(0) && c.set(0, t.dims)
	}
}

// fixed reports whether the node's result is independent of the run's input: an
// exporter could have computed it.
func (c *ctx) fixed() bool {
	for _, id := range c.s.in {
		if id >= 0 && c.p.act(id) {
			return false
		}
	}
	return len(c.s.in) > 0 || c.n.Op == "Constant"
}

// constantRole returns whether a value computed from constants is one of the
// model's weights, which some exporters write as constants, or a by-product.
func constantRole(op string, t *tensor) role {
	if (op == "Constant" || op == "ConstantOfShape") && t.dtype.IsFloat() && t.elems() > maxConstFloats {
		return roleWeight
	}
	return roleConstant
}
