package neural

import (
	"errors"
	"fmt"
)

// Bounds on what may be trained and decoded. With them a prediction needs no
// more than a few KiB of stack, and an encoded model no more than MaxBytes.
const (
	MaxInputs  = 256   // columns of x
	MaxOutputs = 16    // columns of y
	MaxLayers  = 3     // hidden layers
	MaxWidth   = 128   // units of a hidden layer
	MaxLatent  = 32    // dimensions of the VAE's code
	MaxValue   = 1e18  // of an input or a label, in absolute value
	minLogged  = 1e-18 // smallest label under ScaleLog
)

// ErrConfig is wrapped by the errors of Config.Validate.
var ErrConfig = errors.New("bad neural network configuration")

// Scale says how a column is brought to mean 0 and deviation 1.
type Scale uint8

const (
	// ScaleStandard subtracts the training mean and divides by the training
	// standard deviation.
	ScaleStandard Scale = iota
	// ScaleLog does the same with the logarithm: of the label, which must be
	// positive, or of 1 + |x| with the sign of x for an input. It suits bytes
	// and counts that span orders of magnitude.
	ScaleLog
)

// Config describes a network and its training. Start from DefaultConfig: zero
// values are taken as they are, not replaced.
type Config struct {
	Hidden []int // widths of the ReLU layers: 1 to MaxLayers of 1 to MaxWidth; default 64, 32
	Latent int   // dimensions of the VAE's code, 1 to MaxLatent; default 8. An MLP ignores it.

	Inputs  []Scale // one per input, or empty for ScaleStandard throughout; default empty
	Outputs []Scale // one per output, likewise

	Epochs       int     // passes over the training part at most, 1 to 10,000; default 150
	Batch        int     // rows per gradient step, 1 to 4,096; default 32
	LearningRate float64 // Adam's first rate, halved on plateaus; default 0.003
	WeightDecay  float64 // decoupled decay of all parameters per step, in units of the rate; default 0.0001
	ClipNorm     float64 // longest gradient of a batch; default 5
	Validation   float64 // share of rows kept aside to stop early, 0 to 0.5; default 0.15
	Patience     int     // epochs without progress on those rows that end training, 1 to 10,000; default 20

	MSEWeight  float64 // of the squared error in scaled units; default 1
	MAPEWeight float64 // of the absolute relative error in original units; default 1
	// MAPEFloor keeps the relative error of labels near zero bounded: a label
	// counts as at least this share of the output's mean |label|. Default 0.01.
	MAPEFloor float64
	// MAPECap bounds the relative error e as e/(1+e/cap). Default 5.
	MAPECap float64

	KLWeight    float64 // of the VAE's divergence from N(0, 1); default 0.001
	ReconWeight float64 // of the VAE's reconstruction of the inputs; default 0.1

	// Extrapolate is how far a prediction may leave the range of the labels
	// seen so far, as a share of the width of that range in scaled units, 0 to
	// 100. Default 0.5.
	Extrapolate float64

	UpdateSteps int     // gradient steps per Update, each on at most Batch of its rows, 1 to 1,000; default 5
	UpdateRate  float64 // Adam's rate in Update; default 0.001

	Seed uint64 // of initialisation, shuffling and the VAE's noise; default 1
}

// DefaultConfig returns the defaults named at the fields of Config.
func DefaultConfig() Config {
	return Config{
		Hidden: []int{64, 32}, Latent: 8,
		Epochs: 150, Batch: 32, LearningRate: 0.003, WeightDecay: 1e-4, ClipNorm: 5, Validation: 0.15, Patience: 20,
		MSEWeight: 1, MAPEWeight: 1, MAPEFloor: 0.01, MAPECap: 5,
		KLWeight: 0.001, ReconWeight: 0.1, Extrapolate: 0.5,
		UpdateSteps: 5, UpdateRate: 0.001, Seed: 1,
	}
}

// setting is one number of a Config with its name and range. The order is that
// of the encoding.
type setting struct {
	name     string
	p        *float64
	low, max float64
}

type count struct {
	name     string
	p        *int
	low, max int
}

func (c *Config) settings() []setting {
	return []setting{
		{"learning rate", &c.LearningRate, 1e-9, 1}, {"weight decay", &c.WeightDecay, 0, 1}, {"clip norm", &c.ClipNorm, 1e-6, 1e6},
		{"validation share", &c.Validation, 0, 0.5}, {"MSE weight", &c.MSEWeight, 0, 1e3}, {"MAPE weight", &c.MAPEWeight, 0, 1e3},
		{"MAPE floor", &c.MAPEFloor, 1e-6, 1}, {"MAPE cap", &c.MAPECap, 1e-3, 1e6}, {"KL weight", &c.KLWeight, 0, 1e3},
		{"reconstruction weight", &c.ReconWeight, 0, 1e3}, {"extrapolation share", &c.Extrapolate, 0, 100}, {"update rate", &c.UpdateRate, 1e-9, 1},
	}
}

func (c *Config) counts() []count {
	return []count{
		{"latent dimensions", &c.Latent, 1, MaxLatent}, {"epochs", &c.Epochs, 1, 10_000}, {"batch", &c.Batch, 1, 4096},
		{"patience", &c.Patience, 1, 10_000}, {"update steps", &c.UpdateSteps, 1, 1000},
	}
}

// Validate reports every setting out of range, NaN included, in one error that
// wraps ErrConfig.
func (c *Config) Validate() error {
	var errs []error
	if n := len(c.Hidden); n < 1 || n > MaxLayers {
		errs = append(errs, fmt.Errorf("%w: %d hidden layers, must be 1 to %d", ErrConfig, n, MaxLayers))
	}
	for i, w := range c.Hidden {
		if w < 1 || w > MaxWidth {
			errs = append(errs, fmt.Errorf("%w: hidden layer %d has %d units, must be 1 to %d", ErrConfig, i, w, MaxWidth))
		}
	}
	for _, s := range c.settings() {
		if !(*s.p >= s.low && *s.p <= s.max) {
			errs = append(errs, fmt.Errorf("%w: %s is %v, must be %v to %v", ErrConfig, s.name, *s.p, s.low, s.max))
		}
	}
	for _, s := range c.counts() {
		if *s.p < s.low || *s.p > s.max {
			errs = append(errs, fmt.Errorf("%w: %s is %d, must be %d to %d", ErrConfig, s.name, *s.p, s.low, s.max))
		}
	}
	if c.MSEWeight == 0 && c.MAPEWeight == 0 {
		errs = append(errs, fmt.Errorf("%w: MSE weight and MAPE weight are both 0, one must be positive", ErrConfig))
	}
	return errors.Join(append(errs, checkScales("input", c.Inputs, MaxInputs), checkScales("output", c.Outputs, MaxOutputs))...)
}

func checkScales(what string, scales []Scale, most int) error {
	if len(scales) > most {
		return fmt.Errorf("%w: %d %s scales, at most %d are allowed", ErrConfig, len(scales), what, most)
	}
	for i, s := range scales {
		if s > ScaleLog {
			return fmt.Errorf("%w: scale of %s %d is %d, must be %d or %d", ErrConfig, what, i, s, ScaleStandard, ScaleLog)
		}
	}
	return nil
}
