package gpu_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent/gpu"
)

func TestNormalizeType(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"NVIDIA A100-SXM4-80GB":            "A100-SXM4-80GB",
		"A100-SXM4-80GB":                   "A100-SXM4-80GB",
		"NVIDIA A100-PCIE-40GB":            "A100-PCIE-40GB",
		"NVIDIA A100 80GB PCIe":            "A100-PCIE-80GB",
		"Tesla T4":                         "T4",
		"Tesla V100-SXM2-32GB":             "V100-SXM2-32GB",
		"Tesla P100-PCIE-16GB":             "P100-PCIE-16GB",
		"NVIDIA GeForce RTX 3090":          "RTX-3090",
		"GeForce RTX 2080 Ti":              "RTX-2080-TI",
		"NVIDIA GeForce GTX 1080 Ti":       "GTX-1080-TI",
		"NVIDIA RTX A6000":                 "A6000",
		"NVIDIA RTX 6000 Ada Generation":   "RTX-6000-ADA",
		"Quadro RTX 6000":                  "QUADRO-RTX-6000",
		"NVIDIA TITAN RTX":                 "TITAN-RTX",
		"NVIDIA H100 NVL":                  "H100-NVL-94GB",
		"NVIDIA GH200 480GB":               "GH200-96GB",
		"rtx_3090":                         "RTX-3090",
		"NVIDIA A100-SXM4-40GB MIG 1g.5gb": "A100-SXM4-40GB-MIG-1G.5GB",
		"NVIDIA H100 80GB HBM3":            "H100-SXM5-80GB",
		"NVIDIA H100 PCIe":                 "H100-PCIE-80GB",
		"NVIDIA H200":                      "H200",
		"NVIDIA L4":                        "L4",
		"NVIDIA L40S":                      "L40S",
		"NVIDIA A10":                       "A10",
		"  NVIDIA   GeForce  RTX  4090  ":  "RTX-4090",
		"NVIDIA":                           "NVIDIA",
		"":                                 "",
	} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			if got := gpu.NormalizeType(in); got != want {
				t.Errorf("NormalizeType(%q) = %q, want %q", in, got, want)
			}
		})
	}
}

func FuzzNormalizeType(f *testing.F) {
	f.Add("NVIDIA GeForce RTX 3090")
	f.Add("RTX RTX A6000")
	f.Add("NVIDIA H100 80GB HBM3")
	f.Fuzz(func(t *testing.T, name string) {
		once := gpu.NormalizeType(name)
		if strings.ContainsAny(once, " \t") {
			t.Errorf("NormalizeType(%q) = %q keeps a space", name, once)
		}
		if twice := gpu.NormalizeType(once); twice != once {
			t.Errorf("NormalizeType is not idempotent: %q → %q → %q", name, once, twice)
		}
	})
}

func TestEnv(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		cards []gpu.GrantCard
		want  []string
	}{
		{
			name: "no card hides every card",
			want: []string{"CUDA_VISIBLE_DEVICES=", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "BERTH_GPU_UUIDS="},
		},
		{
			name:  "shared card",
			cards: []gpu.GrantCard{{UUID: "GPU-b", MemMiB: 6144, Milli: 400}},
			want: []string{
				"CUDA_VISIBLE_DEVICES=GPU-b", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "BERTH_GPU_UUIDS=GPU-b",
				"BERTH_GPU_MEM_MIB=6144", "BERTH_GPU_MILLI=400",
			},
		},
		{
			name:  "two whole cards keep the order of the grant",
			cards: []gpu.GrantCard{{UUID: "GPU-b", Milli: 1000, Exclusive: true}, {UUID: "GPU-a", Milli: 1000, Exclusive: true}},
			want: []string{
				"CUDA_VISIBLE_DEVICES=GPU-b,GPU-a", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "BERTH_GPU_UUIDS=GPU-b,GPU-a",
				"BERTH_GPU_MEM_MIB=0,0", "BERTH_GPU_MILLI=1000,1000",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(tc.want, gpu.Env(gpu.Grant{Attempt: "j1-a1", Cards: tc.cards})); d != "" {
				t.Errorf("environment (-want +got):\n%s", d)
			}
		})
	}
}

func TestGrantValidate(t *testing.T) {
	t.Parallel()
	ok := gpu.GrantCard{UUID: "GPU-a", MemMiB: 10, Milli: 100}
	for _, tc := range []struct {
		name string
		g    gpu.Grant
		want string // part of the message, "" for none
	}{
		{"good", gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{ok}}, ""},
		{"no card", gpu.Grant{Attempt: "j1-a1"}, ""},
		{"no attempt", gpu.Grant{Cards: []gpu.GrantCard{ok}}, "without an attempt"},
		{"twice", gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{ok, ok}}, "named twice"},
		{"no uuid", gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{{MemMiB: 1}}}, "without a UUID"},
		{"shared without memory", gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{{UUID: "GPU-a"}}}, "at least 1 MiB"},
		{"negative memory", gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{{UUID: "GPU-a", MemMiB: -1, Exclusive: true}}}, "memory -1 MiB"},
		{"compute", gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{{UUID: "GPU-a", MemMiB: 1, Milli: 1001}}}, "outside 0-1000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := tc.g.Validate()
			if tc.want == "" && err != nil {
				t.Fatalf("refused: %v", err)
			}
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("got error %v, want one with %q", err, tc.want)
			}
		})
	}
}
