package gpuspec

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

func TestNormalize(t *testing.T) {
	for _, tc := range []struct{ name, want string }{
		{"NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"},
		{"NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"},
		{"A100-SXM4-40GB", "A100-SXM4-40GB"},
		{"NVIDIA A100 80GB PCIe", "A100-PCIE-80GB"},
		{"NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"},
		{"Tesla T4", "T4"},
		{"NVIDIA GeForce RTX 3090", "RTX-3090"},
		{"rtx_3090", "RTX-3090"},
		{"NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"},
		{"NVIDIA H100 PCIe", "H100-PCIE-80GB"},
		{"NVIDIA H100 NVL", "H100-NVL-94GB"},
		{"NVIDIA H200", "H200"},
		{"NVIDIA GH200 480GB", "GH200-96GB"},
		{"NVIDIA B200", "B200"},
		{"Tesla V100-SXM2-32GB", "V100-SXM2-32GB"},
		{"Tesla V100-PCIE-16GB", "V100-PCIE-16GB"},
		{"NVIDIA RTX A6000", "A6000"},
		{"NVIDIA RTX 6000 Ada Generation", "RTX-6000-ADA"},
		{"Quadro RTX 6000", "QUADRO-RTX-6000"},
		{"NVIDIA TITAN RTX", "TITAN-RTX"},
		{"NVIDIA L4", "L4"},
		{"NVIDIA L40S", "L40S"},
		{"NVIDIA A10", "A10"},
		{"Tesla K80", "K80"},
		{"  tesla   p100-pcie-16gb ", "P100-PCIE-16GB"},
		{"NVIDIA Future X 512GB", "FUTURE-X-512GB"},
		{"AMD Instinct MI210", "MI210"},
		{"Tesla K80 (per GPU)", "K80"},
		{"A100 (SXM4 or PCIe, unclear) 40GB", "A100-SXM4-40GB"},
		{"GH200 (Hopper part)", "GH200-96GB"},
		{"RTX PRO 6000 Blackwell Max-Q", "RTX-PRO-6000-MAXQ"},
		{"a) b (c", "A)-B-(C"},
		{"", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Normalize(tc.name); got != tc.want {
				t.Fatalf("Normalize(%q) = %q, want %q", tc.name, got, tc.want)
			}
			if got := Normalize(Normalize(tc.name)); got != tc.want {
				t.Fatalf("a second Normalize gives %q, want %q", got, tc.want)
			}
		})
	}
}

func TestLookup(t *testing.T) {
	for _, tc := range []struct {
		name   string
		known  bool
		memMiB int64
	}{
		{"NVIDIA H200", true, 143771},
		{"Tesla T4", true, 15360},
		{"NVIDIA A100-SXM4-40GB MIG 1g.5gb", false, 5 << 10},
		{"NVIDIA Future X 512GB", false, 512 << 10},
		{"something else", false, 16 << 10},
		{"0GB", false, 16 << 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, ok := Lookup(tc.name)
			if ok != tc.known || s.MemMiB != tc.memMiB {
				t.Fatalf("Lookup = %+v, %v; want %d MiB, %v", s, ok, tc.memMiB, tc.known)
			}
		})
	}
}

func plausible(s Spec) bool {
	for _, v := range []float64{s.FP32TFLOPS, s.BandwidthGBs, float64(s.MemMiB), float64(s.SMs), float64(s.TDPWatt), float64(s.ContextMiB)} {
		if !(v > 0) || math.IsInf(v, 0) {
			return false
		}
	}
	return s.ContextMiB < s.MemMiB
}

func TestTableIsConsistent(t *testing.T) {
	seen := map[string]bool{}
	last := 0.0
	for _, s := range All() {
		if seen[s.Name] || Normalize(s.Name) != s.Name {
			t.Errorf("%s: named twice, or not in normal form", s.Name)
		}
		seen[s.Name] = true
		if !plausible(s) {
			t.Errorf("%s: a figure is missing: %+v", s.Name, s)
		}
		if speed := math.Sqrt(s.BandwidthGBs * max(s.TensorTFLOPS, s.FP32TFLOPS)); speed < last {
			t.Errorf("%s: stands behind a faster type", s.Name)
		} else {
			last = speed
		}
	}
	for alias, name := range aliases {
		if !seen[name] || seen[alias] {
			t.Errorf("alias %s -> %s: must lead from a spelling outside the table into it", alias, name)
		}
	}
}

// TestClocksAndUnitsGiveThePeak: FP32 throughput is two operations a clock on
// each core. Cores per multiprocessor follow from the architecture.
func TestClocksAndUnitsGiveThePeak(t *testing.T) {
	for _, s := range All() {
		cores := int64(128)
		switch {
		case s.Arch == "Kepler":
			cores = 192
		case s.Capability == "6.0" || s.Arch == "Volta" || s.Arch == "Turing" || s.Capability == "8.0" || s.Capability == "":
			cores = 64
		}
		want := float64(2*cores*s.SMs*s.BoostMHz) / 1e6
		if math.Abs(want/s.FP32TFLOPS-1) > 0.03 {
			t.Errorf("%s: %d units at %d MHz make %.1f TFLOPS, the table says %.1f", s.Name, s.SMs, s.BoostMHz, want, s.FP32TFLOPS)
		}
	}
}

func TestEstimateIsPlausible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Estimate("X", rapid.Int64().Draw(t, "mem"))
		if !plausible(s) {
			t.Fatalf("implausible: %+v", s)
		}
	})
}
