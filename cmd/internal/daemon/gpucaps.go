package daemon

import (
	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/cmd/internal/config"
)

// memCaps is how the agent holds jobs to their shares of GPU memory.
func memCaps(g config.GPUs) agent.MemCaps {
	return agent.MemCaps{
		Watch: caps.WatchConfig{SlackMilli: 1000 + 10*int64(g.Watch.OverPercent), For: g.Watch.For, FloorMiB: int64(g.Watch.FloorMiB)},
		Grace: g.Watch.Grace, Busy: g.Watch.Wait,
		Env: caps.EnvConfig{PyTorchFraction: g.Watch.PyTorchFraction},
	}
}
