package experiment

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// Config says where the data is and how much is run.
type Config struct {
	// Traces is the folder with a subfolder for each trace, Colocation the one with
	// the tables of pairs.
	Traces, Colocation string
	// Quick runs fewer seeds and policies, enough to see the shape.
	Quick bool
	// Resize adds, to the experiments of Yeung and SchedTune, variants of ffd whose
	// shares follow what jobs use, each with the same jobs with fixed shares.
	Resize cluster.ResizeMode
	// Note is called with what runs now; nil is none.
	Note func(string)
	// Clock measures planning; nil leaves the rates out.
	Clock func() time.Duration
}

func (c *Config) note(format string, args ...any) {
	if c.Note != nil {
		c.Note(fmt.Sprintf(format, args...))
	}
}

// trace returns the path of a trace, or an error that says what is missing.
func (c *Config) trace(name string) (string, error) {
	path := filepath.Join(c.Traces, name)
	if _, err := os.Stat(path); err != nil || c.Traces == "" {
		return "", fmt.Errorf("the experiment needs the trace %s in the folder of traces: %w", name, os.ErrNotExist)
	}
	return path, nil
}

// Claim compares a measured figure with its target.
type Claim struct {
	What string  `json:"what"`
	Want float64 `json:"want"`
	Got  float64 `json:"got"`
	Met  bool    `json:"met"`
}

// atLeast and atMost make claims.
func atLeast(what string, want, got float64) Claim { return Claim{what, want, got, got >= want} }
func atMost(what string, want, got float64) Claim  { return Claim{what, want, got, got <= want} }

// Line is the mean of a variant over its seeds.
type Line struct {
	Variant string             `json:"variant"`
	Seeds   int                `json:"seeds"`
	Mean    map[string]float64 `json:"mean"`
	// CI95 is half the width of the 95 % interval of each mean, by Student's t.
	CI95 map[string]float64 `json:"ci95"`
}

// Report is the result of an experiment.
type Report struct {
	Name        string        `json:"name"`
	Title       string        `json:"title"`
	Assumptions []string      `json:"assumptions"`
	Columns     []string      `json:"columns"`
	Lines       []Line        `json:"lines"`
	Claims      []Claim       `json:"claims"`
	Results     []*sim.Result `json:"results"`
}

// Experiment is one that can be run by name.
type Experiment struct {
	Name, About string
	Run         func(context.Context, Config) (*Report, error)
}

// NeedsTraces reports whether it reads traces, rather than inventing everything.
func (e Experiment) NeedsTraces() bool {
	return e.Name != "gap" && e.Name != "mig" && e.Name != "sizing" && e.Name != "ahead" && e.Name != "trading"
}

// All lists the experiments.
func All() []Experiment {
	return []Experiment{
		{"yeung", "co-location by predicted utilization on 12 GPUs (Yeung et al., HotCloud 2020, table 4)", yeung},
		{"schedtune", "360 jobs on five heterogeneous GPUs (SchedTune, CCGrid 2022, section V)", schedTune},
		{"openb", "filling 6,212 GPUs with fractional jobs (FGD, ATC 2023)", openb},
		{"lucid", "two job lists of Lucid's simulator (ASPLOS 2023)", lucid},
		{"muri", "Muri's traces on 64 GPUs (SIGCOMM 2022)", muri},
		{"gap", "distance to the optimum on small instances, in makespan and in GPUs of one epoch", gap},
		{"orders", "orders of the queue on Helios, Philly and ITP", orders},
		{"loans", "idle cards of services on loan to training jobs (Aryl, EuroSys 2023)", loans},
		{"ahead", "replicas of a service ahead of the daily rise (MArk, ATC 2019)", ahead},
		{"hived", "guarantees for virtual clusters: private nodes, quotas, cells (HiveD, OSDI 2020)", hived},
		{"ces", "idle nodes powered down by a forecast of demand (Helios' CES, SC 2021)", ces},
		{"defer", "jobs that wait for cheaper hours (ANDREAS, 2021)", cheaper},
		{"near", "jobs that start where their images and data sets are", near},
		{"links", "jobs on several nodes that keep to links others do not use (Ada-SRSF, 2020)", shareLinks},
		{"demand", "how well the demand of nodes is forecast, by each method", demand},
		{"trading", "accounts that trade GPU types (Gandiva-fair, EuroSys 2020)", trading},
		{"sizing", "sizes of elastic jobs on 64 GPUs: marginal gain, AFS, Optimus, Pollux, Sia", sizing},
		{"mig", "GPUs in MIG mode cut by demand (MIG-Serving, 2021)", recut},
		{"elasticflow", "deadlines of elastic jobs on 128 GPUs (ElasticFlow, ASPLOS 2023, its list of 195 jobs)", elasticFlow},
	}
}

// ByName returns an experiment.
func ByName(name string) (Experiment, error) {
	var names []string
	for _, e := range All() {
		if e.Name == name {
			return e, nil
		}
		names = append(names, e.Name)
	}
	return Experiment{}, fmt.Errorf("experiment %q is not known; the experiments are %v", name, names)
}

// overcommitted is ffd with scheduling.overcommit: 1.25.
const overcommitted = "ffd, overcommit 1.25"

