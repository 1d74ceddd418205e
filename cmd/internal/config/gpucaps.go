package config

import (
	"slices"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// GPUWatch says when a job that holds more GPU memory than its share is
// ended, and what frameworks are told to avoid that.
type GPUWatch struct {
	// OverPercent is how far above its share a job is tolerated, For how long
	// it may be above that, and Grace the time between SIGUSR1 and SIGTERM.
	OverPercent int           `yaml:"over_percent"`
	For         time.Duration `yaml:"for"`
	Grace       time.Duration `yaml:"grace"`
	// FloorMiB is the free memory of a GPU below which a job above its share
	// is ended at once.
	FloorMiB int `yaml:"floor_mib"`
	// Wait is how long a starting job waits for memory that another job holds
	// before it is requeued.
	Wait time.Duration `yaml:"wait"`
	// PyTorchFraction adds per_process_memory_fraction to PyTorch's settings,
	// which versions before 2.10 do not know and abort at.
	PyTorchFraction bool `yaml:"pytorch_fraction"`
}

// Sharing says whose jobs may be co-located on a GPU, by how its memory is
// capped: anyone, same-group, same-user or never.
type Sharing struct {
	Dmem  string `yaml:"dmem"`
	MPS   string `yaml:"mps"`
	Watch string `yaml:"watch"`
}

func defaultWatch() GPUWatch {
	return GPUWatch{OverPercent: 5, For: 3 * time.Second, Grace: 5 * time.Second, FloorMiB: 1024, Wait: 2 * time.Minute}
}

func defaultSharing() Sharing { return Sharing{Dmem: "anyone", MPS: "same-user", Watch: "same-user"} }

// capModes are what gpus.caps may list.
func capModes() []string { return []string{"dmem", "mig", "mps", "watch"} }

// gpuOffer checks which GPUs are offered.
func (p *Problems) gpuOffer(only gpu.Offer) {
	for i, item := range only {
		if err := only.Check(item); err != nil {
			p.addf(indexed("gpus.only", i), "%v", err)
		}
	}
}

func (p *Problems) gpuCaps(g GPUs, s Sharing) {
	for i, m := range g.Caps {
		p.oneOf(indexed("gpus.caps", i), m, capModes()...)
		if k := slices.Index(g.Caps, m); k < i {
			p.addf(indexed("gpus.caps", i), "%q is also gpus.caps[%d]", m, k)
		}
	}
	p.oneOf("gpus.sim_caps", g.SimCaps, "sim", "watch")
	p.number("gpus.watch.over_percent", g.Watch.OverPercent, 0, 100)
	p.span("gpus.watch.for", g.Watch.For, 250*time.Millisecond, 10*time.Minute)
	p.span("gpus.watch.grace", g.Watch.Grace, time.Millisecond, time.Hour)
	p.number("gpus.watch.floor_mib", g.Watch.FloorMiB, 0, 1<<20)
	p.span("gpus.watch.wait", g.Watch.Wait, time.Second, 24*time.Hour)
	for _, k := range []struct{ key, val string }{{"sharing.dmem", s.Dmem}, {"sharing.mps", s.MPS}, {"sharing.watch", s.Watch}} {
		p.oneOf(k.key, k.val, "anyone", "same-group", "same-user", "never")
	}
}
