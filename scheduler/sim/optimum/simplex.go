package optimum

import (
	"math"
	"slices"
)

// Limits of the simplex: a program that needs more is given up with the prices that
// it has, which are safe all the same once scaled.
const (
	maxPivots = 4000
	refactor  = 64 // pivots between two fresh inverses of the basis
	tolerance = 1e-9
)

// solve returns the prices of the classes, scaled so that every pattern obeys them;
// nil if some class fits nowhere. It is a revised simplex: the rows are classes,
// then types, and each pivot prices all columns. Available solvers do not expose
// the dual, and the dual is the bound.
func (lp *program) solve() []float64 {
	lp.enumerate()
	n, m := len(lp.classes), len(lp.classes)+len(lp.types)
	basis, ok := lp.start()
	if !ok {
		return nil
	}
	var inv [][]float64
	b := make([]float64, m)
	for c := range n {
		b[c] = lp.classes[c].work
	}
	var dual []float64
	for pivot := range maxPivots {
		if pivot%refactor == 0 {
			fresh, ok := inverse(lp.matrix(basis))
			if !ok {
				break
			}
			inv = fresh
		}
		dual = lp.duals(basis, inv)
		enter, gain := lp.price(dual)
		if gain < tolerance {
			break
		}
		if !lp.pivot(basis, inv, b, enter) {
			break
		}
	}
	return lp.safe(dual)
}

// Columns by number: patterns first, then the surplus of each class, the slack
// of each type, and C.
func (lp *program) surplus(c int) int { return len(lp.cols) + c }
func (lp *program) slack(t int) int   { return len(lp.cols) + len(lp.classes) + t }
func (lp *program) total() int        { return len(lp.cols) + len(lp.classes) + len(lp.types) }

// fill writes column k; rows of classes are >=, rows of types are <= 0.
func (lp *program) fill(k int, out []float64) {
	clear(out)
	n := len(lp.classes)
	switch {
	case k < len(lp.cols):
		for _, e := range lp.cols[k].entry {
			out[e.c] = e.v
		}
		out[n+lp.cols[k].t] = 1
	case k < lp.slack(0):
		out[k-len(lp.cols)] = -1
	case k < lp.total():
		out[n+k-lp.slack(0)] = 1
	default:
		for t := range lp.types {
			out[n+t] = -float64(lp.types[t].cards)
		}
	}
}

// start returns a feasible basis: each class alone on its fastest type, the type
// with the most of that bounding C.
func (lp *program) start() ([]int, bool) {
	basis := make([]int, len(lp.classes)+len(lp.types))
	need := make([]float64, len(lp.types))
	for c := range lp.classes {
		basis[c] = -1
	}
	for k, col := range lp.cols {
		if len(col.entry) != 1 {
			continue
		}
		e := col.entry[0]
		if old := basis[e.c]; old < 0 || e.v > lp.cols[old].entry[0].v {
			basis[e.c] = k
		}
	}
	for c := range lp.classes {
		if basis[c] < 0 {
			return nil, false
		}
		col := lp.cols[basis[c]]
		need[col.t] += lp.classes[c].work / col.entry[0].v / float64(max(1, lp.types[col.t].cards))
	}
	most := 0
	for t := range need {
		basis[len(lp.classes)+t] = lp.slack(t)
		if need[t] > need[most] {
			most = t
		}
	}
	basis[len(lp.classes)+most] = lp.total()
	return basis, true
}

func (lp *program) matrix(basis []int) [][]float64 {
	m := len(basis)
	a, col := square(m), make([]float64, m)
	for i, k := range basis {
		lp.fill(k, col)
		for r, v := range col {
			a[r][i] = v
		}
	}
	return a
}

func square(m int) [][]float64 {
	flat, rows := make([]float64, m*m), make([][]float64, m)
	for r := range rows {
		rows[r] = flat[r*m : (r+1)*m : (r+1)*m]
	}
	return rows
}

