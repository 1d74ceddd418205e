package zoo

import "cmp"

// ops are the operators of a graph under construction: each adds a node and knows
// the dimensions of its result.
type ops struct{ file }

// conv is a convolution on images; bias as in its framework.
type conv struct {
	out, k, stride, pad, groups int64
	kw                          int64 // width of the kernel if it is not square
	padw                        int64
	bias                        bool
}

func (g *ops) conv(x val, c conv) val {
	c.stride = cmp.Or(c.stride, 1)
	c.groups = cmp.Or(c.groups, 1)
	kw, pw := c.k, c.pad
	if c.kw != 0 {
		kw, pw = c.kw, c.padw
	}
	in := []string{x.name, g.weight(c.out, x.dims[1]/c.groups, c.k, kw)}
	if c.bias {
		in = append(in, g.weight(c.out))
	}
	y := g.fresh(x.dims[0], c.out, (x.dims[2]+2*c.pad-c.k)/c.stride+1, (x.dims[3]+2*pw-kw)/c.stride+1)
	attrs := []attr{list("kernel_shape", c.k, kw)}
	if c.stride != 1 {
		attrs = append(attrs, list("strides", c.stride, c.stride))
	}
	if c.pad != 0 || pw != 0 {
		attrs = append(attrs, list("pads", c.pad, pw, c.pad, pw))
	}
	if c.groups != 1 {
		attrs = append(attrs, num("group", c.groups))
	}
	g.node("Conv", in, []val{y}, attrs...)
	return y
}

func (g *ops) bn(x val) val {
	y := g.fresh(x.dims...)
	c := x.dims[1]
	g.node("BatchNormalization", []string{x.name, g.weight(c), g.weight(c), g.weight(c), g.weight(c)}, []val{y})
	return y
}

func (g *ops) unary(op string, x val) val {
	y := g.fresh(x.dims...)
	g.node(op, []string{x.name}, []val{y})
	return y
}

func (g *ops) relu(x val) val { return g.unary("Relu", x) }

// silu is x·sigmoid(x), as exporters write it.
func (g *ops) silu(x val) val { return g.mul(x, g.unary("Sigmoid", x)) }

func (g *ops) binary(op string, x, y val) val {
	z := g.fresh(x.dims...)
	g.node(op, []string{x.name, y.name}, []val{z})
	return z
}

func (g *ops) add(x, y val) val { return g.binary("Add", x, y) }
func (g *ops) mul(x, y val) val { return g.binary("Mul", x, y) }

// scaleBy multiplies by a weight of the given shape (layer scale, 1/√d).
func (g *ops) scaleBy(x val, dims ...int64) val { return g.mul(x, val{name: g.weight(dims...)}) }

func (g *ops) pool(op string, x val, k, stride, pad int64, attrs ...attr) val {
	y := g.fresh(x.dims[0], x.dims[1], (x.dims[2]+2*pad-k)/stride+1, (x.dims[3]+2*pad-k)/stride+1)
	for _, a := range attrs {
		if a.name == "ceil_mode" {
			y.dims[2], y.dims[3] = (x.dims[2]+2*pad-k+stride-1)/stride+1, (x.dims[3]+2*pad-k+stride-1)/stride+1
		}
	}
	attrs = append(attrs, list("kernel_shape", k, k), list("strides", stride, stride))
	if pad != 0 {
		attrs = append(attrs, list("pads", pad, pad, pad, pad))
	}
	g.node(op, []string{x.name}, []val{y}, attrs...)
	return y
}

func (g *ops) maxpool(x val, k, stride, pad int64) val { return g.pool("MaxPool", x, k, stride, pad) }

func (g *ops) maxpoolCeil(x val, k, stride, pad int64) val {
	return g.pool("MaxPool", x, k, stride, pad, num("ceil_mode", 1))
}

func (g *ops) gap(x val) val {
	y := g.fresh(x.dims[0], x.dims[1], 1, 1)
	g.node("GlobalAveragePool", []string{x.name}, []val{y})
	return y
}

