package gpuspec

// table holds the published figures of each type, slowest first by the
// geometric mean of memory bandwidth and matrix throughput. Sources: NVIDIA's
// data sheets and architecture white papers (Kepler to Blackwell) and the
// compute capability list of https://developer.nvidia.com/cuda-gpus; memory is
// what nvidia-smi reports as total, which drivers and ECC move by some tens of
// MiB, so a scheduler uses NVML's own number where it has one. Tensor is the
// dense FP16/BF16 rate with FP32 accumulation: GeForce cards have half of the
// advertised one. K80 and M60 are half a board, as the driver shows them.
// ContextMiB is a rough figure by architecture, not measured type by type: what
// a bare context takes moves by some hundred MiB with driver and CUDA version.
var table = [...]Spec{
	{Name: "M60", Arch: "Maxwell", Capability: "5.2", MemMiB: 8129, SMs: 16, FP32TFLOPS: 4.8, TensorTFLOPS: 0, BandwidthGBs: 160.4, TDPWatt: 150, ContextMiB: 170},
	{Name: "K80", Arch: "Kepler", Capability: "3.7", MemMiB: 11441, SMs: 13, FP32TFLOPS: 4.1, TensorTFLOPS: 0, BandwidthGBs: 240.6, TDPWatt: 150, ContextMiB: 160},
	{Name: "P4", Arch: "Pascal", Capability: "6.1", MemMiB: 7611, SMs: 20, FP32TFLOPS: 5.7, TensorTFLOPS: 0, BandwidthGBs: 192, TDPWatt: 75, ContextMiB: 250},
	{Name: "GTX-1080", Arch: "Pascal", Capability: "6.1", MemMiB: 8119, SMs: 20, FP32TFLOPS: 8.9, TensorTFLOPS: 0, BandwidthGBs: 320.3, TDPWatt: 180, ContextMiB: 250},
	{Name: "A2", Arch: "Ampere", Capability: "8.6", MemMiB: 15356, SMs: 10, FP32TFLOPS: 4.5, TensorTFLOPS: 18, BandwidthGBs: 200, TDPWatt: 60, ContextMiB: 420},
	{Name: "P40", Arch: "Pascal", Capability: "6.1", MemMiB: 22919, SMs: 30, FP32TFLOPS: 11.8, TensorTFLOPS: 0, BandwidthGBs: 345.6, TDPWatt: 250, ContextMiB: 250},
	{Name: "GTX-1080-TI", Arch: "Pascal", Capability: "6.1", MemMiB: 11178, SMs: 28, FP32TFLOPS: 11.3, TensorTFLOPS: 0, BandwidthGBs: 484.4, TDPWatt: 250, ContextMiB: 250},
	{Name: "P100-PCIE-16GB", Arch: "Pascal", Capability: "6.0", MemMiB: 16280, SMs: 56, FP32TFLOPS: 9.5, TensorTFLOPS: 0, BandwidthGBs: 732.2, TDPWatt: 250, ContextMiB: 250},
	{Name: "P100-SXM2-16GB", Arch: "Pascal", Capability: "6.0", MemMiB: 16280, SMs: 56, FP32TFLOPS: 10.6, TensorTFLOPS: 0, BandwidthGBs: 732.2, TDPWatt: 300, ContextMiB: 250},
	{Name: "RTX-3060", Arch: "Ampere", Capability: "8.6", MemMiB: 12288, SMs: 28, FP32TFLOPS: 12.7, TensorTFLOPS: 25.6, BandwidthGBs: 360, TDPWatt: 170, ContextMiB: 420},
	{Name: "RTX-2070-SUPER", Arch: "Turing", Capability: "7.5", MemMiB: 7982, SMs: 40, FP32TFLOPS: 9.1, TensorTFLOPS: 36.2, BandwidthGBs: 448, TDPWatt: 215, ContextMiB: 290},
	{Name: "RTX-2080", Arch: "Turing", Capability: "7.5", MemMiB: 7982, SMs: 46, FP32TFLOPS: 10.1, TensorTFLOPS: 40.3, BandwidthGBs: 448, TDPWatt: 215, ContextMiB: 290},
	{Name: "RTX-3070", Arch: "Ampere", Capability: "8.6", MemMiB: 7982, SMs: 46, FP32TFLOPS: 20.3, TensorTFLOPS: 40.6, BandwidthGBs: 448, TDPWatt: 220, ContextMiB: 420},
	{Name: "T4", Arch: "Turing", Capability: "7.5", MemMiB: 15360, SMs: 40, FP32TFLOPS: 8.1, TensorTFLOPS: 65.1, BandwidthGBs: 320, TDPWatt: 70, ContextMiB: 290},
	{Name: "RTX-2080-TI", Arch: "Turing", Capability: "7.5", MemMiB: 11019, SMs: 68, FP32TFLOPS: 13.4, TensorTFLOPS: 53.8, BandwidthGBs: 616, TDPWatt: 250, ContextMiB: 290},
	{Name: "A4000", Arch: "Ampere", Capability: "8.6", MemMiB: 16376, SMs: 48, FP32TFLOPS: 19.2, TensorTFLOPS: 76.7, BandwidthGBs: 448, TDPWatt: 140, ContextMiB: 420},
	{Name: "L4", Arch: "Ada", Capability: "8.9", MemMiB: 23034, SMs: 58, FP32TFLOPS: 30.3, TensorTFLOPS: 121, BandwidthGBs: 300, TDPWatt: 72, ContextMiB: 440},
	{Name: "A10G", Arch: "Ampere", Capability: "8.6", MemMiB: 23028, SMs: 80, FP32TFLOPS: 35, TensorTFLOPS: 70, BandwidthGBs: 600, TDPWatt: 300, ContextMiB: 420},
	{Name: "RTX-3080", Arch: "Ampere", Capability: "8.6", MemMiB: 10018, SMs: 68, FP32TFLOPS: 29.8, TensorTFLOPS: 59.5, BandwidthGBs: 760.3, TDPWatt: 320, ContextMiB: 420},
	{Name: "RTX-3090", Arch: "Ampere", Capability: "8.6", MemMiB: 24268, SMs: 82, FP32TFLOPS: 35.6, TensorTFLOPS: 71, BandwidthGBs: 936.2, TDPWatt: 350, ContextMiB: 420},
	{Name: "RTX-4080", Arch: "Ada", Capability: "8.9", MemMiB: 16376, SMs: 76, FP32TFLOPS: 48.7, TensorTFLOPS: 97.5, BandwidthGBs: 716.8, TDPWatt: 320, ContextMiB: 440},
	{Name: "A10", Arch: "Ampere", Capability: "8.6", MemMiB: 23028, SMs: 72, FP32TFLOPS: 31.2, TensorTFLOPS: 125, BandwidthGBs: 600, TDPWatt: 150, ContextMiB: 420},
	{Name: "A5000", Arch: "Ampere", Capability: "8.6", MemMiB: 24564, SMs: 64, FP32TFLOPS: 27.8, TensorTFLOPS: 111.1, BandwidthGBs: 768, TDPWatt: 230, ContextMiB: 420},
	{Name: "QUADRO-RTX-6000", Arch: "Turing", Capability: "7.5", MemMiB: 24220, SMs: 72, FP32TFLOPS: 16.3, TensorTFLOPS: 130.5, BandwidthGBs: 672, TDPWatt: 260, ContextMiB: 290},
	{Name: "QUADRO-RTX-8000", Arch: "Turing", Capability: "7.5", MemMiB: 48601, SMs: 72, FP32TFLOPS: 16.3, TensorTFLOPS: 130.5, BandwidthGBs: 672, TDPWatt: 260, ContextMiB: 290},
	{Name: "TITAN-RTX", Arch: "Turing", Capability: "7.5", MemMiB: 24220, SMs: 72, FP32TFLOPS: 16.3, TensorTFLOPS: 130.5, BandwidthGBs: 672, TDPWatt: 280, ContextMiB: 290},
	{Name: "V100-PCIE-16GB", Arch: "Volta", Capability: "7.0", MemMiB: 16160, SMs: 80, FP32TFLOPS: 14.1, TensorTFLOPS: 112, BandwidthGBs: 897, TDPWatt: 250, ContextMiB: 310},
	{Name: "V100-PCIE-32GB", Arch: "Volta", Capability: "7.0", MemMiB: 32510, SMs: 80, FP32TFLOPS: 14.1, TensorTFLOPS: 112, BandwidthGBs: 897, TDPWatt: 250, ContextMiB: 310},
	{Name: "A40", Arch: "Ampere", Capability: "8.6", MemMiB: 46068, SMs: 84, FP32TFLOPS: 37.4, TensorTFLOPS: 149.7, BandwidthGBs: 695.8, TDPWatt: 300, ContextMiB: 420},
	{Name: "RTX-5080", Arch: "Blackwell", Capability: "12.0", MemMiB: 16303, SMs: 84, FP32TFLOPS: 56.3, TensorTFLOPS: 112.6, BandwidthGBs: 960, TDPWatt: 360, ContextMiB: 560},
	{Name: "V100-SXM2-16GB", Arch: "Volta", Capability: "7.0", MemMiB: 16160, SMs: 80, FP32TFLOPS: 15.7, TensorTFLOPS: 125, BandwidthGBs: 897, TDPWatt: 300, ContextMiB: 310},
	{Name: "V100-SXM2-32GB", Arch: "Volta", Capability: "7.0", MemMiB: 32510, SMs: 80, FP32TFLOPS: 15.7, TensorTFLOPS: 125, BandwidthGBs: 897, TDPWatt: 300, ContextMiB: 310},
	{Name: "A6000", Arch: "Ampere", Capability: "8.6", MemMiB: 49140, SMs: 84, FP32TFLOPS: 38.7, TensorTFLOPS: 154.8, BandwidthGBs: 768, TDPWatt: 300, ContextMiB: 420},
	{Name: "A30", Arch: "Ampere", Capability: "8.0", MemMiB: 24576, SMs: 56, FP32TFLOPS: 10.3, TensorTFLOPS: 165, BandwidthGBs: 933.1, TDPWatt: 165, ContextMiB: 420},
	{Name: "L40", Arch: "Ada", Capability: "8.9", MemMiB: 46068, SMs: 142, FP32TFLOPS: 90.5, TensorTFLOPS: 181.1, BandwidthGBs: 864, TDPWatt: 300, ContextMiB: 440},
	{Name: "RTX-4090", Arch: "Ada", Capability: "8.9", MemMiB: 24564, SMs: 128, FP32TFLOPS: 82.6, TensorTFLOPS: 165.2, BandwidthGBs: 1008, TDPWatt: 450, ContextMiB: 440},
	{Name: "L40S", Arch: "Ada", Capability: "8.9", MemMiB: 46068, SMs: 142, FP32TFLOPS: 91.6, TensorTFLOPS: 362.1, BandwidthGBs: 864, TDPWatt: 350, ContextMiB: 440},
	{Name: "RTX-6000-ADA", Arch: "Ada", Capability: "8.9", MemMiB: 49140, SMs: 142, FP32TFLOPS: 91.1, TensorTFLOPS: 364.2, BandwidthGBs: 960, TDPWatt: 300, ContextMiB: 440},
	{Name: "RTX-5090", Arch: "Blackwell", Capability: "12.0", MemMiB: 32607, SMs: 170, FP32TFLOPS: 104.8, TensorTFLOPS: 209.5, BandwidthGBs: 1792, TDPWatt: 575, ContextMiB: 560},
	{Name: "A100-PCIE-40GB", Arch: "Ampere", Capability: "8.0", MemMiB: 40960, SMs: 108, FP32TFLOPS: 19.5, TensorTFLOPS: 312, BandwidthGBs: 1555.2, TDPWatt: 250, ContextMiB: 420},
	{Name: "A100-SXM4-40GB", Arch: "Ampere", Capability: "8.0", MemMiB: 40960, SMs: 108, FP32TFLOPS: 19.5, TensorTFLOPS: 312, BandwidthGBs: 1555.2, TDPWatt: 400, ContextMiB: 420},
	{Name: "A100-PCIE-80GB", Arch: "Ampere", Capability: "8.0", MemMiB: 81920, SMs: 108, FP32TFLOPS: 19.5, TensorTFLOPS: 312, BandwidthGBs: 1935.4, TDPWatt: 300, ContextMiB: 420},
	{Name: "A100-SXM4-80GB", Arch: "Ampere", Capability: "8.0", MemMiB: 81920, SMs: 108, FP32TFLOPS: 19.5, TensorTFLOPS: 312, BandwidthGBs: 2039, TDPWatt: 400, ContextMiB: 420},
	{Name: "RTX-PRO-6000-MAXQ", Arch: "Blackwell", Capability: "12.0", MemMiB: 97887, SMs: 188, FP32TFLOPS: 110.1, TensorTFLOPS: 438, BandwidthGBs: 1792, TDPWatt: 300, ContextMiB: 560},
	{Name: "H100-PCIE-80GB", Arch: "Hopper", Capability: "9.0", MemMiB: 81559, SMs: 114, FP32TFLOPS: 51.2, TensorTFLOPS: 756.5, BandwidthGBs: 2039, TDPWatt: 350, ContextMiB: 530},
	{Name: "H100-NVL-94GB", Arch: "Hopper", Capability: "9.0", MemMiB: 95830, SMs: 132, FP32TFLOPS: 60.3, TensorTFLOPS: 835.5, BandwidthGBs: 3938, TDPWatt: 400, ContextMiB: 530},
	{Name: "H100-SXM5-80GB", Arch: "Hopper", Capability: "9.0", MemMiB: 81559, SMs: 132, FP32TFLOPS: 66.9, TensorTFLOPS: 989.5, BandwidthGBs: 3352.3, TDPWatt: 700, ContextMiB: 530},
	{Name: "GH200-96GB", Arch: "Hopper", Capability: "9.0", MemMiB: 97871, SMs: 132, FP32TFLOPS: 66.9, TensorTFLOPS: 989.5, BandwidthGBs: 4000, TDPWatt: 700, ContextMiB: 530},
	{Name: "H200", Arch: "Hopper", Capability: "9.0", MemMiB: 143771, SMs: 132, FP32TFLOPS: 66.9, TensorTFLOPS: 989.5, BandwidthGBs: 4801.5, TDPWatt: 700, ContextMiB: 530},
	{Name: "B200", Arch: "Blackwell", Capability: "10.0", MemMiB: 183359, SMs: 148, FP32TFLOPS: 74.5, TensorTFLOPS: 2250, BandwidthGBs: 7680, TDPWatt: 1000, ContextMiB: 560},
}

