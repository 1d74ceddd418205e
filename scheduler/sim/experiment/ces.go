package experiment

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/power"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// The evaluation of Cluster Energy Saving: nodes of so many GPUs, as many as the
// list of virtual clusters has; the same length of time as the authors' before the
// end of the list; what is known of the time before; and what a node draws besides
// its GPUs and takes to boot, which are ours.
const (
	cesNode, cesNodes = 8, 135
	cesSpan, cesPast  = 21 * 24 * time.Hour, 35 * 24 * time.Hour
	cesHostW, cesOffW = 300, 15
	cesBoot           = 5 * time.Minute
	cesSlot           = 10 * time.Minute
	cesAhead          = 3 * time.Hour
	cesIdle           = 20 * time.Minute
	cesType           = "V100-SXM2-32GB"
	cesKind           = power.Kind("8x" + cesType)
)

// The length of the window and of the time before it in a quick run.
const cesQuick, cesQuickPast = 4 * 24 * time.Hour, 16 * 24 * time.Hour

// split splits a job wider than a node into as many as it fills nodes, which arrive
// together and are as long.
func split(jobs []workload.Job) (out []workload.Job) {
	for _, j := range jobs {
		for part, left := 0, j.GPUs; left > 0; part++ {
			one := j
			one.GPUs, one.Milli = min(left, cesNode), 1000
			if part > 0 {
				one.ID = fmt.Sprintf("%s+%d", j.ID, part)
			}
			out = append(out, one)
			left -= one.GPUs
		}
	}
	return out
}

// within returns the jobs of a window, clipped to it: jobs running when it began
// have what was left, and none continue after its end.
func within(jobs []workload.Job, from, until time.Duration) (out []workload.Job) {
	for _, j := range jobs {
		begin, end := max(j.Submit, from), min(j.Submit+j.Duration, until)
		if begin >= until || end <= from || end <= begin {
			continue
		}
		j.Submit, j.Duration = begin-from, end-begin
		out = append(out, j)
	}
	return out
}

// holders is an Observer that records which nodes were held.
type holders struct{ spans []power.Span }

// Attempt implements sim.Observer.
func (h *holders) Attempt(_ string, cards []int, from, to time.Duration, _ cluster.JobState) {
	last := -1
	for _, c := range slices.Sorted(slices.Values(cards)) {
		if n := c / cesNode; n != last {
			last = n
			h.spans = append(h.spans, power.Span{Node: cluster.NodeID(fmt.Sprint(n)), Kind: cesKind, From: sim.Epoch.Add(from), To: sim.Epoch.Add(to)})
		}
	}
}

// Level implements sim.Observer.
func (h *holders) Level(time.Duration, int64, int64, int64, int) {}

// cesRun is a run: the jobs of the window, and which jobs held nodes in the time
// before it.
type cesRun struct {
	jobs  *workload.Workload
	fleet workload.Fleet
	past  []power.Span
	since cluster.Time
}

// cesWorkload reads Helios Venus.
func cesWorkload(ctx context.Context, c *Config, span, past time.Duration) (*cesRun, error) {
	w, _, _, err := load(c, "helios-venus", "")
	if err != nil {
		return nil, err
	}
	jobs, end := split(w.Jobs), time.Duration(0)
	for i := range jobs {
		end = max(end, jobs[i].Submit)
	}
	from := end - span
	r := &cesRun{jobs: &workload.Workload{Name: w.Name, Form: w.Form, Jobs: within(jobs, from, end)}, since: sim.Epoch.Add(-past)}
	r.fleet = workload.Homogeneous(cesNodes, cesNode, cesType, 0)
	r.fleet.MaxShares = 1
	trace.Complete(&r.fleet)
	if past == 0 {
		return r, nil
	}
	c.note("%s: the weeks before", w.Name)
	var h holders
	before := &workload.Workload{Name: w.Name, Jobs: within(jobs, from-past, from)}
	if _, err := sim.Run(ctx, before, &r.fleet, sim.Options{Planner: cesPlanner(), Observe: &h, PassEvery: time.Second}); err != nil {
		return nil, err
	}
	for _, s := range h.spans {
		s.From, s.To = s.From.Add(-past), s.To.Add(-past)
		if s.To >= sim.Epoch {
			continue // it continues in the window, where it starts afresh
		}
		r.past = append(r.past, s)
	}
	return r, nil
}

func cesPlanner() sim.Planner { return sim.NewBerth(scheduler.ModeSlot, 1) }

