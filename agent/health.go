package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/cards"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/health"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// HealthConfig says how an agent looks after its cards. The zero value looks at
// what the provider tells, and at nothing else of the machine.
type HealthConfig struct {
	// Kmsg is the kernel's log, PCI the folder of the PCI devices; "" is none.
	Kmsg, PCI string
	Xids      health.Table
	// Every is the interval between looks at the bus and the cards; 0 is 30 s.
	Every time.Duration
	// Quiet is how long nothing of an attempt that ended may be on its cards
	// before they are free again, Within after how long without that they are
	// quarantined; 0 means 2 s and 60 s. A provider that keeps exact accounts
	// needs no Quiet. SlackMiB is how much more than before may stay held; 0
	// means 64.
	Quiet, Within time.Duration
	SlackMiB      int64
	// Blame is what the driver is given to say why an attempt failed, since the
	// program may know first; 0 is 250 ms.
	Blame time.Duration
	// Check is a command that each card must pass before and after each
	// attempt, within CheckTime (0: 1 s); empty for none. Recheck is how often
	// a card that failed is tried again; 0 is 30 s.
	Check              []string
	CheckTime, Recheck time.Duration
	// Unkillable is how long after SIGKILL a process is taken to stay; 0 is 60 s.
	Unkillable time.Duration
}

func (c *HealthConfig) complete(gpus gpu.Provider) {
	_, exact := gpus.(gpu.Accountant)
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	if !exact {
		or(&c.Quiet, 2*time.Second)
	}
	or(&c.Within, time.Minute)
	or(&c.Blame, 250*time.Millisecond)
	or(&c.CheckTime, time.Second)
	or(&c.Recheck, 30*time.Second)
	or(&c.Unkillable, time.Minute)
	if c.SlackMiB == 0 {
		c.SlackMiB = 64
	}
}

const (
	// healthFile keeps what an agent holds against its cards.
	healthFile = "gpu-health.json"
	// catchUp bounds the wait for what the kernel logged while no agent ran.
	catchUp = 2 * time.Second
	// whoHealth speaks for the node as a whole.
	whoHealth = "gpu-health"
	maxFaults = 8 // kinds of them that are kept of one attempt
)

// openHealth makes the monitor of the cards, nil on a node without any.
func (a *Agent) openHealth() error {
	if a.cfg.GPUs == nil {
		return nil
	}
	m, err := health.New(health.Config{
		BootID: a.cfg.BootID, File: filepath.Join(a.cfg.Dir, healthFile), Kmsg: a.cfg.Health.Kmsg, PCI: a.cfg.Health.PCI,
		Table: a.cfg.Health.Xids, GPUs: a.cfg.GPUs, Every: a.cfg.Health.Every, OnFault: a.struck,
		SetCard: func(uuid, who string, c health.Condition, why string) {
			a.cards.States.Set(uuid, who, map[health.Condition]cards.State{health.Sound: cards.OK, health.Failing: cards.Failing, health.Lost: cards.Lost}[c], why)
		},
		SetProblem: func(why string) { a.cards.States.SetProblem(whoHealth, why) }, Log: a.cfg.Log,
	})
	if err != nil {
		return err
	}
	a.health = m
	return nil
}

// adoptHealth tells adopted attempts what befell their cards under the agent
// before, and keeps others from cards whose memory may not be back: the
// attempts that had it ended longer ago than it takes.
func (a *Agent) adoptHealth() {
	if a.health == nil {
		return
	}
	for _, f := range a.health.Held() {
		a.struck(f)
	}
	for _, t := range a.tasks {
		if t.end != nil && time.Since(t.end.Ended.AsTime()) > a.cfg.Health.Within {
			t.quarantine("it is not known whether its GPU memory is back")
		}
	}
}

// runHealth watches the cards until ctx ends.
func (a *Agent) runHealth(ctx context.Context) error {
	if a.health == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return a.health.Run(ctx)
}

// awaitHealth waits until what the kernel logged while no agent ran was read:
// attempts that ended meanwhile may have ended for it.
func (a *Agent) awaitHealth(ctx context.Context) {
	if a.health == nil {
		return
	}
	select {
	case <-a.health.Ready():
	case <-ctx.Done():
	case <-time.After(catchUp):
	}
}

// Faults counts the faults of cards so far, by what they led to.
func (a *Agent) Faults() map[string]uint64 {
	out := map[string]uint64{}
	if a.health != nil {
		for act, n := range a.health.Counts() {
			out[act.String()] = n
		}
	}
	return out
}

// resumed takes over which cards administrators resumed.
func (a *Agent) resumed(rs []*nodev1.GPUResume) {
	if a.health == nil {
		return
	}
	for _, r := range rs {
		a.health.Resume(r.Uuid, r.At.AsTime())
	}
}