func (g *ops) flatten(x val) val {
	n := int64(1)
	for _, d := range x.dims[1:] {
		n *= d
	}
	y := g.fresh(x.dims[0], n)
	g.node("Flatten", []string{x.name}, []val{y})
	return y
}

func (g *ops) concat(axis int64, xs ...val) val {
	dims := append([]int64{}, xs[0].dims...)
	dims[axis] = 0
	names := make([]string, len(xs))
	for i, x := range xs {
		names[i] = x.name
		dims[axis] += x.dims[axis]
	}
	y := g.fresh(dims...)
	g.node("Concat", names, []val{y}, num("axis", axis))
	return y
}

// fc is a linear layer over rows, with bias.
func (g *ops) fc(x val, out int64) val {
	y := g.fresh(x.dims[0], out)
	g.node("Gemm", []string{x.name, g.weight(out, x.last()), g.weight(out)}, []val{y}, num("transB", 1))
	return y
}

func (g *ops) pooled(x val) val { return g.flatten(g.gap(x)) }

// classify is the last layer over rows: the classes of ImageNet.
func (g *ops) classify(x val) { g.output(g.fc(x, 1000)) }

// linear is a linear layer over the last axis of any tensor.
func (g *ops) linear(x val, out int64) val { return g.bias(g.linearNoBias(x, out)) }

func (g *ops) linearNoBias(x val, out int64) val {
	dims := append([]int64{}, x.dims...)
	dims[len(dims)-1] = out
	y := g.fresh(dims...)
	g.node("MatMul", []string{x.name, g.weight(x.last(), out)}, []val{y})
	return y
}

func (g *ops) bias(x val) val { return g.add(x, val{name: g.weight(x.last())}) }

func (g *ops) layernorm(x val) val {
	y := g.fresh(x.dims...)
	g.node("LayerNormalization", []string{x.name, g.weight(x.last()), g.weight(x.last())}, []val{y})
	return y
}

// reshape takes dims where 0 copies the input's and -1 is the batch or the rest.
func (g *ops) reshape(x val, dims ...int64) val {
	shape := append([]int64{}, dims...)
	for i, d := range shape {
		if d == 0 {
			shape[i] = x.dims[i]
		}
	}
	y := g.fresh(shape...)
	g.node("Reshape", []string{x.name, g.ints(dims...)}, []val{y})
	return y
}

func (g *ops) transpose(x val, perm ...int64) val {
	dims := make([]int64, len(perm))
	for i, p := range perm {
		dims[i] = x.dims[p]
	}
	y := g.fresh(dims...)
	g.node("Transpose", []string{x.name}, []val{y}, list("perm", perm...))
	return y
}

func (g *ops) matmul(x, y val) val {
	dims := append([]int64{}, x.dims...)
	dims[len(dims)-1] = y.last()
	z := g.fresh(dims...)
	g.node("MatMul", []string{x.name, y.name}, []val{z})
	return z
}

// split cuts x into n equal parts along axis.
func (g *ops) split(x val, axis, n int64) []val {
	out := make([]val, n)
	for i := range out {
		dims := append([]int64{}, x.dims...)
		dims[axis] /= n
		out[i] = g.fresh(dims...)
	}
	g.node("Split", []string{x.name}, out, num("axis", axis), num("num_outputs", n))
	return out
}

// slice keeps [from, to) of one axis.
func (g *ops) slice(x val, axis, from, to int64) val {
	dims := append([]int64{}, x.dims...)
	dims[axis] = to - from
	y := g.fresh(dims...)
	g.node("Slice", []string{x.name, g.ints(from), g.ints(to), g.ints(axis)}, []val{y})
	return y
}

// embed looks up ids in a table of n rows of width d.
func (g *ops) embed(ids val, n, d int64) val {
	y := g.fresh(append(append([]int64{}, ids.dims...), d)...)
	g.node("Gather", []string{g.weight(n, d), ids.name}, []val{y})
	return y
}

// mlp widens and narrows again.
func (g *ops) mlp(x val, hidden int64) val {
	return g.linear(g.unary("Gelu", g.linear(x, hidden)), x.last())
}
