package cards

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/launch"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Admit grants an attempt its shares and returns the environment for them.
func (nc *Cards) Admit(ctx context.Context, as *nodev1.Assignment) ([]string, error) {
	if len(as.Gpus) == 0 {
		// A job that requested no GPU should not find one by accident.
		return []string{"CUDA_VISIBLE_DEVICES="}, nil
	}
	if nc.cfg.GPUs == nil {
		return nil, &launch.Error{Code: 125, Reason: "GPU", Err: fmt.Errorf("this node has no GPUs, %d were assigned", len(as.Gpus))}
	}
	env, err := nc.cfg.GPUs.Admit(ctx, grantOf(as))
	if errors.Is(err, gpu.ErrSilent) || errors.Is(err, gpu.ErrLost) {
		return nil, &launch.Error{Code: 125, Reason: "GPU", Node: true, Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("grant GPUs: %w", err)
	}
	return env, nil
}

func grantOf(as *nodev1.Assignment) gpu.Grant {
	g := gpu.Grant{Attempt: conv.AttemptOf(as).String(), UID: as.Uid}
	for _, s := range as.Gpus {
		g.Cards = append(g.Cards, gpu.GrantCard{UUID: s.Uuid, MemMiB: s.MemMib, Milli: s.Milli, Exclusive: s.Exclusive, GrantedMiB: s.GrantedMib})
	}
	return g
}

// Regrant tells a provider that enforces shares itself that an attempt's shares have changed:
// otherwise it would refuse a job that is placed next to it.
func (nc *Cards) Regrant(as *nodev1.Assignment) {
	r, ok := nc.cfg.GPUs.(gpu.Regranter)
	if !ok {
		return
	}
	if err := r.Regrant(context.Background(), grantOf(as)); err != nil {
		nc.log.Warn("cannot change what an attempt is granted of its GPUs", "job", as.Job, "attempt", as.Attempt, "err", err)
	}
}
