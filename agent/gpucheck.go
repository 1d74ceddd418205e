package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/agent/cards"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// awaitCards waits until the cards have what an attempt needs of them, and are
// sound. ready is false when it is to look again, or has ended.
func (t *task) awaitCards(ctx context.Context, as *nodev1.Assignment) (ready bool, err error) {
	if ready, err := t.awaitMemory(ctx, as); !ready || err != nil {
		return false, err
	}
	if t.agent.cfg.GPUs == nil || len(as.Gpus) == 0 {
		return true, nil
	}
	if why := t.unfit(ctx, as); why != "" {
		t.log.Warn("attempt does not begin: its GPU is not sound", "err", why)
		return false, t.ended(&nodev1.Report{
			State: nodev1.AttemptState_ATTEMPT_STATE_LOST, Reason: string(cluster.ReasonGPUCheck), Detail: why,
		})
	}
	return true, nil
}

// unfit says why an attempt must not begin on its cards, "" when it may. What
// the cards hold by then is what they must hold no more than afterwards.
func (t *task) unfit(ctx context.Context, as *nodev1.Assignment) string {
	for _, s := range as.Gpus {
		if state, why := t.agent.cards.States.Get(s.Uuid); state != cards.OK {
			return fmt.Sprintf("GPU %s is not sound: %s", s.Uuid, why)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, cards.SampleDeadline)
	defer cancel()
	usage, err := t.agent.cfg.GPUs.Usage(ctx)
	if err != nil {
		t.log.Warn("cannot read the use of every GPU", "err", err)
	}
	var held []int64
	defer func() { t.life = t.life.With(func(p *nodev1.Progress) { p.GpuBaselineMib = held }) }()
	for _, s := range as.Gpus {
		i := slices.IndexFunc(usage, func(u gpu.Usage) bool { return u.UUID == s.Uuid })
		if i < 0 {
			// Who says nothing is quarantined by those who watch the driver.
			held = append(held, gpu.Unknown)
			continue
		}
		held = append(held, cards.Unexplained(&usage[i]))
		if procs, strays := usage[i].Strays(); s.Exclusive && len(procs) > 0 {
			p := procs[0]
			return fmt.Sprintf("GPU %s: process %d (%s) of %s, which nobody started here, holds %d MiB of it", s.Uuid, p.PID, p.Command, p.User, strays)
		}
	}
	return t.agent.checks.All(ctx, t.id, as, cards.CheckBefore)
}
