package eval

import (
	"math"
	"slices"
)

// scores are the figures of one comparison; NaN if there is none. Shares and errors
// are fractions of 1.
type scores struct {
	n                              int
	mape, median, p90, rmse, rmsle float64
	under, coverage, waste, oom    float64
}

// score compares predictions with measurements. RMSE is in the unit of the points.
// RMSLE uses log(1+x) of that unit, as published figures do: MiB, percent,
// milliseconds.
func score(ps []Point, memory bool) scores {
	s := scores{mape: math.NaN(), median: math.NaN(), p90: math.NaN(), rmse: math.NaN(), rmsle: math.NaN(), under: math.NaN(),
		coverage: math.NaN(), waste: math.NaN(), oom: math.NaN()}
	var apes []float64
	var sum, squares, logs, under, covered, waste, died float64
	for _, p := range ps {
		if p.Actual > p.P95 {
			died++
		}
		if p.Censored {
			continue
		}
		e := math.Abs(p.Predicted-p.Actual) / p.Actual
		apes = append(apes, e)
		sum += e
		squares += float64((p.Predicted - p.Actual) * (p.Predicted - p.Actual))
		l := math.Log1p(max(0, p.Predicted)) - math.Log1p(p.Actual)
		logs += float64(l * l)
		if p.Predicted < p.Actual {
			under++
		}
		if p.P95 >= p.Actual {
			covered++
		}
		waste += p.P95/p.Actual - 1
	}
	if s.n = len(apes); s.n > 0 {
		n := float64(s.n)
		s.mape, s.rmse, s.rmsle, s.under = sum/n, math.Sqrt(squares/n), math.Sqrt(logs/n), under/n
		s.median, s.p90 = quantile(apes, 0.5), quantile(apes, 0.9)
		if memory {
			s.coverage, s.waste = covered/n, waste/n
		}
	}
	if memory && len(ps) > 0 {
		s.oom = died / float64(len(ps))
	}
	return s
}

// quantile interpolates linearly between order statistics, as most tools do;
// NaN without values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(values))
	at := q * float64(len(v)-1)
	i := int(at)
	if i+1 >= len(v) {
		return v[len(v)-1]
	}
	return v[i] + float64((at-float64(i))*(v[i+1]-v[i]))
}
