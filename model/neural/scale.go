package neural

import (
	"errors"
	"fmt"
	"math"
)

// ErrData is wrapped by errors about rows: wrong lengths, values that are not
// finite or out of range, too few labels.
var ErrData = errors.New("bad rows")

const (
	inputClip = 10 // standard deviations beyond which an input counts as this far
	labelClip = 50 // the same for a label
)

// column standardises one input. scale is 0 for a constant column, which then
// reads as 0 whatever it holds later.
type column struct {
	kind        Scale
	mean, scale float64
}

func (c *column) apply(v float64) float64 {
	if c.scale == 0 {
		return 0
	}
	if c.kind == ScaleLog {
		v = signedLog(v)
	}
	return max(-inputClip, min(inputClip, (v-c.mean)/c.scale))
}

func signedLog(v float64) float64 { return math.Copysign(log(1+math.Abs(v)), v) }

// moments returns mean and standard deviation of vs, and deviation 0 when vs is
// constant but for rounding.
func moments(vs []float64) (mean, dev float64) {
	var sum, most float64
	for _, v := range vs {
		sum += v
		most = max(most, math.Abs(v))
	}
	mean = sum / float64(len(vs))
	var squares float64
	for _, v := range vs {
		d := v - mean
		squares += float64(d * d)
	}
	dev = math.Sqrt(squares / float64(len(vs)))
	if dev <= float64(1e-10*most) || dev < 1e-100 {
		dev = 0
	}
	return mean, dev
}

// target scales one output. lo and hi are the smallest and largest label seen,
// in original units; bound derives the rest from them.
type target struct {
	kind        Scale
	mean, scale float64 // of the labels, or of their logarithms
	floor       float64 // smallest denominator of a relative error, in original units
	weight      float64 // of each label, so that rarely labelled outputs count as much as others
	lo, hi      float64

	zlo, zhi float64 // range of predictions in scaled units
}

// scaled takes a label to scaled units.
func (t *target) scaled(y float64) float64 {
	if t.kind == ScaleLog {
		y = log(y)
	}
	return max(-labelClip, min(labelClip, (y-t.mean)/t.scale))
}

// value takes scaled units to original ones.
func (t *target) value(z float64) float64 {
	v := t.mean + float64(t.scale*z)
	if t.kind == ScaleLog {
		return exp(v)
	}
	return v
}

// slope is the derivative of value at z, where value(z) = v.
func (t *target) slope(z, v float64) float64 {
	if t.kind != ScaleLog {
		return t.scale
	}
	if math.Abs(t.mean+float64(t.scale*z)) >= expLimit {
		return 0
	}
	return float64(t.scale * v)
}

// bound sets the range of predictions from the labels seen.
func (t *target) bound(extrapolate float64) {
	lo, hi := t.scaled(t.lo), t.scaled(t.hi)
	slack := float64(extrapolate * (hi - lo))
	t.zlo, t.zhi = lo-slack, hi+slack
}

// see widens the range of labels.
func (t *target) see(y, extrapolate float64) {
	t.lo, t.hi = min(t.lo, y), max(t.hi, y)
	t.bound(extrapolate)
}

// predict is value within the bounds. An output never labelled below zero is
// never predicted below zero.
func (t *target) predict(z float64) float64 {
	v := t.value(max(t.zlo, min(t.zhi, z)))
	if t.lo >= 0 {
		v = max(v, 0)
	}
	return v
}

// loss returns the loss of one label y, whose scaled value is want, predicted as
// z in scaled units, and its derivative by z: squared error in scaled units,
// plus relative error e in original units bounded as e/(1+e/cap).
func (t *target) loss(c *Config, z, want, y float64) (l, dz float64) {
	e := z - want
	l, dz = float64(c.MSEWeight*float64(e*e)), float64(2*c.MSEWeight*e)
	if c.MAPEWeight != 0 {
		v := t.value(z)
		denom := max(math.Abs(y), t.floor)
		rel := math.Abs(v-y) / denom
		damp := 1 / (1 + rel/c.MAPECap)
		l += float64(c.MAPEWeight * rel * damp)
		g := float64(c.MAPEWeight*damp*damp*t.slope(z, v)) / denom
		switch {
		case v > y:
			dz += g
		case v < y:
			dz -= g
		}
	}
	return float64(t.weight * l), float64(t.weight * dz)
}

