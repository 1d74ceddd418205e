package fit

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// dataset draws n rows of four numbers from −1 to 1, and f of each.
func dataset(n int, seed uint64, f func(x []float64, r *rand.Rand) float64) (rows [][]float64, y []float64) {
	r := rand.New(rand.NewPCG(seed, 2))
	for range n {
		x := []float64{2*r.Float64() - 1, 2*r.Float64() - 1, 2*r.Float64() - 1, 2*r.Float64() - 1}
		rows, y = append(rows, x), append(y, f(x, r))
	}
	return rows, y
}

func boost(t testing.TB, rows [][]float64, y, w []float64, opt Options) *Forest {
	t.Helper()
	f, err := Boost(rows, y, w, opt)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// meanMiss is the mean absolute error of f.
func meanMiss(f *Forest, rows [][]float64, y []float64) float64 {
	sum := 0.0
	for i, r := range rows {
		sum += math.Abs(f.Predict(r) - y[i])
	}
	return sum / float64(len(rows))
}

func step(x []float64, _ *rand.Rand) float64 {
	if x[1] > 0.25 {
		return 3
	}
	return -1
}

func xor(x []float64, _ *rand.Rand) float64 {
	if (x[0] > 0) != (x[2] > 0) {
		return 1
	}
	return 0
}

func additive(x []float64, _ *rand.Rand) float64 { return 2*x[0] + math.Sin(3*x[1]) - x[2]*x[2] }

// TestBoostLearns: the error on rows that were held out is a small part of that
// of the best constant.
func TestBoostLearns(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		f    func([]float64, *rand.Rand) float64
		part float64 // of the constant's error
	}{
		{"a step", step, 0.03},
		{"exclusive or", xor, 0.2},
		{"a sum of curves", additive, 0.15},
		{"nothing but a constant", func([]float64, *rand.Rand) float64 { return 5 }, 0.001},
	} {
		for name, loss := range map[string]Loss{"absolute": Absolute, "squared": Squared} {
			t.Run(tc.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				rows, y := dataset(800, 1, tc.f)
				held, want := dataset(400, 99, tc.f)
				f := boost(t, rows, y, nil, Options{Loss: loss, Seed: 3})
				constant := max(5*0.001, meanMiss(nil, held, want)) // the forest that says 0
				if got := meanMiss(f, held, want); got > tc.part*constant {
					t.Fatalf("error %v, more than %v of %v", got, tc.part, constant)
				}
			})
		}
	}
}

// TestAbsoluteLossIgnoresOutliers: a tenth of the labels is off by a hundred
// times the range of the function; the squared loss does mind.
func TestAbsoluteLossIgnoresOutliers(t *testing.T) {
	t.Parallel()
	rows, y := dataset(1000, 5, additive)
	for i := range y {
		if i%10 == 3 {
			y[i] += 500
		}
	}
	held, want := dataset(400, 98, additive)
	absolute := meanMiss(boost(t, rows, y, nil, Options{Seed: 1}), held, want)
	squared := meanMiss(boost(t, rows, y, nil, Options{Seed: 1, Loss: Squared}), held, want)
	if absolute > 0.45 || squared < 10*absolute {
		t.Fatalf("error %v with the absolute loss, %v with the squared one", absolute, squared)
	}
}

// leaves calls fn for each leaf of each tree with the rows that end in it.
func (f *Forest) leaves(rows [][]float64, fn func(tree, rows int)) {
	for tree, start := range f.starts {
		count := map[int32]int{}
		for _, row := range rows {
			at := start
			for f.nodes[at].right != 0 {
				if row[f.nodes[at].column] <= float64(f.nodes[at].value) {
					at++
				} else {
					at += int32(f.nodes[at].right)
				}
			}
			count[at]++
		}
		for _, n := range count {
			fn(tree, n)
		}
	}
}

