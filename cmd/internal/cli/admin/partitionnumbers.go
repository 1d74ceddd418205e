package admin

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// hostOptions are a partition's defaults for jobs that request no host memory or cores.
type hostOptions struct{ memPerGPU, cpusPerGPU, leastMem, leastCPUs string }

func (o *hostOptions) add(fs *pflag.FlagSet) {
	fs.StringVar(&o.memPerGPU, "def-mem-per-gpu", "", "default host memory per GPU if none is requested or predicted, a `SIZE`, or none (DefMemPerGPU)")
	fs.StringVar(&o.cpusPerGPU, "def-cpus-per-gpu", "", "default cores per GPU likewise, a `NUMBER`, or none (DefCpuPerGPU)")
	fs.StringVar(&o.leastMem, "least-mem", "", "minimum predicted host memory of a job with GPUs, a `SIZE`; none is 2 GiB")
	fs.StringVar(&o.leastCPUs, "least-cpus", "", "minimum predicted cores likewise, a `NUMBER`; none is 1")
}

// numbers adds the changes of the flags that take a number, or none.
func (o *partitionOptions) numbers(req *apiv1.SetPartitionRequest, said func(string) bool) error {
	for _, f := range []struct {
		flag, text string
		parse      func(string) (int64, error)
		to         **int64
	}{
		{"max-gpus", o.maxGPUs, countOf, &req.MaxGpus},
		{"def-mem-per-gpu", o.host.memPerGPU, units.ParseMiB, &req.MemPerGpuMib}, {"def-cpus-per-gpu", o.host.cpusPerGPU, coresMilli, &req.CpuPerGpuMilli},
		{"least-mem", o.host.leastMem, units.ParseMiB, &req.LeastMemMib}, {"least-cpus", o.host.leastCPUs, coresMilli, &req.LeastCpuMilli},
	} {
		if !said(f.flag) {
			continue
		}
		n := int64(0)
		if f.text != "none" {
			var err error
			if n, err = f.parse(f.text); err != nil {
				return console.Usagef("--%s: %w; or none", f.flag, err)
			}
		}
		*f.to = &n
	}
	return nil
}

// hostText describes a partition's defaults, "" for none of its own.
func hostText(h *apiv1.HostTerms) string {
	var out []string
	for _, n := range []struct {
		v    int64
		text string
	}{
		{h.GetMemPerGpuMib(), units.FormatMiB(h.GetMemPerGpuMib()) + " a GPU"}, {h.GetCpuPerGpuMilli(), console.CoresText(h.GetCpuPerGpuMilli()) + " a GPU"},
		{h.GetLeastMemMib(), "at least " + units.FormatMiB(h.GetLeastMemMib()) + " predicted"}, {h.GetLeastCpuMilli(), "at least " + console.CoresText(h.GetLeastCpuMilli()) + " predicted"},
	} {
		if n.v > 0 {
			out = append(out, n.text)
		}
	}
	return strings.Join(out, ", ")
}

// maxCores is far more than nodes have.
const maxCores = 1000

// coresMilli reads a number of cores, such as 4 or 1.5.
func coresMilli(text string) (int64, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0.001 && n <= maxCores) {
		return 0, fmt.Errorf("%s: want a number of cores from 0.001 to %d", console.ShortQuote(text), maxCores)
	}
	return int64(math.Round(n * 1000)), nil
}

type hostView struct {
	MemPerGPUMiB int64   `json:"mem_per_gpu_mib"`
	CPUsPerGPU   float64 `json:"cpus_per_gpu"`
	LeastMemMiB  int64   `json:"least_mem_mib"`
	LeastCPUs    float64 `json:"least_cpus"`
}

func viewHost(h *apiv1.HostTerms) hostView {
	return hostView{
		MemPerGPUMiB: h.GetMemPerGpuMib(), CPUsPerGPU: float64(h.GetCpuPerGpuMilli()) / 1000,
		LeastMemMiB: h.GetLeastMemMib(), LeastCPUs: float64(h.GetLeastCpuMilli()) / 1000,
	}
}

// countOf reads a number of GPUs; the coordinator checks its upper limit.
func countOf(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s: want a number of at least 1", console.ShortQuote(text))
	}
	return n, nil
}
