package experiment

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/optimum"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// The instances of the experiment: small enough to be solved exactly.
const (
	gapInstances = 200
	gapQuick     = 30
	gapFewest    = 8  // jobs of an instance
	gapMost      = 10 // including the one above
	gapMemMiB    = 16 << 10
)

// gapWorkload draws jobs of one GPU that are all present: run times log-normal
// around 20 minutes (sigma 1.1, 2 minutes to 2 hours), utilization uniform in 20 to
// 82 %, memory uniform in 1 to 12 GiB of 16.
func gapWorkload(seed uint64) (*workload.Workload, int) {
	r := rand.New(rand.NewPCG(seed, 0x676170))
	w := &workload.Workload{Name: fmt.Sprintf("small-%d", seed)}
	for i := range gapFewest + r.IntN(gapMost-gapFewest+1) {
		d := min(7200, max(120, math.Exp(math.Log(1200)+1.1*r.NormFloat64())))
		w.Jobs = append(w.Jobs, workload.Job{
			ID: fmt.Sprintf("g%02d", i), Duration: time.Duration(d * float64(time.Second)).Round(time.Second), GPUs: 1,
			UsedMilli: 200 + r.Int64N(621), MemMiB: 1024 + r.Int64N(11<<10),
		})
	}
	return w, 2 + r.IntN(2)
}

func gapAssumptions() []string {
	return []string{
		"8 to 10 jobs of one GPU are there at the start on 2 or 3 GPUs of 16 GiB; run times are log-normal around 20 min (sigma 1.1) in 2 min to 2 h, utilization is uniform in 20 to 82 %, memory in 1 to 12 GiB; all is predicted exactly",
		"neighbours cost 1 + 0.06 (k-1) + max(0, sum of utilizations - 1); at most three jobs share a GPU",
		"the optimum of makespan is that of schedules which start jobs at the beginning or when others end, found by branch and bound, whatever utilizations on a card add up to; \"best without overselling\" is that of schedules in which they add up to 100 % at most, as all policies here but one keep it; the bound is that of patterns and holds for all schedules",
		"for GPUs in one epoch there are as many GPUs as jobs: counted are those in use after the first pass, against the fewest that hold all jobs within memory and time",
		"gap is by how many per cent a figure is above the optimum",
	}
}

// gapColumns returns the columns of the report.
func gapColumns() []string {
	return []string{"gap_pct", "gap_median_pct", "gap_p95_pct", "gap_max_pct", "optimal_pct", "gap_bound_pct", "bound_under_optimum_pct"}
}

// gaps are the results of one policy on all instances.
type gaps struct{ optimum, bound, under []float64 }

func (g *gaps) add(got, optimum, bound float64) {
	g.optimum = append(g.optimum, 100*(got/optimum-1))
	g.bound = append(g.bound, 100*(got/bound-1))
	g.under = append(g.under, 100*(1-bound/optimum))
}

// line averages the gaps of a policy.
func (g *gaps) line(variant string) Line {
	l := Line{Variant: variant, Seeds: len(g.optimum), Mean: map[string]float64{}, CI95: map[string]float64{}}
	l.Mean["gap_pct"], l.CI95["gap_pct"] = sim.MeanCI(g.optimum)
	l.Mean["gap_bound_pct"], l.CI95["gap_bound_pct"] = sim.MeanCI(g.bound)
	l.Mean["bound_under_optimum_pct"], _ = sim.MeanCI(g.under)
	hit := 0
	for _, v := range g.optimum {
		if v < 1e-3 {
			hit++
		}
	}
	l.Mean["optimal_pct"] = 100 * float64(hit) / float64(len(g.optimum))
	slices.Sort(g.optimum)
	l.Mean["gap_median_pct"], l.Mean["gap_p95_pct"], l.Mean["gap_max_pct"] = sim.Quantile(g.optimum, 0.5), sim.Quantile(g.optimum, 0.95), g.optimum[len(g.optimum)-1]
	return l
}

// gapWithin is the best possible without overselling compute.
const gapWithin = "best without overselling"

func gapPolicies() []string { return []string{"ffd", overcommitted, "ffd+longest", "slot", "fgd"} }

