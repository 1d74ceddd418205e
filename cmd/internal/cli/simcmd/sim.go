package simcmd

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/scheduler/sim/plot"
)

const formatCSV console.Format = "csv"

// simWorld is what of a simulation may be swept: the workload, the cluster,
// the policy and what happens.
type simWorld struct {
	trace, mix, cluster, policy, order, world, colocation, profiles, predictor, fsm, resize, sizing, elastic string
	demand, memError, utilError, durError, memMargin, peakAt, lateGrowers                                    float64
	maxShares, maxJobs                                                                                       int
	strict, pool, preempt, capMemory                                                                         bool
	since, until, start, passEvery, tick, profile, oomAfter                                                  time.Duration
	preemptSmall, preemptLarge, mtbf, repair, checkpoint, powerIdle, powerBoot                               time.Duration
	powerForecast, powerEvery, powerLearn                                                                    time.Duration
	powerKeep, powerSpare                                                                                    int
	powerHostW, powerOffW                                                                                    int64
	capture, last                                                                                            string
}

// simOptions are what run, compare and sweep have in common.
type simOptions struct {
	simWorld
	seeds, parallel int
	seed            uint64
	noTiming        bool
	plot, output    string
	plotFormats     []string
}

// NewSimCmd returns the command sim.
func NewSimCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Replay job traces against the scheduler in virtual time",
		Long: "Replay job traces against the scheduler in virtual time: the scheduler decides by predictions,\n" +
			"what happens goes by the trace and by a model of how jobs slow each other down. Nothing of the\n" +
			"cluster is touched; it is asked only by sim capture and by --last, and only for what there is.",
		Example: "  berth sim run --trace ./helios-venus\n  berth sim compare --trace ./muri --mix trace3 --policies slot,ffd",
	}
	cmd.AddCommand(newSimRunCmd(e, c), newSimCompareCmd(e, c), newSimSweepCmd(e, c), newSimCaptureCmd(e, c), newSimExperimentCmd(e), newSimWhatIfCmd(e, c))
	return cmd
}

func newSimRunCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o simOptions
	cmd := &cobra.Command{
		Use:   "run --trace DIR",
		Short: "Replay a trace, a capture or the last days with one policy",
		Example: "  berth sim run --trace ./lucid-window --mix m3 --policy ffd -o json\n" +
			"  berth sim run --trace ./openb-2023 --mix default --demand 1.3 --policy fgd --seeds 10\n" +
			"  berth sim run --capture monday.json --policy fgd\n" +
			"  berth sim run --last 14d --policy slot+sjf",
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runSim(cmd.Context(), e, c, &o, []string{o.policy})
		},
	}
	o.policyFlag(cmd.Flags())
	o.flags(cmd, console.FormatTable, console.FormatJSON, formatCSV, console.FormatYAML)
	return cmd
}

func newSimCompareCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o simOptions
	var names []string
	cmd := &cobra.Command{
		Use:     "compare --trace DIR --policies A,B,…",
		Short:   "Replay one trace with several policies",
		Example: "  berth sim compare --trace ./lucid-window --mix v2 --policies slot+fifo,slot+sjf,ffd --plot plots",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(names) == 0 {
				return console.Usagef("--policies: is missing; name some of %s", strings.Join(policyNames(), ", "))
			}
			return runSim(cmd.Context(), e, c, &o, names)
		},
	}
	cmd.Flags().StringSliceVar(&names, "policies", nil, "`POLICIES` to compare, each alone or as policy+order")
	o.flags(cmd, console.FormatTable, console.FormatJSON, formatCSV, console.FormatYAML)
	return cmd
}

func (w *simWorld) policyFlag(f *pflag.FlagSet) {
	f.StringVar(&w.policy, "policy", "ffd", "scheduling `POLICY`, alone or as policy+order: "+strings.Join(policyNames(), ", "))
}

func (o *simOptions) flags(cmd *cobra.Command, formats ...console.Format) {
	f := cmd.Flags()
	o.worldFlags(f)
	f.Uint64Var(&o.seed, "seed", 1, "first seed; errors of prediction, profiles and failures follow from it")
	f.IntVar(&o.seeds, "seeds", 1, "how many seeds to run")
	f.IntVar(&o.parallel, "parallel", 0, "how many simulations run at once; 0 is one for each core")
	f.BoolVar(&o.noTiming, "no-timing", false, "leave out what depends on the speed of this machine, so that equal runs print equal bytes")
	f.StringVar(&o.plot, "plot", "", "write drawings into the folder `DIR`")
	f.StringSliceVar(&o.plotFormats, "plot-format", []string{string(plot.SVG)}, "`FORMATS` of the drawings: "+strings.Join(plot.Formats(), ", "))
	console.AddFormat(cmd, &o.output, formats...)
}

