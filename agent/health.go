package agent

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"github.com/berth-scheduler/berth/agent/cards"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/health"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// HealthConfig configures GPU health monitoring. The zero value uses only what the provider
// reports.
type HealthConfig struct {
	// Kmsg is the kernel log, PCI the directory of PCI devices; "" means none.
	Kmsg, PCI string
	Xids      health.Table
	// Every is the interval between checks of the bus and the GPUs; 0 means 30 s.
	Every time.Duration
	// Quiet is how long an ended attempt must have nothing on its GPUs before they are free
	// again; without that, they are quarantined after Within. 0 means 2 s and 60 s. A
	// provider with exact accounting needs no Quiet. SlackMiB is how much more memory than
	// before may stay held; 0 means 64.
	Quiet, Within time.Duration
	SlackMiB      int64
	// Blame is how long the driver has to report why an attempt failed, since the program
	// may know first; 0 means 250 ms.
	Blame time.Duration
	// Check is a command that each GPU must pass before and after each attempt, within
	// CheckTime (0: 1 s); empty means none. Recheck is how often a GPU that failed is
	// checked again; 0 means 30 s.
	Check              []string
	CheckTime, Recheck time.Duration
	// Unkillable is how long after SIGKILL a process counts as unkillable; 0 means 60 s.
	Unkillable time.Duration
	// Proc is where the kernel describes processes; "" means /proc.
	Proc string
}

func (c *HealthConfig) complete(gpus gpu.Provider) {
	if _, exact := gpus.(gpu.Accountant); !exact {
		c.Quiet = cmp.Or(c.Quiet, 2*time.Second)
	}
	c.Within, c.Unkillable, c.Recheck = cmp.Or(c.Within, time.Minute), cmp.Or(c.Unkillable, time.Minute), cmp.Or(c.Recheck, 30*time.Second)
	c.Proc = cmp.Or(c.Proc, "/proc")
	c.Blame, c.CheckTime, c.SlackMiB = cmp.Or(c.Blame, 250*time.Millisecond), cmp.Or(c.CheckTime, time.Second), cmp.Or(c.SlackMiB, 64)
}

const (
	// healthFile records the faults held against the node's GPUs.
	healthFile = "gpu-health.json"
	// catchUp bounds the wait for what the kernel logged while no agent was running.
	catchUp = 2 * time.Second
	// whoHealth reports for the node as a whole.
	whoHealth = "gpu-health"
)

// openHealth creates the GPU monitor; it leaves it nil on a node without GPUs.
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

// adoptHealth tells adopted attempts which faults their GPUs had under the previous agent,
// and keeps other attempts off GPUs whose memory may not have been returned: the attempts
// that held it ended longer ago than returning it takes.
func (a *Agent) adoptHealth() {
	if a.health == nil {
		return
	}
	for _, f := range a.health.Held() {
		a.struck(f)
	}
	for _, t := range a.tasks {
		if t.end != nil && time.Since(t.end.Ended.AsTime()) > a.cfg.Health.Within {
			as, _ := t.wants()
			a.cards.States.Quarantine(as, "it is not known whether its GPU memory is back")
		}
	}
}

// awaitHealth waits until the kernel log from the time without an agent has been read:
// attempts that ended meanwhile may have ended because of it.
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

// Faults returns the number of GPU faults so far, by their consequence.
func (a *Agent) Faults() map[string]uint64 {
	out := map[string]uint64{}
	if a.health != nil {
		for act, n := range a.health.Counts() {
			out[act.String()] = n
		}
	}
	return out
}

// resumed takes over which GPUs administrators have resumed.
func (a *Agent) resumed(rs []*nodev1.GPUResume) {
	if a.health == nil {
		return
	}
	for _, r := range rs {
		a.health.Resume(r.Uuid, r.At.AsTime())
	}
}

// struck tells the attempts on a GPU about a fault.
func (a *Agent) struck(f health.Fault) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tasks {
		t.struck(f)
	}
}
