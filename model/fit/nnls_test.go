package fit

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// free is a box without edges.
var free = Box{math.Inf(-1), math.Inf(1)}

func boxes(n int, b Box) []Box {
	out := make([]Box, n)
	for i := range out {
		out[i] = b
	}
	return out
}

func TestBoundedKnownSolutions(t *testing.T) {
	t.Parallel()
	line := [][]float64{{1, 0}, {1, 1}, {1, 2}, {1, 3}}
	for _, tc := range []struct {
		name     string
		rows     [][]float64
		y, prior []float64
		boxes    []Box
		pull     float64
		want     []float64
	}{
		{"a line", line, []float64{1, 3, 5, 7}, []float64{0, 0}, boxes(2, free), 0, []float64{1, 2}},
		{"a line that falls, from 0 on", line, []float64{7, 5, 3, 1}, []float64{1, 1}, boxes(2, Box{0, math.Inf(1)}), 0, []float64{4, 0}},
		{"an edge above", line, []float64{1, 3, 5, 7}, []float64{0, 0}, []Box{free, {0, 1.5}}, 0, []float64{1.75, 1.5}},
		{"an edge below", line, []float64{1, 3, 5, 7}, []float64{0, 0}, []Box{{2, 9}, free}, 0, []float64{2, 11. / 7}},
		{"one point for a value", [][]float64{{2}}, []float64{6}, []float64{1}, []Box{{3, 3}}, 0, []float64{3}},
		{"a column of zeros keeps its prior", [][]float64{{1, 0}, {2, 0}}, []float64{3, 6}, []float64{1, 7}, boxes(2, free), 1e-9, []float64{3, 7}},
		{"or the edge next to it", [][]float64{{1, 0}, {2, 0}}, []float64{3, 6}, []float64{1, 7}, []Box{free, {0, 5}}, 0, []float64{3, 5}},
		{"pull like as many rows", [][]float64{{1}, {1}, {1}}, []float64{4, 4, 4}, []float64{0}, boxes(1, free), 3, []float64{2}},
		{"units do not matter to the pull", [][]float64{{1e6}, {1e6}}, []float64{4, 4}, []float64{0}, boxes(1, free), 2, []float64{2e-6}},
		{"the prior alone", [][]float64{{0, 0}}, []float64{5}, []float64{1, 2}, boxes(2, free), 2, []float64{1, 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Bounded(tc.rows, tc.y, tc.prior, tc.boxes, tc.pull)
			if err != nil {
				t.Fatal(err)
			}
			for j := range tc.want {
				if math.Abs(got[j]-tc.want[j]) > 1e-4*math.Abs(tc.want[j])+1e-9 {
					t.Fatalf("got %v, want %v", got, tc.want)
				}
			}
		})
	}
}

func TestBoundedRefuses(t *testing.T) {
	t.Parallel()
	nan, inf := math.NaN(), math.Inf(1)
	for _, tc := range []struct {
		name     string
		rows     [][]float64
		y, prior []float64
		boxes    []Box
		pull     float64
	}{
		{"no rows", nil, nil, nil, nil, 0},
		{"more values than rows", [][]float64{{1}}, []float64{1, 2}, []float64{1}, boxes(1, free), 0},
		{"ragged rows", [][]float64{{1, 2}, {1}}, []float64{1, 2}, []float64{1, 1}, boxes(2, free), 0},
		{"NaN in a row", [][]float64{{1}, {nan}}, []float64{1, 2}, []float64{1}, boxes(1, free), 0},
		{"infinity in a row", [][]float64{{1}, {inf}}, []float64{1, 2}, []float64{1}, boxes(1, free), 0},
		{"a square that overflows", [][]float64{{1}, {1e200}}, []float64{1, 2}, []float64{1}, boxes(1, free), 0},
		{"NaN in y", [][]float64{{1}}, []float64{nan}, []float64{1}, boxes(1, free), 0},
		{"infinity in y", [][]float64{{1}}, []float64{-inf}, []float64{1}, boxes(1, free), 0},
		{"too few priors", [][]float64{{1}}, []float64{1}, nil, boxes(1, free), 0},
		{"too many boxes", [][]float64{{1}}, []float64{1}, []float64{1}, boxes(2, free), 0},
		{"a prior of NaN", [][]float64{{1}}, []float64{1}, []float64{nan}, boxes(1, free), 0},
		{"an empty box", [][]float64{{1}}, []float64{1}, []float64{1}, []Box{{2, 1}}, 0},
		{"a box of NaN", [][]float64{{1}}, []float64{1}, []float64{1}, []Box{{0, nan}}, 0},
		{"a negative pull", [][]float64{{1}}, []float64{1}, []float64{1}, boxes(1, free), -1},
		{"a pull of NaN", [][]float64{{1}}, []float64{1}, []float64{1}, boxes(1, free), nan},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if c, err := Bounded(tc.rows, tc.y, tc.prior, tc.boxes, tc.pull); !errors.Is(err, ErrData) {
				t.Fatalf("%v, error %v; must be ErrData", c, err)
			}
		})
	}
}

