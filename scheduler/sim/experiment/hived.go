package experiment

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/cells"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// excess is how much later than in its private cluster a job must end to be
// counted.
const excess = 10 * time.Minute

// hived compares ways to share a cluster among virtual clusters.
func hived(ctx context.Context, c Config) (*Report, error) {
	rep := &Report{
		Name: "hived", Title: "Guarantees for virtual clusters: private nodes, quotas, cells (HiveD, OSDI 2020)",
		Columns: []string{"mean_delay_s", "worst_ratio", "vcs_worse", "late_jobs", "late_mean_s", "busy_pct", "preemptions", "private_s", "quotas_s", "spread_s", "cells_s", "lending_s"},
		Assumptions: []string{
			"each virtual cluster (VC) of the trace is guaranteed whole nodes of 8 GPUs, in proportion to the GPU time of its jobs, at least one node: the sizes are not published",
			"jobs wider than a node are left out; every job has its cards alone; first come, first served in each VC, and who does not fit is passed by who does, with every way of sharing alike",
			"private: each VC has its nodes to itself; quotas: one cluster, and each VC at most as many GPUs as it has in nodes, wherever they are, on the fullest node that holds the job; spread: the same on any node that holds it, drawn by chance; cells: the guarantees of package cells, nobody may be preempted; lending: the same, and every job may be preempted, at a loss of 40 s, and not again within ten minutes",
			"delay is the time to the end less the run time; worst_ratio is the largest mean delay of a VC over that in its private cluster, each with a minute added; vcs_worse counts VCs whose mean delay is more than 1 % and a minute above the private one; late jobs end more than 10 minutes later than in the private cluster, late_mean_s by how much",
			"busy_pct is the part of all GPUs in use from the first arrival to the last; lines of a VC hold its mean delay for each way, mean_delay_s with lending; one seed",
		},
	}
	w, nodes, err := vcWorkload(&c)
	if err != nil {
		return nil, err
	}
	total := 0
	for _, n := range nodes {
		total += n
	}
	rep.Assumptions = append(rep.Assumptions, fmt.Sprintf("%s: %d jobs of %d VCs on %d nodes of 8; the first quarter of the time is left out; arrivals are squeezed until 85 %% of the GPUs are asked for on the average", w.Name, len(w.Jobs), len(nodes), total))
	ways := []struct {
		name string
		run  func() (*shared, error)
	}{
		{"private", func() (*shared, error) { return runPrivate(ctx, w, nodes) }},
		{"quotas", func() (*shared, error) { return runShared(ctx, w, total, quotas("consolidate", nodes), false) }},
		{"spread", func() (*shared, error) { return runShared(ctx, w, total, quotas("random", nodes), false) }},
		{"cells", func() (*shared, error) { return runShared(ctx, w, total, underCells(nodes), false) }},
		{"lending", func() (*shared, error) { return runShared(ctx, w, total, underCells(nodes), true) }},
	}
	done := map[string]*shared{}
	for _, way := range ways {
		c.note("%s: %s", w.Name, way.name)
		if done[way.name], err = way.run(); err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		rep.Lines = append(rep.Lines, done[way.name].line(way.name, done["private"], total))
	}
	for _, vc := range done["private"].names() {
		l := Line{Variant: fmt.Sprintf("VC %s, %d nodes, %d jobs", vc, nodes[vc], len(done["private"].of(vc))), Seeds: 1, Mean: map[string]float64{}, CI95: map[string]float64{}}
		for _, way := range ways {
			l.Mean[way.name+"_s"] = done[way.name].meanOf(vc)
		}
		l.Mean["mean_delay_s"] = l.Mean["lending_s"]
		rep.Lines = append(rep.Lines, l)
	}
	rep.Claims = []Claim{
		atMost("cells: VCs that wait longer than in their private cluster", 0, rep.mean("cells", "vcs_worse")),
		atMost("cells: jobs that end more than 10 minutes later than in their private cluster", 0, rep.mean("cells", "late_jobs")),
		atLeast("quotas or spread: jobs that end more than 10 minutes later than in their private cluster", 1, rep.mean("quotas", "late_jobs")+rep.mean("spread", "late_jobs")),
		atLeast("lending against private, less mean delay, %", 0, -rep.change("private", "lending", "mean_delay_s")),
	}
	return rep, nil
}

