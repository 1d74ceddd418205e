package caps_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent/gpu/caps"
)

func TestFrameworkEnv(t *testing.T) {
	const tf, xla = "TF_FORCE_GPU_ALLOW_GROWTH=true", "XLA_PYTHON_CLIENT_PREALLOCATE=false"
	for _, tc := range []struct {
		name         string
		torch        bool
		env          []string
		share, total int64
		want         []string
	}{
		{"defaults", false, []string{"A=b"}, 1000, 10_000, []string{"A=b", tf, xla}},
		{"the user's TensorFlow setting wins", false, []string{"TF_FORCE_GPU_ALLOW_GROWTH=false"}, 1, 2, []string{"TF_FORCE_GPU_ALLOW_GROWTH=false", xla}},
		{"an empty one too", false, []string{"TF_FORCE_GPU_ALLOW_GROWTH="}, 1, 2, []string{"TF_FORCE_GPU_ALLOW_GROWTH=", xla}},
		{"the user's JAX fraction wins", false, []string{"XLA_PYTHON_CLIENT_MEM_FRACTION=.3"}, 1, 2, []string{"XLA_PYTHON_CLIENT_MEM_FRACTION=.3", tf}},
		{"the user's JAX preallocation wins", false, []string{"XLA_PYTHON_CLIENT_PREALLOCATE=true"}, 1, 2, []string{"XLA_PYTHON_CLIENT_PREALLOCATE=true", tf}},
		{"the user's JAX allocator wins", false, []string{"XLA_PYTHON_CLIENT_ALLOCATOR=platform"}, 1, 2, []string{"XLA_PYTHON_CLIENT_ALLOCATOR=platform", tf}},
		{"PyTorch where a site wants it", true, nil, 2500, 10_000, []string{tf, xla, "PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.2500"}},
		{"rounded down", true, nil, 1, 3, []string{tf, xla, "PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.3333"}},
		{"a tiny share", true, nil, 1, 1 << 20, []string{tf, xla, "PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.0001"}},
		{"merged, not replaced", true, []string{"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128"}, 1, 4,
			[]string{"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128,per_process_memory_fraction:0.2500", tf, xla}},
		{"into the newer name", true, []string{"PYTORCH_ALLOC_CONF=expandable_segments:True,"}, 1, 4,
			[]string{"PYTORCH_ALLOC_CONF=expandable_segments:True,per_process_memory_fraction:0.2500", tf, xla}},
		{"into an empty one", true, []string{"PYTORCH_CUDA_ALLOC_CONF="}, 1, 4, []string{"PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.2500", tf, xla}},
		{"the user's own fraction wins", true, []string{"PYTORCH_CUDA_ALLOC_CONF=a:b, per_process_memory_fraction:0.9"}, 1, 4,
			[]string{"PYTORCH_CUDA_ALLOC_CONF=a:b, per_process_memory_fraction:0.9", tf, xla}},
		{"an option with brackets", true, []string{"PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions:[256:1,512:2,>:8]"}, 1, 4,
			[]string{"PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions:[256:1,512:2,>:8],per_process_memory_fraction:0.2500", tf, xla}},
		{"the size of the card is not known", true, nil, 1000, 0, []string{tf, xla}},
		{"the whole card", true, nil, 1000, 1000, []string{tf, xla}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := strings.Join(tc.env, "\n")
			got := caps.FrameworkEnv(tc.env, caps.EnvConfig{PyTorchFraction: tc.torch}, tc.share, tc.total)
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if strings.Join(tc.env, "\n") != before {
				t.Error("the argument was changed")
			}
		})
	}
}
