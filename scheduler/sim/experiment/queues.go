package experiment

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
)

// variant is one policy in an experiment about queues.
type variant struct {
	name, policy string
	preempts     bool
	durError     float64
	shares       bool // predictions of memory and utilization are given
	declares     bool
	// opt are options of the policy, none for those of production.
	opt *policies.Options
	// every and tick override the least time between two passes and the
	// longest, while somebody waits.
	every, tick time.Duration
	// pool takes the machines for one, even where the fleet tells them apart;
	// unknown tells nobody how long jobs run; know says how they slow each other.
	pool, unknown bool
	know          *cluster.Interference
}

// planner makes the variant's policy.
func (v *variant) planner(f *sim.Fleet) (sim.Planner, error) {
	if v.opt == nil {
		return planner(v.policy, 1, f.MaxShares)
	}
	opt := *v.opt
	if opt.Base == (scheduler.Policy{}) {
		opt.Base = scheduler.Default()
	}
	opt.Base.MaxReasons = 0
	if f.MaxShares > 0 {
		opt.Base.MaxShares = f.MaxShares
	}
	return policies.New(v.policy, opt)
}

// published are the classic orders by the rules of Lucid's simulator: gangs are
// consolidated on machines of 8, nobody passes the first that does not fit,
// srtf and las count the cards off anew, and las does so once a minute with one
// limit.
func published() []variant {
	strict := &policies.Options{Backfill: policies.BackfillNone}
	ranked := policies.Options{Evict: policies.EvictRanked, MinRun: -1, MaxPreempt: 4096}
	las := ranked
	las.LAS = policies.LAS{Limits: []time.Duration{18000 * time.Second}, ByArrival: true}
	return []variant{
		{name: "fifo as published", policy: "consolidate+fifo", opt: strict, every: time.Second}, {name: "sjf as published", policy: "consolidate+sjf", opt: strict, every: time.Second},
		{name: "qssf as published", policy: "consolidate+qssf", opt: strict, durError: 0.5, every: time.Second},
		{name: "srtf as published", policy: "consolidate+srtf", opt: &ranked, preempts: true, every: time.Second},
		{name: "las as published", policy: "consolidate+las", opt: &las, preempts: true, every: time.Minute, tick: time.Minute},
	}
}

// classic are the orders that published simulators have, on whole cards.
func classic() []variant {
	return []variant{
		{name: "fifo", policy: "slot+fifo"}, {name: "sjf", policy: "slot+sjf"}, {name: "qssf", policy: "slot+qssf", durError: 0.5},
		{name: "srtf", policy: "slot+srtf", preempts: true, tick: 10 * time.Minute}, {name: "las", policy: "slot+las", preempts: true, tick: 10 * time.Minute},
		{name: "slot", policy: "slot", durError: 0.5},
	}
}

// queueColumns are what reports about queues show.
func queueColumns() []string {
	return []string{"mean_jct_s", "median_jct_s", "p99_jct_s", "mean_wait_s", "makespan_s", "allocation_pct", "mean_slowdown", "preemptions", "ooms", "lower_bound_alone_mean_jct_s"}
}