// aliases maps other spellings, in normal form, to the names of the table:
// what NVML prints where that differs, and what people write for short.
var aliases = map[string]string{
	"1080TI":                  "GTX-1080-TI",
	"2080TI":                  "RTX-2080-TI",
	"A100":                    "A100-SXM4-80GB",
	"A100-80GB-PCIE":          "A100-PCIE-80GB",
	"GH200":                   "GH200-96GB",
	"GH200-480GB":             "GH200-96GB",
	"H100":                    "H100-SXM5-80GB",
	"H100-80GB-HBM3":          "H100-SXM5-80GB",
	"H100-NVL":                "H100-NVL-94GB",
	"H100-PCIE":               "H100-PCIE-80GB",
	"H100-SXM":                "H100-SXM5-80GB",
	"H100-SXM5":               "H100-SXM5-80GB",
	"H200-141GB-HBM3E":        "H200",
	"H200-SXM":                "H200",
	"P100":                    "P100-PCIE-16GB",
	"P100-SXM2":               "P100-SXM2-16GB",
	"RTX-2070S":               "RTX-2070-SUPER",
	"RTX-3080-10GB":           "RTX-3080",
	"RTX-6000-ADA-GENERATION": "RTX-6000-ADA",
	"RTX-A4000":               "A4000",
	"RTX-A5000":               "A5000",
	"RTX-A6000":               "A6000",
	"RTX-PRO-6000-BLACKWELL-MAX-Q-WORKSTATION":         "RTX-PRO-6000-MAXQ",
	"RTX-PRO-6000-BLACKWELL-MAX-Q-WORKSTATION-EDITION": "RTX-PRO-6000-MAXQ",
	"V100":         "V100-SXM2-32GB",
	"V100-32":      "V100-PCIE-32GB",
	"V100-PCIE":    "V100-PCIE-16GB",
	"V100-SXM2":    "V100-SXM2-16GB",
	"V100-SXM2-32": "V100-SXM2-32GB",
	"V100M32":      "V100-SXM2-32GB",
}
