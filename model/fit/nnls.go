package fit

import (
	"errors"
	"fmt"
	"math"
)

// ErrData is wrapped by the errors for data that cannot be fitted: no rows, rows of
// different lengths, numbers that are not finite or too large.
var ErrData = errors.New("data cannot be fitted")

// largest bounds the numbers that can be fitted, so that the squares of many
// stay finite.
const largest = 1e100

// ridge keeps collinear columns apart: relative to a column's own weight.
const ridge = 1e-6

// Box is the range that a coefficient may have.
type Box struct{ Low, High float64 }

// Bounded returns the c within boxes that minimizes Σ((rows·c − y)²) plus
// pull·Σ(scale·(c − prior))², in which scale is each column's root mean square:
// pull counts like that many rows in favour of the prior. With boxes from 0 it is
// non-negative least squares. It uses coordinate descent on the normal equations,
// which for a convex problem in a box leads to the minimum (Bertsekas, Nonlinear
// Programming, 1999, section 2.7), for at most a few dozen columns. A column of
// zeros keeps its prior, or the nearest value in its box. Boxes may be infinite.
// Errors wrap ErrData.
func Bounded(rows [][]float64, y, prior []float64, boxes []Box, pull float64) ([]float64, error) {
	n, err := columns(rows, y)
	if err != nil {
		return nil, err
	}
	if err := checkPriors(prior, boxes, n, pull); err != nil {
		return nil, err
	}
	a, b, scale := normal(rows, y, n)
	c := make([]float64, n)
	for j := range n {
		c[j] = min(max(prior[j], boxes[j].Low), boxes[j].High) * scale[j]
		a[j*n+j] += pull
		b[j] += float64(pull * float64(prior[j]*scale[j]))
	}
	for range sweeps {
		moved := 0.0
		for j := range n {
			if scale[j] == 0 {
				continue
			}
			g := b[j]
			for k := range n {
				if k != j {
					g -= float64(a[j*n+k] * c[k])
				}
			}
			v := min(max(g/a[j*n+j], float64(boxes[j].Low*scale[j])), float64(boxes[j].High*scale[j]))
			moved = max(moved, math.Abs(v-c[j]))
			c[j] = v
		}
		if moved < 1e-10 {
			break
		}
	}
	for j := range c {
		if c[j] /= scale[j]; scale[j] == 0 {
			c[j] = prior[j]
		}
		// Scaling there and back may round across a bound.
		c[j] = min(max(c[j], boxes[j].Low), boxes[j].High)
	}
	return c, nil
}

// sweeps bounds the descent; most end within a few dozen.
const sweeps = 5000

// checkPriors checks Bounded's arguments besides the rows of n columns.
func checkPriors(prior []float64, boxes []Box, n int, pull float64) error {
	if len(prior) != n || len(boxes) != n {
		return fmt.Errorf("%w: %d priors and %d boxes for %d columns", ErrData, len(prior), len(boxes), n)
	}
	if !(pull >= 0 && pull <= largest) {
		return fmt.Errorf("%w: a pull of %v, must be 0 or more", ErrData, pull)
	}
	for j, b := range boxes {
		if !usable(prior[j]) || !(b.Low <= b.High) {
			return fmt.Errorf("%w: column %d: prior %v, box from %v to %v", ErrData, j, prior[j], b.Low, b.High)
		}
	}
	return nil
}

// usable reports whether v is finite, and small enough for its square to be so.
func usable(v float64) bool { return v >= -largest && v <= largest }

// columns checks the data and returns the number of columns.
func columns(rows [][]float64, y []float64) (int, error) {
	if len(rows) == 0 || len(rows) != len(y) {
		return 0, fmt.Errorf("%w: %d rows for %d values", ErrData, len(rows), len(y))
	}
	for i, r := range rows {
		if len(r) != len(rows[0]) {
			return 0, fmt.Errorf("%w: row %d has %d columns, row 0 has %d", ErrData, i, len(r), len(rows[0]))
		}
		if !usable(y[i]) {
			return 0, fmt.Errorf("%w: value %d is %v", ErrData, i, y[i])
		}
		for j, v := range r {
			if !usable(v) {
				return 0, fmt.Errorf("%w: row %d, column %d is %v", ErrData, i, j, v)
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
