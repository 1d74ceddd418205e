package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
)

const formatCSV format = "csv"

// simOptions are what run, compare and replay have in common.
type simOptions struct {
	trace, mix, cluster, order, world, colocation, profiles, fsm, plot, output string
	demand, memError, utilError, durError, memMargin                           float64
	seeds, maxShares, maxJobs                                                  int
	seed                                                                       uint64
	strict, pool, preempt, capMemory, noTiming                                 bool
	since, until, start, passEvery, tick, profile, oomAfter                    time.Duration
	preemptSmall, preemptLarge, mtbf, repair, checkpoint                       time.Duration
}

func newSimCmd(e *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Replay job traces against the scheduler in virtual time",
		Long: "Replay job traces against the scheduler in virtual time: the scheduler decides by predictions,\n" +
			"what happens goes by the trace and by a model of how jobs slow each other down. Nothing of the\n" +
			"cluster is touched, and no coordinator is asked.",
		Example: "  berth sim run --trace ./helios-venus\n  berth sim compare --trace ./muri --mix trace3 --policies slot,ffd",
	}
	cmd.AddCommand(newSimRunCmd(e), newSimCompareCmd(e), newSimExperimentCmd(e))
	return cmd
}

func newSimRunCmd(e *Env) *cobra.Command {
	var o simOptions
	var policy string
	cmd := &cobra.Command{
		Use:   "run --trace DIR",
		Short: "Replay one trace with one policy",
		Example: "  berth sim run --trace ./lucid-window --mix m3 --policy ffd -o json\n" +
			"  berth sim run --trace ./openb-2023 --mix default --demand 1.3 --policy fgd --seeds 10",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runSim(cmd.Context(), e, &o, []string{policy})
		},
	}
	cmd.Flags().StringVar(&policy, "policy", "ffd", "scheduling `POLICY`: "+strings.Join(policyNames(), ", "))
	o.flags(cmd)
	return cmd
}

func newSimCompareCmd(e *Env) *cobra.Command {
	var o simOptions
	var names []string
	cmd := &cobra.Command{
		Use:     "compare --trace DIR --policies A,B,…",
		Short:   "Replay one trace with several policies",
		Example: "  berth sim compare --trace ./lucid-window --mix v2 --policies slot+fifo,slot+sjf,ffd",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(names) == 0 {
				return Usagef("--policies: is missing; name some of %s", strings.Join(policyNames(), ", "))
			}
			return runSim(cmd.Context(), e, &o, names)
		},
	}
	cmd.Flags().StringSliceVar(&names, "policies", nil, "`POLICIES` to compare, each alone or as policy+order")
	o.flags(cmd)
	return cmd
}

