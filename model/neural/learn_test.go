package neural

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestLearnsFriedman: noise-free, 1,000 rows, half of the columns idle. The
// mean predictor has 1.
func TestLearnsFriedman(t *testing.T) {
	t.Parallel()
	x, y := friedman(1, 1000, 10)
	hx, hy := friedman(2, 1000, 10)
	for _, a := range architectures {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			m, err := a.train(x, y, modest(DefaultConfig()))
			if err != nil {
				t.Fatal(err)
			}
			rmse, mape := errorsOf(t, m, hx, hy)
			t.Logf("held out: RMSE %.3f of the deviation, MAPE %.3f", rmse[0], mape[0])
			if rmse[0] > 0.22 || mape[0] > 0.07 {
				t.Errorf("RMSE %v of the deviation and MAPE %v, must be at most 0.22 and 0.07", rmse[0], mape[0])
			}
		})
	}
}

// TestLearnsJobsWithMissingLabels: four outputs whose units lie ten orders of
// magnitude apart, 30 % of the labels lost.
func TestLearnsJobsWithMissingLabels(t *testing.T) {
	t.Parallel()
	x, y := jobs(1, 1000, 12, 0.3)
	hx, hy := jobs(2, 1000, 12, 0)
	for _, a := range architectures {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			m, err := a.train(x, y, modest(jobConfig()))
			if err != nil {
				t.Fatal(err)
			}
			rmse, mape := errorsOf(t, m, hx, hy)
			t.Logf("held out: RMSE %.3f of the deviation, MAPE %.3f", rmse, mape)
			for k := range rmse {
				if rmse[k] > 0.3 {
					t.Errorf("output %d: RMSE %v of the deviation, must be at most 0.3 (the mean predictor has 1)", k, rmse[k])
				}
			}
		})
	}
}

// TestRareLabel: an output labelled in one row of twenty is still learned.
func TestRareLabel(t *testing.T) {
	t.Parallel()
	x, y := friedman(3, 1500, 6)
	r := rand.New(rand.NewPCG(4, 0))
	both := make([][]float64, len(y))
	for i := range y {
		both[i] = []float64{y[i][0], 3 * y[i][0]}
		if r.IntN(20) != 0 {
			both[i][1] = math.NaN()
		}
	}
	hx, hy := friedman(5, 500, 6)
	for i := range hy {
		hy[i] = []float64{hy[i][0], 3 * hy[i][0]}
	}
	for _, a := range architectures {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			m, err := a.train(x, both, modest(DefaultConfig()))
			if err != nil {
				t.Fatal(err)
			}
			rmse, _ := errorsOf(t, m, hx, hy)
			t.Logf("held out: RMSE %.3f of the deviation", rmse)
			if rmse[0] > 0.25 || rmse[1] > 0.4 {
				t.Errorf("RMSE %v of the deviation, must be at most 0.25 and 0.4", rmse)
			}
		})
	}
}

// TestUpdateTracksDrift: after a new software release every job needs 60 % more
// of the last two outputs. Updates on single jobs, as they finish, must follow.
func TestUpdateTracksDrift(t *testing.T) {
	t.Parallel()
	x, y := jobs(1, 500, 8, 0)
	drift := func(y [][]float64) {
		for _, row := range y {
			row[2], row[3] = 1.6*row[2], 1.6*row[3]
		}
	}
	nx, ny := jobs(7, 200, 8, 0.2)
	hx, hy := jobs(8, 300, 8, 0)
	drift(ny)
	drift(hy)
	for _, a := range architectures {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			m, err := a.train(x, y, modest(jobConfig()))
			if err != nil {
				t.Fatal(err)
			}
			_, before := errorsOf(t, m, hx, hy)
			for i := range nx {
				from := max(0, i-15) // a window of the latest jobs
				if err := m.Update(nx[from:i+1], ny[from:i+1]); err != nil {
					t.Fatal(err)
				}
			}
			_, after := errorsOf(t, m, hx, hy)
			t.Logf("MAPE %.3f before, %.3f after", before, after)
			for _, k := range []int{2, 3} {
				if before[k] < 0.3 || after[k] > 0.5*before[k] {
					t.Errorf("output %d: MAPE %v before the updates and %v after, must at least halve", k, before[k], after[k])
				}
			}
			for _, k := range []int{0, 1} {
				if after[k] > 2*before[k]+0.05 {
					t.Errorf("output %d, which did not drift: MAPE %v before, %v after", k, before[k], after[k])
				}
			}
		})
	}
}

