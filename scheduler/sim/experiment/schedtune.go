package experiment

import (
	"context"
	"time"

	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
)

func schedTuneAssumptions() []string {
	return []string{
		"arrivals, job list, and peak memory of training are the authors' own; the rest of a job is not published",
		"training is one epoch, 50,000 images at three forward passes' worth of operations, at 17 % of the card's peak, which meets the paper's 280 s and 2,513 s for ResNet-152",
		"an inference takes 8 s, the start of its process, and 500 MiB plus five times its weights",
		"training keeps 45 % of a card busy and inference 10 %",
		"each further job on a card slows all there by 35 % of their time alone (figure 8)",
		"at most 2 jobs on an 8 GB card and 4 on the 24 GB card",
		"predicted memory is off by a log-normal factor of sigma 0.045, and 8.98 % is added to it, the paper's largest error",
		"fifo is the default of Kubernetes: one job a GPU, any free one in order of arrival, no prediction; who runs out of memory is over",
	}
}

func schedTune(ctx context.Context, c Config) (*Report, error) {
	path, err := c.trace("schedtune")
	if err != nil {
		return nil, err
	}
	w, _, err := trace.Load(path, trace.Options{})
	if err != nil {
		return nil, err
	}
	rep := &Report{
		Name: "schedtune", Title: "SchedTune (CCGrid 2022), section V: 360 jobs on five GPUs of three types",
		Columns:     []string{"makespan_s", "mem_util_pct", "ooms", "failed", "mean_jct_s", "mean_wait_s", "mean_slowdown", "lower_bound_makespan_s"},
		Assumptions: schedTuneAssumptions(),
	}
	rep.followed(&c)
	n := c.seeds(10, 3)
	run := func(name, policy string, change func(*sim.Options)) error {
		c.note("schedtune: %s", name)
		return rep.repeat(ctx, name, n, func(seed uint64) (setup, error) {
			p, err := planner(policy, seed, 4)
			s := setup{w, trace.SchedTuneFleet(), sim.Options{
				Planner: p, Seed: seed, World: slowdown.Linear{Beside: 0.35}, OOMAfter: 20 * time.Second, Clock: c.Clock,
				Errors: sim.Errors{Mem: 0.045, MemMargin: 0.0898},
			}}
			change(&s.opt)
			return s, err
		})
	}
	for _, v := range []struct {
		name, policy string
		hide         bool
	}{
		{"fifo", "slot+fifo", true}, {"slot", "slot", false}, {"ffd", "ffd", false}, {overcommitted, overcommitted, false}, {"schedtune", "schedtune", false}, {"ffd+longest", "ffd+longest", false},
		{"firstfit", "firstfit", false}, {"bestfit", "bestfit", false},
	} {
		if err := run(v.name, v.policy, func(o *sim.Options) { o.OOMFatal, o.Errors.Hide = v.hide, v.hide }); err != nil {
			return nil, err
		}
	}
	for _, v := range c.following() {
		if err := run(v.name, "ffd", v.apply); err != nil {
			return nil, err
		}
	}
	for _, ours := range []string{"ffd", "schedtune"} {
		rep.Claims = append(rep.Claims,
			atMost("makespan of "+ours+" over fifo, %", -17.5, rep.change("fifo", ours, "makespan_s")),
			atLeast("memory utilization of "+ours+" over fifo, %", 81, rep.change("fifo", ours, "mem_util_pct")),
			atMost("out-of-memories of "+ours, 0, rep.mean(ours, "ooms")))
	}
	rep.followedTo(&c, "fifo", "mem_util_pct", 100, -38)
	return rep, nil
}