// inverse inverts a, which it destroys, by Gauss and Jordan with the largest pivot
// of each column; false if a is singular.
func inverse(a [][]float64) ([][]float64, bool) {
	inv := square(len(a))
	for i := range inv {
		inv[i][i] = 1
	}
	for i := range a {
		best := i
		for r := i + 1; r < len(a); r++ {
			if math.Abs(a[r][i]) > math.Abs(a[best][i]) {
				best = r
			}
		}
		a[i], a[best], inv[i], inv[best] = a[best], a[i], inv[best], inv[i]
		pivot := a[i][i]
		if math.Abs(pivot) < tolerance {
			return nil, false
		}
		for k := range a {
			a[i][k] /= pivot
			inv[i][k] /= pivot
		}
		for r := range a {
			if r != i {
				factor := a[r][i]
				subtract(a[r], factor, a[i])
				subtract(inv[r], factor, inv[i])
			}
		}
	}
	return inv, true
}

// subtract subtracts factor times other from row.
func subtract(row []float64, factor float64, other []float64) {
	if factor == 0 {
		return
	}
	for k, v := range other {
		row[k] -= factor * v
	}
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

// duals returns the prices of the rows: only C has a cost.
func (lp *program) duals(basis []int, inv [][]float64) []float64 {
	if i := slices.Index(basis, lp.total()); i >= 0 {
		return slices.Clone(inv[i])
	}
	return make([]float64, len(basis)) // C is 0: there is no work
}

// price finds the column that gains most.
func (lp *program) price(dual []float64) (enter int, gain float64) {
	n := len(lp.classes)
	for k := range lp.cols {
		g := dual[n+lp.cols[k].t]
		for _, e := range lp.cols[k].entry {
			g += e.v * dual[e.c]
		}
		if g > gain {
			enter, gain = k, g
		}
	}
	for c := range n {
		if g := -dual[c]; g > gain {
			enter, gain = lp.surplus(c), g
		}
	}
	for t := range lp.types {
		if g := dual[n+t]; g > gain {
			enter, gain = lp.slack(t), g
		}
	}
	return enter, gain
}

// pivot brings a column into the basis; false if that is not possible.
func (lp *program) pivot(basis []int, inv [][]float64, b []float64, enter int) bool {
	col, dir := make([]float64, len(basis)), make([]float64, len(basis))
	lp.fill(enter, col)
	leave, least := -1, math.Inf(1)
	for i := range inv {
		dir[i] = dot(inv[i], col)
		if dir[i] <= tolerance {
			continue
		}
		r := max(0, dot(inv[i], b)) / dir[i]
		// Of equal ratios the oldest column leaves, which keeps from cycling in practice.
		if r < least-1e-12 || r <= least+1e-12 && leave >= 0 && basis[i] < basis[leave] {
			leave, least = i, min(r, least)
		}
	}
	if leave < 0 {
		return false
	}
	for k := range inv[leave] {
		inv[leave][k] /= dir[leave]
	}
	for i := range inv {
		if i != leave {
			subtract(inv[i], dir[i], inv[leave])
		}
	}
	basis[leave] = enter
	return true
}

// slightly is by how much prices are held below what the patterns allow.
const slightly = 1e-9

// safe turns the dual into prices that obey every pattern: types get what the dual
// says, and the prices are divided by the worst violation.
func (lp *program) safe(dual []float64) []float64 {
	n := len(lp.classes)
	if dual == nil {
		return nil
	}
	types, all := make([]float64, len(lp.types)), 0.0
	for t := range types {
		types[t] = max(0, -dual[n+t])
		all += types[t] * float64(lp.types[t].cards)
	}
	if !(all > 0) || math.IsInf(all, 0) {
		return nil
	}
	worst := 0.0
	for _, col := range lp.cols {
		sum := 0.0
		for _, e := range col.entry {
			sum += e.v * max(0, dual[e.c])
		}
		if s := types[col.t]; s > 0 {
			worst = max(worst, sum/s)
		} else if sum > 0 {
			// A type that costs nothing may not produce anything of worth.
			for i := range col.entry {
				dual[col.entry[i].c] = 0
			}
		}
	}
	if !(worst > 0) {
		return nil
	}
	out := make([]float64, n)
	for c := range out {
		out[c] = max(0, dual[c]) / worst / all * (1 - slightly)
		if math.IsNaN(out[c]) || math.IsInf(out[c], 0) {
			return nil
		}
	}
	return out
}
