package experiment

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// What Yeung et al. (HotCloud 2020) state, or what follows from it.
const (
	yeungJobs     = 100
	yeungMeanS    = 1869 // the mean completion time of the slot row, without waiting
	yeungShortest = 120
	yeungLongest  = 7200
	yeungSigma    = 1.1   // of log durations: assumed
	yeungRMSLE    = 0.154 // of predicted utilization
	yeungProfile  = time.Minute
)

// yeungWorkload draws the jobs of one seed: all present at the start, run times
// log-normal between two minutes and two hours and scaled to the published mean,
// utilization uniform between 20 and 82 %.
func yeungWorkload(seed uint64, peaks []int64) *workload.Workload {
	r := rand.New(rand.NewPCG(seed, 0x7965756e67))
	w := &workload.Workload{Name: "yeung"}
	sum, ds := 0.0, make([]float64, yeungJobs)
	for i := range ds {
		ds[i] = min(yeungLongest, max(yeungShortest, math.Exp(math.Log(1200)+yeungSigma*r.NormFloat64())))
		sum += ds[i]
	}
	for i, d := range ds {
		d = min(yeungLongest, max(yeungShortest, d*yeungMeanS*yeungJobs/sum))
		w.Jobs = append(w.Jobs, workload.Job{
			ID: fmt.Sprintf("y%03d", i), Duration: time.Duration(d * float64(time.Second)).Round(time.Millisecond), GPUs: 1,
			UsedMilli: 200 + r.Int64N(621), MemMiB: peaks[r.IntN(len(peaks))],
		})
	}
	return w
}

func yeungAssumptions() []string {
	return []string{
		"all 100 jobs arrive at once; the paper does not state arrivals, and its slot makespan fits nothing else",
		"run times are log-normal (sigma 1.1) in 2 min to 2 h, scaled to the mean of 1,869 s that the slot row reports",
		"utilization is uniform in 20 to 82 %, whose mean is the paper's cluster average over the busy share of its slot run",
		"memory is that of SchedTune's 48 training runs on an 8 GB card, at most 7.6 GiB, predicted exactly; the paper does not state it",
		"prediction error of utilization is log-normal with the paper's RMSLE of 0.154",
		"slowdown is 1 + 0.06 (k-1) + max(0, sum of utilizations - 1), read from the paper's figure 5a, not fitted",
		"slot is one job to a GPU in order of arrival, as gres in Slurm; our order with one job to a GPU is beside it; ffd+longest takes the longest first and looks at nothing else",
		"run times are predicted with an error of LogNormal(0, 0.5)",
		"reactive runs each job alone for a minute, ends it, and starts it again with what was measured",
		"mean_run_s is the paper's completion time: from first start to end, waiting left out (100 jobs of 1,869 s on 12 GPUs cannot average 1,869 s otherwise)",
	}
}

func yeung(ctx context.Context, c Config) (*Report, error) {
	path, err := c.trace("schedtune")
	if err != nil {
		return nil, err
	}
	peaks, err := trace.Peaks(path, "RTX 2070 SUPER", 7600)
	if err != nil {
		return nil, err
	}
	rep := &Report{
		Name: "yeung", Title: "Yeung et al. (HotCloud 2020), table 4: 12 GPUs, 100 jobs", Assumptions: yeungAssumptions(),
		Columns: []string{"gpu_util_pct", "makespan_s", "mean_run_s", "mean_slowdown", "mean_jct_s", "ooms", "lower_bound_makespan_s", "lower_bound_alone_makespan_s"},
	}
	rep.followed(&c)
	n := c.seeds(80, 5)
	free := []int64{1}
	run := func(name, policy string, memory []int64, change func(*sim.Options)) error {
		return rep.repeat(ctx, name, n, func(seed uint64) (setup, error) {
			p, err := planner(policy, seed, 0)
			s := setup{yeungWorkload(seed, memory), workload.Homogeneous(3, 4, "RTX 2080", 8<<10), sim.Options{
				Planner: p, Seed: seed, World: slowdown.DefaultCurve(), Errors: sim.Errors{Util: yeungRMSLE, Duration: 0.5}, OOMAfter: 30 * time.Second, Clock: c.Clock,
			}}
			change(&s.opt)
			return s, err
		})
	}
	for _, v := range []struct {
		name, policy string
		profile      time.Duration
		memory       []int64
	}{
		{"slot", "slot+fifo", 0, peaks}, {"slot, our order", "slot", 0, peaks}, {"reactive", "ffd", yeungProfile, peaks}, {"ffd", "ffd", 0, peaks},
		{overcommitted, overcommitted, 0, peaks}, {"ffd+longest", "ffd+longest", 0, peaks},
		{"reactive, memory left out", "ffd", yeungProfile, free}, {"ffd, memory left out", "ffd", 0, free},
	} {
		if err := run(v.name, v.policy, v.memory, func(o *sim.Options) { o.Profile = v.profile }); err != nil {
			return nil, err
		}
	}
	for _, v := range c.following() {
		if err := run(v.name, "ffd", peaks, v.apply); err != nil {
			return nil, err
		}
	}
	rep.Claims = []Claim{
		atLeast("utilization of ffd over slot, %", 61.5, rep.change("slot", "ffd", "gpu_util_pct")),
		atMost("makespan of ffd over slot, %", -33.6, rep.change("slot", "ffd", "makespan_s")),
		atMost("mean slowdown of ffd", 1.083, rep.mean("ffd", "mean_slowdown")),
		atLeast("utilization of "+overcommitted+" over slot, %", 75, rep.change("slot", overcommitted, "gpu_util_pct")),
		atMost("makespan of "+overcommitted+" over slot, %", -42, rep.change("slot", overcommitted, "makespan_s")),
		atMost("mean slowdown of "+overcommitted, 1.15, rep.mean(overcommitted, "mean_slowdown")),
		atMost("makespan of reactive over slot, %", 0, rep.change("slot", "reactive", "makespan_s")),
	}
	rep.followedTo(&c, "slot", "gpu_util_pct", 75, -42)
	return rep, nil
}
