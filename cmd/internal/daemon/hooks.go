package daemon

import (
	"log/slog"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/hooks"
	"github.com/berth-scheduler/berth/agent/launcher"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/config"
)

// openHooks gives the agent the programs that the node's operators run
// before and after jobs.
func openHooks(cfg *config.Agent, ac *agent.Config, log *slog.Logger) error {
	if cfg.Jobs.Prolog == "" && cfg.Jobs.Epilog == "" {
		return nil
	}
	h, err := hooks.Open(hooks.Config{
		Prolog: cfg.Jobs.Prolog, Epilog: cfg.Jobs.Epilog, Timeout: cfg.Jobs.HookTimeout, CgroupParent: cfg.Cgroup.Parent,
		Log: log.With("component", "hooks"),
	})
	if err != nil {
		return err
	}
	ac.Hooks = h
	return nil
}

// networks returns what jobs of a node see of its network, whatever runs them.
func networks(c config.Containers) launcher.Networks {
	n := launcher.Networks{Default: cluster.Network(c.Network)}
	for _, name := range c.Networks {
		n.Allowed = append(n.Allowed, cluster.Network(name))
	}
	return n
}
