// Package gpuspec knows the published characteristics of GPU types: memory, speed,
// power, the size of a CUDA context. It is a table of facts, with an estimate for
// types that are not in it.
package gpuspec

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Spec is one GPU type.
type Spec struct {
	// Name is the normalized name of the type, such as "A100-SXM4-80GB".
	Name string
	// Arch is the vendor's architecture name; empty for an estimate.
	Arch string
	// Capability is the CUDA compute capability, such as "8.0"; empty for an
	// estimate and for AMD's.
	Capability string
	// MemMiB is the memory that NVML reports as total.
	MemMiB int64
	// SMs is the number of streaming multiprocessors.
	SMs int64
	// BoostMHz is the highest clock that the vendor specifies, which a power limit
	// may prevent; 0 for an estimate.
	BoostMHz int64
	// FP32TFLOPS is the peak without tensor cores, in 10^12 operations per second.
	FP32TFLOPS float64
	// TensorTFLOPS is the dense FP16 or BF16 peak with FP32 accumulation; 0
	// without tensor cores.
	TensorTFLOPS float64
	// BandwidthGBs is the peak memory bandwidth in 10^9 bytes per second.
	BandwidthGBs float64
	// TDPWatt is the board's power limit.
	TDPWatt int64
	// ContextMiB is the memory of a CUDA process before its first tensor.
	ContextMiB int64
}

// All returns a copy of the table, slowest type first.
func All() []Spec { return slices.Clone(table[:]) }

// Normalize converts the names that NVML, users and vendors write to one spelling:
// "NVIDIA GeForce RTX 3090" and "rtx_3090" are both "RTX-3090". An unknown name
// keeps its words, in capitals, joined by dashes; remarks in parentheses are
// dropped.
func Normalize(name string) string {
	n := strings.ToUpper(strings.Join(strings.FieldsFunc(dropRemark(name), func(r rune) bool {
		return r == ' ' || r == '_' || r == '-' || r == '\t'
	}), "-"))
	for _, brand := range []string{"NVIDIA-", "AMD-", "INSTINCT-", "TESLA-", "GEFORCE-"} {
		n = strings.TrimPrefix(n, brand)
	}
	if full, ok := aliases[n]; ok {
		return full
	}
	return n
}

// Lookup finds a type by any of the spellings that Normalize knows. For an unknown
// type, a MIG slice included, it returns an estimate from the memory size in the
// name (16 GiB if there is none) and false.
func Lookup(name string) (Spec, bool) {
	n := Normalize(name)
	for i := range table {
		if table[i].Name == n {
			return table[i], true
		}
	}
	return Estimate(n, sizeInName(n)), false
}

// dropRemark drops remarks in parentheses, as in "Tesla K80 (per GPU)".
func dropRemark(name string) string {
	open, end := strings.IndexByte(name, '('), strings.LastIndexByte(name, ')')
	if open < 0 || end < open {
		return name
	}
	return name[:open] + " " + name[end+1:]
}

// memSize finds "80GB", "5GB", "24GIB" in a normalized name; the last one counts,
// since MIG names have the slice's size after the GPU's.
var memSize = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(\d{1,4})GI?B`) })

func sizeInName(n string) int64 {
	m := memSize().FindAllStringSubmatch(n, -1)
	if len(m) == 0 {
		return 16 << 10
	}
	gib, err := strconv.ParseInt(m[len(m)-1][1], 10, 64)
	if err != nil || gib == 0 {
		return 16 << 10
	}
	return gib << 10
}

// Estimate describes a type of which only the memory is known. Speed grows with
// memory across recent data-centre GPUs, so the estimate interpolates between them,
// on the slow side: about 19 GB/s of bandwidth and 0.4 TFLOPS of FP32 per GiB.
func Estimate(name string, memMiB int64) Spec {
	memMiB = min(max(memMiB, 1<<10), 1<<20)
	gib := float64(memMiB) / 1024
	return Spec{
		Name:         name,
		MemMiB:       memMiB,
		SMs:          max(10, int64(gib)),
		FP32TFLOPS:   max(4, 0.4*gib),
		TensorTFLOPS: max(16, 3*gib),
		BandwidthGBs: max(200, 19*gib),
		TDPWatt:      min(700, 60+int64(5*gib)),
		ContextMiB:   min(560, memMiB/8),
	}
}
