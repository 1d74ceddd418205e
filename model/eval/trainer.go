package eval

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/model"
)

// Trainer makes estimators from samples. Equal samples in equal order give
// equal estimators.
type Trainer interface {
	Name() string
	Train(samples []model.Sample) (Estimator, error)
}

// ErrNoSamples is returned by Train if it has too few samples to learn from; the
// comparison then goes on without it.
var ErrNoSamples = errors.New("there are too few samples to learn from")

// Estimator predicts what a run needs. It must use only what is known before the
// run: Features, GPUType, Signature, User.
type Estimator interface {
	Estimate(s *model.Sample) Estimate
}

// Estimate is what a run is predicted to need; 0 is "no answer".
type Estimate struct {
	MemMiB, P95MiB float64 // as NVML shows it, CUDA context included
	UtilMilli      float64
	StepSeconds    float64
}

// TrainerNames returns the trainers that New knows.
func TrainerNames() []string { return []string{"berth", "physics", "mean"} }

// DefaultTrainers returns those used for a comparison if none is named.
func DefaultTrainers() []string { return []string{"berth", "physics"} }

// New returns a trainer by its name.
func New(name string) (Trainer, error) {
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "berth", "learned":
		return learned{}, nil
	case "physics":
		return physics{}, nil
	case "mean":
		return logMean{}, nil
	}
	return nil, fmt.Errorf("trainer %q: must be one of %s", name, strings.Join(TrainerNames(), ", "))
}

// physics is the analytic core with its built-in weights: it learns nothing.
type physics struct{}

func (physics) Name() string { return "physics" }

func (physics) Train([]model.Sample) (Estimator, error) {
	p, err := model.NewPredictor(model.CoreWeights(), nil)
	if err != nil {
		return nil, fmt.Errorf("build predictor: %w", err)
	}
	return predictor{p}, nil
}

// predictor asks a model.Predictor.
type predictor struct{ p *model.Predictor }

func (e predictor) Estimate(s *model.Sample) Estimate {
	q := e.p.Predict(model.Request{Features: s.Features, Signature: s.Signature, Types: []model.TypeInfo{{Name: s.GPUType}}})
	if len(q) != 1 {
		return Estimate{}
	}
	return Estimate{
		MemMiB: float64(q[0].GPUMemMiB), P95MiB: float64(q[0].GPUMemP95MiB),
		UtilMilli: float64(q[0].UtilMilli), StepSeconds: q[0].StepSeconds,
	}
}

// logMean answers with the geometric mean of all runs on the GPU, or on any for an
// unseen GPU: the baseline for any model.
type logMean struct{}

func (logMean) Name() string { return "mean" }

// allGPUs is the key of runs on any GPU.
const allGPUs = ""

func (logMean) Train(samples []model.Sample) (Estimator, error) {
	if len(samples) == 0 {
		return nil, ErrNoSamples
	}
	logs := map[string]*[4][]float64{allGPUs: {}}
	for i := range samples {
		s := &samples[i]
		if s.Censored {
			continue
		}
		if logs[s.GPUType] == nil {
			logs[s.GPUType] = &[4][]float64{}
		}
		for _, gpu := range []string{allGPUs, s.GPUType} {
			add := func(i int, v float64) {
				if v > 0 {
					logs[gpu][i] = append(logs[gpu][i], math.Log(v))
				}
			}
			add(0, float64(s.PeakMiB))
			add(1, float64(s.UtilMilli))
			if s.Steps > 0 {
				add(2, s.Seconds/float64(s.Steps))
			}
		}
	}
	m := means{}
	for _, gpu := range slices.Sorted(maps.Keys(logs)) {
		l := logs[gpu]
		m[gpu] = Estimate{MemMiB: geometric(l[0]), P95MiB: upper(l[0]), UtilMilli: geometric(l[1]), StepSeconds: geometric(l[2])}
	}
	return m, nil
}

type means map[string]Estimate

func (m means) Estimate(s *model.Sample) Estimate {
	if e, ok := m[s.GPUType]; ok {
		return e
	}
	return m[allGPUs]
}

func geometric(logs []float64) float64 {
	if len(logs) == 0 {
		return 0
	}
	sum := 0.0
	for _, v := range logs {
		sum += v
	}
	return math.Exp(sum / float64(len(logs)))
}

// upper returns the 95th percentile, 0 without values.
func upper(logs []float64) float64 {
	if len(logs) == 0 {
		return 0
	}
	return math.Exp(quantile(logs, 0.95))
}