// struck tells the attempts on a card what befell it.
func (a *Agent) struck(f health.Fault) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tasks {
		t.struck(f)
	}
}

// healthState is what a worker knows of its attempt's cards.
type healthState struct {
	leaving leaving // how it gives them back, see returnCards
	blows   []*blow // what befell them; under the task's mu
}

// blow is a fault that befell an attempt's card.
type blow struct {
	health.Fault
	times int
}

// struck notes a fault of one of the attempt's cards, and wakes its worker.
func (t *task) struck(f health.Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	on := slices.ContainsFunc(t.assignment.GetGpus(), func(s *nodev1.Share) bool { return s.Uuid == f.UUID })
	if !on {
		return
	}
	same := func(b *blow) bool { return b.UUID == f.UUID && b.Xid.Code == f.Xid.Code && b.Lost == f.Lost }
	if i := slices.IndexFunc(t.blows, same); i >= 0 {
		t.blows[i].times++
		return
	}
	if len(t.blows) < maxFaults || f.Xid.Action != health.Record {
		t.blows = append(t.blows, &blow{Fault: f, times: 1})
	}
	t.poke()
}

// hit returns the worst fault of the hardware that befell the attempt's cards
// while it had them, nil for none. ended is zero for an attempt that goes on.
func (t *task) hit(began, ended time.Time) *blow {
	t.mu.Lock()
	defer t.mu.Unlock()
	var worst *blow
	for _, b := range t.blows {
		if b.Xid.Action > health.Record && b.within(began, ended) && (worst == nil || b.Xid.Action > worst.Xid.Action) {
			worst = b
		}
	}
	return worst
}

// within reports whether a fault came between two instants. The clocks of
// kernel and runtimes are read at different moments.
func (b *blow) within(began, ended time.Time) bool {
	const slack = time.Second
	return (began.IsZero() || !b.At.Before(began.Add(-slack))) && (ended.IsZero() || !b.At.After(ended.Add(slack)))
}

// span is from when to when an attempt that ended ran.
func (t *task) span(r *nodev1.Report) (began, ended time.Time) {
	if r.Started != nil {
		return r.Started.AsTime(), r.Ended.AsTime()
	}
	return t.life.Started, r.Ended.AsTime()
}

// culprit is the hardware's fault that befell an attempt that ended, as far as
// is known.
func (t *task) culprit(r *nodev1.Report) *blow { return t.hit(t.span(r)) }

// blame changes how an attempt ended by what befell its cards: what the
// hardware did is not the user's failure. It reports whether anything changed.
func (t *task) blame(r *nodev1.Report) bool {
	began, ended := t.span(r)
	as, _ := t.wants()
	switch r.State {
	case nodev1.AttemptState_ATTEMPT_STATE_COMPLETED, nodev1.AttemptState_ATTEMPT_STATE_FAILED, nodev1.AttemptState_ATTEMPT_STATE_TIMEOUT:
	default:
		return t.mention(r, as, began, ended)
	}
	b := t.hit(began, ended)
	if b == nil || r.State == nodev1.AttemptState_ATTEMPT_STATE_COMPLETED && t.life.Cause != attempt.CardGone {
		return t.mention(r, as, began, ended)
	}
	detail := fmt.Sprintf("GPU %s: %s", b.UUID, b.String())
	switch {
	case r.Exit.GetSignal() != 0:
		detail += fmt.Sprintf("; it ended by signal %d", r.Exit.Signal)
	case r.Exit != nil:
		detail += fmt.Sprintf("; it ended with exit code %d", r.Exit.Code)
	}
	r.State, r.Reason, r.Detail = nodev1.AttemptState_ATTEMPT_STATE_LOST, string(cluster.ReasonGPUFault), detail
	return true
}

// mention adds to a report which faults came to the attempt's cards, once.
func (t *task) mention(r *nodev1.Report, as *nodev1.Assignment, began, ended time.Time) bool {
	if r.State == nodev1.AttemptState_ATTEMPT_STATE_COMPLETED || r.Reason == string(cluster.ReasonGPUFault) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var words []string
	for _, b := range t.blows {
		if !b.within(began, ended) {
			continue
		}
		w := "GPU " + b.UUID + " reported " + b.String()
		if len(as.GetGpus()) < 2 {
			w = "its GPU reported " + b.String()
		}
		if b.times > 1 {
			w += fmt.Sprintf(" (%d times)", b.times)
		}
		words = append(words, w)
	}
	text := strings.Join(words, "; ")
	if text == "" || strings.Contains(r.Detail, text) {
		return false
	}
	r.Detail = strings.TrimPrefix(r.Detail+"; "+text, "; ")
	return true
}