// rowLoss sums the losses of the labels present in a row, and sets dz, which may
// be nil, to the gradient by the scaled predictions z. NaN in want is a missing
// label: no loss, no gradient.
func rowLoss(c *Config, ts []target, z, want, y, dz []float64) float64 {
	var sum float64
	for k := range ts {
		var l, d float64
		if !math.IsNaN(want[k]) {
			l, d = ts[k].loss(c, z[k], want[k], y[k])
		}
		sum += l
		if dz != nil {
			dz[k] = d
		}
	}
	return sum
}

func scaleOf(scales []Scale, i int) Scale {
	if i < len(scales) {
		return scales[i]
	}
	return ScaleStandard
}

// fitColumns measures the inputs of checked rows.
func fitColumns(c *Config, x [][]float64) []column {
	cols := make([]column, len(x[0]))
	vs := make([]float64, len(x))
	for i := range cols {
		cols[i].kind = scaleOf(c.Inputs, i)
		for r, row := range x {
			vs[r] = row[i]
			if cols[i].kind == ScaleLog {
				vs[r] = signedLog(row[i])
			}
		}
		cols[i].mean, cols[i].scale = moments(vs)
	}
	return cols
}

// mostWeight bounds the weight of a label of a rarely labelled output.
const mostWeight = 20

// fitTargets measures the labels of checked rows.
func fitTargets(c *Config, y [][]float64) ([]target, error) {
	ts := make([]target, len(y[0]))
	var vs []float64
	for k := range ts {
		t := &ts[k]
		t.kind, t.lo, t.hi = scaleOf(c.Outputs, k), math.Inf(1), math.Inf(-1)
		vs = vs[:0]
		var size float64
		for _, row := range y {
			v := row[k]
			if math.IsNaN(v) {
				continue
			}
			t.lo, t.hi, size = min(t.lo, v), max(t.hi, v), size+math.Abs(v)
			if t.kind == ScaleLog {
				v = log(v)
			}
			vs = append(vs, v)
		}
		if len(vs) == 0 {
			return nil, fmt.Errorf("%w: output %d has no label in %d rows; leave it out", ErrData, k, len(y))
		}
		t.mean, t.scale = moments(vs)
		if t.scale == 0 { // constant: any unit of the right order will do
			t.scale = 1
			if a := math.Abs(t.mean); t.kind == ScaleStandard && a > 1e-100 {
				t.scale = a
			}
		}
		if t.floor = float64(c.MAPEFloor*size) / float64(len(vs)); t.floor < 1e-100 {
			t.floor = t.scale
		}
		t.weight = min(float64(len(y))/float64(len(vs)), mostWeight)
		t.bound(c.Extrapolate)
	}
	return ts, nil
}

// checkRows refuses what the network cannot learn from.
func checkRows(c *Config, x, y [][]float64, inputs, outputs int) error {
	if len(x) == 0 || len(x) != len(y) {
		return fmt.Errorf("%w: %d rows of inputs and %d of labels, must be the same and at least 1", ErrData, len(x), len(y))
	}
	for r := range x {
		if err := checkInputs(x[r], inputs); err != nil {
			return fmt.Errorf("row %d: %w", r, err)
		}
		if len(y[r]) != outputs {
			return fmt.Errorf("row %d: %w: %d labels, must be %d (NaN for a missing one)", r, ErrData, len(y[r]), outputs)
		}
		for k, v := range y[r] {
			switch {
			case math.IsNaN(v):
			case !(math.Abs(v) <= MaxValue):
				return fmt.Errorf("row %d: %w: label %d is %v, must lie within ±%g, or be NaN when missing", r, ErrData, k, v, MaxValue)
			case scaleOf(c.Outputs, k) == ScaleLog && v < minLogged:
				return fmt.Errorf("row %d: %w: label %d is %v, must be at least %g on a logarithmic scale", r, ErrData, k, v, minLogged)
			}
		}
	}
	return nil
}

func checkInputs(x []float64, inputs int) error {
	if len(x) != inputs {
		return fmt.Errorf("%w: %d inputs, must be %d", ErrData, len(x), inputs)
	}
	for i, v := range x {
		if !(math.Abs(v) <= MaxValue) { // NaN too
			return fmt.Errorf("%w: input %d is %v, must lie within ±%g", ErrData, i, v, MaxValue)
		}
	}
	return nil
}
