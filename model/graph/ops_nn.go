package graph

// convShape is a convolution after its shapes are bound, for the workspace rules.
type convShape struct {
	batch, cin, cout, groups int64
	kernel                   int64 // product of the kernel's sides
	in, out                  int64 // spatial positions before and after
	square3                  bool  // 3×3, stride 1: Winograd applies
}

// spatial holds the attributes that convolutions and pools share.
type spatial struct {
	kernel, strides, pads, dilations []int64
	auto                             string
	ceil                             bool
}

// readSpatial reads them; kernel is the window if no attribute gives one.
func readSpatial(n *Node, rank int, kernel []int64) (spatial, bool) {
	s := spatial{
		kernel: n.attrInts("kernel_shape"), strides: n.attrInts("strides"),
		pads: n.attrInts("pads"), dilations: n.attrInts("dilations"),
		auto: n.attrString("auto_pad"), ceil: n.attrInt("ceil_mode", 0) != 0,
	}
	if len(s.kernel) == 0 {
		s.kernel = kernel
	}
	fill := func(v []int64, n int, def int64) []int64 {
		if len(v) == 0 {
			v = make([]int64, n)
			for i := range v {
				v[i] = def
			}
		}
		return v
	}
	s.strides, s.dilations = fill(s.strides, rank, 1), fill(s.dilations, rank, 1)
	s.pads = fill(s.pads, 2*rank, 0)
	if len(s.kernel) != rank || len(s.strides) != rank || len(s.dilations) != rank || len(s.pads) != 2*rank {
		return s, false
	}
	for i := range rank {
		if bad(s.kernel[i], 1) || bad(s.strides[i], 1) || bad(s.dilations[i], 1) || bad(s.pads[i], 0) || bad(s.pads[rank+i], 0) {
			return s, false
		}
	}
	return s, true
}

func bad(v, low int64) bool { return v < low || v > MaxDim }

// out returns the size of one axis after the window has moved over it.
func (s *spatial) out(in int64, i int) (int64, bool) {
	rank := len(s.kernel)
	reach := satMul(s.dilations[i], s.kernel[i]-1) + 1
	stride := s.strides[i]
	switch s.auto {
	case "SAME_UPPER", "SAME_LOWER":
		return (in + stride - 1) / stride, true
	case "VALID":
		if in < reach {
			return 0, false
		}
		return (in-reach)/stride + 1, true
	}
	room := in + s.pads[i] + s.pads[rank+i] - reach
	if room < 0 {
		return 0, false
	}
	if s.ceil {
		o := (room+stride-1)/stride + 1
		if (o-1)*stride >= in+s.pads[i] { // a window may not start in the padding
			o--
		}
		return o, true
	}
	return room/stride + 1, true
}

func inferConv(c *ctx) bool {
	x, w := c.in(0).dims, c.in(1).dims
	rank := len(x) - 2
	if rank < 1 || len(w) != len(x) {
		return false
	}
	sp, ok := readSpatial(c.n, rank, w[2:])
	group := c.n.attrInt("group", 1)
	if !ok || group < 1 || w[0] < 1 || w[1] < 1 {
		return false
	}
	out := []int64{x[0], w[0]}
	for i := range rank {
		o, ok := sp.out(x[2+i], i)
		if !ok {
			return false
		}
		out = append(out, o)
	}
	k := product(w[2:])
	c.s.flops = satMul(satMul(product(out), 2), satMul(w[1], k))
	c.s.conv = &convShape{
		batch: x[0], cin: x[1], cout: w[0], groups: group, kernel: k, in: product(x[2:]), out: product(out[2:]),
		square3: rank == 2 && w[2] == 3 && w[3] == 3 && sp.strides[0] == 1 && sp.dilations[0] == 1,
	}
	return c.set(0, out)
}

func inferConvTranspose(c *ctx) bool {
	x, w := c.in(0).dims, c.in(1).dims
	rank := len(x) - 2
	if rank < 1 || len(w) != len(x) {
		return false
	}
	sp, ok := readSpatial(c.n, rank, w[2:])
	group := c.n.attrInt("group", 1)
	if !ok || bad(group, 1) {
		return false
	}
	extra, shape := c.n.attrInts("output_padding"), c.n.attrInts("output_shape")
	out := []int64{x[0], satMul(w[1], group)}
	for i := range rank {
		o := satMul(sp.strides[i], x[2+i]-1) + satMul(sp.dilations[i], sp.kernel[i]-1) + 1
		switch {
		case len(shape) == rank:
			o = shape[i]
		case sp.auto == "SAME_UPPER" || sp.auto == "SAME_LOWER":
			o = satMul(x[2+i], sp.strides[i])
		default:
			o -= sp.pads[i] + sp.pads[rank+i]
			if len(extra) == rank {
				o += extra[i]
			}
		}
		out = append(out, o)
	}
	k := product(w[2:])
	c.s.flops = satMul(satMul(product(x), 2), satMul(w[1], k))
	c.s.conv = &convShape{batch: x[0], cin: x[1], cout: out[1], groups: group, kernel: k, in: product(x[2:]), out: product(out[2:])}
	return c.set(0, out)
}

func inferPool(c *ctx) bool {
	x := c.in(0).dims
	rank := len(x) - 2
	if rank < 1 {
		return false
	}
	sp, ok := readSpatial(c.n, rank, nil)
	if !ok {
		return false
	}
	out := []int64{x[0], x[1]}
	for i := range rank {
		o, ok := sp.out(x[2+i], i)
		if !ok {
			return false
		}
		out = append(out, o)
	}
	c.s.flops = satMul(product(out), product(sp.kernel))
	if len(c.outs) > 1 {
		c.outs[1].dtype = Int64
	}
	return c.set(0, out) && c.set(1, out)
}

