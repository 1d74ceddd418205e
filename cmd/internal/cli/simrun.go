package cli

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
)

// fsmJobs is up to how many jobs the state machine itself is driven when
// nobody chose: it costs two to five times what the stand-in does.
const fsmJobs = 5_000

// policyNames lists what --policy takes.
func policyNames() []string {
	names := policies.Names()
	if !slices.Contains(names, "ffd") {
		names = append(names, "ffd")
	}
	return names
}

// newPlanner makes a policy by name, "policy" or "policy+order". The
// scheduler's own passes come with their fast path.
func newPlanner(name, order string, seed uint64, maxShares int) (sim.Planner, error) {
	if order == "" && (name == "ffd" || name == "slot") {
		return sim.NewBerth(scheduler.Mode(name), maxShares), nil
	}
	base := scheduler.Default()
	base.MaxReasons = 0
	if maxShares > 0 {
		base.MaxShares = maxShares
	}
	return policies.New(name, policies.Options{Order: order, Base: base, Seed: seed})
}

// one runs one policy with one seed.
func (o *simOptions) one(ctx context.Context, e *Env, w *sim.Workload, f sim.Fleet, world sim.Interference, name string, seed uint64) (*sim.Result, error) {
	p, err := o.planner(name, seed, &f)
	if err != nil {
		return nil, err
	}
	w, err = o.profiled(w, seed)
	if err != nil {
		return nil, err
	}
	say, end := simProgress(e, fmt.Sprintf("%s seed %d", name, seed))
	defer end()
	var clock func() time.Duration
	if !o.noTiming {
		began := time.Now()
		clock = func() time.Duration { return time.Since(began) }
	}
	if o.demand > 0 && w.Form == "openb" {
		return sim.Fill(ctx, w, &f, sim.FillOptions{Planner: p, Seed: seed, Demand: o.demand, Progress: say, Clock: clock})
	}
	if o.demand > 0 {
		w = &sim.Workload{Name: w.Name, Form: w.Form, Jobs: slices.Clone(w.Jobs)}
		trace.Squeeze(w, f.GPUs(), o.demand)
	}
	opt := o.options(p, seed, world)
	opt.Progress, opt.Clock = say, clock
	switch o.fsm {
	case "on":
		opt.Log = true
	case "auto":
		opt.Log = len(w.Jobs) <= fsmJobs && !opt.Preemptible && opt.Profile == 0
	case "off":
	default:
		return nil, Usagef("--fsm %s: want on, off or auto", shortQuote(o.fsm))
	}
	return o.draw(ctx, w, &f, opt, name, seed)
}

// profiled gives jobs of which the trace does not say what they take what was
// asked for.
func (o *simOptions) profiled(w *sim.Workload, seed uint64) (*sim.Workload, error) {
	switch o.profiles {
	case "none", "":
		return w, nil
	case "uniform":
		return trace.AssignUniform(w, seed), nil
	case "lucid":
		if o.colocation == "" {
			return nil, Usagef("--profiles lucid: needs --colocation, the folder with its tables")
		}
		return trace.AssignLucid(w, o.colocation, seed)
	}
	return nil, Usagef("--profiles %s: want one of none, uniform, lucid", shortQuote(o.profiles))
}

// draw runs a simulation, and writes its drawings where they are wanted.
func (o *simOptions) draw(ctx context.Context, w *sim.Workload, f *sim.Fleet, opt sim.Options, name string, seed uint64) (*sim.Result, error) {
	if o.plot == "" {
		return sim.Run(ctx, w, f, opt)
	}
	rec := sim.NewRecorder()
	opt.Observe = rec
	r, err := sim.Run(ctx, w, f, opt)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.plot, 0o755); err != nil {
		return nil, fmt.Errorf("--plot: %w", err)
	}
	for kind, svg := range rec.Drawings(f, r) {
		file := filepath.Join(o.plot, fmt.Sprintf("%s-%s-%d-%s.svg", strings.ReplaceAll(w.Name, "/", "-"), name, seed, kind))
		if err := os.WriteFile(file, svg, 0o644); err != nil {
			return nil, fmt.Errorf("--plot: %w", err)
		}
	}
	return r, nil
}

// simProgress shows how far a run is, on a terminal only.
func simProgress(e *Env, what string) (say func(done, all int), end func()) {
	f, ok := e.Stderr.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, func() {}
	}
	var last time.Time
	say = func(done, all int) {
		if now := e.Now(); now.Sub(last) > 200*time.Millisecond {
			last = now
			fmt.Fprintf(f, "\r\x1b[K%s: %d of %d jobs", what, done, all)
		}
	}
	return say, func() { fmt.Fprint(f, "\r\x1b[K") }
}

// simView is what the commands print.
type simView struct {
	Cluster string        `json:"cluster"`
	Notes   []string      `json:"notes,omitempty"`
	Read    trace.Report  `json:"read"`
	Results []*sim.Result `json:"results"`
}

func printSim(e *Env, f format, v simView) error {
	if done, err := printList(e, f, v); done {
		return err
	}
	if f == formatCSV {
		return printSimCSV(e, v.Results)
	}
	t := &table{cols: []column{
		{head: "POLICY"}, {head: "SEED", right: true}, {head: "JOBS", right: true}, {head: "ALLOC", right: true}, {head: "UTIL", right: true},
		{head: "MEM", right: true}, {head: "MEAN_JCT", right: true}, {head: "P99_JCT", right: true}, {head: "MAKESPAN", right: true},
		{head: "BOUND", right: true}, {head: "WAIT", right: true}, {head: "SLOWDOWN", right: true}, {head: "OOM", right: true}, {head: "PREEMPT", right: true},
	}}
	for _, r := range v.Results {
		t.add(r.Policy, strconv.FormatUint(r.Seed, 10), strconv.Itoa(r.Jobs), simPct(r.AllocationPct), simPct(r.GPUUtilPct), simPct(r.MemUtilPct),
			simFig(r.MeanJCT, 0), simFig(r.P99JCT, 0), simFig(r.Makespan, 0), simFig(r.LowerBoundMakespan, 0), simFig(r.MeanWait, 0),
			simFig(r.MeanSlowdown, 3), strconv.Itoa(r.OOMs), strconv.Itoa(r.Preemptions))
	}
	t.print(e)
	e.printf("\ncluster: %s\ninterference: %s\n", escape(v.Cluster), escape(v.Results[0].World))
	for _, n := range v.Notes {
		e.printf("note: %s\n", escape(n))
	}
	return nil
}

func simFig(v *float64, digits int) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'f', digits, 64)
}

func simPct(v *float64) string {
	if v == nil {
		return "-"
	}
	return simFig(v, 2) + "%"
}

// printSimCSV prints one row a result, with the names of the JSON.
func printSimCSV(e *Env, rs []*sim.Result) error {
	cw := csv.NewWriter(e.out)
	var head []string
	for i, r := range rs {
		raw, err := json.Marshal(r)
		if err != nil {
			return err
		}
		var m map[string]any
		if err := json.Unmarshal(raw, &m); err != nil {
			return err
		}
		if i == 0 {
			for k := range m {
				head = append(head, k)
			}
			slices.Sort(head)
			if err := cw.Write(head); err != nil {
				return err
			}
		}
		row := make([]string, len(head))
		for k, name := range head {
			switch v := m[name].(type) {
			case nil:
			case float64:
				row[k] = strconv.FormatFloat(v, 'f', -1, 64)
			default:
				row[k] = fmt.Sprint(v)
			}
		}
		if err := cw.Write(row); err != nil {
			return err
		}
	}
	cw.Flush()
	return cw.Error()
}
