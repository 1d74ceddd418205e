package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/scheduler/elastic"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// flowWay is a way to run the list.
type flowWay struct {
	name, policy   string
	promise, sized bool
	part           float64 // of the true run times, that is told
}

// elasticFlow counts how many jobs of ElasticFlow's testbed list end by their
// deadlines.
func elasticFlow(ctx context.Context, c Config) (*Report, error) {
	path, err := c.trace("microsoft-itp-2021")
	if err != nil {
		return nil, err
	}
	rep := &Report{
		Name: "elasticflow", Title: "Deadlines of elastic jobs: ElasticFlow's testbed list (ASPLOS 2023), 195 jobs on 128 GPUs, and on 32",
		Columns: []string{"in_time", "unplaced", "mean_jct_s", "allocation_pct", "preemptions"},
		Assumptions: []string{
			"16 nodes of 8 GPUs, as its testbed, which the list fills to a fifth, and 4 nodes; each GPU one job's alone; a preempted job loses 40 s; half of the deadlines come before the job ends with the GPUs that it asks for",
			"the paper's measured speeds by model, batch and GPUs are not published with the list: n GPUs are n/(1+e(n-1)) times as fast as one, with e drawn for each program from 0.02 to 0.3, by seed; the scheduler takes 0.1 until a job ran with two sizes",
			"jobs have 1 to 8 GPUs of one node; the three that ask for 16 are taken for jobs of 8 that take longer; the paper's jobs may span nodes",
			"fixed: each job has as many GPUs as it asks for, and none is refused: fifo, las (Tiresias), themis, and edf, which takes jobs that can still be in time first (Chronus); all preempt",
			"promised: admitted as by a coordinator, refused otherwise, which the column unplaced counts; deadlines may claim all GPUs; with 1 to 8 GPUs, by scheduling.sizing marginal",
			"run times that the scheduler is told are true, and it promises what nine in ten need, half as long again, which no deadline of the list allows a fixed job; exact: it is told two thirds, so that what nine in ten need is the truth",
		},
	}
	const margin = 1.46
	for _, nodes := range []int{16, 4} {
		gpus, best := fmt.Sprintf("%d GPUs, ", 8*nodes), 0.0
		for _, v := range []flowWay{
			{"fixed, fifo", "slot+fifo", false, false, 1},
			{"fixed, las", "slot+las", false, false, 1},
			{"fixed, themis", "slot+themis", false, false, 1},
			{"fixed, edf", "slot+edf", false, false, 1},
			{"promised exact, fixed", "ffd", true, false, 2. / 3},
			{"1 to 8, no promises", "ffd", false, true, 1},
			{"promised, 1 to 8", "ffd", true, true, 1},
			{"promised exact, 1 to 8", "ffd", true, true, 2. / 3},
		} {
			c.note("%s%s", gpus, v.name)
			err := rep.repeat(ctx, gpus+v.name, c.seeds(5, 1), func(seed uint64) (setup, error) { return v.setup(&c, path, nodes, seed) })
			if err != nil {
				return nil, err
			}
			if !v.promise && !v.sized {
				best = max(best, rep.mean(gpus+v.name, "in_time"))
			}
		}
		for _, name := range []string{"promised, 1 to 8", "promised exact, 1 to 8"} {
			met := rep.mean(gpus+name, "in_time")
			rep.Claims = append(rep.Claims, atLeast(gpus+name+": deadlines met, times the best with fixed sizes", margin, met/best))
		}
	}
	return rep, nil
}

// setup returns a run on nodes of 8 GPUs.
func (v *flowWay) setup(c *Config, path string, nodes int, seed uint64) (setup, error) {
	w, err := flowJobs(path, seed, v.sized)
	if err != nil {
		return setup{}, err
	}
	f := workload.Homogeneous(nodes, 8, "gpu", 0)
	f.MaxShares = 1
	opt := sim.Options{
		Seed: seed, Errors: sim.Errors{Bias: v.part}, Preemptible: true, PreemptSmall: 40 * time.Second, PreemptLarge: 40 * time.Second,
		NoZoom: true, PassEvery: 10 * time.Second, Tick: time.Minute, Clock: c.Clock,
	}
	if opt.Planner, err = planner(v.policy, seed, 1); err != nil {
		return setup{}, err
	}
	if b, ok := opt.Planner.(sim.Berth); ok {
		b.Policy.YieldAfter, b.Policy.DeadlineShareMilli = 0, 1000
		s := sim.NewSized(b, elastic.Rules{})
		if opt.Planner = s; v.promise {
			opt.Promise = s.Site()
		}
	}
	return setup{w, f, opt}, nil
}

// flowJobs reads ElasticFlow's list, with speeds drawn from a seed.
func flowJobs(path string, seed uint64, sized bool) (*workload.Workload, error) {
	w, _, err := trace.Load(path, trace.Options{Mix: "elasticflow_195job"})
	if err != nil {
		return nil, err
	}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		j.Milli, j.Exchange = 1000, 0.02+0.28*workload.Chance(seed, j.Model, "exchange").Float64()
		if j.GPUs > widest {
			j.Duration, j.GPUs = time.Duration(float64(j.Duration)*j.Slower(widest)), widest
		}
		if sized {
			j.Least, j.Most = 1, widest
		}
	}
	return w, nil
}
