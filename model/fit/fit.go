// Package fit holds the numerical methods behind the predictor: non-negative least
// squares, boosted regression trees, quantiles. It knows nothing of jobs or GPUs.
//
// Everything is a function of its arguments: equal data give equal results, to the
// bit, on every processor. Therefore products are rounded before they are added
// (float64(a*b)+c: the compiler may otherwise fuse the two on some architectures),
// sums run in the order of the rows, and results of the math library go through Log
// and Exp, which drop the bits that differ between its implementations.
package fit

import (
	"cmp"
	"math"
	"slices"
)

// logGrid is the step of Log's results: far below any relevant error, far above the
// last bits in which implementations of the logarithm differ.
const logGrid = 1 << 24

// Log returns the natural logarithm of v, rounded to a grid of 2^-24. v ≤ 0 counts
// as tiny.
func Log(v float64) float64 {
	return float64(math.Round(math.Log(max(v, tiny))*logGrid) / logGrid)
}

// Exp returns e^v, rounded to a float32 for the same reason.
func Exp(v float64) float64 { return float64(float32(math.Exp(v))) }

// tiny replaces quantities of zero before a logarithm is taken.
const tiny = 1e-6

// Quantile returns the q-quantile (0 to 1) of values by linear interpolation
// (Hyndman and Fan's type 7); 0 if there are none. It sorts values.
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

// Median returns the weighted median of values; weights are not negative. If all
// weigh the same it is Quantile's; 0 if there are no values.
func Median(values, weights []float64) float64 {
	pairs, total := byValue(values, weights)
	sum := 0.0
	for i, p := range pairs {
		sum += p.w
		if sum == total/2 && i+1 < len(pairs) {
			return p.v + float64(0.5*(pairs[i+1].v-p.v))
		}
		if sum > total/2 {
			return p.v
		}
	}
	return 0
}

// Conformal returns the bound below which a new value, exchangeable with values,
// stays with probability q: the ⌈(n+1)·q⌉-th smallest of n, the largest if there
// are too few (Vovk et al. 2005; Lei et al. 2018, arXiv:1604.04173). With weights,
// nil for equal ones, values are weighted by them, and the new one like the
// heaviest (Tibshirani et al. 2019, arXiv:1904.06019). 0 when there are none.
func Conformal(values, weights []float64, q float64) float64 {
	pairs, total := byValue(values, weights)
	most := 0.0
	for _, p := range pairs {
		most = max(most, p.w)
	}
	sum, bound := 0.0, 0.0
	for _, p := range pairs {
		bound = p.v
		if sum += p.w; sum >= float64(q*(total+most)) {
			break
		}
	}
	return bound
}

// byValue pairs values with their weights, drops those without any, and sorts the
// pairs. nil weights mean 1 each.
func byValue(values, weights []float64) (pairs []weighted, total float64) {
	pairs = make([]weighted, 0, len(values))
	for i, v := range values {
		if weights == nil {
			pairs = append(pairs, weighted{v, 1})
		} else if weights[i] > 0 {
			pairs = append(pairs, weighted{v, weights[i]})
		}
	}
	slices.SortStableFunc(pairs, func(a, b weighted) int { return cmp.Compare(a.v, b.v) })
	for _, p := range pairs {
		total += p.w
	}
	return pairs, total
}

// weighted is a value and how much it counts.
type weighted struct{ v, w float64 }
