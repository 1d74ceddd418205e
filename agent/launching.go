package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/cards"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/hooks"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// launching is an attempt whose process is not running yet.
type launching struct {
	*task
	busySince time.Time // since when it has waited for memory, see awaitMemory
	ready     bool      // it has reported that it waits for the other nodes
	batch     bool      // it is a script, whose start nothing waits for
	failing   time.Time // since when its launch has failed for a transient reason; zero when it has not
	unsure    error     // a start failed that may have happened all the same
	cuts      int       // how many starts were cut off before the first step
	again     string    // why it was last said to be tried again
}

// firstLook is how long after its start a batch job is first looked at and reported as
// running, unless there is news: if it has ended by then, its end says it all.
const firstLook = 20 * time.Millisecond

const diedInStart = "the container runtime died while the job was being started; nobody knows whether it ran"

// create journals the intent and prepares the attempt.
func (t *launching) create(ctx context.Context) error {
	as, released := t.wants()
	if as == nil || released || as.Stop {
		return t.ended(&nodev1.Report{State: nodev1.AttemptState_ATTEMPT_STATE_CANCELLED})
	}
	if ready, err := t.awaitCards(ctx, as); !ready || err != nil {
		return err
	}
	if err := t.note(as, t.life); err != nil {
		return err
	}
	t.rt = t.agent.runtimeFor(as)
	if t.rt == nil {
		return t.launchFailed(&launch.Error{Code: 125, Reason: "IMAGE", Err: errors.New("this node cannot run images: it has no containerd")})
	}
	if err := t.prolog(ctx, as); err != nil {
		return t.launchFailed(err)
	}
	l, err := t.agent.launch(ctx, as)
	if err != nil {
		return t.launchFailed(err)
	}
	if err := t.rt.Create(ctx, l); err != nil {
		return t.createFailed(ctx, err)
	}
	t.failing, t.phase, t.batch = time.Time{}, phaseCreated, len(as.Script) > 0 && l.Ranks == nil
	return nil
}

// awaitCards waits until the attempt's GPUs are healthy and have what it needs. ready is
// false when the worker must look again, or the attempt has ended.
func (t *launching) awaitCards(ctx context.Context, as *nodev1.Assignment) (ready bool, err error) {
	if ready, err := t.awaitMemory(ctx, as); !ready || err != nil {
		return false, err
	}
	if t.agent.cfg.GPUs == nil || len(as.Gpus) == 0 {
		return true, nil
	}
	if why := t.unfit(ctx, as); why != "" {
		t.log.Warn("attempt does not begin: its GPU is not sound", "err", why)
		return false, t.ended(lost(cluster.ReasonGPUCheck, why))
	}
	return true, nil
}