func (o *simOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.trace, "trace", "", "file or folder `DIR` of a trace")
	f.StringVar(&o.mix, "mix", "", "`NAME` of one of several lists in the folder, of a group in it, or FILE:GROUP")
	f.StringVar(&o.cluster, "cluster", "", "YAML `FILE` with the nodes; without it the trace's own, or one that fits it")
	f.StringVar(&o.order, "order", "", "`ORDER` of the queue, where the policy leaves it open")
	f.Float64Var(&o.demand, "demand", 0, "how much is asked for, relative to the cluster; fills openb-like lists, squeezes others")
	f.Uint64Var(&o.seed, "seed", 1, "first seed; errors of prediction, profiles and failures follow from it")
	f.IntVar(&o.seeds, "seeds", 1, "how many seeds to run")
	f.StringVar(&o.world, "interference", "curve", "what neighbours cost: curve, none, linear, stages, gavel, gavel-physical or lucid")
	f.StringVar(&o.colocation, "colocation", "", "folder `DIR` with the tables of co-located speeds that gavel and lucid need")
	f.StringVar(&o.profiles, "profiles", "none", "what jobs take of which the trace does not say: none, uniform or lucid")
	f.Float64Var(&o.memError, "mem-error", 0, "sigma of the log-normal error of predicted memory")
	f.Float64Var(&o.utilError, "util-error", 0, "sigma of the log-normal error of predicted utilization")
	f.Float64Var(&o.durError, "duration-error", 0, "sigma of the log-normal error of predicted run times")
	f.Float64Var(&o.memMargin, "mem-margin", 0, "what is added to predicted memory, as a fraction of it")
	f.IntVar(&o.maxShares, "max-shares", 0, "how many jobs may lie on a card; 0 takes the cluster's, or 3")
	f.DurationVar(&o.start, "start-overhead", 0, "lost at each start")
	f.BoolVar(&o.preempt, "preempt", false, "let policies preempt: every job can go on from where it was")
	f.DurationVar(&o.preemptSmall, "preempt-cost", 40*time.Second, "lost by a preempted job of up to 8 GPUs")
	f.DurationVar(&o.preemptLarge, "preempt-cost-large", 60*time.Second, "lost by a preempted job of more GPUs")
	f.DurationVar(&o.profile, "profile", 0, "run each job alone for so long before it is known, then start it again")
	f.DurationVar(&o.oomAfter, "oom-after", 30*time.Second, "how far into an attempt its memory peaks")
	f.BoolVar(&o.capMemory, "cap-memory", false, "end who takes more memory than was reserved, and not only who finds a card full")
	f.DurationVar(&o.mtbf, "mtbf", 0, "mean time between failures of a node; 0 is never")
	f.DurationVar(&o.repair, "repair", time.Hour, "mean time to repair a node")
	f.DurationVar(&o.checkpoint, "checkpoint", 0, "time between checkpoints that survive a failure; 0 is none")
	f.DurationVar(&o.passEvery, "pass-every", time.Second, "least virtual time between two full passes; longer is cheaper, and changes who overtakes whom")
	f.DurationVar(&o.tick, "tick", 0, "plan at least so often while jobs wait, for orders that go by the clock; 0 lets the order choose")
	f.StringVar(&o.fsm, "fsm", "auto", "drive the replicated state machine by its log: on, off, or auto for short lists")
	f.BoolVar(&o.pool, "pool", false, "take the nodes of a type for one, so that jobs may span nodes; on by itself when a job is wider than a node")
	f.DurationVar(&o.since, "since", 0, "leave out what arrives before, from the first arrival")
	f.DurationVar(&o.until, "until", 0, "leave out what arrives from then on; 0 takes all")
	f.IntVar(&o.maxJobs, "max-jobs", 0, "take only so many jobs; 0 takes all")
	f.BoolVar(&o.strict, "strict", false, "stop at the first bad row")
	f.BoolVar(&o.noTiming, "no-timing", false, "leave out the rates, so that equal runs print equal bytes")
	f.StringVar(&o.plot, "plot", "", "write drawings (SVG) into the folder `DIR`")
	addFormat(cmd, &o.output, formatTable, formatJSON, formatCSV, formatYAML)
}

// loadTrace reads the trace and tells on standard error what was left out.
func (o *simOptions) load(e *Env) (*sim.Workload, trace.Report, error) {
	if o.trace == "" {
		return nil, trace.Report{}, Usagef("--trace: is missing; name a file or folder with a trace")
	}
	opt := trace.Options{Mix: o.mix, Strict: o.strict, Since: o.since, Until: o.until, MaxJobs: o.maxJobs}
	if o.colocation != "" {
		steps, err := trace.LoadSteps(o.colocation)
		if err != nil {
			return nil, trace.Report{}, fmt.Errorf("--colocation: %w", err)
		}
		opt.StepsPerSecond = steps
	}
	w, rep, err := trace.Load(o.trace, opt)
	if err != nil {
		return nil, rep, notFoundIfMissing(fmt.Errorf("--trace: %w", err))
	}
	if rep.Skipped > 0 {
		e.warnf("%d of %d rows made no job; the first: %s row %d: %s", rep.Skipped, rep.Rows, rep.Bad[0].File, rep.Bad[0].Row, rep.Bad[0].Err)
	}
	return w, rep, nil
}

func notFoundIfMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return &ExitError{Code: ExitNotFound, Err: err}
	}
	return err
}