// worldFlags registers what may be swept.
func (o *simWorld) worldFlags(f *pflag.FlagSet) {
	f.StringVar(&o.trace, "trace", "", "file or folder `DIR` of a trace")
	f.StringVar(&o.capture, "capture", "", "`FILE` that berth sim capture wrote, in place of a trace")
	f.StringVar(&o.last, "last", "", "take only what ended in so long a `TIME`, such as 14d, before the capture; without one, of the live cluster")
	f.StringVar(&o.mix, "mix", "", "`NAME` of one of several lists in the folder, of a group in it, or FILE:GROUP")
	f.StringVar(&o.cluster, "cluster", "", "`CLUSTER`: a YAML file with the nodes, a list of nodes (CSV) or its folder, or 8x8:V100 for 8 nodes of 8; without it the trace's own, or one that fits it")
	f.StringVar(&o.order, "order", "", "`ORDER` of the queue, where the policy leaves it open")
	f.Float64Var(&o.demand, "demand", 0, "how much is asked for, relative to the cluster; fills openb-like lists, squeezes others")
	f.StringVar(&o.world, "interference", "curve", "what neighbours cost: curve, none, linear, stages, gavel, gavel-physical or lucid")
	f.StringVar(&o.colocation, "colocation", "", "folder `DIR` with the tables of co-located speeds that gavel and lucid need")
	f.StringVar(&o.profiles, "profiles", "none", "what jobs take of which the trace does not say: none, uniform or lucid")
	f.StringVar(&o.predictor, "predictor", "errors", "who predicts: errors (the truth, off by what the flags say) or builtin (the shipped predictor, where the trace names its models)")
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
	f.StringVar(&o.sizing, "sizing", "", "let jobs run with as many GPUs as this `SIZING` chooses, and begin again with others: afs, marginal, none, optimus or pollux; with --elastic")
	f.StringVar(&o.elastic, "elastic", "1-8", "between how many GPUs each job with whole ones may run, with --sizing: a `RANGE`; run times are of the number that the trace says, and grow and shrink by the common curve")
	f.StringVar(&o.resize, "resize", "off", "cut what running jobs hold of GPUs to what they use, and let it grow again: `MODE`, off, conservative or eager")
	f.Float64Var(&o.peakAt, "mem-peak-at", 0, "`PART` of its run time after which a job's memory is at its peak; 0 is from its start, and 0.05 with --resize")
	f.Float64Var(&o.lateGrowers, "late-growers", 0, "`PART` of the jobs that hold half of their peak until some moment of their run, and then leap to it")
	f.DurationVar(&o.mtbf, "mtbf", 0, "mean time between failures of a node; 0 is never")
	f.DurationVar(&o.repair, "repair", time.Hour, "mean time to repair a node")
	f.DurationVar(&o.checkpoint, "checkpoint", 0, "time between checkpoints that survive a failure; 0 is none")
	f.DurationVar(&o.powerIdle, "power-idle", 0, "power nodes down that were idle for so long, and up again for who waits; 0 leaves all up")
	f.DurationVar(&o.powerBoot, "power-boot", 5*time.Minute, "how long a node takes from off to ready, with --power-idle")
	f.IntVar(&o.powerKeep, "power-keep", 0, "idle nodes that stay up, with --power-idle")
	f.DurationVar(&o.powerForecast, "power-forecast", 0, "keep up what is forecast to be needed within so long a `TIME`, such as 3h, with --power-idle; 0 forecasts nothing")
	f.DurationVar(&o.powerEvery, "power-every", 10*time.Minute, "how often it is forecast, with --power-forecast")
	f.DurationVar(&o.powerLearn, "power-learn", 24*time.Hour, "of how long a time demand must be known before it is forecast, with --power-forecast")
	f.IntVar(&o.powerSpare, "power-spare", 5, "nodes that stay up beside those forecast, in `PERCENT` of all, with --power-forecast")
	f.Int64Var(&o.powerHostW, "power-host-w", 0, "what a node that is up draws beside its GPUs, in `WATTS`, with --power-idle")
	f.Int64Var(&o.powerOffW, "power-off-w", 0, "what a node draws that is off, in `WATTS`, with --power-idle")
	f.DurationVar(&o.passEvery, "pass-every", time.Second, "least virtual time between two full passes; longer is cheaper, and changes who overtakes whom")
	f.DurationVar(&o.tick, "tick", 0, "plan at least so often while jobs wait, for orders that go by the clock; 0 lets the order choose")
	f.StringVar(&o.fsm, "fsm", "auto", "drive the replicated state machine by its log: on, off, or auto for short lists")
	f.BoolVar(&o.pool, "pool", false, "take the nodes of a type for one, so that jobs may span nodes; on by itself when a job is wider than a node")
	f.DurationVar(&o.since, "since", 0, "leave out what arrives before, from the first arrival")
	f.DurationVar(&o.until, "until", 0, "leave out what arrives from then on; 0 takes all")
	f.IntVar(&o.maxJobs, "max-jobs", 0, "take only so many jobs; 0 takes all")
	f.BoolVar(&o.strict, "strict", false, "stop at the first bad row")
}
