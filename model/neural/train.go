package neural

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
)

// ErrDiverged says that training or an update left the range of numbers. The
// model is as it was before.
var ErrDiverged = errors.New("training diverged; lower the learning rate")

// maxParam bounds a parameter: with inputs clipped, no pass can overflow.
const maxParam = 1e6

// minValidation is how few rows may still decide when to stop.
const minValidation = 8

// Streams of the generator, so that shuffling does not depend on how many
// numbers initialisation drew.
const (
	streamInit = iota
	streamSplit
	streamTrain
	streamUpdate // and every stream behind it: one per update
)

// core is what both architectures share: scales, parameters, optimizer.
type core struct {
	cfg     Config
	cols    []column
	targets []target
	params  []float64
	opt     adam
	updates uint64 // Updates made so far
}

// network is an architecture over core's flat parameters.
type network interface {
	// gradient adds to g the gradient of the loss of one standardised row and
	// returns the loss. noise feeds what the architecture samples.
	gradient(g, x, want, y []float64, noise *rand.Rand) float64
	// infer sets z to the scaled predictions for a standardised row.
	infer(x, z []float64)
}

// dataset holds checked rows in flat slices.
type dataset struct {
	rows, inputs, outputs int
	x                     []float64 // standardised
	want                  []float64 // scaled labels; NaN is missing
	y                     []float64 // labels in original units
}

func (d *dataset) row(r int) (x, want, y []float64) {
	k := d.outputs
	return d.x[r*d.inputs:][:d.inputs], d.want[r*k:][:k], d.y[r*k:][:k]
}

// newCore checks and measures the rows.
func newCore(x, y [][]float64, cfg Config) (core, error) {
	c := core{cfg: cfg.clone()}
	if err := c.cfg.Validate(); err != nil {
		return c, err
	}
	if len(x) == 0 || len(y) == 0 {
		return c, fmt.Errorf("%w: no rows", ErrData)
	}
	d, k := len(x[0]), len(y[0])
	if d < 1 || d > MaxInputs || k < 1 || k > MaxOutputs {
		return c, fmt.Errorf("%w: %d inputs and %d outputs, must be 1 to %d and 1 to %d", ErrData, d, k, MaxInputs, MaxOutputs)
	}
	if err := c.cfg.fits(d, k); err != nil {
		return c, err
	}
	if err := checkRows(&c.cfg, x, y, d, k); err != nil {
		return c, err
	}
	var err error
	c.cols = fitColumns(&c.cfg, x)
	c.targets, err = fitTargets(&c.cfg, y)
	return c, err
}

// dataset standardises checked rows.
func (c *core) dataset(x, y [][]float64) *dataset {
	d := &dataset{rows: len(x), inputs: len(c.cols), outputs: len(c.targets)}
	d.x = make([]float64, 0, d.rows*d.inputs)
	d.want = make([]float64, 0, d.rows*d.outputs)
	d.y = make([]float64, 0, d.rows*d.outputs)
	for r := range x {
		for i, v := range x[r] {
			d.x = append(d.x, c.cols[i].apply(v))
		}
		for k, v := range y[r] {
			want := math.NaN()
			if !math.IsNaN(v) {
				want = c.targets[k].scaled(v)
			}
			d.y, d.want = append(d.y, v), append(d.want, want)
		}
	}
	return d
}

// shuffle is Fisher and Yates's; written out because the library does not
// promise to draw the same numbers for ever.
func shuffle(order []int, r *rand.Rand) {
	for i := len(order) - 1; i > 0; i-- {
		j := int(r.Uint64() % uint64(i+1))
		order[i], order[j] = order[j], order[i]
	}
}

// fit trains net until the validation rows stop improving, and leaves the best
// parameters, with the optimizer's state of that moment, in c.
func (c *core) fit(net network, d *dataset) error {
	order := make([]int, d.rows)
	for i := range order {
		order[i] = i
	}
	shuffle(order, rand.New(rand.NewPCG(c.cfg.Seed, streamSplit)))
	held := int(float64(float64(d.rows) * c.cfg.Validation))
	if held < minValidation {
		held = 0 // too few to judge by: train for all epochs and judge by the training rows
	}
	train, judge := order[held:], order[:held]
	if held == 0 {
		judge = order
	}

	g := make([]float64, len(c.params))
	z := make([]float64, d.outputs)
	best, bestOpt, bestLoss := make([]float64, len(c.params)), newAdam(len(c.params)), math.Inf(1)
	noise := rand.New(rand.NewPCG(c.cfg.Seed, streamTrain))
	rate, stale := c.cfg.LearningRate, 0
	for range c.cfg.Epochs {
		shuffle(train, noise)
		c.pass(net, d, train, g, rate, noise)
		loss := c.judge(net, d, judge, z)
		switch {
		case loss < bestLoss && c.sound(): // false for NaN
			bestLoss, stale = loss, 0
			copy(best, c.params)
			bestOpt.copyFrom(&c.opt)
		default:
			stale++
		}
		if stale >= c.cfg.Patience && held > 0 {
			break
		}
		if stale > 0 && stale%max(1, c.cfg.Patience/3) == 0 {
			rate = max(rate/2, c.cfg.LearningRate/64)
		}
	}
	if math.IsInf(bestLoss, 1) {
		return ErrDiverged
	}
	copy(c.params, best)
	c.opt.copyFrom(&bestOpt)
	return nil
}

