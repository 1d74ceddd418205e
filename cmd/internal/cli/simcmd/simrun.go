package simcmd

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/tty"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/elastic"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/power"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// fsmJobs is the number of jobs up to which the state machine itself is
// driven by default: it costs two to five times what the stand-in does.
const fsmJobs = 5_000

// policyNames lists the values of --policy.
func policyNames() []string {
	names := policies.Names()
	if !slices.Contains(names, "ffd") {
		names = append(names, "ffd")
	}
	return names
}

// newPlanner returns a policy by name, "policy" or "policy+order". The
// scheduler's own passes come with their fast path.
func newPlanner(name, order string, seed uint64, maxShares int) (sim.Planner, error) {
	if order == "" && (name == "ffd" || name == "slot") {
		return sim.NewBerth(scheduler.Mode(name), maxShares), nil
	}
	base := scheduler.Default()
	base.MaxReasons = -1
	if maxShares > 0 {
		base.MaxShares = maxShares
	}
	return policies.New(name, policies.Options{Order: order, Base: base, Seed: seed})
}

// simPoint is one setting to simulate: what is known before a policy and a
// seed are chosen. Several simulations read it concurrently.
type simPoint struct {
	simWorld
	src   *simSource
	fleet workload.Fleet
	why   string
	notes []string
	inter slowdown.Interference
}

// simTask is one simulation.
type simTask struct {
	point  *simPoint
	policy string
	seed   uint64
	result *sim.Result
	rec    *sim.Recorder
	notes  []string // assumptions made for this seed
}

// prepare reads everything that a setting needs. Sources that were read
// before are taken from have.
func (o *simWorld) prepare(ctx context.Context, e *console.Env, c *client.Client, have map[simWorld]*simSource) (*simPoint, error) {
	src, err := o.source(ctx, e, c, have)
	if err != nil {
		return nil, err
	}
	p := &simPoint{simWorld: *o, src: src}
	if p.fleet, p.why, err = o.fleet(src); err != nil {
		return nil, err
	}
	if p.src, err = src.within(e, &p.fleet, o.strict); err != nil {
		return nil, err
	}
	p.notes = append(slices.Clone(src.w.Notes), trace.Complete(&p.fleet)...)
	p.inter, err = o.interference()
	return p, err
}

// runSim runs every policy with every seed.
func runSim(ctx context.Context, e *console.Env, c *client.Client, o *simOptions, names []string) error {
	if err := o.check(); err != nil {
		return err
	}
	p, err := o.prepare(ctx, e, c, map[simWorld]*simSource{})
	if err != nil {
		return err
	}
	return o.replay(ctx, e, p, names)
}

// replay runs every policy with every seed on the prepared setting, and
// prints the results.
func (o *simOptions) replay(ctx context.Context, e *console.Env, p *simPoint, names []string) error {
	var tasks []*simTask
	for _, n := range names {
		for s := range uint64(o.seeds) {
			tasks = append(tasks, &simTask{point: p, policy: n, seed: o.seed + s})
		}
	}
	if err := o.runAll(ctx, e, tasks); err != nil {
		return err
	}
	if err := o.drawAll(tasks, names); err != nil {
		return err
	}
	v := View{Cluster: p.why, Notes: p.notes, Read: p.src.rep, Actual: p.src.actual}
	for _, t := range tasks {
		v.Results = append(v.Results, t.result)
		v.Notes = addNew(v.Notes, t.notes)
	}
	return printSim(e, console.Format(o.output), v)
}

// addNew appends what is not yet present.
func addNew(notes, more []string) []string {
	for _, n := range more {
		if !slices.Contains(notes, n) {
			notes = append(notes, n)
		}
	}
	return notes
}

// check reports an option of the whole command that makes no sense.
func (o *simOptions) check() error {
	if o.seeds < 1 || o.seeds > 1000 {
		return console.Usagef("--seeds %d: want 1 to 1000", o.seeds)
	}
	if o.parallel < 0 || o.parallel > 1024 {
		return console.Usagef("--parallel %d: want 0 to 1024; 0 is one per core", o.parallel)
	}
	return o.checkPlots()
}

