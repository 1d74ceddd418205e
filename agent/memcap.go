package agent

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/runtime"
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

// memState is what a task keeps of its GPU memory.
type memState struct {
	// Of the worker: it is above its share of a GPU, see endOver; since when it
	// waits for memory, see awaitMemory.
	breach    *nodev1.MemBreach
	busySince time.Time

	// Guarded by mu of the task: what the watch found, and what befell the
	// server through which it shares its card.
	over  *caps.Breach
	fault *memFault

	resumed atomic.Bool // one from before the agent's start was looked at
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

// found tells the worker that its attempt is above its share.
func (t *task) found(b caps.Breach) {
	t.mu.Lock()
	t.over = &b
	t.mu.Unlock()
	t.poke()
}

// overCap returns how the attempt is above its share, nil when it is not. What
// began before the agent's restart goes on; what is urgent becomes so.
func (t *task) overCap() *nodev1.MemBreach {
	t.mu.Lock()
	b := t.over
	t.mu.Unlock()
	switch {
	case b == nil:
	case t.breach == nil:
		t.breach = &nodev1.MemBreach{Uuid: b.UUID, HeldMib: b.HeldMiB, CapMib: b.CapMiB, Since: timestamppb.New(b.Since), Urgent: b.Urgent}
	case b.Urgent && !t.breach.Urgent:
		t.breach.Urgent, t.breach.HeldMib = true, max(t.breach.HeldMib, b.HeldMiB)
	}
	return t.breach
}

// memCause is why the attempt must end for what became of its GPU memory.
func (t *task) memCause() stopCause {
	switch {
	case t.wasFaulted() != nil:
		return stopFault
	case t.overCap() != nil:
		return stopOverCap
	}
	return stopNone
}

// hurry cuts the grace of an attempt that is being ended when the card it
// overfills has no room left for its neighbours.
func (t *task) hurry(now time.Time) {
	if b := t.overCap(); b != nil && b.Urgent && !t.killAt.IsZero() && now.Before(t.killAt) {
		t.killAt = now
	}
}

// endOver tells an attempt above its share that it ends, and returns how much
// of its grace is left. As in save the journal knows of each step before the
// next. An urgent one is not told: it ends at once.
func (t *task) endOver(ctx context.Context, as *nodev1.Assignment) (left time.Duration, err error) {
	if t.breach.At == nil {
		t.breach.At = timestamppb.Now()
		if err := t.note(as); err != nil {
			t.breach.At = nil
			return 0, err
		}
		t.log.Warn("attempt holds more GPU memory than its share and is ended", "gpu", t.breach.Uuid,
			"held_mib", t.breach.HeldMib, "cap_mib", t.breach.CapMib, "urgent", t.breach.Urgent)
	}
	t.stopping = stopOverCap
	if t.breach.Urgent {
		return 0, nil
	}
	if !t.breach.Sent {
		if err := t.rt.Signal(ctx, t.id, syscall.SIGUSR1); err != nil {
			return 0, fmt.Errorf("send SIGUSR1: %w", err)
		}
		t.breach.Sent = true
		if err := t.note(as); err != nil {
			return 0, err
		}
	}
	return t.agent.cfg.MemCaps.Grace - time.Since(t.breach.At.AsTime()), nil
}

// wasOverCap reports whether an attempt that ended was ended for its memory.
// What had ended before came to its own end.
func (t *task) wasOverCap(s runtime.Task) bool {
	return t.stopping == stopOverCap && t.breach != nil && (s.Ended.IsZero() || !s.Ended.Before(t.breach.At.AsTime().Truncate(time.Millisecond)))
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
		return false, t.ended(neighbourReport(short))
	}
	t.await(ctx, 500*time.Millisecond)
	return false, nil
}