// pass takes one gradient step per batch of the given rows.
func (c *core) pass(net network, d *dataset, rows []int, g []float64, rate float64, noise *rand.Rand) {
	for len(rows) > 0 {
		n := min(c.cfg.Batch, len(rows))
		for _, r := range rows[:n] {
			x, want, y := d.row(r)
			net.gradient(g, x, want, y, noise)
		}
		c.opt.step(c.params, g, n, rate, c.cfg.WeightDecay, c.cfg.ClipNorm)
		rows = rows[n:]
	}
}

// judge is the mean loss of the predictions for the given rows.
func (c *core) judge(net network, d *dataset, rows []int, z []float64) float64 {
	var sum float64
	for _, r := range rows {
		x, want, y := d.row(r)
		net.infer(x, z)
		sum += rowLoss(&c.cfg, c.targets, z, want, y, nil)
	}
	return sum / float64(len(rows))
}

// sound says whether every number of the model is fit to be used.
func (c *core) sound() bool {
	for i, p := range c.params {
		if !(math.Abs(p) <= maxParam && math.Abs(c.opt.m[i]) <= math.MaxFloat64 && c.opt.v[i] >= 0 && c.opt.v[i] <= math.MaxFloat64) {
			return false
		}
	}
	return true
}

// update takes cfg.UpdateSteps steps on the rows, keeping the optimizer's state.
// On an error nothing has changed.
func (c *core) update(net network, x, y [][]float64) error {
	if err := checkRows(&c.cfg, x, y, len(c.cols), len(c.targets)); err != nil {
		return err
	}
	d := c.dataset(x, y)
	params, opt := append([]float64(nil), c.params...), newAdam(len(c.params))
	opt.copyFrom(&c.opt)
	g := make([]float64, len(c.params))
	order := make([]int, d.rows)
	for i := range order {
		order[i] = i
	}
	noise := rand.New(rand.NewPCG(c.cfg.Seed, streamUpdate+c.updates))
	for range c.cfg.UpdateSteps {
		shuffle(order, noise)
		n := min(c.cfg.Batch, len(order))
		c.pass(net, d, order[:n], g, c.cfg.UpdateRate, noise)
	}
	if !c.sound() {
		copy(c.params, params)
		c.opt.copyFrom(&opt)
		return ErrDiverged
	}
	c.updates++
	for _, row := range y {
		for k, v := range row {
			if !math.IsNaN(v) {
				c.targets[k].see(v, c.cfg.Extrapolate)
			}
		}
	}
	return nil
}

// prepare checks and standardises x into buf, and checks out.
func (c *core) prepare(x, out, buf []float64) ([]float64, error) {
	if err := checkInputs(x, len(c.cols)); err != nil {
		return nil, err
	}
	if len(out) != len(c.targets) {
		return nil, fmt.Errorf("%w: room for %d predictions, must be %d", ErrData, len(out), len(c.targets))
	}
	in := buf[:len(x)]
	for i, v := range x {
		in[i] = c.cols[i].apply(v)
	}
	return in, nil
}

// finish takes scaled predictions to original units, within their bounds.
func (c *core) finish(out []float64) {
	for k := range out {
		out[k] = c.targets[k].predict(out[k])
	}
}

func (c *Config) clone() Config {
	d := *c
	d.Hidden = append([]int(nil), c.Hidden...)
	d.Inputs = append([]Scale(nil), c.Inputs...)
	d.Outputs = append([]Scale(nil), c.Outputs...)
	return d
}

// fits checks the scales against the number of columns.
func (c *Config) fits(inputs, outputs int) error {
	if n := len(c.Inputs); n != 0 && n != inputs {
		return fmt.Errorf("%w: %d input scales for %d inputs", ErrConfig, n, inputs)
	}
	if n := len(c.Outputs); n != 0 && n != outputs {
		return fmt.Errorf("%w: %d output scales for %d outputs", ErrConfig, n, outputs)
	}
	return nil
}