// planner returns a policy; the scheduler's own passes come with their fast path.
func planner(name string, seed uint64, maxShares int) (sim.Planner, error) {
	if name == "ffd+longest" { // the same with every job counted as long
		b := sim.NewBerth(scheduler.ModeFFD, maxShares)
		b.Policy.ShortPart, b.Policy.LongPart = 0, 1<<40
		return b, nil
	}
	if name == overcommitted {
		b := sim.NewBerth(scheduler.ModeFFD, maxShares)
		b.Policy.OvercommitMilli = 1250
		return b, nil
	}
	if name == "ffd" || name == "slot" {
		return sim.NewBerth(scheduler.Mode(name), maxShares), nil
	}
	base := scheduler.Default()
	base.MaxReasons = -1
	if maxShares > 0 {
		base.MaxShares = maxShares
	}
	return policies.New(name, policies.Options{Base: base, Seed: seed})
}

// figures returns what lines hold, by the names of the JSON.
func figures(r *sim.Result) map[string]*float64 {
	var decision *float64
	if r.DecisionsPerS != nil && *r.DecisionsPerS > 0 {
		decision = new(1e6 / *r.DecisionsPerS)
	}
	return map[string]*float64{
		"allocation_pct": r.AllocationPct, "gpu_util_pct": r.GPUUtilPct, "mem_util_pct": r.MemUtilPct, "makespan_s": r.Makespan,
		"wide_p99_jct_s": r.WideP99JCT, "bounded_slowdown": r.BoundedSlowdown, "p99_wait_s": r.P99Wait,
		"in_time": r.InTime, "mean_jct_s": r.MeanJCT, "median_jct_s": r.MedianJCT, "p99_jct_s": r.P99JCT, "mean_wait_s": r.MeanWait, "mean_slowdown": r.MeanSlowdown,
		"mean_run_s": r.MeanRun, "fragmentation_pct": r.FragmentationPct, "ooms": counted(&r.OOMs), "preemptions": counted(&r.Preemptions),
		"failed": counted(&r.Failed), "unplaced": counted(&r.Unplaced), "lower_bound_makespan_s": r.LowerBoundMakespan,
		"lower_bound_alone_makespan_s": r.LowerBoundAlone, "energy_kwh": r.EnergyKWh,
		"cuts": counted(r.Cuts), "growths": counted(r.Growths), "harmed": counted(r.Harmed), "reserved_over_used": r.ReservedOverUsed,
		"rejected": counted(r.RejectedPods), "decision_us": decision, "decision_p50_us": r.DecisionP50, "decision_p99_us": r.DecisionP99,
		"images_fetched": counted(r.ImagesFetched), "data_elsewhere": counted(r.DataElsewhere), "nodes_off": r.NodesOff, "nodes_busy_pct": r.NodesBusyPct, "wake_ups_per_day": r.WakeUpsPerDay, "wake_calls_per_day": r.WakeCallsPerDay,
		"jobs_late": counted(r.JobsLate), "mean_late_s": r.MeanLate,
		"decisions_per_s": r.DecisionsPerS, "lower_bound_alone_mean_jct_s": r.LowerBoundJCT,
	}
}

func counted(n *int) *float64 {
	if n == nil {
		return nil
	}
	return new(float64(*n))
}

// add appends the line of a variant and its results.
func (r *Report) add(variant string, rs []*sim.Result) {
	l := Line{Variant: variant, Seeds: len(rs), Mean: map[string]float64{}, CI95: map[string]float64{}}
	for _, name := range r.Columns {
		var vs []float64
		for _, res := range rs {
			if v := figures(res)[name]; v != nil {
				vs = append(vs, *v)
			}
		}
		if len(vs) == 0 {
			continue
		}
		l.Mean[name], l.CI95[name] = sim.MeanCI(vs)
	}
	r.Lines = append(r.Lines, l)
	for _, res := range rs {
		res.Policy = variant
	}
	r.Results = append(r.Results, rs...)
}

// setup is one run of a variant.
type setup struct {
	w     *workload.Workload
	fleet workload.Fleet
	opt   sim.Options
}

// repeat runs a variant with so many seeds, from 1 on, and appends its line.
func (r *Report) repeat(ctx context.Context, variant string, seeds uint64, of func(seed uint64) (setup, error)) error {
	var rs []*sim.Result
	for seed := uint64(1); seed <= seeds; seed++ {
		s, err := of(seed)
		if err != nil {
			return err
		}
		res, err := sim.Run(ctx, s.w, &s.fleet, s.opt)
		if err != nil {
			return err
		}
		rs = append(rs, res)
	}
	r.add(variant, rs)
	return nil
}

// mean returns a figure of a variant, NaN if there is none.
func (r *Report) mean(variant, name string) float64 {
	i := slices.IndexFunc(r.Lines, func(l Line) bool { return l.Variant == variant })
	if i < 0 {
		return math.NaN()
	}
	v, ok := r.Lines[i].Mean[name]
	if !ok {
		return math.NaN()
	}
	return v
}

// change returns by how many per cent variant b differs from a.
func (r *Report) change(a, b, name string) float64 {
	return 100 * (r.mean(b, name)/r.mean(a, name) - 1)
}

// seeds returns how many seeds to run.
func (c *Config) seeds(all, quick int) uint64 {
	if c.Quick {
		return uint64(quick)
	}
	return uint64(all)
}
