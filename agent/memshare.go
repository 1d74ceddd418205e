package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// mpsEvery is how often the daemons of shared cards are asked how they are.
const mpsEvery = 2 * time.Second

// choose says how the shares of a card are enforced.
func (a *Agent) choose(c gpu.Card) caps.Choice {
	if ch := a.cfg.MemCaps.Choose; ch != nil {
		return ch(c)
	}
	return caps.Choice{Mode: caps.Mode(a.cfg.CapMode)}
}

// sell returns the cards that the node offers, in the words of the link, and
// keeps how each one's shares are enforced.
func (a *Agent) sell(ctx context.Context, cards []gpu.Card) []*nodev1.GPU {
	usable, modes := make(map[string]int64, len(cards)), make(map[string]caps.Mode, len(cards))
	var out []*nodev1.GPU
	for _, c := range cards {
		ch := a.choose(c)
		if caps.IsInstance(c.UUID) && ch.Mode != caps.MIG {
			a.log.WarnContext(ctx, "a MIG instance is not offered", "gpu", c.UUID, "err", ch.String())
			continue
		}
		a.log.DebugContext(ctx, "how shares of a GPU are enforced", "gpu", c.UUID, "mode", string(ch.Mode), "scope", ch.Scope.String(), "lacks", ch.String())
		usable[c.UUID], modes[c.UUID] = c.MemMiB-c.ReservedMiB, ch.Mode
		out = append(out, &nodev1.GPU{
			Uuid: c.UUID, Index: uint32(c.Index), Type: c.Type, MemMib: c.MemMiB, ReservedMib: c.ReservedMiB,
			Numa: int32(c.NUMA), Pci: c.PCI, CapMode: string(ch.Mode), Scope: string(ch.Scope), CapReason: ch.String(),
		})
		a.strays.detailCard(out[len(out)-1], &c)
	}
	a.mu.Lock()
	a.usable, a.modes = usable, modes
	a.mu.Unlock()
	a.mem.setUsable(usable)
	return out
}

// capEnv prepares what holds an attempt to its shares and returns env without
// what only the agent may say of that, and with what it says.
func (a *Agent) capEnv(ctx context.Context, env []string, as *nodev1.Assignment) ([]string, error) {
	kept := env[:0:0]
	for _, line := range env {
		if key, _, _ := strings.Cut(line, "="); !caps.Reserved(key) {
			kept = append(kept, line)
		}
	}
	ours, err := a.joinDaemon(ctx, as)
	if err != nil {
		return nil, err
	}
	if s := a.heldBy(as, caps.Dmem); s != nil {
		ours = append(ours, caps.DmemEnv(s.MemMib)...)
	}
	return a.frameworkEnv(append(kept, ours...), as), nil
}

// heldBy returns the smallest share of an attempt on a card with a mode; nil
// when there is none.
func (a *Agent) heldBy(as *nodev1.Assignment, m caps.Mode) *nodev1.Share {
	a.mu.Lock()
	defer a.mu.Unlock()
	var least *nodev1.Share
	for _, s := range as.GetGpus() {
		if !s.Exclusive && a.modes[s.Uuid] == m && (least == nil || s.MemMib < least.MemMib) {
			least = s
		}
	}
	return least
}

// joinDaemon lets an attempt onto its card's MPS daemon and returns the
// environment for it. An attempt with shares of several cards has no daemon:
// a program reaches one. It runs beside them, and the watch alone holds it.
func (a *Agent) joinDaemon(ctx context.Context, as *nodev1.Assignment) ([]string, error) {
	s := a.heldBy(as, caps.MPS)
	if s == nil || a.cfg.MemCaps.Daemons == nil {
		return nil, nil
	}
	if len(as.Gpus) > 1 {
		a.log.InfoContext(ctx, "an attempt with shares of several GPUs runs without MPS", "job", cluster.JobID(as.Job).String(), "attempt", as.Attempt)
		return nil, nil
	}
	env, err := a.cfg.MemCaps.Daemons.Join(ctx, s.Uuid, caps.Client{
		Attempt: conv.AttemptOf(as).String(), MemMiB: s.MemMib, Milli: s.Milli, Processes: int(max(1, as.GetRanks().GetTasks())), // each has an equal part
	})
	if err != nil {
		return nil, fmt.Errorf("share GPU %s: %w", s.Uuid, err)
	}
	return env, nil
}

// rejoin has an adopted attempt share its card through its daemon again.
func (t *task) rejoin(ctx context.Context, as *nodev1.Assignment) {
	if _, err := t.agent.joinDaemon(ctx, as); err != nil {
		t.log.Warn("cannot join an adopted attempt to its MPS daemon again", "err", err)
	}
}

// mountPipe lets a job in an image reach its daemon.
func (a *Agent) mountPipe(l *Launch, as *nodev1.Assignment) {
	if s := a.heldBy(as, caps.MPS); as.Image != "" && s != nil && a.cfg.MemCaps.Daemons != nil && len(as.Gpus) == 1 {
		dir := a.cfg.MemCaps.Daemons.PipeDir(s.Uuid)
		l.Mounts = append(l.Mounts, Mount{Source: dir, Target: dir, Own: true})
	}
}

// holdMemory has an attempt that is about to start held to its shares.
func (t *task) holdMemory(ctx context.Context, as *nodev1.Assignment) error {
	t.agent.mem.hold(as)
	return t.agent.limitGroup(ctx, t, as)
}

