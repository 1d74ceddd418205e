package daemon

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/gpu/cdi"
	"github.com/berth-scheduler/berth/cmd/internal/config"
)

// testAgain is how long GPUs are withheld after a failed self-test.
const testAgain = 5 * time.Minute

// newDevices reads the specifications of the node's GPUs as cfg says.
func newDevices(cfg *config.Agent) (*cdi.Injector, error) {
	c := cdi.Config{Dirs: cfg.GPUs.CDI.Dirs}
	for _, x := range cfg.GPUs.CDI.Extra {
		c.Extra = append(c.Extra, cdi.Class(x))
	}
	return cdi.New(c)
}

// openDevices gives jobs the driver's GPUs through CDI, once the self-test
// has proved through the node's runtime that a job sees its own and no
// others. It tests at once, so that problems are in the log from the start;
// GPUs that cannot be given to jobs are kept from the node's offer.
func openDevices(ctx context.Context, cfg *config.Agent, in *cdi.Injector, ac *agent.Config, log *slog.Logger) {
	if cfg.GPUs.Provider != "nvml" {
		return
	}
	allowed := slices.Contains(cfg.Unsafe, config.UnsafeIsolation)
	prober, confines := ac.Host.(cdi.Prober)
	if !confines && allowed {
		log.WarnContext(ctx, "jobs can open every GPU of this node: the process runtime has no rules for devices", "key", "unsafe: "+config.UnsafeIsolation)
		return
	}
	test := func(ctx context.Context) error {
		if !confines {
			return errors.New("with runtime.kind process every job can open every GPU; install containerd, or accept that with unsafe: [" + config.UnsafeIsolation + "]")
		}
		err := selfTest(ctx, in, prober, ac)
		if err != nil && allowed {
			log.WarnContext(ctx, "GPUs are offered although the self-test failed", "key", "unsafe: "+config.UnsafeIsolation, "err", err)
			return nil
		}
		return err
	}
	gate := cdi.NewGate(in, testAgain, test)
	ac.Devices = gate
	cards, err := ac.GPUs.Inventory(ctx)
	if err != nil {
		return // the agent reports it when it offers them
	}
	for _, c := range cards {
		if !ac.Only.Holds(&c) {
			continue
		}
		if _, err = gate.Grant([]string{c.UUID}); err == nil {
			log.InfoContext(ctx, "a job sees its own GPU and no other: self-test passed", "gpu", c.UUID, "driver", in.DriverVersion())
			return
		}
	}
	if err != nil {
		log.ErrorContext(ctx, "no GPU is offered", "err", err)
	}
}

// selfTest tests with the GPUs that have a sound specification.
func selfTest(ctx context.Context, in *cdi.Injector, prober cdi.Prober, ac *agent.Config) error {
	cards, err := ac.GPUs.Inventory(ctx)
	if err != nil && len(cards) == 0 {
		return err
	}
	var uuids []string
	for _, c := range cards {
		if !ac.Only.Holds(&c) {
			continue
		}
		if _, err := in.Grant([]string{c.UUID}); err == nil {
			uuids = append(uuids, c.UUID)
		}
	}
	roots := []cdi.Root{cdi.HostRoot}
	if ac.Images != nil {
		roots = append(roots, cdi.ImageRoot)
	}
	return in.SelfTest(ctx, prober, uuids, roots...)
}
