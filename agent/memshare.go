package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/cards"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// MemCaps configures how jobs are held to their shares of GPU memory.
type MemCaps struct {
	// Watch says when a job above its share is ended; the zero value means
	// caps.DefaultWatch.
	Watch caps.WatchConfig
	// Grace is the time between SIGUSR1 and SIGTERM to such a job; 0 means 5 s.
	Grace time.Duration
	// Choose returns how the shares of a GPU are enforced; nil means Config.CapMode for
	// all. Daemons are those of MPS, and Limiter sets the driver's limits; nil where no GPU
	// needs them.
	Choose  func(gpu.Card) caps.Choice
	Daemons *caps.Daemons
	Limiter caps.Limiter
	// Env configures what frameworks are told.
	Env caps.EnvConfig
	// Busy is how long an attempt waits for memory that its share promises but something
	// else holds; 0 means 2 min. Then it ends and its job is requeued.
	Busy time.Duration
}

func (c MemCaps) orDefaults() MemCaps {
	c.Watch, c.Grace, c.Busy = cmp.Or(c.Watch, caps.DefaultWatch()), cmp.Or(c.Grace, 5*time.Second), cmp.Or(c.Busy, 2*time.Minute)
	return c
}

// observeMemory takes over the usage of the GPUs at an instant and ends the attempts that
// hold more than their share.
func (a *Agent) observeMemory(now time.Time, usage []gpu.Usage) {
	for _, b := range a.cards.Mem.Observe(now, usage) {
		if t := a.named(b.Attempt); t != nil {
			t.found(b)
		}
	}
}

// observeWork records which attempts compute: a GPU that does counts for all attempts on
// it, since drivers do not say whose work it is.
func (a *Agent) observeWork(now time.Time, usage []gpu.Usage) {
	for i := range usage {
		for _, p := range usage[i].Processes {
			if t := a.named(p.Attempt); t != nil && usage[i].UtilMilli > 0 {
				t.computed.Store(&now)
			}
		}
	}
}

// mpsEvery is how often the daemons of shared GPUs are checked.
const mpsEvery = 2 * time.Second

// shares is what, besides the watch, holds attempts to their shares of a GPU.
type shares struct {
	daemons *caps.Daemons // of MPS, nil where no card needs them
	limiter caps.Limiter  // of the driver, nil where no GPU needs it
	cards   *cards.Cards
	log     *slog.Logger
}

// join adds an attempt to its GPU's MPS daemon and returns the environment for it. An
// attempt with shares of several GPUs has no daemon, because a program can reach only one:
// it runs without, and the watch alone enforces its shares.
func (h *shares) join(ctx context.Context, as *nodev1.Assignment) ([]string, error) {
	s := h.cards.HeldBy(as, caps.MPS)
	if s == nil || h.daemons == nil {
		return nil, nil
	}
	if len(as.Gpus) > 1 {
		h.log.InfoContext(ctx, "an attempt with shares of several GPUs runs without MPS", "job", cluster.JobID(as.Job).String(), "attempt", as.Attempt)
		return nil, nil
	}
	env, err := h.daemons.Join(ctx, s.Uuid, caps.Client{
		Attempt: conv.AttemptOf(as).String(), MemMiB: s.MemMib, Milli: s.Milli, Processes: int(max(1, as.GetRanks().GetTasks())), // each has an equal part
	})
	if err != nil {
		return nil, fmt.Errorf("share GPU %s: %w", s.Uuid, err)
	}
	return env, nil
}

// leave removes an ended attempt from its daemon.
func (h *shares) leave(ctx context.Context, id cluster.AttemptID, as *nodev1.Assignment) error {
	if h.daemons == nil {
		return nil
	}
	var errs []error
	for _, s := range as.GetGpus() {
		errs = append(errs, h.daemons.Leave(ctx, s.Uuid, id.String()))
	}
	return errors.Join(errs...)
}

// limit has the driver hold an attempt that is about to start to its shares, and checks
// that it does.
func (h *shares) limit(ctx context.Context, rt runtime.Runtime, id cluster.AttemptID, as *nodev1.Assignment) error {
	if h.limiter == nil || h.cards.HeldBy(as, caps.Dmem) == nil {
		return nil
	}
	group, ok := rt.(interface {
		CgroupPath(id cluster.AttemptID) string
	})
	if !ok {
		return &launch.Error{Code: 125, Reason: "GPUMEM", Node: true, Err: fmt.Errorf("%w: runtime %s does not tell the job's control group", caps.ErrNotHeld, rt.Name())}
	}
	for _, s := range as.Gpus {
		if s.Exclusive {
			continue
		}
		if err := caps.LimitGroup(ctx, h.limiter, s.Uuid, group.CgroupPath(id), caps.Limits{Soft: s.MemMib, Hard: s.MemMib}); err != nil {
			return &launch.Error{Code: 125, Reason: "GPUMEM", Node: true, Err: err}
		}
	}
	return nil
}

// watchDaemons checks the daemons of shared GPUs, and tells the attempts on a GPU whose
// server ended by a fault. It first ends the daemons that are no longer used.
func (a *Agent) watchDaemons(ctx context.Context) error {
	d := a.cfg.MemCaps.Daemons
	tick := time.NewTicker(mpsEvery)
	defer tick.Stop()
	swept := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if !swept && a.settled() {
			swept = true
			if err := d.Sweep(ctx); err != nil {
				a.log.WarnContext(ctx, "cannot end MPS daemons that nobody uses", "err", err)
			}
		}
		for _, uuid := range d.Shared() {
			a.checkDaemon(ctx, uuid)
		}
	}
}

// settled reports whether every attempt from before the agent's start has been
// looked at.
func (a *Agent) settled() bool {
	select {
	case <-a.synced:
	default:
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tasks {
		if t.adopted.Load() {
			return false
		}
	}
	return true
}

// checkDaemon tells the attempts that share a GPU when its server ended by a fault.
func (a *Agent) checkDaemon(ctx context.Context, uuid string) {
	d := a.cfg.MemCaps.Daemons
	f := d.Check(ctx, uuid)
	if f == nil {
		return
	}
	guilty := a.cards.AttemptOfPID(uuid, f.PID)
	a.log.ErrorContext(ctx, "MPS fault: every job that shares the GPU is lost", "gpu", uuid, "pid", f.PID, "job", guilty, "err", f.Detail)
	for _, m := range d.Members(uuid) {
		if t := a.named(m); t != nil {
			t.faulted(attempt.ServerFault{UUID: uuid, Detail: f.Detail, Guilty: guilty})
		}
	}
}

// sameShares reports whether two assignments give the same shares of the same GPUs.
func sameShares(a, b *nodev1.Assignment) bool {
	return slices.EqualFunc(a.Gpus, b.Gpus, func(x, y *nodev1.Share) bool {
		return x.Uuid == y.Uuid && x.MemMib == y.MemMib && x.GrantedMib == y.GrantedMib && x.Exclusive == y.Exclusive
	})
}