// leaveDaemons takes an attempt that ended off its daemon.
func (a *Agent) leaveDaemons(ctx context.Context, t *task) error {
	d := a.cfg.MemCaps.Daemons
	if d == nil {
		return nil
	}
	as, _ := t.wants()
	var errs []error
	for _, s := range as.GetGpus() {
		errs = append(errs, d.Leave(ctx, s.Uuid, t.id.String()))
	}
	return errors.Join(errs...)
}

// limitGroup has the driver hold an attempt that is about to start to its
// shares, and checks that it does.
func (a *Agent) limitGroup(ctx context.Context, t *task, as *nodev1.Assignment) error {
	l := a.cfg.MemCaps.Limiter
	if l == nil || a.heldBy(as, caps.Dmem) == nil {
		return nil
	}
	group, ok := t.rt.(interface {
		CgroupPath(id cluster.AttemptID) string
	})
	if !ok {
		return &LaunchError{Code: 125, Reason: "GPUMEM", Node: true, Err: fmt.Errorf("%w: runtime %s does not tell the job's control group", caps.ErrNotHeld, t.rt.Name())}
	}
	for _, s := range as.Gpus {
		if s.Exclusive {
			continue
		}
		if err := caps.LimitGroup(ctx, l, s.Uuid, group.CgroupPath(t.id), caps.Limits{Soft: s.MemMib, Hard: s.MemMib}); err != nil {
			return &LaunchError{Code: 125, Reason: "GPUMEM", Node: true, Err: err}
		}
	}
	return nil
}

// watchDaemons asks the daemons of shared cards how they are, and tells those
// on a card whose server ended by a fault. At first it ends the daemons that
// nobody uses any more.
func (a *Agent) watchDaemons(ctx context.Context) error {
	d := a.cfg.MemCaps.Daemons
	if d == nil {
		<-ctx.Done()
		return ctx.Err()
	}
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

// settled tells whether every attempt from before the agent's start has been
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
		if t.adopted && !t.resumed.Load() && t.end == nil {
			return false
		}
	}
	return true
}

// checkDaemon tells those who share a card when its server ended by a fault.
func (a *Agent) checkDaemon(ctx context.Context, uuid string) {
	d := a.cfg.MemCaps.Daemons
	f := d.Check(ctx, uuid)
	if f == nil {
		return
	}
	guilty := a.attemptOfPID(uuid, f.PID)
	a.log.ErrorContext(ctx, "MPS fault: every job that shares the GPU is lost", "gpu", uuid, "pid", f.PID, "job", guilty, "err", f.Detail)
	members := d.Members(uuid)
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, t := range a.tasks {
		for _, m := range members {
			if id.String() == m {
				t.faulted(memFault{detail: f.Detail, uuid: uuid, guilty: guilty})
			}
		}
	}
}

// attemptOfPID says whose process a pid of the host was when the card was last
// looked at, "" when it is not known.
func (a *Agent) attemptOfPID(uuid string, pid int) string {
	usage, _ := a.sampler.Last()
	for _, u := range usage {
		for _, p := range u.Processes {
			if u.UUID == uuid && pid > 0 && p.PID == pid {
				return p.Attempt
			}
		}
	}
	return ""
}

// memFault is the end of the server through which an attempt shared its card.
type memFault struct {
	uuid, detail string
	guilty       string // the attempt at fault, "" when it is not known
}

func (t *task) faulted(f memFault) {
	t.mu.Lock()
	if t.fault == nil {
		t.fault = &f
	}
	t.mu.Unlock()
	t.poke()
}

// wasFaulted returns what befell the attempt's server, or nil.
func (t *task) wasFaulted() *memFault {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fault
}

// faultVerdict judges an attempt whose server ended by a fault: that of a
// client is its own, the others run again.
func (a *Agent) faultVerdict(ctx context.Context, t *task, s Task, r *nodev1.Report) bool {
	if t.wasFaulted() == nil && s.ExitCode != 0 {
		if as, _ := t.wants(); as != nil && a.cfg.MemCaps.Daemons != nil && a.heldBy(as, caps.MPS) != nil {
			a.checkDaemon(ctx, as.Gpus[0].Uuid) // it may have ended for what is not yet known
		}
	}
	f := t.wasFaulted()
	switch {
	case f == nil || s.ExitCode == 0 && t.stopping != stopFault:
		return false
	case f.guilty == t.id.String():
		r.State = nodev1.AttemptState_ATTEMPT_STATE_FAILED
		r.Reason = string(cluster.ReasonExit)
		if s.Signal != 0 {
			r.Reason = string(cluster.ReasonSignal)
		}
		r.Detail = fmt.Sprintf("its own fault on GPU %s ended the MPS server that it shared (exit code %d); run it with --exclusive to find the cause", f.uuid, s.ExitCode)
	default:
		n := neighbourReport(fmt.Sprintf("GPU %s: %s%s", f.uuid, f.detail, byWhom(f.guilty)))
		r.State, r.Reason, r.Detail = n.State, n.Reason, n.Detail
	}
	return true
}

func byWhom(guilty string) string {
	if guilty == "" {
		return ", which of them is not known"
	}
	return ", " + guilty
}

// sameShares tells whether two assignments give as much of the same GPUs.
func sameShares(a, b *nodev1.Assignment) bool {
	if len(a.Gpus) != len(b.Gpus) {
		return false
	}
	for i, x := range a.Gpus {
		if y := b.Gpus[i]; x.Uuid != y.Uuid || x.MemMib != y.MemMib || x.Exclusive != y.Exclusive {
			return false
		}
	}
	return true
}