// runAll runs the tasks concurrently. Their results do not depend on the
// order in which they run, except for rates.
func (o *simOptions) runAll(ctx context.Context, e *console.Env, tasks []*simTask) error {
	for _, t := range tasks { // a nonexistent policy should not cost a run
		if _, err := newPlanner(t.policy, t.point.order, t.seed, t.point.fleet.MaxShares); err != nil {
			return console.Usagef("--policy: %s", err.Error())
		}
	}
	n := o.parallel
	n = cmp.Or(n, runtime.GOMAXPROCS(0))
	bar := newSimProgress(e, len(tasks))
	defer bar.end()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(n)
	for i, t := range tasks {
		g.Go(func() error {
			if err := o.run(ctx, t, bar.of(i)); err != nil {
				return fmt.Errorf("%s, seed %d: %w", t.policy, t.seed, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	bar.end()
	for _, t := range tasks {
		if r := t.result; r.Unplaced > 0 {
			e.Warnf("%s, seed %d: %d of %d jobs never ran: by their predictions no GPU, or no node, is large enough", t.policy, t.seed, r.Unplaced, r.Jobs)
		}
	}
	return nil
}

func (o *simOptions) run(ctx context.Context, t *simTask, say func(done, all int)) error {
	p, f := t.point, t.point.fleet
	planner, err := newPlanner(t.policy, p.order, t.seed, f.MaxShares)
	if err != nil {
		return err
	}
	w, err := p.workload(t.seed)
	if err != nil {
		return err
	}
	t.notes = w.Notes
	var clock func() time.Duration
	if !o.noTiming {
		began := time.Now()
		clock = func() time.Duration { return time.Since(began) }
	}
	if p.demand > 0 && w.Form == "openb" {
		t.result, err = sim.Fill(ctx, w, &f, sim.FillOptions{Planner: planner, Seed: t.seed, Demand: p.demand, Progress: say, Clock: clock})
		return err
	}
	if p.demand > 0 {
		w = &workload.Workload{Name: w.Name, Form: w.Form, Jobs: slices.Clone(w.Jobs)}
		trace.Squeeze(w, f.GPUs(), p.demand)
	}
	opt, err := p.options(planner, t.seed)
	if err != nil {
		return err
	}
	if w, err = p.sized(w, &opt); err != nil {
		return err
	}
	opt.Progress, opt.Clock = say, clock
	switch p.fsm {
	case "on":
		opt.Log = true
	case "auto":
		opt.Log = len(w.Jobs) <= fsmJobs && !opt.Preemptible && opt.Profile == 0
	case "off":
	default:
		return console.Usagef("--fsm %s: want on, off or auto", console.ShortQuote(p.fsm))
	}
	if o.plot != "" {
		t.rec = sim.NewRecorder()
		opt.Observe = t.rec
	}
	t.result, err = sim.Run(ctx, w, &f, opt)
	return err
}

// commonExchange is that of a job if no run says otherwise; see package elastic.
const commonExchange = 0.1

// sized builds the jobs of a workload whose size a sizing chooses, if one is named.
func (p *simPoint) sized(w *workload.Workload, opt *sim.Options) (*workload.Workload, error) {
	if p.sizing == "" {
		return w, nil
	}
	sizing, err := elastic.ParseSizing(p.sizing)
	if err != nil {
		return nil, console.Usagef("--sizing: %s", err.Error())
	}
	a, b, ranged := strings.Cut(p.elastic, "-")
	least, err1 := units.ParseGPUs(a)
	most, err2 := units.ParseGPUs(b)
	if !ranged || err1 != nil || err2 != nil || least >= most {
		return nil, console.Usagef("--elastic %s: want two numbers from %d to %d, the smaller one first, such as 1-8", console.ShortQuote(p.elastic), units.MinGPUs, units.MaxGPUs)
	}
	out := &workload.Workload{Name: w.Name, Form: w.Form, Nodes: w.Nodes, Notes: w.Notes, Jobs: slices.Clone(w.Jobs)}
	for i := range out.Jobs {
		if j := &out.Jobs[i]; j.GPUs > 0 && j.GPUs <= most && (j.Milli == 0 || j.Milli == 1000) && j.Deadline == 0 {
			j.Least, j.Most, j.Exchange = least, most, commonExchange
		}
	}
	opt.Planner, opt.Preemptible = sim.NewSized(opt.Planner, elastic.Rules{Sizing: sizing}), true
	opt.Tick = cmp.Or(opt.Tick, time.Minute)
	return out, nil
}

// powerAtOnce is the most nodes that are powered down, and up, in a minute: a
// coordinator's default.
const powerAtOnce = 10

func (p *simPoint) options(planner sim.Planner, seed uint64) (sim.Options, error) {
	mode, err := resizeMode(p.resize)
	if err != nil {
		return sim.Options{}, err
	}
	rise := sim.Rise{PeakAt: p.peakAt, Late: p.lateGrowers}
	if mode != cluster.ResizeOff && rise.PeakAt == 0 {
		rise.PeakAt = sim.DefaultPeakAt
	}
	saving, err := p.saving()
	if err != nil {
		return sim.Options{}, err
	}
	return sim.Options{
		Power: saving, Planner: planner, Seed: seed, World: p.inter,
		Errors:    sim.Errors{Mem: p.memError, Util: p.utilError, Duration: p.durError, MemMargin: p.memMargin},
		PassEvery: p.passEvery, Tick: p.tick, Start: p.start, PreemptSmall: p.preemptSmall, PreemptLarge: p.preemptLarge,
		Profile: p.profile, OOMAfter: p.oomAfter, Tell: p.tell, Fetch: sim.Fetch{Image: p.imageFetch, Data: p.dataFetch, Blind: p.blind}, CapMemory: p.capMemory, MTBF: p.mtbf, Repair: p.repair, Checkpoint: p.checkpoint,
		Preemptible: p.preempt, Resize: mode, Rise: rise,
	}, nil
}

// saving returns how idle nodes are powered down, nil if they are not.
func (p *simPoint) saving() (*sim.Power, error) {
	if p.powerIdle == 0 {
		if p.powerForecast != 0 {
			return nil, console.Usagef("--power-forecast: requires --power-idle, the idle time before a node is powered down")
		}
		return nil, nil
	}
	out := &sim.Power{
		Rule: power.Rule{Idle: p.powerIdle, ResumeTimeout: p.powerBoot, KeepIdle: p.powerKeep, AtOnce: powerAtOnce},
		Boot: p.powerBoot, HostW: p.powerHostW, OffW: p.powerOffW,
	}
	if p.powerForecast != 0 {
		switch {
		case p.powerEvery < time.Second || p.powerForecast < p.powerEvery || p.powerForecast > 7*24*time.Hour:
			return nil, console.Usagef("--power-forecast %s: want a time from --power-every (%s, a second at least) to 168h", p.powerForecast, p.powerEvery)
		case p.powerLearn < 0:
			return nil, console.Usagef("--power-learn %s: must not be below 0", p.powerLearn)
		case p.powerSpare < 0 || p.powerSpare > 100:
			return nil, console.Usagef("--power-spare %d: want 0 to 100, percent of the nodes", p.powerSpare)
		}
		out.Forecast = &power.Forecast{Every: p.powerEvery, Horizon: p.powerForecast, Learn: p.powerLearn, SparePercent: p.powerSpare}
	}
	return out, nil
}

// resizeMode reads --resize. A simulation has no partition that leaves it open.
func resizeMode(s string) (cluster.ResizeMode, error) {
	m := cluster.ResizeMode(s)
	if m != cluster.ResizeOff && m != cluster.ResizeConservative && m != cluster.ResizeEager {
		return m, console.Usagef("--resize %s: want off, conservative or eager", console.ShortQuote(s))
	}
	return m, nil
}

// workload returns the workload of a seed: with profiles for jobs whose
// needs the trace does not give, and with predictions for them.
func (p *simPoint) workload(seed uint64) (*workload.Workload, error) {
	w, err := p.src.w, error(nil)
	switch p.profiles {
	case "none", "":
	case "uniform":
		w = trace.AssignUniform(w, seed)
	case "lucid":
		if p.colocation == "" {
			return nil, console.Usagef("--profiles lucid: requires --colocation, the folder with its tables")
		}
		w, err = trace.AssignLucid(w, p.colocation, seed)
	default:
		return nil, console.Usagef("--profiles %s: want one of none, uniform, lucid", console.ShortQuote(p.profiles))
	}
	if err != nil {
		return nil, err
	}
	return p.predicted(w)
}

// simProgress shows the total progress of all simulations on a terminal.
// Its methods may be called concurrently.
type simProgress struct {
	e     *console.Env
	f     *os.File
	mu    sync.Mutex
	last  time.Time
	parts [][2]int
}

func newSimProgress(e *console.Env, n int) *simProgress {
	p := &simProgress{e: e, parts: make([][2]int, n)}
	if f, ok := e.Stderr.(*os.File); ok && tty.Is(f) {
		p.f = f
	}
	return p
}

// of returns what the i-th simulation reports to, nil if there is no terminal.
func (p *simProgress) of(i int) func(done, all int) {
	if p.f == nil {
		return nil
	}
	return func(done, all int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.parts[i] = [2]int{done, all}
		if now := p.e.Now(); now.Sub(p.last) > 200*time.Millisecond {
			p.last = now
			fmt.Fprintf(p.f, "\r\x1b[K%s", p.line())
		}
	}
}

const barWidth = 30

// line draws a bar. Simulations that did not begin count as long as the
// longest that did.
func (p *simProgress) line() string {
	done, all, most, begun := 0, 0, 0, 0
	for _, q := range p.parts {
		done, all, most = done+q[0], all+q[1], max(most, q[1])
		if q[1] > 0 {
			begun++
		}
	}
	all += most * (len(p.parts) - begun)
	full := barWidth * done / max(1, all)
	s := make([]byte, barWidth)
	for i := range s {
		s[i] = '.'
		if i < full {
			s[i] = '#'
		}
	}
	return fmt.Sprintf("[%s] %d of %d jobs in %d simulations", s, done, all, len(p.parts))
}

func (p *simProgress) end() {
	if p.f != nil {
		fmt.Fprint(p.f, "\r\x1b[K")
	}
}