// cesVariants returns the compared rules.
func cesVariants() []struct {
	name string
	rule power.Rule
} {
	return []struct {
		name string
		rule power.Rule
	}{
		{"always on", power.Rule{Idle: 1000 * 24 * time.Hour}},
		{"idle", power.Rule{Idle: cesIdle}},
		{"forecast", power.Rule{Idle: cesIdle, Forecast: &power.Forecast{Every: cesSlot, Horizon: cesAhead, Learn: 24 * time.Hour, SparePercent: 5}}},
	}
}

func cesReport() *Report {
	return &Report{
		Name: "ces", Title: "Cluster Energy Saving on Helios Venus (Hu et al., SC 2021)",
		Columns: []string{
			"nodes_off", "nodes_busy_pct", "wake_calls_per_day", "wake_ups_per_day", "late_pct", "mean_late_s", "mean_wait_s", "energy_kwh", "kwh_per_job",
		},
		Assumptions: []string{
			fmt.Sprintf("the list ends with August 2020, so that the %.0f days before its end are run and not the September of the authors; it holds run times up to 48 h, so that fewer nodes are in use than in theirs", cesSpan.Hours()/24),
			fmt.Sprintf("%d nodes of %d, one job to a card, any virtual cluster on any node; a job wider than a node is as many jobs of a node each, that come together", cesNodes, cesNode),
			"who ran when the window began has what was left of its run; nobody goes on after its end; what was needed in the five weeks before is known from a run with all nodes up",
			fmt.Sprintf("a node goes after %s idle and boots in %s, at most ten of them in a minute; demand is forecast every %s for %s, with 5 %% of the nodes to spare", cesIdle, cesBoot, cesSlot, cesAhead),
			fmt.Sprintf("a card draws 30 W idle and 300 W busy, and a job keeps its cards busy; beside its cards a node draws %d W, and %d W when it is off: the node's are ours", cesHostW, cesOffW),
			"\"CES as published\" is the rule of the authors' artifact (CES_Helios.py, with its settings for Venus) on the demand of the run with all nodes up, with what came in place of its forecast, and nodes that are up at once",
			"nodes_busy_pct is the part of the nodes that were up on which somebody ran; late are jobs that waited for a node to boot",
		},
	}
}

// ces compares rules that power idle nodes down.
func ces(ctx context.Context, c Config) (*Report, error) {
	rep, span, past := cesReport(), cesSpan, cesPast
	if c.Quick {
		span, past = cesQuick, cesQuickPast
	}
	run, err := cesWorkload(ctx, &c, span, past)
	if err != nil {
		return nil, err
	}
	for _, v := range cesVariants() {
		c.note("%s: %s", run.jobs.Name, v.name)
		res, spans, err := run.run(ctx, &c, v.rule)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
		rep.add(v.name, []*sim.Result{res})
		l := rep.Lines[len(rep.Lines)-1]
		l.Mean["late_pct"] = 100 * float64(*res.JobsLate) / float64(res.Jobs)
		l.Mean["kwh_per_job"] = *res.EnergyKWh / float64(res.Jobs)
		if v.name == "always on" {
			off, calls, busy := cesPublished(run.demand(spans, span))
			rep.Lines = append(rep.Lines, Line{Variant: cesTheirs, Seeds: 1, CI95: map[string]float64{}, Mean: map[string]float64{"nodes_off": off, "wake_calls_per_day": calls, "nodes_busy_pct": busy}})
		}
	}
	part := func(name string) float64 {
		if theirs := rep.mean(cesTheirs, name); theirs > 0 {
			return 100 * rep.mean("forecast", name) / theirs
		}
		return math.NaN()
	}
	rep.Claims = []Claim{
		atLeast("forecast: nodes off, % of CES as published", 90, part("nodes_off")),
		atLeast("forecast: part of the nodes that are up in use, % of CES as published", 90, part("nodes_busy_pct")),
		atMost("forecast: wake-ups in a day, % of CES as published", 110, part("wake_calls_per_day")),
		atMost("forecast: jobs that wait for a boot, %", 1, rep.mean("forecast", "late_pct")),
		atLeast("forecast against idle: fewer boots, %", 0, -rep.change("idle", "forecast", "wake_ups_per_day")),
		atLeast("forecast against always on: less energy for a job, %", 5, -rep.change("always on", "forecast", "kwh_per_job")),
	}
	return rep, nil
}

// cesTheirs is the variant of the authors' rule.
const cesTheirs = "CES as published, with foresight"

