package neural

import (
	"math"
	"math/rand/v2"
)

// dense is one affine layer. It holds no numbers: w and b are offsets into the
// model's flat parameter slice, so that the optimizer, the codec and the
// gradient check see one vector. The weights of unit j are w+j*in .. w+(j+1)*in.
type dense struct{ in, out, w, b int }

// stack is a chain of layers with ReLU between them and none at the end.
type stack []dense

// newStack lays out layers of the given widths from offset at on, and returns
// the offset behind them.
func newStack(at int, widths ...int) (stack, int) {
	var s stack
	for i := 1; i < len(widths); i++ {
		l := dense{in: widths[i-1], out: widths[i], w: at}
		l.b = l.w + l.in*l.out
		at = l.b + l.out
		s = append(s, l)
	}
	return s, at
}

// init draws He-uniform weights; biases begin at 0. The last layer begins small,
// so that the first predictions are near the mean.
func (s stack) init(p []float64, r *rand.Rand) {
	for i, l := range s {
		limit := math.Sqrt(6 / float64(l.in))
		if i == len(s)-1 {
			limit = float64(0.3 * limit)
		}
		for j := l.w; j < l.b; j++ {
			p[j] = float64(symmetric(r) * limit)
		}
		clear(p[l.b : l.b+l.out])
	}
}

// forward sets y = W x + b. Four units at a time: their sums are independent,
// and each x is loaded once for four products.
func (l dense) forward(p, x, y []float64) {
	n := l.in
	x, y = x[:n], y[:l.out]
	w, b := p[l.w:l.b], p[l.b:l.b+l.out]
	j := 0
	for ; j+4 <= len(y); j += 4 {
		w0, w1, w2, w3 := w[j*n:][:len(x)], w[(j+1)*n:][:len(x)], w[(j+2)*n:][:len(x)], w[(j+3)*n:][:len(x)]
		s0, s1, s2, s3 := b[j], b[j+1], b[j+2], b[j+3]
		for i, v := range x {
			s0 += float64(w0[i] * v)
			s1 += float64(w1[i] * v)
			s2 += float64(w2[i] * v)
			s3 += float64(w3[i] * v)
		}
		y[j], y[j+1], y[j+2], y[j+3] = s0, s1, s2, s3
	}
	for ; j < len(y); j++ {
		row, s := w[j*n:][:len(x)], b[j]
		for i, v := range x {
			s += float64(row[i] * v)
		}
		y[j] = s
	}
}

// backward adds the layer's gradient to g, given dy = dL/dy, and sets
// dx = dL/dx unless dx is nil.
func (l dense) backward(p, g, x, dy, dx []float64) {
	n := l.in
	x, dy = x[:n], dy[:l.out]
	w, gw, gb := p[l.w:l.b], g[l.w:l.b], g[l.b:l.b+l.out]
	if dx != nil {
		dx = dx[:n]
		clear(dx)
	}
	for j, d := range dy {
		if d == 0 { // a unit that ReLU has switched off, or a missing label
			continue
		}
		gb[j] += d
		gr := gw[j*n:][:len(x)]
		if dx == nil {
			for i, v := range x {
				gr[i] += float64(d * v)
			}
			continue
		}
		row, dx := w[j*n:][:len(x)], dx[:len(x)]
		for i, v := range x {
			gr[i] += float64(d * v)
			dx[i] += float64(d * row[i])
		}
	}
}

// relu sets negative values to 0, without a branch that half of the units would
// mispredict.
func relu(y []float64) {
	for i, v := range y {
		y[i] = max(v, 0)
	}
}

// trace keeps what a pass through a stack needs for the way back.
type trace struct {
	y [][]float64 // values after each layer, after ReLU where there is one
	d [][]float64 // dL/dy of the same
}

func (s stack) newTrace() trace {
	var t trace
	for _, l := range s {
		t.y = append(t.y, make([]float64, l.out))
		t.d = append(t.d, make([]float64, l.out))
	}
	return t
}

// out returns the last layer's values, dout the place for their gradient.
func (t trace) out() []float64  { return t.y[len(t.y)-1] }
func (t trace) dout() []float64 { return t.d[len(t.d)-1] }

// forward runs x through the stack and keeps every layer's values in t.
func (s stack) forward(p, x []float64, t trace) {
	for i, l := range s {
		l.forward(p, x, t.y[i])
		if i < len(s)-1 {
			relu(t.y[i])
		}
		x = t.y[i]
	}
}

// backward takes t.dout() back to the input x of the last forward, adding to g.
// It sets dx = dL/dx unless dx is nil.
func (s stack) backward(p, g, x []float64, t trace, dx []float64) {
	for i := len(s) - 1; i > 0; i-- {
		below, dbelow := t.y[i-1], t.d[i-1]
		s[i].backward(p, g, below, t.d[i], dbelow)
		for k, v := range below {
			if v <= 0 {
				dbelow[k] = 0
			}
		}
	}
	s[0].backward(p, g, x, t.d[0], dx)
}

// infer is forward without a trace: it needs only its own stack frame, so
// goroutines may share p. y may not overlap x.
func (s stack) infer(p, x, y []float64) {
	var even, odd [MaxWidth]float64
	for i, l := range s {
		if i == len(s)-1 {
			l.forward(p, x, y)
			return
		}
		h := even[:l.out]
		if i%2 == 1 {
			h = odd[:l.out]
		}
		l.forward(p, x, h)
		relu(h)
		x = h
	}
}
