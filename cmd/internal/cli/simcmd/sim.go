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

// simWorld is the part of a simulation that may be swept: the workload, the
// cluster, the policy and the events.
type simWorld struct {
	trace, mix, cluster, policy, order, world, colocation, profiles, predictor, fsm, resize, sizing, elastic string
	demand, memError, utilError, durError, memMargin, peakAt, lateGrowers                                    float64
	maxShares, maxJobs                                                                                       int
	strict, pool, preempt, capMemory, blind, tell                                                            bool
	since, until, start, passEvery, tick, profile, oomAfter, imageFetch, dataFetch                           time.Duration
	preemptSmall, preemptLarge, mtbf, repair, checkpoint, powerIdle, powerBoot                               time.Duration
	powerForecast, powerEvery, powerLearn                                                                    time.Duration
	powerKeep, powerSpare                                                                                    int
	powerHostW, powerOffW                                                                                    int64
	capture, last                                                                                            string
}

// simOptions are the common options of run, compare and sweep.
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
		Long: "Replay job traces against the scheduler in virtual time: the scheduler decides by predictions; what\n" +
			"happens follows the trace and a model of how jobs slow each other down. Nothing in the cluster is\n" +
			"changed; only sim capture and --last read from it.",
		Example: "  berth sim run --trace ./helios-venus\n  berth sim compare --trace ./muri --mix trace3 --policies slot,ffd",
	}
	cmd.AddCommand(newSimRunCmd(e, c), newSimCompareCmd(e, c), newSimSweepCmd(e, c), newSimCaptureCmd(e, c), newSimExperimentCmd(e), newSimWhatIfCmd(e, c))
	return cmd
}

func newSimRunCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o simOptions
	cmd := &cobra.Command{
		Use:   "run --trace DIR",
		Short: "Replay a trace, a capture or recent days with one policy",
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
				return console.Usagef("--policies is missing; name some of %s", strings.Join(policyNames(), ", "))
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
	f.Uint64Var(&o.seed, "seed", 1, "first seed, for prediction errors, profiles and failures")
	f.IntVar(&o.seeds, "seeds", 1, "number of seeds to run")
	f.IntVar(&o.parallel, "parallel", 0, "simulations to run at once; 0 for one per core")
	f.BoolVar(&o.noTiming, "no-timing", false, "omit what depends on this machine's speed, so that equal runs print equal bytes")
	f.StringVar(&o.plot, "plot", "", "write plots to the folder `DIR`")
	f.StringSliceVar(&o.plotFormats, "plot-format", []string{string(plot.SVG)}, "`FORMATS` of the plots: "+strings.Join(plot.Formats(), ", "))
	console.AddFormat(cmd, &o.output, formats...)
}