// demand returns how many nodes were held at most in each slot of the window, in a
// run of it.
func (r *cesRun) demand(spans []power.Span, span time.Duration) []float64 {
	d := power.Demand{Slot: cesSlot}
	d.Recall([]power.Kind{cesKind}, spans, sim.Epoch, sim.Epoch.Add(span))
	return d.Slots(cesKind)
}

// demand measures how well the demand of nodes is forecast.
func demand(ctx context.Context, c Config) (*Report, error) {
	rep := &Report{
		Name: "demand", Title: "Forecasts of how many nodes are needed at most in the next three hours, on Helios Venus",
		Columns: []string{"mae", "rmse", "smape_pct", "short", "forecasts"},
		Assumptions: append(cesReport().Assumptions[:3:3],
			fmt.Sprintf("made every %s of the run with all nodes up, from what was known then and at most five weeks of it", cesSlot),
			"mae, rmse and short are in nodes, short being by how much forecasts were too low on average; smape_pct is the mean of 2|f-y|/(f+y)"),
	}
	span, past := cesSpan, cesPast
	if c.Quick {
		span, past = cesQuick, cesQuickPast
	}
	run, err := cesWorkload(ctx, &c, span, past)
	if err != nil {
		return nil, err
	}
	_, spans, err := run.run(ctx, &c, cesVariants()[0].rule)
	if err != nil {
		return nil, err
	}
	before := power.Demand{Slot: cesSlot}
	before.Recall([]power.Kind{cesKind}, run.past, run.since, sim.Epoch)
	known := before.Slots(cesKind)
	y := slices.Concat(known, run.demand(spans, span))
	for _, m := range power.Methods() {
		c.note("%s: forecast by %s", run.jobs.Name, m)
		e := power.SeasonsOf(cesSlot, cesAhead).Measure(y, len(known), m)
		rep.Lines = append(rep.Lines, Line{Variant: string(m), Seeds: 1, CI95: map[string]float64{}, Mean: map[string]float64{
			"mae": e.MAE, "rmse": e.RMSE, "smape_pct": e.SMAPE, "short": e.Short, "forecasts": float64(e.N),
		}})
	}
	ours := string(power.ByRegression)
	for _, m := range power.Methods()[:3] {
		rep.Claims = append(rep.Claims, atLeast("regression against "+string(m)+": less off, %", 0, -rep.change(string(m), ours, "mae")))
	}
	return rep, nil
}

// run runs the window under a rule, and returns which jobs held nodes.
func (r *cesRun) run(ctx context.Context, c *Config, rule power.Rule) (*sim.Result, []power.Span, error) {
	rule.ResumeTimeout, rule.AtOnce = cesBoot, 10
	var h holders
	res, err := sim.Run(ctx, r.jobs, &r.fleet, sim.Options{
		Planner: cesPlanner(), Seed: 1, Observe: &h, PassEvery: time.Second, Clock: c.Clock,
		Power: &sim.Power{Rule: rule, Boot: cesBoot, Past: r.past, Since: r.since, HostW: cesHostW, OffW: cesOffW},
	})
	return res, h.spans, err
}

// cesPublished simulates the rule of the artifact of Helios' authors
// (CES_Helios.py), with its settings for Venus, on the demand of slots, with the
// actual demand instead of its forecast: needed nodes are up at once, with five
// more; all but five of the unneeded ones go if fewer were needed of late and fewer
// will be. It returns how many were off on average, how often per day some were
// woken, and which part of those that were up was in use.
func cesPublished(y []float64) (off, calls, busy float64) {
	const history, future, hour, before, after, least, buffer, keep = 3, 18, 6, 0.5, 1, 2, 5, 12
	active, stable, n, used, up := 0.0, 0, 0.0, 0.0, 0.0
	for i := 0; i+2*future <= len(y); i++ {
		switch {
		case i < hour:
			active = y[i] + buffer
		case active < y[i]:
			active, stable = y[i]+buffer, i+keep
			calls++
		}
		active = min(active, cesNodes)
		if near := mean(y[i : i+future]); i >= hour && mean(y[i-history:i])-y[i] >= before && y[i]-near >= after && i >= stable {
			stable = i
			if near >= mean(y[i:i+2*future]) && active-(y[i]+buffer) >= least {
				active = y[i] + buffer
			}
		}
		n, used, up = n+1, used+y[i], up+active
	}
	return cesNodes - up/n, calls / (n / 144), 100 * used / up
}

func mean(vs []float64) float64 {
	sum := 0.0
	for _, v := range vs {
		sum += v
	}
	return sum / float64(len(vs))
}
