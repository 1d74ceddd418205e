package neural

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

func TestValidate(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   []string // empty: accepted
	}{
		{"defaults", func(*Config) {}, nil},
		{"no layers", func(c *Config) { c.Hidden = nil }, []string{"0 hidden layers, must be 1 to 3"}},
		{"too many layers", func(c *Config) { c.Hidden = []int{1, 1, 1, 1} }, []string{"4 hidden layers"}},
		{"empty layer", func(c *Config) { c.Hidden = []int{4, 0} }, []string{"hidden layer 1 has 0 units"}},
		{"latent", func(c *Config) { c.Latent = 33 }, []string{"latent dimensions is 33, must be 1 to 32"}},
		{"epochs", func(c *Config) { c.Epochs = 0 }, []string{"epochs is 0"}},
		{"rate NaN", func(c *Config) { c.LearningRate = nan }, []string{"learning rate is NaN"}},
		{"validation", func(c *Config) { c.Validation = 0.9 }, []string{"validation share is 0.9, must be 0 to 0.5"}},
		{"nothing to learn", func(c *Config) { c.MSEWeight, c.MAPEWeight = 0, 0 }, []string{"both 0"}},
		{"scales", func(c *Config) { c.Inputs, c.Outputs = []Scale{0, 2}, []Scale{9} }, []string{"scale of input 1 is 2", "scale of output 0 is 9"}},
		{"too many scales", func(c *Config) { c.Outputs = make([]Scale, 17) }, []string{"17 output scales"}},
		{"all at once", func(c *Config) { *c = Config{} }, []string{"hidden", "epochs", "batch", "learning rate", "clip norm", "MAPE floor", "update steps"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := DefaultConfig()
			tc.change(&cfg)
			err := cfg.Validate()
			if len(tc.want) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, ErrConfig) {
				t.Fatalf("error %v does not wrap ErrConfig", err)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q lacks %q", err, w)
				}
			}
			if _, err := TrainMLP([][]float64{{1}}, [][]float64{{1}}, cfg); !errors.Is(err, ErrConfig) {
				t.Errorf("TrainMLP: error %v", err)
			}
		})
	}
}

func TestTrainRefuses(t *testing.T) {
	t.Parallel()
	nan, inf := math.NaN(), math.Inf(1)
	type rows = [][]float64
	for _, tc := range []struct {
		name, want string
		x, y       rows
		change     func(*Config)
	}{
		{"no rows", "no rows", nil, nil, nil},
		{"no labels", "no rows", rows{{1}}, nil, nil},
		{"no columns", "0 inputs", rows{{}}, rows{{1}}, nil},
		{"no outputs", "0 outputs", rows{{1}}, rows{{}}, nil},
		{"too many columns", "257 inputs", rows{make([]float64, 257)}, rows{{1}}, nil},
		{"too many outputs", "17 outputs", rows{{1}}, rows{make([]float64, 17)}, nil},
		{"more rows than labels", "2 rows of inputs and 1 of labels", rows{{1}, {2}}, rows{{1}}, nil},
		{"ragged inputs", "row 1: bad rows: 2 inputs, must be 1", rows{{1}, {2, 3}}, rows{{1}, {2}}, nil},
		{"ragged labels", "row 1: bad rows: 2 labels, must be 1", rows{{1}, {2}}, rows{{1}, {2, 3}}, nil},
		{"NaN input", "row 0: bad rows: input 1 is NaN", rows{{1, nan}}, rows{{1}}, nil},
		{"infinite input", "input 0 is -Inf", rows{{-inf}}, rows{{1}}, nil},
		{"huge input", "input 0 is 1e+19", rows{{1e19}}, rows{{1}}, nil},
		{"infinite label", "label 0 is +Inf", rows{{1}}, rows{{inf}}, nil},
		{"an output without labels", "output 1 has no label in 2 rows", rows{{1}, {2}}, rows{{1, nan}, {2, nan}}, nil},
		{"zero on a logarithmic scale", "label 0 is 0, must be at least", rows{{1}}, rows{{0}}, func(c *Config) { c.Outputs = []Scale{ScaleLog} }},
		{"scales of other columns", "2 input scales for 1 inputs", rows{{1}}, rows{{1}}, func(c *Config) { c.Inputs = make([]Scale, 2) }},
		{"scales of other outputs", "2 output scales for 1 outputs", rows{{1}}, rows{{1}}, func(c *Config) { c.Outputs = make([]Scale, 2) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := DefaultConfig()
			if tc.change != nil {
				tc.change(&cfg)
			}
			for _, a := range architectures {
				m, err := a.train(tc.x, tc.y, cfg)
				if m != nil || !(errors.Is(err, ErrData) || errors.Is(err, ErrConfig)) || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: model %v, error %v, want none and one with %q", a.name, m, err, tc.want)
				}
			}
		})
	}
}

