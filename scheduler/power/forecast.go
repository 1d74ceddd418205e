package power

import (
	"math"
	"time"
)

// Method is a way to forecast the most needed within a horizon.
type Method string

// The methods: what is needed now; the change that followed a day or a week ago,
// added to what is needed now; and a regression on these, on recent demand and on
// its trend.
const (
	ByLast       Method = "last"
	ByDay        Method = "day"
	ByWeek       Method = "week"
	ByRegression Method = "regression"
)

// Methods lists the methods, the simplest first.
func Methods() []Method { return []Method{ByLast, ByDay, ByWeek, ByRegression} }

// ridge keeps coefficients small where features are collinear; fitted is how many
// slots of examples a regression needs for each of its features.
const (
	ridge  = 1e-3
	fitted = 24
)

// Seasons are how many slots a horizon, a day and a week have.
type Seasons struct{ Horizon, Day, Week int }

// SeasonsOf returns the seasons for slots of a length.
func SeasonsOf(slot, horizon time.Duration) Seasons {
	in := func(d time.Duration) int { return max(1, int((d+slot/2)/slot)) }
	return Seasons{in(horizon), in(day), in(week)}
}

// Peak forecasts the most needed within the horizon after the last of some slots,
// by a method, or by the next simpler one for which enough is known. It is 0
// without data.
func (h Seasons) Peak(y []float64, m Method) (float64, Method) {
	last := len(y) - 1
	if last < 0 {
		return 0, ByLast
	}
	if m == ByRegression {
		if w := h.fit(y); w != nil {
			return max(0, y[last]+w.of(h.features(y, sums(y), last, nil))), ByRegression
		}
		m = ByWeek
	}
	if m == ByWeek && last < h.Week {
		m = ByDay
	}
	if m == ByDay && last < h.Day {
		m = ByLast
	}
	switch m {
	case ByWeek:
		return max(0, y[last]+h.followed(y, last-h.Week)), m
	case ByDay:
		return max(0, y[last]+h.followed(y, last-h.Day)), m
	}
	return y[last], ByLast
}

// followed returns by how much demand rose at most within the horizon after a slot.
func (h Seasons) followed(y []float64, at int) float64 {
	most := math.Inf(-1)
	for _, v := range y[at+1 : min(len(y), at+1+h.Horizon)] {
		most = max(most, v)
	}
	if math.IsInf(most, -1) {
		return 0
	}
	return most - y[at]
}

// weights are those of features.
type weights []float64

func (w weights) of(x []float64) float64 {
	sum := 0.0
	for i, v := range x {
		sum += w[i] * v
	}
	return sum
}

// sums are those of the first slots of y.
func sums(y []float64) []float64 {
	out := make([]float64, len(y)+1)
	for i, v := range y {
		out[i+1] = out[i] + v
	}
	return out
}

// features writes what is known of a slot to out: what is needed, how far the
// averages of the last hour, the last horizon and the last day are from it, and how
// high the horizon's peak was; what followed a day ago and, if known for enough
// slots, a week ago.
func (h Seasons) features(y, sums []float64, at int, out []float64) []float64 {
	mean := func(n int) float64 {
		from := max(0, at+1-n)
		return (sums[at+1]-sums[from])/float64(at+1-from) - y[at]
	}
	top := y[at]
	for _, v := range y[max(0, at+1-h.Horizon) : at+1] {
		top = max(top, v)
	}
	out = append(out[:0], 1, y[at], mean(max(1, h.Day/24)), mean(h.Horizon), mean(h.Day), top-y[at], h.followed(y, at-h.Day))
	if len(y) >= 2*h.Week {
		out = append(out, h.followed(y, at-h.Week))
	}
	return out
}

// fit returns the feature weights that best explain the changes that followed in y:
// least squares, by the normal equations. It is nil if too few are known.
func (h Seasons) fit(y []float64) weights {
	from := h.Day
	if len(y) >= 2*h.Week {
		from = h.Week
	}
	until := len(y) - h.Horizon // the horizon of earlier ones is over
	if until <= from {
		return nil
	}
	upTo := sums(y)
	x := h.features(y, upTo, from, nil)
	n := len(x)
	if until-from < fitted*n {
		return nil
	}
	a := make([][]float64, n)
	for i := range a {
		a[i] = make([]float64, n+1)
	}
	for at := from; at < until; at++ {
		x = h.features(y, upTo, at, x)
		target := h.followed(y, at)
		for i := range n {
			for j := i; j < n; j++ {
				a[i][j] += x[i] * x[j]
			}
			a[i][n] += x[i] * target
		}
	}
	for i := range n {
		for j := range i {
			a[i][j] = a[j][i]
		}
		a[i][i] += ridge * float64(until-from)
	}
	return solve(a)
}

// solve returns the solution of linear equations whose right side is the last
// column, by elimination with the largest pivot; nil if there is none. It modifies
// a.
func solve(a [][]float64) weights {
	n := len(a)
	for k := range n {
		best := k
		for i := k + 1; i < n; i++ {
			if math.Abs(a[i][k]) > math.Abs(a[best][k]) {
				best = i
			}
		}
		if math.Abs(a[best][k]) < 1e-12 {
			return nil
		}
		a[k], a[best] = a[best], a[k]
		for i := k + 1; i < n; i++ {
			f := a[i][k] / a[k][k]
			for j := k; j <= n; j++ {
				a[i][j] -= f * a[k][j]
			}
		}
	}
	x := make(weights, n)
	for k := n - 1; k >= 0; k-- {
		x[k] = a[k][n]
		for j := k + 1; j < n; j++ {
			x[k] -= a[k][j] * x[j]
		}
		x[k] /= a[k][k]
	}
	return x
}

// Errors are how far forecasts were off, in nodes: the mean absolute error, the
// root mean square error, and the mean of 2|f-y|/(f+y) in percent (sMAPE). Short is
// by how much they were too low on average.
type Errors struct {
	MAE, RMSE, SMAPE, Short float64
	N                       int
}

// Measure forecasts by a method at every slot from one on, from what was known
// then, limited to the last MaxSlots, and compares that with what came.
func (h Seasons) Measure(y []float64, from int, m Method) Errors {
	var e Errors
	for at := from; at+h.Horizon < len(y); at++ {
		got, _ := h.Peak(y[max(0, at+1-MaxSlots):at+1], m)
		want := y[at] + h.followed(y, at)
		off := got - want
		e.MAE += math.Abs(off)
		e.RMSE += off * off
		e.Short += max(0, -off)
		if got+want > 0 {
			e.SMAPE += 200 * math.Abs(off) / (got + want)
		}
		e.N++
	}
	if n := float64(e.N); n > 0 {
		e.MAE, e.RMSE, e.SMAPE, e.Short = e.MAE/n, math.Sqrt(e.RMSE/n), e.SMAPE/n, e.Short/n
	}
	return e
}