// unfit says why an attempt must not start on its GPUs, or "". What the GPUs hold at that
// point is the baseline that they must not exceed afterwards.
func (t *launching) unfit(ctx context.Context, as *nodev1.Assignment) string {
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
			// A GPU that reports nothing is quarantined by those who watch the driver.
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

// awaitMemory waits until each GPU has the free memory that the attempt's share promises:
// with less, it would be refused what it was granted. ready is false when the worker must
// look again; the error says that the attempt has waited too long.
func (t *launching) awaitMemory(ctx context.Context, as *nodev1.Assignment) (ready bool, err error) {
	short := t.agent.cards.Short(ctx, as)
	if short == "" {
		return true, nil
	}
	if t.busySince.IsZero() {
		t.busySince = time.Now()
		t.log.Warn("attempt waits for GPU memory that is not free", "err", short)
	}
	if time.Since(t.busySince) > t.agent.cfg.MemCaps.Busy {
		return false, t.ended(lost(cluster.ReasonGPUNeighbour, short))
	}
	t.await(ctx, 500*time.Millisecond)
	return false, nil
}

// prolog prepares the node for an attempt. The journal records that it began, before it
// does, so that an epilog follows whatever happens, and that it ended; after an agent is
// killed in between, it runs again. When it fails, the node is at fault: the job is
// requeued, and the node is drained.
func (t *launching) prolog(ctx context.Context, as *nodev1.Assignment) error {
	h := t.agent.cfg.Hooks
	if h == nil || t.life.Progress.GetProlog() == nodev1.HookState_HOOK_STATE_ENDED || !h.Has(hooks.Prolog) && !h.Has(hooks.Epilog) {
		return nil
	}
	at := func(s nodev1.HookState) error {
		return t.note(as, t.life.With(func(p *nodev1.Progress) { p.Prolog = s }))
	}
	if err := at(nodev1.HookState_HOOK_STATE_BEGUN); err != nil {
		return err
	}
	if err := h.Run(ctx, hooks.Prolog, hookJob(t.agent.cfg.Node, hooks.Prolog, as, nil)); err != nil {
		if ctx.Err() == nil {
			t.drain = drainReason(fmt.Sprintf("prolog failed before job %s: %v", t.id.Job, err))
			t.log.Error("prolog failed; the node is drained", "err", err)
		}
		return &launch.Error{Code: 125, Reason: "PROLOG", Node: true, Err: err}
	}
	return at(nodev1.HookState_HOOK_STATE_ENDED)
}

// createFailed decides what happens to an attempt that could not be prepared. run does the
// retries.
func (t *launching) createFailed(ctx context.Context, err error) error {
	switch attempt.Failed(err, t.failsSince()) {
	case attempt.TryAgain:
		t.sayAgain(err)
		return err
	case attempt.Final:
		return t.launchFailed(err)
	}
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, silent := t.rt.Inspect(cctx, t.id); silent != nil {
		return errors.Join(err, silent)
	}
	return t.launchFailed(err)
}

// failsSince returns for how long a launch has failed, counting from the first call.
func (t *launching) failsSince() time.Duration {
	if t.failing.IsZero() {
		t.failing = time.Now()
	}
	return time.Since(t.failing)
}

// start starts the process and reports it.
func (t *launching) start(ctx context.Context) error {
	if t.unsure != nil {
		if known, err := t.learnStart(ctx); !known || err != nil {
			return err
		}
	}
	as, released := t.wants()
	if as == nil || released || as.Stop {
		return t.ended(&nodev1.Report{State: nodev1.AttemptState_ATTEMPT_STATE_CANCELLED})
	}
	if wait, err := t.barrier(ctx, as); wait || err != nil {
		return err
	}
	t.agent.cards.Mem.Hold(as)
	if err := t.agent.shares.limit(ctx, t.rt, t.id, as); err != nil {
		return t.launchFailed(err)
	}
	if t.setPower(ctx, as); ctx.Err() != nil {
		return ctx.Err()
	}
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := t.rt.Start(cctx, t.id); err != nil {
		return t.startFailed(ctx, err)
	}
	t.runs(as, time.Now())
	if t.batch {
		t.await(ctx, firstLook)
	}
	return nil
}

// barrier holds back the start of an attempt on several nodes: it reports that this node is
// ready, and waits for the word that all are. Reporting so again, after a restart, changes
// nothing. It reports wait while the attempt may not start; an attempt that must make room
// meanwhile has nothing to save and ends.
func (t *launching) barrier(ctx context.Context, as *nodev1.Assignment) (wait bool, err error) {
	if as.Ranks == nil || as.Ranks.Go {
		return false, nil
	}
	if as.Preempt != nil {
		return true, t.ended(&nodev1.Report{State: nodev1.AttemptState_ATTEMPT_STATE_CANCELLED})
	}
	if !t.ready {
		t.ready = true
		t.log.Info("ready; waiting for the other nodes")
		t.say(&nodev1.Report{State: nodev1.AttemptState_ATTEMPT_STATE_STARTING, Ready: true})
	}
	t.await(ctx, attempt.LookEvery)
	return true, nil
}

// startFailed decides what happens to an attempt whose start failed. Unless the runtime
// knows that nothing ran, the process may exist all the same: the answer may have been lost
// on its way, as when containerd was restarted.
func (t *launching) startFailed(ctx context.Context, err error) error {
	if _, nothingRan := errors.AsType[*launch.Error](err); nothingRan {
		return t.createFailed(ctx, err)
	}
	t.unsure = err
	t.sayAgain(err)
	return err
}

// sayAgain reports why the launch is tried again; not to those who also report that they are
// ready.
func (t *launching) sayAgain(err error) {
	if as, _ := t.wants(); as == nil || as.Ranks != nil || t.again == err.Error() {
		return
	}
	t.again = err.Error()
	t.say(&nodev1.Report{State: nodev1.AttemptState_ATTEMPT_STATE_STARTING, Reason: string(cluster.ReasonLaunch), Detail: "it is tried again: " + t.again})
}

// learnStart asks the runtime about a start that failed, before anything else is done. It
// reports true when the start can be retried or given up like any other.
func (t *launching) learnStart(ctx context.Context) (known bool, err error) {
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, err := t.rt.Inspect(cctx, t.id)
	if err != nil {
		return false, fmt.Errorf("inspect after a start that failed: %w", err)
	}
	failed := t.unsure
	t.unsure = nil
	as, _ := t.wants()
	switch attempt.Settle(s, t.cuts, s.Phase != runtime.Created || t.failsSince() < attempt.LaunchPatience) {
	case attempt.StartAgain:
		return true, nil
	case attempt.GiveUp:
		return false, t.launchFailed(failed)
	case attempt.NodeBroken:
		t.cuts++
		return false, t.launchFailed(&launch.Error{Code: 125, Reason: "RUNTIME", Node: true, Err: fmt.Errorf("cut off %d times before its first step: %w", t.cuts, failed)})
	case attempt.MakeAgain:
		t.cuts++
		t.phase = phaseNew
	case attempt.Unknowable:
		t.log.Warn("the runtime died while an attempt was being started", "err", failed)
		return false, t.ended(lost(cluster.ReasonRuntimeLost, diedInStart))
	case attempt.Ran:
		since := s.Started
		if since.IsZero() && s.Phase != runtime.Stopped {
			since = time.Now()
		}
		t.runs(as, since)
	}
	t.log.Info("a start that failed is settled", "phase", s.Phase.String(), "err", failed)
	return false, nil
}

// launchFailed ends an attempt whose process never ran. If ctx ended, it leaves the
// decision to the next agent.
func (t *launching) launchFailed(err error) error {
	if t.agent.ctx.Err() != nil {
		return err
	}
	t.log.Info("attempt did not start", "err", err)
	r := &nodev1.Report{
		State: nodev1.AttemptState_ATTEMPT_STATE_FAILED, Reason: string(cluster.ReasonLaunch), Detail: err.Error(), Exit: &nodev1.Exit{Code: 125},
	}
	if le, ok := errors.AsType[*launch.Error](err); ok {
		if r.Exit.Code = int32(le.Code); le.Node {
			r.State, r.Reason = nodev1.AttemptState_ATTEMPT_STATE_LOST, string(cluster.ReasonNodeFault)
		}
	}
	return t.ended(r)
}