func TestMinLeafAndDepth(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rows, y := dataset(rapid.IntRange(1, 150).Draw(t, "rows"), rapid.Uint64().Draw(t, "seed"), additive)
		opt := Options{Trees: 6, MinLeaf: rapid.IntRange(1, 60).Draw(t, "leaf"), Depth: rapid.IntRange(1, 10).Draw(t, "depth"), Sample: 1}
		f, err := Boost(rows, y, nil, opt)
		if err != nil {
			t.Fatal(err)
		}
		if f.Trees() != opt.Trees || f.Nodes() > opt.Trees*(2<<min(opt.Depth, MaxDepth)-1) {
			t.Fatalf("%d trees of %d nodes with a depth of %d", f.Trees(), f.Nodes(), opt.Depth)
		}
		f.leaves(rows, func(tree, n int) { // each tree saw all rows
			if n < opt.MinLeaf && n < len(rows) {
				t.Fatalf("tree %d has a leaf of %d rows, at least %d are asked for", tree, n, opt.MinLeaf)
			}
		})
	})
}

// TestWeightsAreCopies: a row that weighs 3 counts like three equal rows.
func TestWeightsAreCopies(t *testing.T) {
	t.Parallel()
	for name, loss := range map[string]Loss{"absolute": Absolute, "squared": Squared} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			noisy := func(x []float64, r *rand.Rand) float64 { return additive(x, nil) + 0.3*r.NormFloat64() }
			rows, y := dataset(600, 8, noisy)
			weights := make([]float64, len(rows))
			var copies [][]float64
			var labels []float64
			for i, r := range rows {
				weights[i] = 1
				if r[3] > 0 { // these say 2 more
					y[i] += 2
				}
				if i%2 == 0 {
					weights[i] = 3
				}
				for range int(weights[i]) {
					copies, labels = append(copies, r), append(labels, y[i])
				}
			}
			opt := Options{Loss: loss, Sample: 1, MinLeaf: 10, Trees: 100}
			a := boost(t, rows, y, weights, opt)
			opt.MinLeaf = 20 // rows, of which there are twice as many
			b := boost(t, copies, labels, nil, opt)
			held, want := dataset(300, 97, additive)
			apart := 0.0
			for _, r := range held {
				apart += math.Abs(a.Predict(r)-b.Predict(r)) / float64(len(held))
			}
			if spread := meanMiss(nil, held, want); apart > 0.12*spread {
				t.Fatalf("weights and copies are %v apart, of a spread of %v", apart, spread)
			}
		})
	}
}

// TestWeightOfZero: rows without weight say nothing.
func TestWeightOfZero(t *testing.T) {
	t.Parallel()
	rows, y := dataset(400, 9, step)
	weights := make([]float64, len(y))
	for i := range y {
		if weights[i] = 1; i%3 == 0 {
			weights[i], y[i] = 0, 1000
		}
	}
	for _, loss := range []Loss{Absolute, Squared} {
		f := boost(t, rows, y, weights, Options{Loss: loss})
		if got, want := f.Predict([]float64{0, 0.9, 0, 0}), 3.0; math.Abs(got-want) > 0.2 {
			t.Errorf("loss %d: %v, must be %v", loss, got, want)
		}
	}
	for i := range weights {
		weights[i] = 0
	}
	for _, loss := range []Loss{Absolute, Squared} {
		if v := boost(t, rows, y, weights, Options{Loss: loss}).Predict(rows[0]); math.IsNaN(v) || math.IsInf(v, 0) {
			t.Errorf("loss %d: rows without any weight make %v", loss, v)
		}
	}
}

func TestBoostIsDeterministic(t *testing.T) {
	t.Parallel()
	rows, y := dataset(300, 4, additive)
	for _, loss := range []Loss{Absolute, Squared} {
		a := boost(t, rows, y, nil, Options{Loss: loss, Seed: 5, Trees: 30}).Append(nil)
		b := boost(t, rows, y, nil, Options{Loss: loss, Seed: 5, Trees: 30}).Append(nil)
		c := boost(t, rows, y, nil, Options{Loss: loss, Seed: 6, Trees: 30}).Append(nil)
		if string(a) != string(b) {
			t.Error("the same seed made other bytes")
		}
		if string(a) == string(c) {
			t.Error("another seed made the same bytes")
		}
	}
}

