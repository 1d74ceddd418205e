package model

import (
	"errors"
	"fmt"
)

// ErrWeights is wrapped by the errors of DecodeWeights and Weights.Check.
var ErrWeights = errors.New("bad predictor weights")

// Weights are what the predictor knows besides history: the coefficients of the
// analytic core, all non-negative, and what samples taught on top of it. They are
// immutable once a Predictor has them.
type Weights struct {
	// Learned, by target, replaces the core's own estimate unless it is empty.
	Learned [numTargets]Learned
	// TrainedSeq is the Sample.Seq of the newest sample trained on; 0 for none.
	TrainedSeq uint64

	// Memory, as factors on bytes and as MiB.
	LibraryMiB    float64 // kernels and handles of cuDNN and cuBLAS, beyond the bare context
	ContextFactor float64 // on the type's CUDA context
	SavedFactor   float64 // fragmentation of the caching allocator over saved tensors
	LiveFactor    float64 // the same over inference's live tensors
	LargestFactor float64 // gradients in flight, in largest activations
	OutputFactor  float64 // the loss's copies of the outputs
	ScratchFactor float64 // on the workspace estimate

	// Margins of the upper quantile: point × factor + MiB.
	GraphMargin, CatalogueMargin, PartialMargin, HistoryMargin, OtherTypeMargin float64
	EstimateMarginMiB, HistoryMarginMiB                                         float64
	// CensoredFactor is the ratio of the assumed peak to the cap for a job that the
	// cap ended.
	CensoredFactor float64

	// Time.
	FP32Efficiency      float64 // of the FP32 peak
	TensorEfficiency    float64 // of the tensor-core peak
	BandwidthEfficiency float64
	Overlap             float64 // part of the smaller of compute and memory time that is not hidden
	BackwardFLOPs       float64 // backward over forward
	BackwardBytes       float64
	KernelMicros        float64 // shortest kernel
	LaunchMicros        float64 // host time per kernel
	KernelsPerLayer     float64
	StepMillis          float64 // host time per step: loading, synchronizing
	HostLinkGBs         float64 // host to device
	WaveShare           float64 // waves of threads at which a kernel fills half of the GPU

	// Host and power.
	HostBaseMiB       float64 // Python, framework and CUDA libraries
	HostParamFactor   float64 // copies of the weights while loading
	HostInputFactor   float64 // batches that loaders keep ready
	CPUBaseMilli      float64
	CPUMilliPerMiBps  float64 // decoding input
	IdlePowerShare    float64 // of the TDP
	DynamicPowerShare float64 // of the TDP at full utilization
}

// CoreWeights returns the analytic core alone, with nothing learned. No coefficient
// results from a regression; they are of three kinds:
//
//   - Arithmetic: BackwardFLOPs (each product's gradient is two products),
//     LargestFactor, OutputFactor, ScratchFactor, ContextFactor.
//   - Round numbers around published figures: FP32Efficiency 0.5 lies amid the
//     0.23 to 0.71 of the FP32 peak that NeuSight's published transformer times
//     (MIT licence) come to on L4, T4, H100 and A100.
//     LibraryMiB lies amid the 340 to 1,000 MiB that SchedTune's published
//     peaks (MIT licence) leave beside context and tensors, K80 to RTX 3090.
//   - Judgement: the rest are guesses of the right order, which DefaultWeights
//     and each site's own runs replace.
func CoreWeights() Weights {
	return Weights{
		LibraryMiB: 600, ContextFactor: 1, SavedFactor: 1.10, LiveFactor: 1.15, LargestFactor: 2, OutputFactor: 2, ScratchFactor: 1,
		GraphMargin: 1.15, CatalogueMargin: 1.20, PartialMargin: 1.50, HistoryMargin: 1.05, OtherTypeMargin: 1.15,
		EstimateMarginMiB: 768, HistoryMarginMiB: 64, CensoredFactor: 1.25,
		FP32Efficiency: 0.5, TensorEfficiency: 0.35, BandwidthEfficiency: 0.75, Overlap: 0.3, BackwardFLOPs: 2, BackwardBytes: 2,
		KernelMicros: 2, LaunchMicros: 6, KernelsPerLayer: 1.5, StepMillis: 1, HostLinkGBs: 12, WaveShare: 1,
		HostBaseMiB: 2560, HostParamFactor: 2, HostInputFactor: 8, CPUBaseMilli: 1000, CPUMilliPerMiBps: 10,
		IdlePowerShare: 0.18, DynamicPowerShare: 0.72,
	}
}

// coefficient is one number with its name and range; the order is that of the
// encoding.
type coefficient struct {
	name     string
	p        *float64
	low, max float64
}

func (w *Weights) coefficients() []coefficient {
	return []coefficient{
		{"library_mib", &w.LibraryMiB, 0, 1 << 16}, {"context_factor", &w.ContextFactor, 0, 100}, {"saved_factor", &w.SavedFactor, 0, 100},
		{"live_factor", &w.LiveFactor, 0, 100}, {"largest_factor", &w.LargestFactor, 0, 100}, {"output_factor", &w.OutputFactor, 0, 100},
		{"scratch_factor", &w.ScratchFactor, 0, 100}, {"graph_margin", &w.GraphMargin, 1, 100}, {"catalogue_margin", &w.CatalogueMargin, 1, 100},
		{"partial_margin", &w.PartialMargin, 1, 100}, {"history_margin", &w.HistoryMargin, 1, 100}, {"other_type_margin", &w.OtherTypeMargin, 1, 100},
		{"estimate_margin_mib", &w.EstimateMarginMiB, 0, 1 << 16}, {"history_margin_mib", &w.HistoryMarginMiB, 0, 1 << 16},
		{"censored_factor", &w.CensoredFactor, 1, 100}, {"fp32_efficiency", &w.FP32Efficiency, 0.001, 2}, {"tensor_efficiency", &w.TensorEfficiency, 0.001, 2},
		{"bandwidth_efficiency", &w.BandwidthEfficiency, 0.001, 2}, {"overlap", &w.Overlap, 0, 1}, {"backward_flops", &w.BackwardFLOPs, 0, 100},
		{"backward_bytes", &w.BackwardBytes, 0, 100}, {"kernel_micros", &w.KernelMicros, 0, 1e6}, {"launch_micros", &w.LaunchMicros, 0, 1e6},
		{"kernels_per_layer", &w.KernelsPerLayer, 0, 1000}, {"step_millis", &w.StepMillis, 0, 1e6}, {"host_link_gbs", &w.HostLinkGBs, 0.01, 1e4},
		{"wave_share", &w.WaveShare, 0, 1e6}, {"host_base_mib", &w.HostBaseMiB, 0, 1 << 20}, {"host_param_factor", &w.HostParamFactor, 0, 100},
		{"host_input_factor", &w.HostInputFactor, 0, 1000}, {"cpu_base_milli", &w.CPUBaseMilli, 0, 1e6}, {"cpu_milli_per_mibps", &w.CPUMilliPerMiBps, 0, 1e4},
		{"idle_power_share", &w.IdlePowerShare, 0, 1}, {"dynamic_power_share", &w.DynamicPowerShare, 0, 1},
	}
}

// Check returns an error that names the first coefficient out of range, NaN
// included.
func (w *Weights) Check() error {
	for _, c := range w.coefficients() {
		if !(*c.p >= c.low && *c.p <= c.max) {
			return fmt.Errorf("%w: %s is %v, must be %v to %v", ErrWeights, c.name, *c.p, c.low, c.max)
		}
	}
	for _, t := range Targets() {
		if err := w.Learned[t].check(t); err != nil {
			return err
		}
	}
	return nil
}
