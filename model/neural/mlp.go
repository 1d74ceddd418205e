// Package neural holds small neural regressors that predict several targets of
// a job at once, such as CPU and GPU utilization and CPU and GPU memory: the
// joint model of DOPE-ML (Patidar et al., section 4), as a multilayer perceptron
// and as a regressor on a variational auto-encoder's code.
//
// Training, updates and predictions depend on nothing but their arguments and
// the seed in Config, and give the same bytes on every processor.
package neural

import "math/rand/v2"

// Regressor is a trained network.
//
// Predict and Encode only read and may be called by several goroutines at once;
// Predict allocates nothing when it succeeds. Update must run alone: callers who
// cannot wait decode a copy, update that and swap it in.
type Regressor interface {
	// Predict writes one prediction per output to out, in the units of the
	// labels. It refuses inputs that are not finite, and wrong lengths, with an
	// error that wraps ErrData; out is then unchanged.
	Predict(x, out []float64) error
	// Update takes Config.UpdateSteps gradient steps on rows of finished jobs,
	// going on from the optimizer's state; labels of NaN are missing. It is meant
	// for one job or a window of the latest ones. On an error (ErrData,
	// ErrDiverged) the model is as it was.
	Update(x, y [][]float64) error
	// Encode writes the model, optimizer's state included, as Decode reads it.
	Encode() []byte
}

// MLP is a chain of ReLU layers with one linear output per target. See
// Regressor for what may run at once.
type MLP struct {
	core
	net stack
}

var _ Regressor = (*MLP)(nil)

// TrainMLP learns to predict the columns of y from those of x. Rows of x must be
// finite; NaN in y is a missing label, and each output needs at least one label.
// Errors wrap ErrConfig, ErrData or ErrDiverged.
func TrainMLP(x, y [][]float64, cfg Config) (*MLP, error) {
	c, err := newCore(x, y, cfg)
	if err != nil {
		return nil, err
	}
	m := &MLP{core: c}
	m.layOut()
	m.net.init(m.params, rand.New(rand.NewPCG(m.cfg.Seed, streamInit)))
	if err := m.fit(m.trainer(), m.dataset(x, y)); err != nil {
		return nil, err
	}
	return m, nil
}

// layOut places the layers and allocates the parameters.
func (m *MLP) layOut() {
	var n int
	m.net, n = m.shape()
	m.params, m.opt = make([]float64, n), newAdam(n)
}

func (m *MLP) shape() (stack, int) {
	widths := append([]int{len(m.cols)}, m.cfg.Hidden...)
	return newStack(0, append(widths, len(m.targets))...)
}

// Predict implements Regressor.
func (m *MLP) Predict(x, out []float64) error {
	var buf [MaxInputs]float64
	in, err := m.prepare(x, out, buf[:])
	if err != nil {
		return err
	}
	m.net.infer(m.params, in, out)
	m.finish(out)
	return nil
}

// PredictRow is Predict into a new slice.
func (m *MLP) PredictRow(x []float64) ([]float64, error) {
	out := make([]float64, len(m.targets))
	if err := m.Predict(x, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Update implements Regressor.
func (m *MLP) Update(x, y [][]float64) error { return m.update(m.trainer(), x, y) }

// mlpTrainer is the network of an MLP with its working memory.
type mlpTrainer struct {
	*MLP
	t trace
}

func (m *MLP) trainer() *mlpTrainer { return &mlpTrainer{m, m.net.newTrace()} }

func (m *mlpTrainer) gradient(g, x, want, y []float64, _ *rand.Rand) float64 {
	m.net.forward(m.params, x, m.t)
	l := rowLoss(&m.cfg, m.targets, m.t.out(), want, y, m.t.dout())
	m.net.backward(m.params, g, x, m.t, nil)
	return l
}

func (m *mlpTrainer) infer(x, z []float64) { m.net.infer(m.params, x, z) }