// TestRefusalChangesNothing: a refused prediction leaves out alone, a refused
// update the model.
func TestRefusalChangesNothing(t *testing.T) {
	t.Parallel()
	for _, vae := range []bool{false, true} {
		m := small(t, vae)
		before := string(m.Encode())
		good := []float64{0.1, 0.2, 0.3, 0.4, 0.5}
		for _, x := range [][]float64{nil, good[:4], {0, 0, math.NaN(), 0, 0}, {0, 0, 0, 0, math.Inf(-1)}, {1e19, 0, 0, 0, 0}} {
			out := []float64{-1}
			if err := m.Predict(x, out); !errors.Is(err, ErrData) || out[0] != -1 {
				t.Errorf("Predict(%v) gave %v and error %v", x, out, err)
			}
			if err := m.Update([][]float64{good, x}, [][]float64{{1}, {1}}); !errors.Is(err, ErrData) {
				t.Errorf("Update(%v): error %v", x, err)
			}
		}
		if err := m.Predict(good, nil); !errors.Is(err, ErrData) {
			t.Errorf("Predict into nothing: error %v", err)
		}
		for _, y := range [][]float64{nil, {1, 2}, {math.Inf(1)}, {-3}, {0}} {
			if err := m.Update([][]float64{good}, [][]float64{y}); !errors.Is(err, ErrData) {
				t.Errorf("Update to %v: error %v", y, err)
			}
		}
		if err := m.Update(nil, nil); !errors.Is(err, ErrData) {
			t.Errorf("Update with nothing: error %v", err)
		}
		if string(m.Encode()) != before {
			t.Error("refusals changed the model")
		}
	}
}

// TestDivergenceIsUndone plants moments that throw the parameters out of range.
func TestDivergenceIsUndone(t *testing.T) {
	t.Parallel()
	for _, vae := range []bool{false, true} {
		m := small(t, vae)
		c := coreOf(m)
		c.opt.m[0], c.opt.v[0] = 1e300, 0
		before := string(m.Encode())
		err := m.Update([][]float64{{0.1, 0.2, 0.3, 0.4, 0.5}}, [][]float64{{3}})
		if !errors.Is(err, ErrDiverged) || string(m.Encode()) != before {
			t.Errorf("error %v, changed: %v", err, string(m.Encode()) != before)
		}
	}
}

// TestConstantColumn: a column that never varied says nothing, whatever it
// holds later.
func TestConstantColumn(t *testing.T) {
	t.Parallel()
	x, y := friedman(1, 300, 6)
	for i := range x {
		x[i][5] = 0.1 + 0.2 // a sum of such values is not exact
	}
	for _, a := range architectures {
		m, err := a.train(x, y, quick(DefaultConfig()))
		if err != nil {
			t.Fatal(err)
		}
		p, q := []float64{0}, []float64{0}
		for _, v := range []float64{0, -5, 1e18} {
			other := append(append([]float64(nil), x[0][:5]...), v)
			if err := errors.Join(m.Predict(x[0], p), m.Predict(other, q)); err != nil || p[0] != q[0] {
				t.Errorf("%s: %v at the constant, %v at %v: %v", a.name, p, q, v, err)
			}
		}
	}
}

// TestConstantLabels: outputs that never varied are predicted as they were.
func TestConstantLabels(t *testing.T) {
	t.Parallel()
	x, _ := friedman(1, 100, 5)
	want := []float64{0, 42, -7e12, 3e9}
	y := make([][]float64, len(x))
	for i := range y {
		y[i] = want
	}
	cfg := modest(DefaultConfig())
	cfg.Outputs = []Scale{0, 0, 0, ScaleLog}
	for _, a := range architectures {
		m, err := a.train(x, y, cfg)
		if err != nil {
			t.Fatal(err)
		}
		out := make([]float64, 4)
		if err := m.Predict(x[3], out); err != nil {
			t.Fatal(err)
		}
		for k := range want {
			if math.Abs(out[k]-want[k]) > 1e-9*math.Abs(want[k]) {
				t.Errorf("%s: output %d is %v, must be %v", a.name, k, out[k], want[k])
			}
		}
	}
}

