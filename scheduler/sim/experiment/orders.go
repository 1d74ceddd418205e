package experiment

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// ordersCard is the memory of a GPU in the experiment, which holds every program of
// Lucid's table and of SchedTune's.
const ordersCard = 24 << 10

// orderList is a list of jobs, the day from which four weeks of it are taken, and
// the load of the fleet.
type orderList struct {
	folder, mix string
	from        int
	load        float64
	why         string
}

func orderLists() []orderList {
	return []orderList{
		{"helios-venus", "", 60, 0.95, "its own 1,080 GPUs are asked for to a half and nobody waits there, so that the fleet is as large as makes the mean demand 95 % of it"},
		{"philly", "", 30, 0.85, "the size of its cluster is not in the list; the mean demand is 85 % of the fleet"},
		{"microsoft-itp-2021", "itp_jobs:cluster04", 15, 0.85, "sizes of clusters are unpublished; the mean demand is 85 % of the fleet"},
	}
}

// The lengths of the windows taken from the lists: all and quick.
const (
	ordersSpan  = 28 * 24 * time.Hour
	ordersQuick = 4 * 24 * time.Hour
)

// fleetAt returns nodes of 8 GPUs, so many that the mean demand of a list is such a
// part of them, and no fewer than its widest job asks for.
func fleetAt(w *workload.Workload, load float64) workload.Fleet {
	n := int(math.Ceil(trace.Demand(w) / load / 8))
	for i := range w.Jobs {
		n = max(n, (w.Jobs[i].GPUs+7)/8)
	}
	f := workload.Homogeneous(max(1, n), 8, "V100", ordersCard)
	f.Pool = true
	return f
}

// cut keeps the jobs that arrive within a span, or all if none does.
func cut(w *workload.Workload, from, until time.Duration) {
	var in []workload.Job
	for _, j := range w.Jobs {
		if j.Submit >= from && j.Submit < until {
			j.Submit -= from
			in = append(in, j)
		}
	}
	if len(in) > 0 {
		w.Jobs = in
	}
}

// alone returns orders on whole GPUs, one job per GPU.
func alone() []variant {
	return []variant{
		{name: "fifo", policy: "slot+fifo"}, {name: "sjf", policy: "slot+sjf"}, {name: "qssf", policy: "slot+qssf", durError: 0.5},
		{name: "las (preempts)", policy: "slot+las", preempts: true, tick: 10 * time.Minute},
		{name: "berth, one job to a card", policy: "slot", durError: 0.5},
	}
}

// sharing returns those that place several jobs on a GPU.
func sharing(mix string) []variant {
	return []variant{
		{name: "berth, " + mix, policy: "ffd", durError: 0.5, shares: true}, {name: "lucid, " + mix, policy: "lucid", durError: 0.5, shares: true},
		{name: "berth, " + mix + ", gangs share", policy: "ffd", durError: 0.5, shares: true, declares: true},
		{name: "berth, " + mix + ", gangs share, learns of pairs", policy: "ffd", durError: 0.5, shares: true, declares: true, learns: true},
		{name: "lucid, " + mix + ", gangs share", policy: "lucid", durError: 0.5, shares: true, declares: true},
	}
}

func ordersReport() *Report {
	return &Report{
		Name: "orders", Title: "Orders of the queue on Helios Venus, Philly and ITP",
		Columns: []string{
			"allocation_pct", "mean_jct_s", "median_jct_s", "p99_jct_s", "wide_p99_jct_s", "mean_wait_s", "p99_wait_s", "bounded_slowdown", "mean_slowdown",
			"preemptions", "ooms", "makespan_s", "lower_bound_alone_mean_jct_s",
		},
		Assumptions: []string{
			"nodes of 8 cards, taken for one node, as jobs are wider than a node: where a job's cards lie plays no part",
			"berth, qssf and lucid see run times times LogNormal(0, 0.5), fifo, sjf and las the truth; only las preempts, and then jobs lose 40 s up to 8 GPUs and 60 s above",
			"the lists say nothing of memory or utilization: fifo, sjf, qssf, las and \"berth, one job to a card\" give whole cards",
			"who shares is, by seed 1, one of Lucid's measured programs, slowed down as its table of pairs says; or one of Gavel's, slowed down as its table for V100 says where the pair could run there and by the curve else, with a memory that SchedTune measured and a utilization uniform in 20 to 82 %; memory and utilization are predicted exactly",
			"jobs of several GPUs have them alone, unless they declare their memory; gangs share: all of them do",
			"learns of pairs: nothing is known at first; a run beside one other program that ends shows how fast the program is beside that, if a run of it alone ended before. Nobody is slowed down beyond 1.5 times by what is known, or 1.1 while there are empty cards for all who wait",
			"wide jobs have more than 8 GPUs; slowdown is bounded at 10 s; at least a minute lies between two full passes; one seed",
		},
	}
}

func orders(ctx context.Context, c Config) (*Report, error) {
	rep := ordersReport()
	lists, span := orderLists(), ordersSpan
	if c.Quick {
		lists, span = lists[:1], ordersQuick
	}
	for _, l := range lists {
		w, _, _, err := load(&c, l.folder, l.mix)
		if err != nil {
			return nil, err
		}
		from := time.Duration(l.from) * 24 * time.Hour
		cut(w, from, from+span)
		f := fleetAt(w, l.load)
		rep.Assumptions = append(rep.Assumptions, fmt.Sprintf("%s: the %d jobs of %.0f days from day %d on, on %d GPUs: %s", w.Name, len(w.Jobs), span.Hours()/24, l.from, f.GPUs(), l.why))
		if err := runQueues(ctx, &c, rep, w, f, slowdown.DefaultCurve(), alone()); err != nil {
			return nil, err
		}
		if err := runMixes(ctx, &c, rep, w, f); err != nil {
			return nil, err
		}
		ours := w.Name + " berth, Lucid's programs"
		rep.Claims = append(rep.Claims,
			atLeast(w.Name+": mean completion time of las over that of berth with Lucid's programs", 1.3, rep.mean(w.Name+" las (preempts)", "mean_jct_s")/rep.mean(ours, "mean_jct_s")),
			atLeast(w.Name+": the same over that of berth, one job to a card", 1.3, rep.mean(w.Name+" las (preempts)", "mean_jct_s")/rep.mean(w.Name+" berth, one job to a card", "mean_jct_s")),
			atMost(w.Name+": p99 of completion of wide jobs of berth over fifo, %", 0, rep.change(w.Name+" fifo", ours, "wide_p99_jct_s")))
	}
	return rep, nil
}

// runMixes runs the sharing variants with both ways to assign programs to jobs.
func runMixes(ctx context.Context, c *Config, rep *Report, w *workload.Workload, f workload.Fleet) error {
	pairs, err := trace.LoadPairs(c.Colocation, "lucid")
	if err != nil {
		return err
	}
	given, err := trace.AssignLucid(w, c.Colocation, 1)
	if err != nil {
		return err
	}
	if err := runQueues(ctx, c, rep, given, f, pairs, sharing("Lucid's programs")); err != nil {
		return err
	}
	peaks, err := c.trace("schedtune")
	if err != nil {
		return err
	}
	if pairs, err = trace.GavelPairs(c.Colocation); err != nil {
		return err
	}
	if given, err = trace.AssignGavel(w, c.Colocation, peaks, ordersCard, 1); err != nil {
		return err
	}
	return runQueues(ctx, c, rep, given, f, pairs, sharing("Gavel's programs"))
}

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