// TestOrderOfRows: with all rows in each tree, and the absolute loss, whose
// sums are of whole numbers, the order of the rows does not matter.
func TestOrderOfRows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rows, y := dataset(120, rapid.Uint64().Draw(t, "data"), additive)
		order := rapid.Uint64().Draw(t, "order")
		opt := Options{Sample: 1, Trees: 10, MinLeaf: 5}
		a, errA := Boost(rows, y, nil, opt)
		b, errB := Boost(permuted(rows, order), permuted(y, order), nil, opt)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if string(a.Append(nil)) != string(b.Append(nil)) {
			t.Fatal("the order of the rows matters")
		}
	})
}

func TestBoostRefuses(t *testing.T) {
	t.Parallel()
	nan, inf := math.NaN(), math.Inf(1)
	ok := [][]float64{{1}, {2}}
	for _, tc := range []struct {
		name string
		rows [][]float64
		y, w []float64
	}{
		{"no rows", nil, nil, nil},
		{"ragged rows", [][]float64{{1}, {2, 3}}, []float64{1, 2}, nil},
		{"a label too few", ok, []float64{1}, nil},
		{"a label of NaN", ok, []float64{1, nan}, nil},
		{"an infinite label", ok, []float64{1, inf}, nil},
		{"a label beyond float32", ok, []float64{1, -1e60}, nil},
		{"NaN in a row", [][]float64{{1}, {nan}}, []float64{1, 2}, nil},
		{"a weight too few", ok, []float64{1, 2}, []float64{1}},
		{"a negative weight", ok, []float64{1, 2}, []float64{1, -1}},
		{"a weight of NaN", ok, []float64{1, 2}, []float64{1, nan}},
		{"too many columns", [][]float64{make([]float64, MaxColumns+1)}, []float64{1}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if f, err := Boost(tc.rows, tc.y, tc.w, Options{}); !errors.Is(err, ErrData) {
				t.Fatalf("%d trees, error %v; must be ErrData", f.Trees(), err)
			}
		})
	}
}

// TestOptionsAtTheirEdges: what Boost grows can always be read again.
func TestOptionsAtTheirEdges(t *testing.T) {
	t.Parallel()
	rows, y := dataset(700, 6, additive)
	for _, tc := range []struct {
		name string
		opt  Options
	}{
		{"more nodes than a forest may have", Options{Trees: 400, Depth: 99, MinLeaf: 1}},
		{"more than all rows", Options{Trees: 3, Sample: 7}},
		{"hardly any rows", Options{Trees: 3, Sample: 1e-9}},
		{"no trees", Options{Trees: -1}},
		{"negative depth and leaf", Options{Trees: 3, Depth: -4, MinLeaf: -4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := boost(t, rows, y, nil, tc.opt)
			g, rest, err := ReadForest(f.Append(nil), 4)
			if err != nil || len(rest) > 0 {
				t.Fatalf("%d trees, %d nodes, %d bytes left: %v", f.Trees(), f.Nodes(), len(rest), err)
			}
			if f.Nodes() > MaxNodes || f.Predict(rows[0]) != g.Predict(rows[0]) {
				t.Fatalf("%d nodes; %v before, %v after", f.Nodes(), f.Predict(rows[0]), g.Predict(rows[0]))
			}
		})
	}
}

// TestThresholdsThatFloat32CannotTell: values that differ by less than float32
// resolves, and values beyond its range, still end where training put them.
func TestThresholdsThatFloat32CannotTell(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		at   func(i int) float64
	}{
		{"neighbours in float64", func(i int) float64 { return 1 + float64(i)*1e-12 }},
		{"beyond float32", func(i int) float64 { return 1e50 * float64(i+1) }},
		{"both signs", func(i int) float64 { return 1e60 * float64(i-50) }},
		{"denormal", func(i int) float64 { return 1e-310 * float64(i) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var rows [][]float64
			var y []float64
			for i := range 100 {
				rows, y = append(rows, []float64{tc.at(i)}), append(y, float64(i/50))
			}
			f := boost(t, rows, y, nil, Options{Trees: 5, Sample: 1, Rate: 1, Loss: Squared})
			// What the first tree says in training is what it says afterwards: the
			// following trees, grown on the rest, would not make it up otherwise.
			if v := meanMiss(f, rows, y); v > meanMiss(f.First(1), rows, y)+1e-6 || math.IsNaN(v) {
				t.Fatalf("error %v, after one tree %v", v, meanMiss(f.First(1), rows, y))
			}
		})
	}
}