// worldFlags registers the options that may be swept.
func (o *simWorld) worldFlags(f *pflag.FlagSet) {
	f.StringVar(&o.trace, "trace", "", "file or folder `DIR` of a trace")
	f.StringVar(&o.capture, "capture", "", "`FILE` that berth sim capture wrote, in place of a trace")
	f.StringVar(&o.last, "last", "", "only jobs that ended within `TIME`, such as 14d, before the capture; without a capture, in the live cluster")
	f.StringVar(&o.mix, "mix", "", "`NAME` of a list in the folder or of a group in it, or FILE:GROUP")
	f.StringVar(&o.cluster, "cluster", "", "`CLUSTER`: a YAML file of nodes, a node list (CSV) or its folder, or 8x8:V100 for 8 nodes of 8; by default the trace's own, or one that fits it")
	f.StringVar(&o.order, "order", "", "queue `ORDER`, if the policy leaves it open")
	f.Float64Var(&o.demand, "demand", 0, "demand relative to the cluster; fills openb-like lists, compresses others")
	f.StringVar(&o.world, "interference", "curve", "slowdown from sharing: curve, none, linear, stages, gavel, gavel-physical or lucid")
	f.StringVar(&o.colocation, "colocation", "", "folder `DIR` with the co-location speed tables that gavel and lucid need")
	f.StringVar(&o.profiles, "profiles", "none", "resource use of jobs that the trace does not give: none, uniform or lucid")
	f.StringVar(&o.predictor, "predictor", "errors", "predictor: errors (the truth, with the errors given by flags) or builtin (the shipped predictor, if the trace names its models)")
	f.Float64Var(&o.memError, "mem-error", 0, "sigma of the log-normal error of predicted memory")
	f.Float64Var(&o.utilError, "util-error", 0, "sigma of the log-normal error of predicted utilization")
	f.Float64Var(&o.durError, "duration-error", 0, "sigma of the log-normal error of predicted run times")
	f.Float64Var(&o.memMargin, "mem-margin", 0, "margin added to predicted memory, as a fraction of it")
	f.IntVar(&o.maxShares, "max-shares", 0, "maximum jobs per GPU; 0 for the cluster's setting, or 3")
	f.DurationVar(&o.start, "start-overhead", 0, "time lost at each start")
	f.BoolVar(&o.preempt, "preempt", false, "let policies preempt; every job resumes where it left off")
	f.DurationVar(&o.preemptSmall, "preempt-cost", 40*time.Second, "time lost by a preempted job of up to 8 GPUs")
	f.DurationVar(&o.preemptLarge, "preempt-cost-large", 60*time.Second, "time lost by a preempted job of more GPUs")
	f.DurationVar(&o.profile, "profile", 0, "profile each job alone for this long, then restart it")
	f.DurationVar(&o.oomAfter, "oom-after", 30*time.Second, "how far into an attempt its memory peaks")
	f.DurationVar(&o.imageFetch, "image-fetch", 0, "time a start takes longer on a node without the job's image, which then has it")
	f.DurationVar(&o.dataFetch, "data-fetch", 0, "time a start takes longer for each data set of the job that its node lacks")
	f.BoolVar(&o.tell, "progress", false, "jobs report how many of their steps are done, and how fast they go")
	f.BoolVar(&o.blind, "blind", false, "keep the scheduler from knowing which images and data sets jobs read")
	f.BoolVar(&o.capMemory, "cap-memory", false, "end jobs that exceed their reserved memory, not only those that find a GPU full")
	f.StringVar(&o.sizing, "sizing", "", "`SIZING` policy that chooses the number of GPUs of jobs and restarts them with others: afs, marginal, none, optimus, pollux or sia; with --elastic")
	f.StringVar(&o.elastic, "elastic", "1-8", "with --sizing, the `RANGE` of GPUs for each job with whole GPUs; run times hold for the trace's number and scale by the common curve")
	f.StringVar(&o.resize, "resize", "off", "shrink running jobs' GPU shares to what they use, and regrow them: `MODE` off, conservative or eager")
	f.Float64Var(&o.peakAt, "mem-peak-at", 0, "`PART` of its run time after which a job's memory peaks; 0 for from the start, or 0.05 with --resize")
	f.Float64Var(&o.lateGrowers, "late-growers", 0, "`PART` of the jobs that hold half of their peak memory until some point in their run, then jump to it")
	f.DurationVar(&o.mtbf, "mtbf", 0, "mean time between failures of a node; 0 for never")
	f.DurationVar(&o.repair, "repair", time.Hour, "mean time to repair a node")
	f.DurationVar(&o.checkpoint, "checkpoint", 0, "time between checkpoints that survive a failure; 0 for none")
	f.DurationVar(&o.powerIdle, "power-idle", 0, "power nodes down after this idle time, and up again for waiting jobs; 0 for never")
	f.DurationVar(&o.powerBoot, "power-boot", 5*time.Minute, "boot time of a node, with --power-idle")
	f.IntVar(&o.powerKeep, "power-keep", 0, "idle nodes to keep up, with --power-idle")
	f.DurationVar(&o.powerForecast, "power-forecast", 0, "with --power-idle, keep up the nodes forecast to be needed within `TIME`, such as 3h; 0 for no forecast")
	f.DurationVar(&o.powerEvery, "power-every", 10*time.Minute, "interval between forecasts, with --power-forecast")
	f.DurationVar(&o.powerLearn, "power-learn", 24*time.Hour, "history of demand needed before forecasting, with --power-forecast")
	f.IntVar(&o.powerSpare, "power-spare", 5, "nodes to keep up besides those forecast, in `PERCENT` of all, with --power-forecast")
	f.Int64Var(&o.powerHostW, "power-host-w", 0, "`WATTS` that a running node draws besides its GPUs, with --power-idle")
	f.Int64Var(&o.powerOffW, "power-off-w", 0, "`WATTS` that a powered-down node draws, with --power-idle")
	f.DurationVar(&o.passEvery, "pass-every", time.Second, "minimum virtual time between full passes; longer is cheaper, but changes which jobs overtake others")
	f.DurationVar(&o.tick, "tick", 0, "minimum planning interval while jobs wait, for time-dependent orders; 0 lets the order choose")
	f.StringVar(&o.fsm, "fsm", "auto", "drive the replicated state machine through its log: on, off, or auto (only short lists)")
	f.BoolVar(&o.pool, "pool", false, "pool all nodes of a type, so that jobs may span nodes; automatic if a job is wider than a node")
	f.DurationVar(&o.since, "since", 0, "skip arrivals before this time, counted from the first")
	f.DurationVar(&o.until, "until", 0, "skip arrivals from this time on; 0 for none")
	f.IntVar(&o.maxJobs, "max-jobs", 0, "use at most this many jobs; 0 for all")
	f.BoolVar(&o.strict, "strict", false, "stop at the first bad row")
}
