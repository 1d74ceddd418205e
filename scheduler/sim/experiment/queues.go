package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// variant is one policy in an experiment about queues.
type variant struct {
	name, policy string
	preempts     bool
	durError     float64
	shares       bool // predictions of memory and utilization are given
	declares     bool
	// opt are options of the policy, nil for those of production.
	opt *policies.Options
	// every and tick override the least and the longest time between two passes
	// while a job waits.
	every, tick time.Duration
	// islands distinguishes the machines of a pool; unknown hides how long jobs
	// run; told reveals how programs slow each other down, learns finds it out.
	islands, unknown, told, learns bool
	// limit is how many times longer, in thousandths, any job on a GPU may be
	// predicted to take, if the effects of programs are known; 0 is the default's.
	limit int64
}

// planner returns the variant's policy.
func (v *variant) planner(f *workload.Fleet) (sim.Planner, error) {
	if v.opt == nil {
		p, err := planner(v.policy, 1, f.MaxShares)
		if b, ok := p.(sim.Berth); ok && v.limit > 0 {
			b.Policy.MaxSlowdownMilli = v.limit
			p = b
		}
		return p, err
	}
	opt := *v.opt
	if opt.Base == (scheduler.Policy{}) {
		opt.Base = scheduler.Default()
	}
	opt.Base.MaxReasons = -1
	if f.MaxShares > 0 {
		opt.Base.MaxShares = f.MaxShares
	}
	return policies.New(v.policy, opt)
}

// classic returns the orders of published simulators, on whole GPUs.
func classic() []variant {
	return []variant{
		{name: "fifo", policy: "slot+fifo"}, {name: "sjf", policy: "slot+sjf"}, {name: "qssf", policy: "slot+qssf", durError: 0.5},
		{name: "srtf", policy: "slot+srtf", preempts: true, tick: 10 * time.Minute}, {name: "las", policy: "slot+las", preempts: true, tick: 10 * time.Minute},
		{name: "slot", policy: "slot", durError: 0.5},
	}
}

// queueColumns returns the columns of reports about queues.
func queueColumns() []string {
	return []string{"mean_jct_s", "median_jct_s", "p99_jct_s", "mean_wait_s", "makespan_s", "allocation_pct", "mean_slowdown", "preemptions", "ooms", "lower_bound_alone_mean_jct_s"}
}

// load reads a list and the fleet that goes with it; jobs wider than a node
// make it one node.
func load(c *Config, folder, mix string) (*workload.Workload, workload.Fleet, string, error) {
	path, err := c.trace(folder)
	if err != nil {
		return nil, workload.Fleet{}, "", err
	}
	w, _, err := trace.Load(path, trace.Options{Mix: mix})
	if err != nil {
		return nil, workload.Fleet{}, "", err
	}
	f, why := trace.FleetFor(w)
	for i := range w.Jobs {
		if w.Jobs[i].GPUs > f.Widest() {
			f.Pool = true
			why += "; taken for one node, as jobs are wider than a node: where a job's cards lie plays no part"
			break
		}
	}
	return w, f, w.Name + ": " + why, nil
}

// runQueues runs each variant on a list and adds its line.
func runQueues(ctx context.Context, c *Config, rep *Report, w *workload.Workload, f workload.Fleet, world slowdown.Interference, vs []variant) error {
	for i := range vs {
		r, err := vs[i].run(ctx, c, w, f, world, 1)
		if err != nil {
			return err
		}
		rep.add(w.Name+" "+vs[i].name, []*sim.Result{r})
	}
	return nil
}

func (v *variant) run(ctx context.Context, c *Config, w *workload.Workload, f workload.Fleet, world slowdown.Interference, seed uint64) (*sim.Result, error) {
	c.note("%s: %s", w.Name, v.name)
	f.Islands = v.islands
	p, err := v.planner(&f)
	if err != nil {
		return nil, err
	}
	opt := sim.Options{
		Planner: p, Seed: seed, World: world, Errors: sim.Errors{Duration: v.durError, Hide: !v.shares, NoDuration: v.unknown}, Preemptible: v.preempts,
		PreemptSmall: 40 * time.Second, PreemptLarge: 60 * time.Second, OOMAfter: 30 * time.Second, Declare: v.declares, PassEvery: passEvery(f), Tick: v.tick, Clock: c.Clock, Learn: v.learns,
	}
	if v.every > 0 {
		opt.PassEvery = v.every
	}
	if v.told {
		opt.Know = slowdown.Learned(w, &f, world)
	}
	r, err := sim.Run(ctx, w, &f, opt)
	if err != nil {
		return nil, fmt.Errorf("%s on %s: %w", v.name, w.Name, err)
	}
	return r, nil
}

// passEvery keeps the planning of large fleets affordable.
func passEvery(f workload.Fleet) time.Duration {
	if f.GPUs() > 128 {
		return time.Minute
	}
	return time.Second
}
