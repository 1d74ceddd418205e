// Package fit holds the numerical methods behind the predictor: non-negative
// least squares, boosted regression trees, quantiles. It knows nothing of jobs
// or GPUs.
//
// Everything is a function of its arguments: equal data give equal results, to
// the bit, on every processor. So products are rounded before they are added
// (float64(a*b)+c: the compiler may otherwise fuse the two on some
// architectures), sums run in the order of the rows, and what comes out of the
// mathematical library goes through Log, which drops the bits that differ
// between its implementations.
package fit

import (
	"math"
	"slices"
)

// logGrid is the step of Log's results: far below any error that matters, far
// above the last bits in which implementations of the logarithm differ.
const logGrid = 1 << 24

// Log is the natural logarithm of v, rounded to a grid of 2^-24. v ≤ 0 counts
// as tiny.
func Log(v float64) float64 {
	return math.Round(math.Log(max(v, tiny))*logGrid) / logGrid
}

// tiny stands for quantities of nothing where a logarithm is taken.
const tiny = 1e-6

// Quantile is the q-quantile (0 to 1) of values by linear interpolation
// (Hyndman and Fan's type 7); 0 when there are none. It sorts values.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	at := float64(q * float64(len(values)-1))
	i := min(max(int(at), 0), len(values)-1)
	if i+1 == len(values) {
		return values[i]
	}
	return values[i] + float64((at-float64(i))*(values[i+1]-values[i]))
}

// Conformal is the bound that a new value, exchangeable with values, stays
// under with probability q: the ⌈(n+1)·q⌉-th smallest of them, the largest when
// there are too few (Vovk et al. 2005; Lei et al. 2018, arXiv:1604.04173). It
// sorts values; 0 when there are none.
func Conformal(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	k := int(math.Ceil(float64(len(values)+1) * q))
	return values[min(max(k, 1), len(values))-1]
}
