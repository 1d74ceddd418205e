package neural

import (
	"math"
	"math/rand/v2"
	"testing"
)

// friedman draws rows of Friedman's first function, a standard nonlinear
// regression problem: 10 sin(πab) + 20(c-½)² + 10d + 5e, plus idle columns.
func friedman(seed uint64, rows, inputs int) (x, y [][]float64) {
	r := rand.New(rand.NewPCG(seed, 0))
	for range rows {
		v := make([]float64, inputs)
		for i := range v {
			v[i] = r.Float64()
		}
		f := 10*math.Sin(math.Pi*v[0]*v[1]) + 20*(v[2]-0.5)*(v[2]-0.5) + 10*v[3] + 5*v[4]
		x, y = append(x, v), append(y, []float64{f})
	}
	return x, y
}

// jobs draws rows like those of the scheduler: layers, width, batch, a GPU's
// speed and memory, idle columns; labels are CPU and GPU utilization in percent
// and host and GPU memory in bytes, without noise. Each label is missing with
// probability lost.
func jobs(seed uint64, rows, inputs int, lost float64) (x, y [][]float64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for range rows {
		layers, width := 1+math.Floor(50*r.Float64()), math.Exp2(6+6*r.Float64())
		batch, speed := math.Exp2(math.Floor(9*r.Float64())), 1+9*r.Float64()
		v := make([]float64, inputs)
		for i := range v {
			v[i] = r.Float64()
		}
		copy(v, []float64{layers, math.Log2(width), math.Log2(batch), speed, 7})
		work := layers * width * batch / 1e6 / speed
		labels := []float64{
			5 + 90*math.Exp(-work),
			100 * work / (work + 0.5),
			2e9 + 3*4*layers*width*width,
			5e8 + 4*4*layers*width*width + 4*6*layers*width*batch*16,
		}
		for k := range labels {
			if r.Float64() < lost {
				labels[k] = math.NaN()
			}
		}
		x, y = append(x, v), append(y, labels)
	}
	return x, y
}

// jobConfig is the configuration for jobs: utilization as it is, memory by its
// logarithm.
func jobConfig() Config {
	cfg := DefaultConfig()
	cfg.Outputs = []Scale{ScaleStandard, ScaleStandard, ScaleLog, ScaleLog}
	return cfg
}

// errorsOf returns, per output, the root mean squared error as a share of the
// labels' deviation (1 is as good as their mean), and the mean absolute relative
// error.
func errorsOf(t *testing.T, r Regressor, x, y [][]float64) (rmse, mape []float64) {
	t.Helper()
	outputs := len(y[0])
	out := make([]float64, outputs)
	rmse, mape = make([]float64, outputs), make([]float64, outputs)
	sum, squares, n := make([]float64, outputs), make([]float64, outputs), make([]float64, outputs)
	for i := range x {
		if err := r.Predict(x[i], out); err != nil {
			t.Fatal(err)
		}
		for k, want := range y[i] {
			if math.IsNaN(want) {
				continue
			}
			e := out[k] - want
			rmse[k], mape[k] = rmse[k]+e*e, mape[k]+math.Abs(e/want)
			sum[k], squares[k], n[k] = sum[k]+want, squares[k]+want*want, n[k]+1
		}
	}
	for k := range rmse {
		dev := squares[k]/n[k] - (sum[k]/n[k])*(sum[k]/n[k])
		rmse[k], mape[k] = math.Sqrt(rmse[k]/n[k]/dev), mape[k]/n[k]
	}
	return rmse, mape
}

// architectures lists both ways to train.
var architectures = []struct {
	name  string
	train func(x, y [][]float64, cfg Config) (Regressor, error)
}{
	{"mlp", func(x, y [][]float64, cfg Config) (Regressor, error) { return regressor(TrainMLP(x, y, cfg)) }},
	{"vae", func(x, y [][]float64, cfg Config) (Regressor, error) { return regressor(TrainVAE(x, y, cfg)) }},
}

// regressor turns a nil pointer into a nil interface.
func regressor[T interface {
	comparable
	Regressor
}](r T, err error) (Regressor, error) {
	var none T
	if r == none {
		return nil, err
	}
	return r, err
}