// problem is a least-squares problem in a box.
type problem struct {
	rows  [][]float64
	y     []float64
	prior []float64
	boxes []Box
	pull  float64
}

func drawProblem(t *rapid.T, maxColumns int) problem {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	n := rapid.IntRange(1, maxColumns).Draw(t, "columns")
	p := problem{pull: float64(rapid.IntRange(0, 20).Draw(t, "pull"))}
	units := make([]float64, n)
	for j := range n {
		units[j] = math.Pow(10, float64(rapid.IntRange(-3, 6).Draw(t, "unit")))
		low := r.NormFloat64() / units[j]
		p.boxes = append(p.boxes, Box{low, low + r.ExpFloat64()/units[j]})
		p.prior = append(p.prior, r.NormFloat64()/units[j])
	}
	for range rapid.IntRange(n, 40).Draw(t, "rows") {
		row := make([]float64, n)
		for j := range row {
			row[j] = units[j] * r.NormFloat64()
		}
		p.rows, p.y = append(p.rows, row), append(p.y, r.NormFloat64())
	}
	return p
}

// gradient is half of the derivative of what Bounded makes small, by each
// coefficient, at c; in units of the column, so that columns compare. scale is
// the column's root mean square.
func (p *problem) gradient(c []float64) (g, scale []float64) {
	g, scale = make([]float64, len(c)), make([]float64, len(c))
	for i, row := range p.rows {
		miss := -p.y[i]
		for j := range c {
			miss += c[j] * row[j]
		}
		for j := range c {
			g[j] += miss * row[j]
			scale[j] += row[j] * row[j]
		}
	}
	for j := range c {
		scale[j] = math.Sqrt(scale[j] / float64(len(p.rows)))
		if scale[j] > 0 {
			g[j] = g[j]/scale[j] + p.pull*scale[j]*(c[j]-p.prior[j])
		}
	}
	return g, scale
}

func (p *problem) objective(c []float64) float64 {
	_, scale := p.gradient(c)
	sum := 0.0
	for i, row := range p.rows {
		miss := -p.y[i]
		for j := range c {
			miss += c[j] * row[j]
		}
		sum += miss * miss
	}
	for j := range c {
		d := scale[j] * (c[j] - p.prior[j])
		sum += p.pull * d * d
	}
	return sum
}

// TestBoundedIsTheMinimum: the Karush–Kuhn–Tucker conditions hold – inside its
// box a coefficient has no slope, at an edge the slope points outwards – and no
// point near or far in the box is better.
func TestBoundedIsTheMinimum(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t, 8)
		c, err := Bounded(p.rows, p.y, p.prior, p.boxes, p.pull)
		if err != nil {
			t.Fatal(err)
		}
		g, scale := p.gradient(c)
		slack := 1e-4 * float64(len(p.rows)) // the ridge is part of what is minimized
		for j, b := range p.boxes {
			switch edge := 1e-9 / scale[j]; {
			case c[j] < b.Low || c[j] > b.High:
				t.Fatalf("coefficient %d is %v, outside of %v", j, c[j], b)
			case c[j] > b.Low+edge && g[j] > slack:
				t.Fatalf("coefficient %d could fall: %v in %v, slope %v", j, c[j], b, g[j])
			case c[j] < b.High-edge && g[j] < -slack:
				t.Fatalf("coefficient %d could rise: %v in %v, slope %v", j, c[j], b, g[j])
			}
		}
		best := p.objective(c)
		r := rand.New(rand.NewPCG(7, 7))
		other := make([]float64, len(c))
		for k := range 60 {
			near := math.Pow(10, -float64(k%4))
			for j, b := range p.boxes {
				other[j] = c[j] + near*(b.Low+r.Float64()*(b.High-b.Low)-c[j])
			}
			if v := p.objective(other); v < best-1e-4*(1+best) {
				t.Fatalf("%v has %v, but %v has %v", c, best, other, v)
			}
		}
	})
}

