package daemon

import (
	"log/slog"
	"path"
	"slices"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/config"
)

// mpsDir holds the pipes of the MPS daemons, one folder per GPU.
const mpsDir = "/run/berth-mps"

// memCaps returns how the agent holds jobs to their shares of GPU memory.
func memCaps(g config.GPUs, s config.Sharing, parent string, log *slog.Logger) agent.MemCaps {
	host := caps.ReadHost("/")
	policy := caps.Policy{Simulated: caps.Mode(g.SimCaps), Scopes: map[caps.Mode]cluster.Scope{}}
	for _, m := range g.Caps {
		policy.Allowed = append(policy.Allowed, caps.Mode(m))
	}
	for m, word := range map[caps.Mode]string{caps.Dmem: s.Dmem, caps.MPS: s.MPS, caps.Watch: s.Watch} {
		// An unknown word shares nothing; Validate has rejected it already.
		policy.Scopes[m], _ = cluster.ParseScope(word)
	}
	choose := &caps.Chooser{Policy: policy, Host: host}
	c := agent.MemCaps{
		Choose: choose.Choose, Limiter: host.Limiter,
		Watch: caps.WatchConfig{SlackMilli: 1000 + 10*int64(g.Watch.OverPercent), For: g.Watch.For, FloorMiB: int64(g.Watch.FloorMiB)},
		Grace: g.Watch.Grace, Busy: g.Watch.Wait,
		Env: caps.EnvConfig{PyTorchFraction: g.Watch.PyTorchFraction},
	}
	if host.MPSControl != "" && slices.Contains(g.Caps, string(caps.MPS)) {
		c.Daemons = caps.NewDaemons(caps.DaemonsConfig{
			Control: host.MPSControl, Dir: mpsDir, MultiUser: s.MPS != string(cluster.ScopeSameUser), Log: log,
			Place: func(pid int) error { return intoGroup(path.Join("/", parent, "mps"), pid) },
		})
	}
	return c
}

// intoGroup moves a process into a control group without limits.
func intoGroup(name string, pid int) error {
	h, err := cgroup.Detect()
	if err != nil {
		return err
	}
	g := h.Open(name)
	if err := g.Create(cgroup.Limits{}); err != nil {
		return err
	}
	return g.Add(pid)
}
