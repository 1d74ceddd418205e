package caps

import (
	"strconv"
	"strings"
)

// EnvConfig configures the environment of jobs that share a GPU.
type EnvConfig struct {
	// PyTorchFraction limits PyTorch's allocator to the job's share by
	// per_process_memory_fraction. A PyTorch that does not know the key fails at startup,
	// so it should be set only where a site knows its versions.
	PyTorchFraction bool
}

// Names of variables that frameworks read.
const (
	tfGrowth      = "TF_FORCE_GPU_ALLOW_GROWTH"
	xlaPrealloc   = "XLA_PYTHON_CLIENT_PREALLOCATE"
	xlaFraction   = "XLA_PYTHON_CLIENT_MEM_FRACTION"
	xlaAllocator  = "XLA_PYTHON_CLIENT_ALLOCATOR"
	torchConf     = "PYTORCH_CUDA_ALLOC_CONF"
	torchConfNew  = "PYTORCH_ALLOC_CONF"
	torchFraction = "per_process_memory_fraction"
)

// FrameworkEnv returns env with variables that keep frameworks from taking the whole GPU at
// startup: TensorFlow grows its memory, JAX does not preallocate, and PyTorch, where c says
// so, stays within the job's share of the GPU. The user's own settings are kept; ours are
// added to PyTorch's unless already there. share and total are MiB on the job's smallest
// share; total 0 leaves PyTorch alone. env is not changed.
func FrameworkEnv(env []string, c EnvConfig, share, total int64) []string {
	at := make(map[string]int, len(env))
	for i, line := range env {
		key, _, _ := strings.Cut(line, "=")
		at[key] = i
	}
	has := func(key string) bool { _, ok := at[key]; return ok }
	out := append([]string(nil), env...)
	if !has(tfGrowth) {
		out = append(out, tfGrowth+"=true")
	}
	if !has(xlaPrealloc) && !has(xlaFraction) && !has(xlaAllocator) {
		out = append(out, xlaPrealloc+"=false")
	}
	if !c.PyTorchFraction || share <= 0 || total <= 0 || share >= total {
		return out
	}
	ours := torchFraction + ":" + fraction(share, total)
	for _, key := range []string{torchConfNew, torchConf} {
		i, ok := at[key]
		if !ok {
			continue
		}
		_, val, _ := strings.Cut(out[i], "=")
		out[i] = key + "=" + addSetting(val, ours)
		return out
	}
	return append(out, torchConf+"="+ours)
}

// addSetting adds "key:value" to a list of such settings, unless the key is there.
func addSetting(list, ours string) string {
	key, _, _ := strings.Cut(ours, ":")
	list = strings.TrimRight(strings.TrimSpace(list), ",")
	for _, part := range strings.Split(list, ",") {
		if k, _, _ := strings.Cut(part, ":"); strings.TrimSpace(k) == key {
			return list
		}
	}
	if list == "" {
		return ours
	}
	return list + "," + ours
}

// fraction formats share/total rounded down to four decimal places: it must never exceed
// the share.
func fraction(share, total int64) string {
	v := max(1, share*10000/total)
	return "0." + strings.Repeat("0", 4-len(strconv.FormatInt(v, 10))) + strconv.FormatInt(v, 10)
}