// TestHostileNumbers: any rows within the documented range train or are
// refused, and a trained model predicts finite numbers within its bounds.
func TestHostileNumbers(t *testing.T) {
	t.Parallel()
	edge := []float64{0, math.Copysign(0, -1), 1, -1, MaxValue, -MaxValue, 5e-324, -1e-300, 1e-18, 1e17, 3.5}
	number := rapid.OneOf(rapid.SampledFrom(edge), rapid.Float64Range(-MaxValue, MaxValue), rapid.Float64Range(-3, 3))
	rapid.Check(t, func(t *rapid.T) {
		cfg := quick(DefaultConfig())
		cfg.Epochs = 2
		cfg.LearningRate = rapid.SampledFrom([]float64{1e-3, 1}).Draw(t, "rate")
		cfg.Inputs = []Scale{rapid.SampledFrom([]Scale{0, 1}).Draw(t, "input scale"), 0}
		cfg.Outputs = []Scale{rapid.SampledFrom([]Scale{0, 1}).Draw(t, "output scale"), 0}
		n := rapid.IntRange(1, 12).Draw(t, "rows")
		x, y := make([][]float64, n), make([][]float64, n)
		for i := range x {
			x[i] = []float64{number.Draw(t, "x0"), number.Draw(t, "x1")}
			y[i] = []float64{number.Draw(t, "y0"), number.Draw(t, "y1")}
			if cfg.Outputs[0] == ScaleLog {
				y[i][0] = max(minLogged, math.Abs(y[i][0]))
			}
		}
		for _, a := range architectures {
			m, err := a.train(x, y, cfg)
			if err != nil {
				t.Fatalf("%s: %v", a.name, err)
			}
			if err := m.Update(x, y); err != nil && !errors.Is(err, ErrDiverged) {
				t.Fatalf("%s: %v", a.name, err)
			}
			out := []float64{0, 0}
			if err := m.Predict([]float64{number.Draw(t, "p0"), number.Draw(t, "p1")}, out); err != nil {
				t.Fatal(err)
			}
			for k, v := range out {
				tg := coreOf(m).targets[k]
				if math.IsNaN(v) || math.IsInf(v, 0) || v > max(0, tg.value(tg.zhi)) || v < min(0, tg.value(tg.zlo)) {
					t.Fatalf("%s: output %d is %v, bounds %v to %v", a.name, k, v, tg.value(tg.zlo), tg.value(tg.zhi))
				}
			}
			if _, err := Decode(m.Encode()); err != nil {
				t.Fatalf("%s: what was trained is not decoded: %v", a.name, err)
			}
		}
	})
}

// TestNeverBelowZero: resources are not negative, however steep the slope.
func TestNeverBelowZero(t *testing.T) {
	t.Parallel()
	var x, y [][]float64
	for i := range 200 {
		v := float64(i) / 100
		x, y = append(x, []float64{v}), append(y, []float64{v, v - 1})
	}
	cfg := modest(DefaultConfig())
	cfg.MAPEWeight = 0 // relative errors would keep it off zero by themselves
	m, err := TrainMLP(x, y, cfg)
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.PredictRow([]float64{-1})
	if err != nil {
		t.Fatal(err)
	}
	if out[0] != 0 || out[1] > -1.2 {
		t.Errorf("beyond the rows: %v, must be 0 and clearly below -1", out)
	}
}

// TestPredictIsSharedAndFree: goroutines may share a model, and nothing is
// allocated. Run with -race it shows the first.
func TestPredictIsSharedAndFree(t *testing.T) {
	x, y := jobs(1, 100, 6, 0)
	for _, a := range architectures {
		m, err := a.train(x, y, quick(jobConfig()))
		if err != nil {
			t.Fatal(err)
		}
		want := make([][]float64, len(x))
		for i := range x {
			want[i] = make([]float64, 4)
			if err := m.Predict(x[i], want[i]); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				out := make([]float64, 4)
				for i := range x {
					if err := m.Predict(x[i], out); err != nil || out[0] != want[i][0] || out[3] != want[i][3] {
						t.Errorf("%s, row %d: %v (%v), must be %v", a.name, i, out, err, want[i])
					}
				}
			})
		}
		wg.Wait()
		out := make([]float64, 4)
		if n := testing.AllocsPerRun(100, func() { _ = m.Predict(x[0], out) }); n != 0 {
			t.Errorf("%s: %v allocations a prediction", a.name, n)
		}
	}
}

func BenchmarkTrain(b *testing.B) {
	x, y := jobs(1, 5000, 20, 0.3)
	for _, a := range architectures {
		b.Run(a.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := a.train(x, y, jobConfig()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPredict(b *testing.B) {
	benchmark(b, func(m Regressor, x, _ [][]float64, out []float64) error { return m.Predict(x[0], out) })
}

func BenchmarkUpdate(b *testing.B) {
	benchmark(b, func(m Regressor, x, y [][]float64, _ []float64) error { return m.Update(x[:1], y[:1]) })
}

// benchmark times f on models of the default size with 20 inputs.
func benchmark(b *testing.B, f func(m Regressor, x, y [][]float64, out []float64) error) {
	x, y := jobs(1, 200, 20, 0)
	cfg := jobConfig()
	cfg.Epochs = 2
	for _, a := range architectures {
		m, err := a.train(x, y, cfg)
		if err != nil {
			b.Fatal(err)
		}
		out := make([]float64, 4)
		b.Run(a.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := f(m, x, y, out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