// TestUpdateOnOneJob: DOPE-ML updates after each job; one job seen again and
// again is learned, and the range of predictions widens for it.
func TestUpdateOnOneJob(t *testing.T) {
	t.Parallel()
	x, y := friedman(1, 400, 6)
	for _, a := range architectures {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			m, err := a.train(x, y, modest(DefaultConfig()))
			if err != nil {
				t.Fatal(err)
			}
			job, label := x[:1], [][]float64{{80}} // the largest label is below 30
			for range 200 {
				if err := m.Update(job, label); err != nil {
					t.Fatal(err)
				}
			}
			out := []float64{0}
			if err := m.Predict(job[0], out); err != nil || math.Abs(out[0]-80) > 8 {
				t.Errorf("predicted %v (%v), must be 80 ± 8", out[0], err)
			}
		})
	}
}

// TestUpdateKeepsOptimizer: an update of a decoded model, whose moments came
// through the bytes, is the update of the model itself; with moments forgotten
// it would be another.
func TestUpdateKeepsOptimizer(t *testing.T) {
	t.Parallel()
	x, y := jobs(1, 200, 6, 0.1)
	for _, a := range architectures {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			m, err := a.train(x, y, quick(jobConfig()))
			if err != nil {
				t.Fatal(err)
			}
			twin, err := Decode(m.Encode())
			if err != nil {
				t.Fatal(err)
			}
			amnesic, err := Decode(m.Encode())
			if err != nil {
				t.Fatal(err)
			}
			c := coreOf(amnesic)
			c.opt = newAdam(len(c.params))
			for _, r := range []Regressor{m, twin, amnesic} {
				if err := r.Update(x[:1], y[:1]); err != nil {
					t.Fatal(err)
				}
			}
			if string(m.Encode()) != string(twin.Encode()) {
				t.Error("a decoded model updates to other bytes")
			}
			if string(m.Encode()) == string(amnesic.Encode()) {
				t.Error("the optimizer's state makes no difference")
			}
		})
	}
}

// TestFewRows: from one row on there is a model, and it predicts in range.
func TestFewRows(t *testing.T) {
	t.Parallel()
	for _, a := range architectures {
		for _, rows := range []int{1, 2, 7, 30} {
			x, y := jobs(1, rows, 6, 0)
			m, err := a.train(x, y, quick(jobConfig()))
			if err != nil {
				t.Fatalf("%s, %d rows: %v", a.name, rows, err)
			}
			hx, _ := jobs(2, 50, 6, 0)
			out := make([]float64, 4)
			for _, row := range hx {
				if err := m.Predict(row, out); err != nil {
					t.Fatal(err)
				}
				for k, v := range out {
					tg := coreOf(m).targets[k]
					if lo, hi := tg.value(tg.zlo), tg.value(tg.zhi); !(v >= min(lo, 0) && v <= hi) {
						t.Fatalf("%s, %d rows: output %d is %v, labels bound it to %v to %v", a.name, rows, k, v, lo, hi)
					}
				}
			}
		}
	}
}

// modest is a third of the default network, so that the race detector too gets
// through in seconds.
func modest(c Config) Config {
	c.Hidden, c.Epochs = []int{32, 16}, 80
	return c
}

// quick trains for a few epochs only.
func quick(c Config) Config {
	c.Epochs, c.Hidden, c.Latent = 5, []int{8, 6}, 3
	return c
}

func coreOf(r Regressor) *core {
	switch m := r.(type) {
	case *MLP:
		return &m.core
	case *VAE:
		return &m.core
	}
	return nil
}