func inferGlobalPool(c *ctx) bool {
	x := c.in(0).dims
	if len(x) < 3 {
		return false
	}
	out := make([]int64, len(x))
	out[0], out[1] = x[0], x[1]
	for i := 2; i < len(x); i++ {
		out[i] = 1
	}
	c.s.flops = product(x)
	return c.set(0, out)
}

func inferGemm(c *ctx) bool {
	a, b := c.in(0).dims, c.in(1).dims
	if len(a) != 2 || len(b) != 2 {
		return false
	}
	m, k, n := a[0], a[1], b[1]
	if c.n.attrInt("transA", 0) != 0 {
		m, k = k, m
	}
	if c.n.attrInt("transB", 0) != 0 {
		n = b[0]
	}
	c.s.flops = satMul(satMul(2, m), satMul(k, n))
	return c.set(0, []int64{m, n})
}

func inferMatMul(c *ctx) bool {
	a, b := c.in(0).dims, c.in(1).dims
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	dropRow, dropCol := len(a) == 1, len(b) == 1
	if dropRow {
		a = []int64{1, a[0]}
	}
	if dropCol {
		b = []int64{b[0], 1}
	}
	lead, ok := broadcast(a[:len(a)-2], b[:len(b)-2])
	m, k, n := a[len(a)-2], a[len(a)-1], b[len(b)-1]
	if !ok || k != b[len(b)-2] {
		return false
	}
	out := append(append([]int64{}, lead...), m, n)
	c.s.flops = satMul(satMul(product(out), 2), k)
	if dropCol {
		out = out[:len(out)-1]
	}
	if dropRow {
		out = append(out[:len(lead)], out[len(lead)+1:]...)
	}
	if c.in(0).dtype == Int8 || c.in(0).dtype == Uint8 {
		c.outs[0].dtype = Int32
	}
	return c.set(0, out)
}

// inferEinsum supports equations with an arrow and without an ellipsis.
func inferEinsum(c *ctx) bool {
	eq := c.n.attrString("equation")
	size := map[byte]int64{}
	arg, pos, total := 0, 0, int64(1)
	i := 0
	for ; i < len(eq); i++ {
		ch := eq[i]
		switch {
		case ch == ' ':
		case ch == ',':
			arg, pos = arg+1, 0
		case ch == '-' && i+1 < len(eq) && eq[i+1] == '>':
			return c.einsumOut(eq[i+2:], size, total)
		case ch == '.':
			return false
		default:
			d := c.in(arg).dims
			if pos >= len(d) {
				return false
			}
			if _, seen := size[ch]; !seen {
				size[ch] = d[pos]
				total = satMul(total, d[pos])
			}
			pos++
		}
	}
	return false
}

func (c *ctx) einsumOut(letters string, size map[byte]int64, total int64) bool {
	var out []int64
	for i := 0; i < len(letters); i++ {
		if letters[i] == ' ' {
			continue
		}
		d, ok := size[letters[i]]
		if !ok {
			return false
		}
		out = append(out, d)
	}
	c.s.flops = satMul(2, total)
	return c.set(0, out)
}

// inferRNN supports LSTM, GRU and RNN, which have 4, 3 and 1 gates.
func inferRNN(gates int64) func(*ctx) bool {
	return func(c *ctx) bool {
		x, w := c.in(0).dims, c.in(1).dims
		hidden := c.n.attrInt("hidden_size", 0)
		if len(x) != 3 || len(w) != 3 || bad(hidden, 1) || bad(w[0], 1) {
			return false
		}
		dirs := w[0]
		seq, batch := x[0], x[1]
		y := []int64{seq, dirs, batch, hidden}
		if c.n.attrInt("layout", 0) != 0 {
			seq, batch = batch, seq
			y = []int64{batch, seq, dirs, hidden}
		}
		cell := satMul(satMul(2*gates, hidden), satAdd(x[2], hidden))
		c.s.flops = satMul(satMul(seq, batch), satMul(dirs, cell))
		state := []int64{dirs, batch, hidden}
		return c.set(0, y) && c.set(1, state) && c.set(2, state)
	}
}

// inferAttention supports ONNX's Attention of opset 23 with inputs of rank 3 or 4.
func inferAttention(c *ctx) bool {
	q, k, v := c.in(0).dims, c.in(1).dims, c.in(2).dims
	if len(q) != len(k) || len(k) != len(v) {
		return false
	}
	switch len(q) {
	case 4: // [batch, heads, seq, size]
		c.s.flops = satMul(satMul(2, satMul(q[0], q[1])), satMul(satMul(q[2], k[2]), satAdd(q[3], v[3])))
		return c.set(0, []int64{q[0], q[1], q[2], v[3]})
	case 3: // [batch, seq, heads×size]
		heads, kv := c.n.attrInt("q_num_heads", 0), c.n.attrInt("kv_num_heads", 0)
		if bad(heads, 1) || bad(kv, 1) {
			return false
		}
		c.s.flops = satMul(satMul(2, q[0]), satMul(satMul(q[1], k[1]), satMul(2, q[2])))
		return c.set(0, []int64{q[0], q[1], satMul(v[2]/kv, heads)})
	}
	return false
}
