package sim

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// model describes a type of GPU. memMiB is the total that NVML reports and reservedMiB roughly
// what a recent driver keeps of it. contextMiB is what each process takes on each GPU before
// its first allocation; it grows with driver versions, and these are typical with cuBLAS and
// cuDNN loaded. speedMilli is the speed in thousandths of an A100: the rough order of published
// training throughputs in mixed precision, good enough for demonstrations and scheduling tests,
// not a measurement of ours.
type model struct {
	typ, name   string
	memMiB      int64
	reservedMiB int64
	contextMiB  int64
	speedMilli  int64
	major       int
	minor       int
	idleW       int64
	limitW      int64
}

// models returns the types that can be simulated.
func models() []model {
	return []model{
		{"A10", "NVIDIA A10", 23028, 512, 420, 450, 8, 6, 20, 150},
		{"A100-PCIE-40GB", "NVIDIA A100-PCIE-40GB", 40960, 624, 420, 900, 8, 0, 45, 250},
		{"A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", 40960, 624, 420, 1000, 8, 0, 55, 400},
		{"A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", 81920, 868, 420, 1000, 8, 0, 60, 400},
		{"A6000", "NVIDIA RTX A6000", 49140, 454, 420, 600, 8, 6, 25, 300},
		{"H100-SXM5-80GB", "NVIDIA H100 80GB HBM3", 81559, 570, 530, 1800, 9, 0, 70, 700},
		{"H200", "NVIDIA H200", 143771, 602, 530, 2000, 9, 0, 75, 700},
		{"L4", "NVIDIA L4", 23034, 470, 440, 350, 8, 9, 16, 72},
		{"L40S", "NVIDIA L40S", 46068, 600, 440, 900, 8, 9, 35, 350},
		{"P100-PCIE-16GB", "Tesla P100-PCIE-16GB", 16280, 96, 250, 200, 6, 0, 28, 250},
		{"RTX-3090", "NVIDIA GeForce RTX 3090", 24576, 308, 420, 600, 8, 6, 25, 350},
		{"RTX-4090", "NVIDIA GeForce RTX 4090", 24564, 348, 440, 950, 8, 9, 20, 450},
		{"T4", "Tesla T4", 15360, 446, 290, 250, 7, 5, 10, 70},
		{"V100-SXM2-16GB", "Tesla V100-SXM2-16GB", 16160, 224, 310, 450, 7, 0, 40, 300},
		{"V100-SXM2-32GB", "Tesla V100-SXM2-32GB", 32510, 270, 310, 450, 7, 0, 40, 300},
	}
}

// lookup finds a model by type or by the driver's name, ignoring case.
func lookup(name string) (model, error) {
	norm := gpu.NormalizeType(name)
	for _, m := range models() {
		if strings.EqualFold(m.typ, norm) {
			return m, nil
		}
	}
	return model{}, fmt.Errorf("unknown simulated GPU type %q; known types: %s", name, strings.Join(Types(), ", "))
}

// Types returns the types that can be simulated, sorted.
func Types() []string {
	var names []string
	for _, m := range models() {
		names = append(names, m.typ)
	}
	sort.Strings(names)
	return names
}

// Spec requests simulated GPUs of one type.
type Spec struct {
	Type  string
	Count int
	// MemMiB replaces the type's memory; 0 keeps it.
	MemMiB int64
	// Driver is the version of the driver that they report, "" for none.
	Driver string
	// MIG puts the GPUs into MIG mode, each with one instance of all of it.
	MIG bool
}

// MaxCards is the most GPUs that a node simulates.
const MaxCards = 16

// ParseSpecs parses a comma-separated list such as "2xA100-SXM4-80GB,T4" or "4xRTX-3090:8192",
// where the number after the colon replaces the type's memory in MiB, or
// "2xA100-SXM4-80GB:mig" for GPUs in MIG mode. A driver's version may stand between, such as
// "T4:8192:driver=580.1".
func ParseSpecs(s string) ([]Spec, error) {
	var specs []Spec
	for _, part := range strings.Split(s, ",") {
		part = strings.TrimSpace(part)
		spec := Spec{Type: part, Count: 1}
		if n, rest, ok := strings.Cut(part, "x"); ok {
			if count, err := strconv.Atoi(n); err == nil {
				spec.Count, spec.Type = count, rest
			}
		}
		if typ, ok := strings.CutSuffix(spec.Type, ":mig"); ok {
			spec.Type, spec.MIG = typ, true
		}
		if typ, version, ok := strings.Cut(spec.Type, ":driver="); ok {
			spec.Type, spec.Driver = typ, version
		}
		if typ, mem, ok := strings.Cut(spec.Type, ":"); ok {
			mib, err := strconv.ParseInt(mem, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("simulated GPUs %q: memory %q is not a number of MiB", part, mem)
			}
			spec.Type, spec.MemMiB = typ, mib
		}
		if _, err := spec.check(); err != nil {
			return nil, err
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// check resolves the type and rejects counts and memory sizes that are impossible.
func (s Spec) check() (model, error) {
	m, err := lookup(s.Type)
	if err != nil {
		return model{}, err
	}
	if s.Count < 1 || s.Count > MaxCards {
		return model{}, fmt.Errorf("simulated %s: count %d is outside 1-%d", m.typ, s.Count, MaxCards)
	}
	if s.MemMiB != 0 {
		if low := m.reservedMiB + 2*m.contextMiB; s.MemMiB < low || s.MemMiB > 1<<20 {
			return model{}, fmt.Errorf("simulated %s: memory %d MiB is outside %d-%d", m.typ, s.MemMiB, low, 1<<20)
		}
		m.memMiB = s.MemMiB
	}
	if strings.ContainsFunc(s.Driver, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }) || len(s.Driver) > 32 {
		return model{}, fmt.Errorf("simulated %s: driver %.40q is no version such as 580.65.06", m.typ, s.Driver)
	}
	if s.MIG && len(m.profiles()) == 0 {
		return model{}, fmt.Errorf("simulated %s: has no MIG mode; A100, H100 and H200 have it", m.typ)
	}
	return m, nil
}
