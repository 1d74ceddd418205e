package gpu

import (
	"strconv"
	"strings"
)

// Env returns the environment that a CUDA job needs to stay on the GPUs of g, in a fixed
// order:
//
//	CUDA_VISIBLE_DEVICES          the GPUs by UUID, in the order of the grant; "" for none
//	CUDA_DEVICE_ORDER             PCI_BUS_ID, so that any index a program prints is nvidia-smi's
//	BERTH_GPU_UUIDS               the same list, for programs of ours
//	BERTH_GPU_MEM_MIB             the shares of memory, comma separated; only with GPUs
//	BERTH_GPU_MILLI               the shares of compute, likewise
//
// Hiding a GPU is a convenience for programs, not a barrier: device rules decide what a
// process can open.
func Env(g Grant) []string {
	var uuids, mem, milli []string
	for _, c := range g.Cards {
		uuids = append(uuids, c.UUID)
		mem = append(mem, strconv.FormatInt(c.MemMiB, 10))
		milli = append(milli, strconv.FormatInt(c.Milli, 10))
	}
	list := strings.Join(uuids, ",")
	env := []string{
		"CUDA_VISIBLE_DEVICES=" + list,
		"CUDA_DEVICE_ORDER=PCI_BUS_ID",
		"BERTH_GPU_UUIDS=" + list,
	}
	if len(uuids) > 0 {
		env = append(env,
			"BERTH_GPU_MEM_MIB="+strings.Join(mem, ","),
			"BERTH_GPU_MILLI="+strings.Join(milli, ","))
	}
	return env
}