// gap measures how far policies are from the optimum of small instances.
func gap(ctx context.Context, c Config) (*Report, error) {
	rep := &Report{Name: "gap", Title: "Distance to the optimum on small instances", Assumptions: gapAssumptions(), Columns: gapColumns()}
	makespan, cards := map[string]*gaps{}, map[string]*gaps{}
	for _, p := range gapPolicies() {
		makespan[p], cards[p] = &gaps{}, &gaps{}
	}
	makespan[gapWithin] = &gaps{}
	n := c.seeds(gapInstances, gapQuick)
	for seed := uint64(1); seed <= n; seed++ {
		c.note("gap: instance %d of %d", seed, n)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		w, gpus := gapWorkload(seed)
		if err := gapMakespan(ctx, w, gpus, makespan); err != nil {
			return nil, fmt.Errorf("instance %d: %w", seed, err)
		}
		if err := gapCards(ctx, w, cards); err != nil {
			return nil, fmt.Errorf("instance %d: %w", seed, err)
		}
	}
	for _, p := range gapPolicies() {
		rep.Lines = append(rep.Lines, makespan[p].line(p+", makespan"))
	}
	rep.Lines = append(rep.Lines, makespan[gapWithin].line(gapWithin+", makespan"))
	for _, p := range gapPolicies() {
		rep.Lines = append(rep.Lines, cards[p].line(p+", GPUs in one epoch"))
	}
	for _, what := range []string{"makespan", "GPUs in one epoch"} {
		for _, limit := range []float64{5, 2} {
			rep.Claims = append(rep.Claims, atMost(fmt.Sprintf("%s of ffd above the optimum, mean %% (%g %% %s)", what, limit, map[float64]string{5: "must", 2: "aim"}[limit]),
				limit, rep.mean("ffd, "+what, "gap_pct")))
		}
	}
	rep.Claims = append(rep.Claims, atMost("makespan of "+overcommitted+" above the optimum, mean % (5 % must)", 5, rep.mean(overcommitted+", makespan", "gap_pct")))
	return rep, nil
}

// gapMakespan runs an instance to its end.
func gapMakespan(ctx context.Context, w *workload.Workload, gpus int, out map[string]*gaps) error {
	f, world := workload.Homogeneous(1, gpus, "gpu", gapMemMiB), slowdown.DefaultCurve()
	least, err := optimum.ShortestMakespan(w, &f, world)
	if err != nil {
		return err
	}
	within, err := optimum.ShortestMakespanWithin(w, &f, world)
	if err != nil {
		return err
	}
	for _, name := range gapPolicies() {
		p, err := planner(name, 1, 0)
		if err != nil {
			return err
		}
		r, err := sim.Run(ctx, w, &f, sim.Options{Planner: p, Seed: 1, World: world, OOMAfter: 30 * time.Second})
		if err != nil {
			return err
		}
		if r.Completed != len(w.Jobs) || r.OOMs > 0 {
			return fmt.Errorf("%s: %d of %d jobs completed, %d ran out of memory, though all is predicted exactly", name, r.Completed, len(w.Jobs), r.OOMs)
		}
		out[name].add(*r.Makespan, least.Seconds(), *r.LowerBoundMakespan)
		if name == gapPolicies()[0] {
			out[gapWithin].add(within.Seconds(), least.Seconds(), *r.LowerBoundMakespan)
		}
	}
	return nil
}

// gapCards counts the GPUs that the first pass takes if there is one for each job.
func gapCards(ctx context.Context, w *workload.Workload, out map[string]*gaps) error {
	f := workload.Homogeneous(1, len(w.Jobs), "gpu", gapMemMiB)
	least, err := optimum.FewestCards(w, &f)
	if err != nil {
		return err
	}
	l2, pattern := optimum.CardsBound(w, &f)
	for _, name := range gapPolicies() {
		p, err := planner(name, 1, 0)
		if err != nil {
			return err
		}
		used := firstCards{}
		if _, err := sim.Run(ctx, w, &f, sim.Options{Planner: p, Seed: 1, Observe: used}); err != nil {
			return err
		}
		out[name].add(float64(len(used)), float64(least), float64(max(l2, pattern)))
	}
	return nil
}

// firstCards are the GPUs of attempts that began at the start.
type firstCards map[int]struct{}

// Attempt implements sim.Observer.
func (f firstCards) Attempt(_ string, cards []int, from, _ time.Duration, _ cluster.JobState) {
	for _, c := range cards {
		if from == 0 {
			f[c] = struct{}{}
		}
	}
}

// Level implements sim.Observer.
func (firstCards) Level(time.Duration, int64, int64, int64, int) {}