// vcWorkload reads the trace and sizes its virtual clusters in nodes of 8.
func vcWorkload(c *Config) (*workload.Workload, map[string]int, error) {
	jobs := 6_000
	if c.Quick {
		jobs = 2_000
	}
	path, err := c.trace("philly")
	if err != nil {
		return nil, nil, err
	}
	w, _, err := trace.Load(path, trace.Options{})
	if err != nil {
		return nil, nil, err
	}
	w.Sort()
	// The first quarter of the time is left out: of the jobs already present when
	// the trace begins it has only the long ones.
	begin := w.Jobs[len(w.Jobs)-1].Submit / 4
	first := slices.IndexFunc(w.Jobs, func(j workload.Job) bool { return j.Submit >= begin })
	w.Jobs = w.Jobs[first:min(len(w.Jobs), first+jobs)]
	for i := range w.Jobs {
		w.Jobs[i].Submit -= begin
	}
	w.Jobs = slices.DeleteFunc(w.Jobs, func(j workload.Job) bool { return j.GPUs > 8 || j.GPUs < 1 })
	for i := range w.Jobs {
		w.Jobs[i].User = w.Jobs[i].Group
	}
	f, _ := trace.FleetFor(w)
	nodes := NodesOf(w, f.GPUs()/8)
	total := 0
	for _, n := range nodes {
		total += n
	}
	trace.Squeeze(w, 8*total, 0.85)
	return w, nodes, nil
}

// NodesOf divides so many nodes among the groups of a workload in proportion to the
// GPU time of their jobs, rounded to the nearest and at least one each, so the sum
// may differ.
func NodesOf(w *workload.Workload, nodes int) map[string]int {
	work, all := map[string]float64{}, 0.0
	for i := range w.Jobs {
		j := &w.Jobs[i]
		t := j.Duration.Seconds() * float64(j.GPUs)
		work[j.Group] += t
		all += t
	}
	out := map[string]int{}
	for vc, t := range work {
		out[vc] = max(1, int(math.Round(float64(nodes)*t/all)))
	}
	return out
}

// packing returns the policy inside every way of sharing.
func packing(place string, ten *policies.Tenancy) (sim.Planner, error) {
	base := scheduler.Default()
	base.MaxReasons, base.MaxShares = 0, 1
	return policies.New(place, policies.Options{Base: base, Backfill: policies.BackfillAny, Tenants: ten})
}

// maker returns the planner of a way of sharing.
type maker func() (sim.Planner, error)

// underCells guarantees each VC its nodes as cells of 8.
func underCells(nodes map[string]int) maker {
	ten := &policies.Tenancy{Users: map[string]string{}}
	for vc, n := range nodes {
		ten.Tenants = append(ten.Tenants, cells.Tenant{Name: vc, Cells: []cells.Cell{{GPUType: "gpu", GPUs: 8, Count: n}}})
		ten.Users[vc] = vc
	}
	return func() (sim.Planner, error) { return packing("consolidate", ten) }
}

func quotas(place string, nodes map[string]int) maker {
	return func() (sim.Planner, error) {
		p, err := packing(place, nil)
		return &quota{p, nodes}, err
	}
}

// quota lets each VC have so many GPUs, wherever they are, as Slurm's GrpTRES does.
type quota struct {
	inner sim.Planner
	nodes map[string]int
}

// Name implements sim.Planner.
func (q *quota) Name() string { return "quotas" }

// Plan implements sim.Planner. Jobs that do not fit give way to those that do.
func (q *quota) Plan(snap *dispatch.Snapshot) dispatch.Plan {
	used := map[string]int{}
	for _, j := range snap.Running {
		used[j.Owner.Name] += j.Spec.GPUs
	}
	waiting := slices.Clone(snap.Waiting)
	slices.SortFunc(waiting, func(a, b *cluster.Job) int {
		return cmp.Or(cmp.Compare(a.Eligible, b.Eligible), cmp.Compare(a.ID, b.ID))
	})
	plan := dispatch.Plan{BaseIndex: snap.Index}
	left := *snap
	left.Ledger = snap.Ledger.Clone()
	for len(waiting) > 0 {
		tentative := map[string]int{}
		var now, later []*cluster.Job
		for _, j := range waiting {
			vc, n := j.Owner.Name, j.Spec.GPUs
			switch {
			case used[vc]+tentative[vc]+n <= 8*q.nodes[vc]:
				tentative[vc] += n
				now = append(now, j)
			case used[vc]+n <= 8*q.nodes[vc]:
				later = append(later, j)
			}
		}
		if len(now) == 0 {
			break
		}
		left.Waiting = now
		part := q.inner.Plan(&left)
		for _, s := range part.Starts {
			left.Ledger.Take(&s.Berth)
			i := slices.IndexFunc(now, func(j *cluster.Job) bool { return j.ID == s.Job })
			used[now[i].Owner.Name] += now[i].Spec.GPUs
		}
		plan.Starts = append(plan.Starts, part.Starts...)
		waiting = later
	}
	return plan
}

