package model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// MaxWeightBytes bounds an encoded Weights: it travels through Raft.
const MaxWeightBytes = 256 << 10

// weightsVersion changes when the meaning or number of coefficients does.
const weightsVersion = 1

const weightsMagic = "BWGT"

// ErrWeights is wrapped by the errors of DecodeWeights and Weights.Check.
var ErrWeights = errors.New("bad predictor weights")

// Weights are the coefficients of the analytic core. All are non-negative.
type Weights struct {
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
	// CensoredFactor is how much beyond a cap the peak of a job is taken to be
	// when the cap ended it.
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

// DefaultWeights is the built-in core. No coefficient comes out of a
// regression; they are of three kinds:
//
//   - Arithmetic: BackwardFLOPs (each product's gradient is two products),
//     LargestFactor, OutputFactor, ScratchFactor, ContextFactor.
//   - Round numbers around published figures: FP32Efficiency 0.5 lies amid the
//     0.23 to 0.71 of the FP32 peak that NeuSight's published transformer times
//     (MIT licence) come to on L4, T4, H100 and A100.
//   - Judgement: LibraryMiB and EstimateMarginMiB were set by hand, with an eye
//     on published training peaks of image models on an A100, which lie 1 to
//     2 GiB above what tensors explain; the rest are guesses of the right order,
//     which a site should replace by its own measurements.
func DefaultWeights() Weights {
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

// Check names the first coefficient out of range, NaN included.
func (w *Weights) Check() error {
	for _, c := range w.coefficients() {
		if !(*c.p >= c.low && *c.p <= c.max) {
			return fmt.Errorf("%w: %s is %v, must be %v to %v", ErrWeights, c.name, *c.p, c.low, c.max)
		}
	}
	return nil
}

// Encode writes w as magic, version, count, little-endian floats and a CRC-32C
// of all before it.
func (w *Weights) Encode() []byte {
	cs := w.coefficients()
	b := make([]byte, 0, len(weightsMagic)+8+8*len(cs))
	b = append(b, weightsMagic...)
	b = binary.LittleEndian.AppendUint16(b, weightsVersion)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(cs)))
	for _, c := range cs {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(*c.p))
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// DecodeWeights reads what Encode wrote and refuses everything else: wrong
// length or version, damage, NaN, infinities, values out of range. Errors wrap
// ErrWeights.
func DecodeWeights(b []byte) (Weights, error) {
	var w Weights
	cs := w.coefficients()
	head := len(weightsMagic) + 4
	switch {
	case len(b) > MaxWeightBytes:
		return w, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrWeights, len(b), MaxWeightBytes)
	case len(b) < head+4 || string(b[:len(weightsMagic)]) != weightsMagic:
		return w, fmt.Errorf("%w: not a weights file (it must begin with %q)", ErrWeights, weightsMagic)
	}
	if v := binary.LittleEndian.Uint16(b[len(weightsMagic):]); v != weightsVersion {
		return w, fmt.Errorf("%w: version %d, this program reads version %d", ErrWeights, v, weightsVersion)
	}
	n := int(binary.LittleEndian.Uint16(b[len(weightsMagic)+2:]))
	if n != len(cs) || len(b) != head+8*n+4 {
		return w, fmt.Errorf("%w: %d coefficients in %d bytes, must be %d in %d", ErrWeights, n, len(b), len(cs), head+8*len(cs)+4)
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)); got != sum {
		return w, fmt.Errorf("%w: checksum %08x, must be %08x; the file is damaged", ErrWeights, got, sum)
	}
	for i, c := range cs {
		*c.p = math.Float64frombits(binary.LittleEndian.Uint64(b[head+8*i:]))
	}
	if err := w.Check(); err != nil {
		return Weights{}, err
	}
	return w, nil
}