// load reads a list and the fleet that goes with it; jobs wider than a node
// make it one node.
func load(c *Config, folder, mix string, opt trace.Options) (*sim.Workload, sim.Fleet, string, error) {
	path, err := c.trace(folder)
	if err != nil {
		return nil, sim.Fleet{}, "", err
	}
	opt.Mix = mix
	w, _, err := trace.Load(path, opt)
	if err != nil {
		return nil, sim.Fleet{}, "", err
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
func runQueues(ctx context.Context, c *Config, rep *Report, w *sim.Workload, f sim.Fleet, world sim.Interference, vs []variant) error {
	for _, v := range vs {
		c.note("%s: %s", w.Name, v.name)
		p, err := v.planner(&f)
		if err != nil {
			return err
		}
		opt := sim.Options{
			Planner: p, Seed: 1, World: world, Errors: sim.Errors{Duration: v.durError, Hide: !v.shares, NoDuration: v.unknown}, Know: v.know, Preemptible: v.preempts,
			PreemptSmall: 40 * time.Second, PreemptLarge: 60 * time.Second, OOMAfter: 30 * time.Second, Declare: v.declares, PassEvery: passEvery(f), Tick: v.tick, Clock: c.Clock,
		}
		if v.every > 0 {
			opt.PassEvery = v.every
		}
		fleet := f
		fleet.Islands = f.Islands && !v.pool
		r, err := sim.Run(ctx, w, &fleet, opt)
		if err != nil {
			return fmt.Errorf("%s on %s: %w", v.name, w.Name, err)
		}
		rep.add(w.Name+" "+v.name, []*sim.Result{r})
	}
	return nil
}

// passEvery keeps the planning of large fleets affordable.
func passEvery(f sim.Fleet) time.Duration {
	if f.GPUs() > 128 {
		return time.Minute
	}
	return time.Second
}

func lucid(ctx context.Context, c Config) (*Report, error) {
	rep := &Report{
		Name: "lucid", Title: "Lucid's simulator (ASPLOS 2023) on two job lists", Columns: queueColumns(),
		Assumptions: []string{
			"published with the artefact on the same lists, mean completion time in s: m3 FIFO 99,121, SJF 26,208, SRTF 19,059, QSSF 27,391, Tiresias 33,031, Lucid 16,604; v2 FIFO 36,802, SJF 15,275, SRTF 14,257, QSSF 14,341, Tiresias 16,788, Lucid 13,543",
			"fifo lets later jobs pass that do not delay the first (backfill), which Lucid's does not",
			"preempted jobs lose 40 s up to 8 GPUs and 60 s above; qssf, slot and ffd see run times times LogNormal(0, 0.5); sjf, srtf and las see the truth",
			"for ffd each job is one of Lucid's measured programs, drawn with seed 1; memory and utilization are predicted exactly, and jobs slow each other as Lucid's table of pairs says",
			"jobs of several GPUs have them alone, unless they declare their memory; gangs share: all of them do",
			"one seed",
		},
	}
	for _, mix := range []string{"m3", "v2"} {
		if c.Quick && mix == "v2" {
			continue
		}
		w, f, _, err := load(&c, "lucid-window", mix, trace.Options{})
		if err != nil {
			return nil, err
		}
		f.Nodes = sim.Homogeneous(map[string]int{"m3": 8, "v2": 64}[mix], 8, "gpu", 24<<10).Nodes
		rep.Assumptions = append(rep.Assumptions, fmt.Sprintf("%s: %d GPUs as in the published runs on this list, taken for one node, as jobs are wider than a node", w.Name, f.GPUs()))
		if err := runQueues(ctx, &c, rep, w, f, sim.DefaultCurve(), classic()); err != nil {
			return nil, err
		}
		machines := f
		machines.Islands = true
		if err := runQueues(ctx, &c, rep, w, machines, sim.DefaultCurve(), published()); err != nil {
			return nil, err
		}
		pairs, err := trace.LoadPairs(c.Colocation, "lucid")
		if err != nil {
			return nil, err
		}
		given, err := trace.AssignLucid(w, c.Colocation, 1)
		if err != nil {
			return nil, err
		}
		shared := []variant{
			{name: "ffd", policy: "ffd", durError: 0.5, shares: true}, {name: "ffd+qssf", policy: "ffd+qssf", durError: 0.5, shares: true},
			{name: "lucid", policy: "lucid", durError: 0.5, shares: true},
			{name: "ffd, gangs share", policy: "ffd", durError: 0.5, shares: true, declares: true},
			{name: "ffd+qssf, gangs share", policy: "ffd+qssf", durError: 0.5, shares: true, declares: true},
			{name: "lucid, gangs share", policy: "lucid", durError: 0.5, shares: true, declares: true},
		}
		if err := runQueues(ctx, &c, rep, given, f, pairs, shared); err != nil {
			return nil, err
		}
	}
	rep.Claims = []Claim{
		atMost("m3: mean completion time of ffd+qssf, gangs sharing, s (Lucid's 16,604)", 16604, rep.mean("lucid-window/m3 ffd+qssf, gangs share", "mean_jct_s")),
		atMost("m3: srtf is so far from the published 19,059 s, %", 10, 100*math.Abs(rep.mean("lucid-window/m3 srtf", "mean_jct_s")/19059-1)),
		atMost("m3: sjf is so far from the published 26,208 s, %", 10, 100*math.Abs(rep.mean("lucid-window/m3 sjf", "mean_jct_s")/26208-1)),
	}
	return rep, nil
}

func muri(ctx context.Context, c Config) (*Report, error) {
	rep := &Report{
		Name: "muri", Title: "Muri's traces (SIGCOMM 2022) on 64 GPUs", Columns: queueColumns(),
		Assumptions: []string{
			"published, mean completion time in 1,000 s, traces 1, 3, 4: SRTF 1,370.6, 193.1, 582.0; Tiresias-L 3,330.4, 347.2, 1,319.4; Muri-S 867.7, 85.5, 365.5; Muri-L 1,072.0, 88.7, 429.2",
			"jobs that share a card interleave their stages as in the paper: nobody is slower than the busiest stage of all together",
			"muri and ffd see run times and the share of the card's stage exactly; memory is not in the trace, every job declares 1 MiB, and up to 4 share a card, as in the paper",
			"fifo lets later jobs pass that do not delay the first (backfill); the published ones do not",
			"preempted jobs lose 40 s up to 8 GPUs and 60 s above; one seed",
		},
	}
	mixes := []string{"trace3", "trace4", "trace1"}
	if c.Quick {
		mixes = mixes[:1]
	}
	for _, mix := range mixes {
		w, f, why, err := load(&c, "muri", mix, trace.Options{})
		if err != nil {
			return nil, err
		}
		rep.Assumptions = append(rep.Assumptions, why)
		if err := runQueues(ctx, &c, rep, w, f, sim.Stages{}, classic()); err != nil {
			return nil, err
		}
		for i := range w.Jobs {
			w.Jobs[i].MemMiB = 1
		}
		f.MaxShares = 4
		shared := []variant{{name: "ffd+srsf, gangs share", policy: "ffd+srsf", shares: true, declares: true}, {name: "muri", policy: "muri", shares: true, declares: true}}
		if err := runQueues(ctx, &c, rep, w, f, sim.Stages{}, shared); err != nil {
			return nil, err
		}
	}
	srtf, las := rep.mean("muri/trace3 srtf", "mean_jct_s")/1000, rep.mean("muri/trace3 las", "mean_jct_s")/1000
	rep.Claims = []Claim{
		atMost("trace 3: srtf is so far from the published 193.1, %", 10, 100*math.Abs(srtf/193.1-1)),
		atMost("trace 3: las is so far from the published 347.2, %", 10, 100*math.Abs(las/347.2-1)),
		atMost("trace 3: mean completion time of the best that shares, 1,000 s (Muri-S 85.5)", 85.5,
			min(rep.mean("muri/trace3 muri", "mean_jct_s"), rep.mean("muri/trace3 ffd+srsf, gangs share", "mean_jct_s"))/1000),
	}
	return rep, nil
}