// TestBoundedAgainstAGrid compares with brute force over two coefficients.
func TestBoundedAgainstAGrid(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t, 2)
		if len(p.prior) < 2 {
			t.Skip("one column")
		}
		c, err := Bounded(p.rows, p.y, p.prior, p.boxes, p.pull)
		if err != nil {
			t.Fatal(err)
		}
		best := math.Inf(1)
		const steps = 60
		for a := range steps + 1 {
			for b := range steps + 1 {
				at := func(k int, x Box) float64 { return x.Low + (x.High-x.Low)*float64(k)/steps }
				best = min(best, p.objective([]float64{at(a, p.boxes[0]), at(b, p.boxes[1])}))
			}
		}
		if got := p.objective(c); got > best+1e-4*(1+best) {
			t.Fatalf("%v has %v, the grid knows a point with %v", c, got, best)
		}
	})
}

// TestPullIsMonotone: the more rows the prior counts like, the nearer to it one
// coefficient comes, and the sum of squares over all of them never grows.
func TestPullIsMonotone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t, 5)
		for j := range p.boxes { // the prior must be reachable
			p.prior[j] = min(max(p.prior[j], p.boxes[j].Low), p.boxes[j].High)
		}
		last := math.Inf(1)
		for _, pull := range []float64{0, 1, 5, 25, 1e3, 1e8} {
			c, err := Bounded(p.rows, p.y, p.prior, p.boxes, pull)
			if err != nil {
				t.Fatal(err)
			}
			_, scale := p.gradient(c)
			away := 0.0
			for j := range c {
				d := scale[j] * (c[j] - p.prior[j])
				away += d * d
			}
			if away > last*(1+1e-6)+1e-8 {
				t.Fatalf("a pull of %v leads away from the prior: %v, was %v", pull, away, last)
			}
			last = away
		}
		if last > 1e-6 {
			t.Fatalf("a pull of 1e8 ends %v from the prior", last)
		}
	})
}

func TestCollinearColumnsStayFinite(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		second func(x, noise float64) float64
	}{
		{"equal", func(x, _ float64) float64 { return x }},
		{"another unit", func(x, _ float64) float64 { return 1e9 * x }},
		{"opposite", func(x, _ float64) float64 { return -x }},
		{"nearly equal", func(x, noise float64) float64 { return x * (1 + 1e-9*noise) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 4))
			var rows [][]float64
			var y []float64
			for range 50 {
				x := r.Float64() + 0.5
				rows = append(rows, []float64{x, tc.second(x, r.NormFloat64())})
				y = append(y, 3*x)
			}
			c, err := Bounded(rows, y, []float64{1, 0}, boxes(2, free), 0.5)
			if err != nil {
				t.Fatal(err)
			}
			for i, row := range rows {
				if got := c[0]*row[0] + c[1]*row[1]; !(math.Abs(got-y[i]) < 0.1*y[i]) {
					t.Fatalf("coefficients %v say %v, must be about %v", c, got, y[i])
				}
			}
		})
	}
}

func TestBoundedIsDeterministic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t, 6)
		a, errA := Bounded(p.rows, p.y, p.prior, p.boxes, p.pull)
		b, errB := Bounded(p.rows, p.y, p.prior, p.boxes, p.pull)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		for j := range a {
			if math.Float64bits(a[j]) != math.Float64bits(b[j]) {
				t.Fatalf("column %d: %v and %v", j, a[j], b[j])
			}
		}
	})
}
