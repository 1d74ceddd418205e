package fit

import (
	"errors"
	"math"
)

// ErrData is wrapped by the errors of data that cannot be fitted: no rows, rows
// of different lengths, numbers that are not finite.
var ErrData = errors.New("data cannot be fitted")

// ridge keeps collinear columns apart: relative to a column's own weight.
const ridge = 1e-6

// NNLS finds the c ≥ 0 that minimizes Σ((rows·c − y)²) plus, where prior is not
// nil, pull·Σ(scale·(c − prior))², in which scale is each column's root mean
// square: pull counts like that many rows that say "the prior is right". It is
// Lawson and Hanson's active set method (Solving Least Squares Problems, 1974,
// chapter 23) on the normal equations, for at most a few dozen columns.
func NNLS(rows [][]float64, y, prior []float64, pull float64) ([]float64, error) {
	n, err := columns(rows, y)
	if err != nil {
		return nil, err
	}
	a, b, scale := normal(rows, y, n)
	if prior != nil {
		for j := range n {
			p := float64(prior[j] * scale[j])
			a[j*n+j] += pull
			b[j] += float64(pull * p)
		}
	}
	c := activeSet(a, b, n)
	for j := range c {
		if scale[j] > 0 {
			c[j] /= scale[j]
		}
	}
	return c, nil
}

// columns checks the data and tells how many columns there are.
func columns(rows [][]float64, y []float64) (int, error) {
	if len(rows) == 0 || len(rows) != len(y) {
		return 0, ErrData
	}
	for i, r := range rows {
		if len(r) != len(rows[0]) || math.IsNaN(y[i]) || math.IsInf(y[i], 0) {
			return 0, ErrData
		}
		for _, v := range r {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return 0, ErrData
			}
		}
	}
	return len(rows[0]), nil
}

// normal returns the normal equations of the rows with their columns scaled to
// a root mean square of 1, and the scales. Columns of zeros keep scale 0.
func normal(rows [][]float64, y []float64, n int) (a, b, scale []float64) {
	scale = make([]float64, n)
	for _, r := range rows {
		for j, v := range r {
			scale[j] += float64(v * v)
		}
	}
	for j := range scale {
		scale[j] = math.Sqrt(scale[j] / float64(len(rows)))
	}
	a, b = make([]float64, n*n), make([]float64, n)
	s := make([]float64, n)
	for i, r := range rows {
		for j, v := range r {
			if s[j] = 0; scale[j] > 0 {
				s[j] = v / scale[j]
			}
		}
		for j := range n {
			b[j] += float64(s[j] * y[i])
			for k := range n {
				a[j*n+k] += float64(s[j] * s[k])
			}
		}
	}
	for j := range n {
		a[j*n+j] += float64(ridge*float64(len(rows))) + tiny
	}
	return a, b, scale
}

// activeSet solves min cᵀAc − 2bᵀc over c ≥ 0.
func activeSet(a, b []float64, n int) []float64 {
	c, free := make([]float64, n), make([]bool, n)
	for range 3 * n {
		best, at := 1e-9, -1
		for j := range n {
			g := b[j]
			for k := range n {
				g -= float64(a[j*n+k] * c[k])
			}
			if !free[j] && g > best {
				best, at = g, j
			}
		}
		if at < 0 {
			break
		}
		free[at] = true
		descend(a, b, c, free, n)
	}
	return c
}

// descend moves c to the best point of the free columns, dropping those that
// would become negative on the way.
func descend(a, b, c []float64, free []bool, n int) {
	for range n + 1 {
		s := solveFree(a, b, free, n)
		step, inside := 1.0, true
		for j := range n {
			if free[j] && s[j] <= 0 {
				inside = false
				if d := c[j] - s[j]; d > 0 {
					step = min(step, c[j]/d)
				}
			}
		}
		for j := range n {
			if free[j] {
				c[j] += float64(step * (s[j] - c[j]))
				if !inside && c[j] <= 1e-12 {
					c[j], free[j] = 0, false
				}
			}
		}
		if inside {
			return
		}
	}
}

// solveFree solves the equations of the free columns by Cholesky's method.
func solveFree(a, b []float64, free []bool, n int) []float64 {
	idx := make([]int, 0, n)
	for j := range n {
		if free[j] {
			idx = append(idx, j)
		}
	}
	m := len(idx)
	l, z := make([]float64, m*m), make([]float64, m)
	for i := range m {
		for k := 0; k <= i; k++ {
			v := a[idx[i]*n+idx[k]]
			for q := range k {
				v -= float64(l[i*m+q] * l[k*m+q])
			}
			if i == k {
				l[i*m+i] = math.Sqrt(max(v, 1e-12))
			} else {
				l[i*m+k] = v / l[k*m+k]
			}
		}
		v := b[idx[i]]
		for q := range i {
			v -= float64(l[i*m+q] * z[q])
		}
		z[i] = v / l[i*m+i]
	}
	s := make([]float64, n)
	for i := m - 1; i >= 0; i-- {
		v := z[i]
		for q := i + 1; q < m; q++ {
			v -= float64(l[q*m+i] * s[idx[q]])
		}
		s[idx[i]] = v / l[i*m+i]
	}
	return s
}
