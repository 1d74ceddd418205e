package agent

import (
	"context"
	"slices"

	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// cut replaces instances of a GPU in MIG mode in a goroutine of its own, since the driver
// takes seconds. The leader learns the outcome from the next hello.
func (a *Agent) cut(ctx context.Context, ask *nodev1.CutGPU) {
	a.workers.Go(func() {
		if err := a.cards.Cut(ctx, ask, func(uuid string) bool { return holds(a, uuid) }); err != nil {
			a.log.WarnContext(ctx, "a GPU was not cut anew", "gpu", ask.GetUuid(), "err", err)
			return
		}
		a.log.InfoContext(ctx, "a GPU was cut anew", "gpu", ask.GetUuid(), "dropped", len(ask.GetDrop()), "made", len(ask.GetMake()))
	})
}

// holds reports whether an attempt that is not over has a GPU.
func holds(a *Agent, uuid string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tasks {
		as, _ := t.wants()
		if !t.points.past() && slices.ContainsFunc(as.GetGpus(), func(s *nodev1.Share) bool { return s.Uuid == uuid }) {
			return true
		}
	}
	return false
}
