package fit

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		values []float64
		q      float64
		want   float64
	}{
		{"nothing", nil, 0.5, 0},
		{"one", []float64{7}, 0.95, 7},
		{"median of three", []float64{3, 1, 2}, 0.5, 2},
		{"median of four", []float64{4, 1, 3, 2}, 0.5, 2.5},
		{"a quarter of the way", []float64{0, 10}, 0.25, 2.5},
		{"the least", []float64{5, 3, 9}, 0, 3},
		{"the greatest", []float64{5, 3, 9}, 1, 9},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Quantile(tc.values, tc.q); got != tc.want {
				t.Fatalf("%v, want %v", got, tc.want)
			}
		})
	}
}

func TestConformalRank(t *testing.T) {
	t.Parallel()
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(100-i))
	}
	for _, tc := range []struct {
		name   string
		values []float64
		q      float64
		want   float64
	}{
		{"nothing", nil, 0.95, 0},
		{"too few to tell", []float64{3, 1, 2}, 0.95, 3},
		{"just enough", hundred[:19], 0.95, 100},
		{"96 of 100", hundred, 0.95, 96},
		{"half", hundred, 0.5, 51},
		{"none", hundred, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Conformal(tc.values, nil, tc.q); got != tc.want {
				t.Fatalf("%v, want %v", got, tc.want)
			}
		})
	}
}

// TestConformalCovers: of values that are exchangeable with the seen ones, at
// least the share q stays under the bound, whatever their distribution, and not
// many more.
func TestConformalCovers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		draw func(r *rand.Rand) float64
	}{
		{"normal", func(r *rand.Rand) float64 { return r.NormFloat64() }},
		{"heavy tail", func(r *rand.Rand) float64 { return 1 / (1 - r.Float64()) }},
		{"few values", func(r *rand.Rand) float64 { return float64(r.IntN(3)) }},
	} {
		for _, q := range []float64{0.5, 0.9, 0.95} {
			r := rand.New(rand.NewPCG(11, uint64(100*q)))
			const trials = 3000
			for _, n := range []int{20, 57} {
				under := 0
				values := make([]float64, n)
				for range trials {
					for i := range values {
						values[i] = tc.draw(r)
					}
					if tc.draw(r) <= Conformal(values, nil, q) {
						under++
					}
				}
				got := float64(under) / trials
				four := 4 * math.Sqrt(q*(1-q)/trials) // standard errors
				if got < q-four || (tc.name != "few values" && got > q+1/float64(n+1)+four) {
					t.Errorf("%s: a bound of %v from %d values covers %v", tc.name, q, n, got)
				}
			}
		}
	}
}

// TestQuantileLaws: the quantile lies between values, rises with q, moves with
// the values, and does not care for their order; Conformal is one of the values
// and, from a half on, not below the quantile.
func TestQuantileLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 50).Draw(t, "values")
		p := rapid.Float64Range(0, 1).Draw(t, "p")
		q := rapid.Float64Range(p, 1).Draw(t, "q")
		a, b := Quantile(slices.Clone(v), p), Quantile(slices.Clone(v), q)
		if a > b+1e-6 || a < slices.Min(v) || b > slices.Max(v)+1e-6 {
			t.Fatalf("%v-quantile %v, %v-quantile %v of %v", p, a, q, b, v)
		}
		c := Conformal(v, nil, q)
		if !slices.Contains(v, c) || (q >= 0.5 && c < b-1e-6) {
			t.Fatalf("conformal bound %v, quantile %v of %v", c, b, v)
		}
		if u := permuted(v, rapid.Uint64().Draw(t, "order")); Quantile(slices.Clone(u), q) != b || Conformal(u, nil, q) != c {
			t.Fatal("the order of the values matters")
		}
	})
}

// TestWeightsOfValues: a whole weight counts like as many values, and the new
// value of Conformal like the weightiest of them.
func TestWeightsOfValues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 30).Draw(t, "values")
		weights := make([]float64, len(v))
		var copies []float64
		for i := range v {
			n := rapid.IntRange(0, 3).Draw(t, "weight")
			weights[i] = float64(n)
			for range n {
				copies = append(copies, v[i])
			}
		}
		if len(copies) == 0 {
			return
		}
		if got, want := Median(v, weights), Quantile(slices.Clone(copies), 0.5); got != want {
			t.Fatalf("median %v, must be %v", got, want)
		}
		q := rapid.Float64Range(0.01, 1).Draw(t, "q")
		k := int(math.Ceil(q * (float64(len(copies)) + slices.Max(weights))))
		slices.Sort(copies)
		if got, want := Conformal(v, weights, q), copies[min(max(k, 1), len(copies))-1]; got != want && k <= len(copies) {
			t.Fatalf("conformal bound %v, must be %v", got, want)
		}
		for i := range weights {
			weights[i] = 0.7
		}
		if got, want := Median(v, nil), Quantile(slices.Clone(v), 0.5); got != want {
			t.Fatalf("median %v without weights, must be %v", got, want)
		}
		if got, want := Conformal(v, weights, q), Conformal(v, nil, q); got != want {
			at := q * float64(len(v)+1) // sums of 0.7 may round across a whole number
			if math.Abs(at-math.Round(at)) > 1e-9 {
				t.Fatalf("conformal bound %v with equal weights, %v without", got, want)
			}
		}
	})
	if Median(nil, nil) != 0 || Conformal(nil, nil, 0.9) != 0 {
		t.Error("no values: must be 0")
	}
}

func permuted[T any](v []T, seed uint64) []T {
	v = slices.Clone(v)
	rand.New(rand.NewPCG(seed, 5)).Shuffle(len(v), func(i, j int) { v[i], v[j] = v[j], v[i] })
	return v
}

func TestLog(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := math.Exp(rapid.Float64Range(math.Log(1e-6), 80).Draw(t, "log"))
		got := Log(v)
		if math.Abs(got-math.Log(v)) > 1.0/(1<<24) {
			t.Fatalf("Log(%v) = %v, must be %v", v, got, math.Log(v))
		}
		if scaled := got * (1 << 24); scaled != math.Round(scaled) {
			t.Fatalf("Log(%v) = %v is not on the grid", v, got)
		}
	})
	for _, v := range []float64{-4, 0, 0.5, 2} {
		if got := Exp(v); math.Abs(got/math.Exp(v)-1) > 1e-7 || got != float64(float32(got)) {
			t.Errorf("Exp(%v) = %v, must be %v", v, got, math.Exp(v))
		}
	}
	for _, v := range []float64{0, -1, math.Inf(-1), 1e-300} {
		if got, want := Log(v), Log(1e-6); got != want {
			t.Errorf("Log(%v) = %v, must be %v", v, got, want)
		}
	}
}