// shared is the result of one way of sharing.
type shared struct {
	w           *workload.Workload
	end         map[string]time.Duration // by job
	busy        float64                  // GPU seconds until the last arrival
	last        time.Duration
	preemptions int
}

// Attempt implements sim.Observer.
func (s *shared) Attempt(job string, cards []int, from, to time.Duration, _ cluster.JobState) {
	s.end[job] = max(s.end[job], to)
	s.busy += float64(len(cards)) * max(0, min(to, s.last)-from).Seconds()
}

// Level implements sim.Observer.
func (s *shared) Level(time.Duration, int64, int64, int64, int) {}

func newShared(w *workload.Workload) *shared {
	s := &shared{w: w, end: map[string]time.Duration{}}
	for i := range w.Jobs {
		s.last = max(s.last, w.Jobs[i].Submit)
	}
	return s
}

func runShared(ctx context.Context, w *workload.Workload, nodes int, make maker, lend bool) (*shared, error) {
	s := newShared(w)
	return s, s.run(ctx, w, nodes, make, lend)
}

// runPrivate gives every VC its own cluster.
func runPrivate(ctx context.Context, w *workload.Workload, nodes map[string]int) (*shared, error) {
	s := newShared(w)
	for _, vc := range s.names() {
		own := &workload.Workload{Name: w.Name + "/" + vc, Form: w.Form}
		for i := range w.Jobs {
			if w.Jobs[i].Group == vc {
				own.Jobs = append(own.Jobs, w.Jobs[i])
			}
		}
		if err := s.run(ctx, own, nodes[vc], func() (sim.Planner, error) { return packing("consolidate", nil) }, false); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *shared) run(ctx context.Context, w *workload.Workload, nodes int, make maker, lend bool) error {
	p, err := make()
	if err != nil {
		return err
	}
	f := workload.Homogeneous(nodes, 8, "gpu", 0)
	f.MaxShares = 1
	r, err := sim.Run(ctx, w, &f, sim.Options{
		Planner: p, Seed: 1, Errors: sim.Errors{Hide: true}, Preemptible: lend, PreemptSmall: 40 * time.Second, PreemptLarge: 40 * time.Second,
		Observe: s, NoZoom: true, PassEvery: 30 * time.Second,
	})
	if err != nil {
		return err
	}
	if r.Completed != len(w.Jobs) {
		return fmt.Errorf("%d of %d jobs completed", r.Completed, len(w.Jobs))
	}
	s.preemptions += r.Preemptions
	return nil
}

func (s *shared) delay(j *workload.Job) time.Duration { return max(0, s.end[j.ID]-j.Submit-j.Duration) }

func (s *shared) names() []string {
	var out []string
	for i := range s.w.Jobs {
		if vc := s.w.Jobs[i].Group; !slices.Contains(out, vc) {
			out = append(out, vc)
		}
	}
	slices.Sort(out)
	return out
}

func (s *shared) of(vc string) []*workload.Job {
	var out []*workload.Job
	for i := range s.w.Jobs {
		if s.w.Jobs[i].Group == vc {
			out = append(out, &s.w.Jobs[i])
		}
	}
	return out
}

func (s *shared) meanOf(vc string) float64 {
	jobs, sum := s.of(vc), 0.0
	for _, j := range jobs {
		sum += s.delay(j).Seconds()
	}
	return sum / float64(len(jobs))
}

// line compares it with the private clusters.
func (s *shared) line(name string, private *shared, nodes int) Line {
	l := Line{Variant: name, Seeds: 1, Mean: map[string]float64{}, CI95: map[string]float64{}}
	sum, late, lateSum := 0.0, 0, 0.0
	for i := range s.w.Jobs {
		j := &s.w.Jobs[i]
		sum += s.delay(j).Seconds()
		if d := s.delay(j) - private.delay(j); d > excess {
			late++
			lateSum += d.Seconds()
		}
	}
	worse := 0
	for _, vc := range s.names() {
		mine, own := s.meanOf(vc), private.meanOf(vc)
		if mine > 1.01*own+60 {
			worse++
		}
		l.Mean["worst_ratio"] = max(l.Mean["worst_ratio"], (mine+60)/(own+60))
	}
	l.Mean["mean_delay_s"] = sum / float64(len(s.w.Jobs))
	l.Mean["vcs_worse"], l.Mean["late_jobs"], l.Mean["preemptions"] = float64(worse), float64(late), float64(s.preemptions)
	if late > 0 {
		l.Mean["late_mean_s"] = lateSum / float64(late)
	}
	l.Mean["busy_pct"] = 100 * s.busy / (8 * float64(nodes) * s.last.Seconds())
	return l
}
