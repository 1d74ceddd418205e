package eval

import (
	"fmt"
	"math"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/gpuspec"
	"github.com/berth-scheduler/berth/model/graph"
	"github.com/berth-scheduler/berth/model/neural"
)

// network is the joint regressor of DOPE-ML: one network for all targets, fed
// with the logarithms of what is known of a job and its GPU.
type network struct {
	name  string
	train func(x, y [][]float64, cfg neural.Config) (neural.Regressor, error)
}

func newMLP() Trainer {
	return network{"mlp", func(x, y [][]float64, cfg neural.Config) (neural.Regressor, error) { return neural.TrainMLP(x, y, cfg) }}
}

func newVAE() Trainer {
	return network{"vae", func(x, y [][]float64, cfg neural.Config) (neural.Regressor, error) { return neural.TrainVAE(x, y, cfg) }}
}

// Name implements Trainer.
func (n network) Name() string { return n.name }

// Bounds of training: fewer rows teach a network nothing, and with more than
// fewestEpochs·rows the gradient steps are kept about the same for all sets.
const (
	fewestRows   = 20
	fewestEpochs = 30
	rowEpochs    = 600_000
	// calibration is the share of rows, one in so many, on which the margin of
	// the upper quantile is measured instead of trained on.
	calibration = 5
)

// targets are the columns of y.
const (
	outMemory = iota
	outUtil
	outStep
	outputs
)

// Train implements Trainer.
func (n network) Train(samples []model.Sample) (Estimator, error) {
	var train, kept []model.Sample
	for i := range samples {
		switch {
		case samples[i].Censored:
		case len(train)+len(kept) >= fewestRows && i%calibration == 0:
			kept = append(kept, samples[i])
		default:
			train = append(train, samples[i])
		}
	}
	if len(train) < fewestRows {
		return nil, ErrNoSamples
	}
	x, all := make([][]float64, len(train)), make([][outputs]float64, len(train))
	for i := range train {
		x[i], all[i] = inputs(&train[i]), labels(&train[i])
	}
	y, columns := labelled(all)
	if len(columns) == 0 {
		return nil, ErrNoSamples
	}
	cfg := neural.DefaultConfig()
	cfg.Epochs = min(cfg.Epochs, max(fewestEpochs, rowEpochs/len(train)))
	for range columns {
		cfg.Outputs = append(cfg.Outputs, neural.ScaleLog)
	}
	r, err := n.train(x, y, cfg)
	if err != nil {
		return nil, fmt.Errorf("train network: %w", err)
	}
	e := netEstimator{net: r, columns: columns, margin: 1}
	e.calibrate(kept)
	return e, nil
}

// labels are what was measured, NaN where it was not.
func labels(s *model.Sample) [outputs]float64 {
	out := [outputs]float64{math.NaN(), math.NaN(), math.NaN()}
	if s.PeakMiB > 0 {
		out[outMemory] = float64(s.PeakMiB)
	}
	if s.UtilMilli > 0 {
		out[outUtil] = float64(s.UtilMilli)
	}
	if s.Steps > 0 && s.Seconds > 0 {
		out[outStep] = s.Seconds / float64(s.Steps)
	}
	return out
}

// labelled keeps the columns that have a label.
func labelled(all [][outputs]float64) (y [][]float64, columns []int) {
	for c := range outputs {
		for i := range all {
			if !math.IsNaN(all[i][c]) {
				columns = append(columns, c)
				break
			}
		}
	}
	y = make([][]float64, len(all))
	for i := range all {
		for _, c := range columns {
			y[i] = append(y[i], all[i][c])
		}
	}
	return y, columns
}

// inputs describe a job on a GPU type, in a fixed order.
func inputs(s *model.Sample) []float64 {
	f := &s.Features
	spec, _ := gpuspec.Lookup(s.GPUType)
	out := make([]float64, 0, 40)
	log := func(vs ...int64) {
		for _, v := range vs {
			out = append(out, math.Log1p(float64(v)))
		}
	}
	log(f.Batch, f.SeqLen, f.Params, f.ParamBytes, f.SavedBytes, f.LiveBytes, f.LargestBytes, f.InputBytes, f.OutputBytes, f.WorkspaceBytes,
		f.MovedBytes, f.FLOPs, f.Convs, f.Linears, f.Activations, f.Norms, f.Others, f.TrainedBytes, f.ActBytes, f.MatrixBytes, f.TracedBytes,
		f.ScoreBytes, f.Blocks, f.Width, f.LoRARank, f.WeightBits, spec.MemMiB, spec.SMs, spec.TDPWatt, spec.ContextMiB)
	out = append(out, math.Log1p(spec.FP32TFLOPS), math.Log1p(spec.TensorTFLOPS), math.Log1p(spec.BandwidthGBs), float64(f.Optimizer.States()))
	for _, yes := range []bool{f.Mode == model.Training, f.Precision == graph.FP32 || f.Precision == "", f.Precision.Tensor(), f.Checkpointing} {
		v := 0.0
		if yes {
			v = 1
		}
		out = append(out, v)
	}
	return out
}

// netEstimator answers with a network.
type netEstimator struct {
	net     neural.Regressor
	columns []int
	margin  float64 // of the upper quantile of memory
}

// calibrate measures by which factor memory must be raised to cover 95 of 100
// rows that were not trained on (split conformal prediction).
func (e *netEstimator) calibrate(kept []model.Sample) {
	var ratios []float64
	for i := range kept {
		if got := e.Estimate(&kept[i]); got.MemMiB > 0 && kept[i].PeakMiB > 0 {
			ratios = append(ratios, float64(kept[i].PeakMiB)/got.MemMiB)
		}
	}
	if len(ratios) > 0 {
		e.margin = max(1, quantile(ratios, min(1, 0.95*(1+1/float64(len(ratios))))))
	}
}

// Estimate implements Estimator.
func (e netEstimator) Estimate(s *model.Sample) Estimate {
	out := make([]float64, len(e.columns))
	if err := e.net.Predict(inputs(s), out); err != nil {
		return Estimate{} // only inputs that are not finite, which Features cannot hold
	}
	var got Estimate
	for i, c := range e.columns {
		switch c {
		case outMemory:
			got.MemMiB, got.P95MiB = out[i], out[i]*e.margin
		case outUtil:
			got.UtilMilli = min(1000, out[i])
		case outStep:
			got.StepSeconds = out[i]
		}
	}
	return got
}