// fleet reads the cluster, or takes the one that goes with the trace.
func (o *simOptions) fleet(w *sim.Workload) (sim.Fleet, string, error) {
	f, why := trace.FleetFor(w)
	if o.cluster != "" {
		var err error
		if f, err = readFleet(o.cluster); err != nil {
			return f, "", fmt.Errorf("--cluster: %w", err)
		}
		why = fmt.Sprintf("%d GPUs, read from %s", f.GPUs(), o.cluster)
	}
	if o.maxShares > 0 {
		f.MaxShares = o.maxShares
	}
	f.Pool = f.Pool || o.pool
	if !f.Pool {
		for i := range w.Jobs {
			if w.Jobs[i].GPUs > f.Widest() {
				f.Pool = true
				why += "; taken for one node, since a job is wider than a node"
				break
			}
		}
	}
	return f, why, f.Check()
}

const maxFleetFile = 1 << 20

// readFleet reads a description of nodes; unknown keys are errors.
func readFleet(path string) (sim.Fleet, error) {
	var f sim.Fleet
	info, err := os.Stat(path)
	if err != nil {
		return f, notFoundIfMissing(err)
	}
	if info.Size() > maxFleetFile {
		return f, fmt.Errorf("%s: %d bytes, at most %d are read", path, info.Size(), maxFleetFile)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return f, err
	}
	dec := yaml.NewDecoder(strings.NewReader(string(raw)))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil {
		return f, fmt.Errorf("%s: %w", path, err)
	}
	if err := f.Check(); err != nil {
		return f, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// interference makes the world that was asked for.
func (o *simOptions) interference() (sim.Interference, error) {
	switch o.world {
	case "curve":
		return sim.DefaultCurve(), nil
	case "none":
		return sim.Free{}, nil
	case "linear":
		return sim.Linear{Beside: 0.35}, nil
	case "stages":
		return sim.Stages{}, nil
	case "gavel", "gavel-physical", "lucid":
		if o.colocation == "" {
			return nil, Usagef("--interference %s: needs --colocation, the folder with its tables", o.world)
		}
		return trace.LoadPairs(o.colocation, o.world)
	}
	return nil, Usagef("--interference %s: want one of curve, none, linear, stages, gavel, gavel-physical, lucid", shortQuote(o.world))
}

// planner makes the policy of a name.
func (o *simOptions) planner(name string, seed uint64, f *sim.Fleet) (sim.Planner, error) {
	return newPlanner(name, o.order, seed, f.MaxShares)
}

func (o *simOptions) options(p sim.Planner, seed uint64, world sim.Interference) sim.Options {
	return sim.Options{
		Planner: p, Seed: seed, World: world,
		Errors:    sim.Errors{Mem: o.memError, Util: o.utilError, Duration: o.durError, MemMargin: o.memMargin},
		PassEvery: o.passEvery, Tick: o.tick, Start: o.start, PreemptSmall: o.preemptSmall, PreemptLarge: o.preemptLarge,
		Profile: o.profile, OOMAfter: o.oomAfter, CapMemory: o.capMemory, MTBF: o.mtbf, Repair: o.repair, Checkpoint: o.checkpoint,
		Preemptible: o.preempt,
	}
}

// runSim runs every policy with every seed.
func runSim(ctx context.Context, e *Env, o *simOptions, names []string) error {
	if o.seeds < 1 || o.seeds > 1000 {
		return Usagef("--seeds %d: is outside 1 to 1000", o.seeds)
	}
	w, rep, err := o.load(e)
	if err != nil {
		return err
	}
	f, why, err := o.fleet(w)
	if err != nil {
		return err
	}
	world, err := o.interference()
	if err != nil {
		return err
	}
	for _, n := range names { // a name that does not exist should not cost a run
		if _, err := o.planner(n, o.seed, &f); err != nil {
			return Usagef("--policy: %s", err.Error())
		}
	}
	var results []*sim.Result
	for _, n := range names {
		for s := range uint64(o.seeds) {
			r, err := o.one(ctx, e, w, f, world, n, o.seed+s)
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", n, o.seed+s, err)
			}
			if r.Unplaced > 0 {
				e.warnf("%s, seed %d: %d of %d jobs never ran: by what is predicted of them no GPU, or no node, is large enough", n, o.seed+s, r.Unplaced, r.Jobs)
			}
			results = append(results, r)
		}
	}
	return printSim(e, format(o.output), simView{Cluster: why, Notes: w.Notes, Read: rep, Results: results})
}
