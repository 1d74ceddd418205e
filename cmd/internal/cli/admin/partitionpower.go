package admin

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// powerOptions are the power limit and the clock that a partition sets on whole GPUs.
type powerOptions struct{ cap, freq string }

func (o *powerOptions) add(fs *pflag.FlagSet) {
	fs.StringVar(&o.cap, "power-cap", "", "default power limit of each whole GPU, a `POWER`: watts such as 250W, a percentage of the GPU's default limit such as 70%, or none")
	fs.StringVar(&o.freq, "gpu-freq", "", "default `CLOCK` of each whole GPU: MHz, low, medium, high, highm1, or none")
}

// request adds the changes of the flags.
func (o *powerOptions) request(req *apiv1.SetPartitionRequest, said func(string) bool) error {
	noneIsEmpty := func(text string) string {
		if text == "none" {
			return ""
		}
		return text
	}
	if said("power-cap") {
		most, err := cluster.ParsePowerCap(noneIsEmpty(o.cap))
		if err != nil {
			return console.Usagef("--power-cap: %w; or none", err)
		}
		req.PowerCap = (*string)(&most)
	}
	if said("gpu-freq") {
		freq, err := cluster.ParseGPUFreq(noneIsEmpty(o.freq))
		if err != nil {
			return console.Usagef("--gpu-freq: %w; or none", err)
		}
		req.GpuFreq = (*string)(&freq)
	}
	return nil
}

// powerText describes the default for jobs' whole GPUs, "" for the GPUs' own defaults.
func powerText(p *apiv1.Partition) string {
	var words []string
	if c := p.GetPowerCap(); c != "" {
		words = append(words, "cap "+c)
	}
	if f := p.GetGpuFreq(); f != "" {
		words = append(words, "clock "+f)
	}
	if len(words) == 0 {
		return ""
	}
	return strings.Join(words, ", ") + ", of whole GPUs"
}
