package agent

import (
	"context"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// MemCaps says how jobs are held to their shares of GPU memory.
type MemCaps struct {
	// Watch is when a job above its share is ended; the zero value is
	// caps.DefaultWatch.
	Watch caps.WatchConfig
	// Grace is the time between SIGUSR1 and SIGTERM to such a job; 0 means 5 s.
	Grace time.Duration
	// Choose says how the shares of a card are enforced; nil is Config.CapMode
	// for all. Daemons are those of MPS and Limiter sets the driver's limits,
	// nil where no card needs them.
	Choose  func(gpu.Card) caps.Choice
	Daemons *caps.Daemons
	Limiter caps.Limiter
	// Env is what frameworks are told.
	Env caps.EnvConfig
	// Busy is how long an attempt waits for memory that its share promises and
	// somebody else holds; 0 means 2 min. Then it ends and its job waits again.
	Busy time.Duration
}

func (c MemCaps) orDefaults() MemCaps {
	if c.Watch == (caps.WatchConfig{}) {
		c.Watch = caps.DefaultWatch()
	}
	if c.Grace == 0 {
		c.Grace = 5 * time.Second
	}
	if c.Busy == 0 {
		c.Busy = 2 * time.Minute
	}
	return c
}

// observeMemory takes over what the cards show at an instant and has those
// ended that hold more than their share.
func (a *Agent) observeMemory(now time.Time, usage []gpu.Usage) {
	for _, b := range a.cards.Mem.Observe(now, usage) {
		a.mu.Lock()
		for id, t := range a.tasks {
			if id.String() == b.Attempt {
				t.found(b)
			}
		}
		a.mu.Unlock()
	}
}

// awaitMemory waits until each card has the free memory that the share of an
// attempt promises: one that starts into less would be refused what it was
// granted. ready is false when it is to look again, and the error says that it
// has waited too long.
func (t *task) awaitMemory(ctx context.Context, as *nodev1.Assignment) (ready bool, err error) {
	short := t.agent.cards.Short(ctx, as)
	if short == "" {
		return true, nil
	}
	now := time.Now()
	if t.busySince.IsZero() {
		t.busySince = now
		t.log.Warn("attempt waits for GPU memory that is not free", "err", short)
	}
	if now.Sub(t.busySince) > t.agent.cfg.MemCaps.Busy {
		return false, t.ended(&nodev1.Report{
			State: nodev1.AttemptState_ATTEMPT_STATE_LOST, Reason: string(cluster.ReasonGPUNeighbour), Detail: short,
		})
	}
	t.await(ctx, 500*time.Millisecond)
	return false, nil
}
