package caps_test

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/agent/gpu/caps"
)

func TestFindOOM(t *testing.T) {
	o := caps.NewOOMLog()
	for _, tc := range []struct {
		name, out, want string
	}{
		{"PyTorch", "step 3\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB\n",
			"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB"},
		{"newer PyTorch", "torch.OutOfMemoryError: HIP out of memory.", "torch.OutOfMemoryError: HIP out of memory."},
		{"older PyTorch", "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB", "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB"},
		{"PyTorch's runtime error", "RuntimeError: CUDA error: out of memory", "RuntimeError: CUDA error: out of memory"},
		{"cuBLAS", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"},
		{"the runtime's name", "error code=2(cudaErrorMemoryAllocation) \"cudaMalloc(&p, n)\"", "error code=2(cudaErrorMemoryAllocation) \"cudaMalloc(&p, n)\""},
		{"the driver's name", "CUDA_ERROR_OUT_OF_MEMORY: out of memory", "CUDA_ERROR_OUT_OF_MEMORY: out of memory"},
		{"JAX", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes."},
		{"TensorFlow", "ResourceExhaustedError: OOM when allocating tensor with shape[1024,1024]", "ResourceExhaustedError: OOM when allocating tensor with shape[1024,1024]"},
		{"the last one counts", "CUDA out of memory: first\nretry\nCUDA out of memory: second\nbye\n", "CUDA out of memory: second"},
		{"terminal's codes are dropped", "\x1b[31mCUDA out of memory\x1b[0m\r\n", "[31mCUDA out of memory[0m"},
		{"host memory", "MemoryError: Unable to allocate 12.0 GiB for an array", ""},
		{"the kernel", "Out of memory: Killed process 123 (python)", ""},
		{"malloc", "OSError: [Errno 12] Cannot allocate memory", ""},
		{"a quota of gRPC", "grpc: RESOURCE_EXHAUSTED: rate limit", ""},
		{"a file of its own", "see OutOfMemoryErrorHandler.py", ""},
		{"nothing", "", ""},
		{"before the tail", "CUDA out of memory\n" + strings.Repeat("x\n", caps.TailBytes), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := o.Find([]byte(tc.out)); got != tc.want {
				t.Errorf("found %q, want %q", got, tc.want)
			}
		})
	}
	long := strings.Repeat("a ", 5000) + "CUDA out of memory" + strings.Repeat(" b", 5000)
	if got := o.Find([]byte(long)); !strings.Contains(got, "CUDA out of memory") || len(got) > 200 {
		t.Errorf("of a long line %d bytes are quoted: %q", len(got), got)
	}
}

func TestAskedOfOOM(t *testing.T) {
	o := caps.NewOOMLog()
	for line, want := range map[string]int64{
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 827.33 MiB is free": 1024,
		"CUDA out of memory. Tried to allocate 2.50 GiB":                                             2560,
		"CUDA out of memory. Tried to allocate 20.00 KiB":                                            1,
		"RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934593 bytes.":               8193,
		"failed to allocate 1.00GiB (1073741824 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY":        1024,
		"CUDA out of memory. Tried to allocate 999999999999999.999 TiB":                              1 << 20,
		"ResourceExhaustedError: OOM when allocating tensor with shape[1024,1024]":                   0,
		"RuntimeError: CUDA error: out of memory":                                                    0,
		"CUDA out of memory. Tried to allocate some bytes":                                           0,
		"CUDA out of memory. Tried to allocate 99999999999999999999999999 GiB":                       0,
		"CUDA out of memory. GPU 0 has a total capacity of 139.80 GiB of which 827.33 MiB is free. ": 0,
	} {
		if got := o.Asked(line); got != want {
			t.Errorf("%q: %d MiB, want %d", line, got, want)
		}
	}
}

func FuzzFindOOM(f *testing.F) {
	f.Add([]byte("torch.cuda.OutOfMemoryError: CUDA out of memory"))
	f.Add([]byte("RESOURCE_EXHAUSTED: Out of memory\n\x00\xff"))
	f.Add([]byte(strings.Repeat("CUBLAS_STATUS_ALLOC_FAILED", 100)))
	o := caps.NewOOMLog()
	f.Fuzz(func(t *testing.T, out []byte) {
		got := o.Find(out)
		if len(got) > 200 {
			t.Fatalf("quotes %d bytes", len(got))
		}
		if asked := o.Asked(got); asked < 0 || asked > 1<<20 {
			t.Fatalf("asked for %d MiB", asked)
		}
		for _, c := range []byte(got) {
			if c < ' ' || c > '~' {
				t.Fatalf("quotes byte %#x", c)
			}
		}
		// What was found is found again behind more output, and in its own line.
		if got != "" && o.Find(append([]byte("step 1\n"), out[max(0, len(out)-caps.TailBytes+16):]...)) == "" && len(out) < caps.TailBytes-16 {
			t.Fatal("lost behind a line of output")
		}
	})
}
