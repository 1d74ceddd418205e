package neural

import "math"

const (
	beta1   = 0.9
	beta2   = 0.999
	epsilon = 1e-8
)

// adam is the optimizer's state. pow1 and pow2 are beta1 and beta2 to the number
// of steps taken, kept as numbers because math.Pow is not the same everywhere.
type adam struct {
	m, v       []float64
	pow1, pow2 float64
}

func newAdam(n int) adam {
	return adam{m: make([]float64, n), v: make([]float64, n), pow1: 1, pow2: 1}
}

func (a *adam) copyFrom(b *adam) {
	copy(a.m, b.m)
	copy(a.v, b.v)
	a.pow1, a.pow2 = b.pow1, b.pow2
}

// step moves p against the gradient g/rows, shortened to the norm clip, with
// decoupled weight decay. It clears g for the next batch.
func (a *adam) step(p, g []float64, rows int, rate, decay, clip float64) {
	var squares float64
	for _, d := range g {
		squares += float64(d * d)
	}
	factor := 1 / float64(rows)
	if norm := float64(math.Sqrt(squares) * factor); norm > clip {
		factor = float64(factor * (clip / norm))
	}
	a.pow1, a.pow2 = float64(a.pow1*beta1), float64(a.pow2*beta2)
	c1, c2 := float64(rate/(1-a.pow1)), 1/(1-a.pow2)
	keep := 1 - float64(rate*decay)
	m, v := a.m[:len(p)], a.v[:len(p)]
	g = g[:len(p)]
	for i, d := range g {
		d = float64(d * factor)
		mi := float64(beta1*m[i]) + float64((1-beta1)*d)
		vi := float64(beta2*v[i]) + float64((1-beta2)*float64(d*d))
		m[i], v[i] = mi, vi
		p[i] = float64(p[i]*keep) - float64(c1*mi)/(math.Sqrt(float64(vi*c2))+epsilon)
	}
	clear(g)
}
