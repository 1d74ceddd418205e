package jobcmd

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// updateFlags are the flags of berth update, with what they set.
var updateFlags = []struct {
	name, usage string
	set         func(e *console.Env, r *apiv1.UpdateJobRequest, v string) error
}{
	{"time", "time limit, a `TIME` such as 90 (minutes) or 2h, or a change such as +30 or -10; none for no limit; only administrators may raise it", SetUpdateTime},
	{"name", "job `NAME`", text(func(r *apiv1.UpdateJobRequest) **string { return &r.Name })},
	{"comment", "`TEXT` to keep with it", text(func(r *apiv1.UpdateJobRequest) **string { return &r.Comment })},
	{"partition", "partition `NAME`", text(func(r *apiv1.UpdateJobRequest) **string { return &r.Partition })},
	{"account", "account `NAME` to charge", text(func(r *apiv1.UpdateJobRequest) **string { return &r.Account })},
	{"qos", "QOS `NAME`", text(func(r *apiv1.UpdateJobRequest) **string { return &r.Qos })},
	{"nice", "`NUMBER` to lower its priority by; only administrators may reduce it", setUpdateNice},
	{"retry", "retry a failed job up to `NUMBER` times, counting earlier runs", setUpdateRetry},
	{"retry-on", "what --retry applies to: a `LIST` such as 75,NODE_FAIL; \"\" for any failure", text(func(r *apiv1.UpdateJobRequest) **string { return &r.RetryOn })},
	{"power-cap", "power limit of each whole GPU, a `POWER` such as 250W, 70% or auto:5%; \"\" for the GPU's default", text(func(r *apiv1.UpdateJobRequest) **string { return &r.PowerCap })},
	{"gpu-freq", "`CLOCK` of each whole GPU: MHz, low, medium, high or highm1; \"\" for the GPU's default", text(func(r *apiv1.UpdateJobRequest) **string { return &r.GpuFreq })},
	{"gpus", "`NUMBER` of GPUs per node; a job with a range gets this number", setUpdateGPUs},
	{"nodes", "`NUMBER` of nodes; a job with a range gets this number", setUpdateNodes},
	{"nodelist", "run on all nodes of this `LIST`; \"\" for any", text(func(r *apiv1.UpdateJobRequest) **string { return &r.NodeList })},
	{"exclude", "do not run on any node of this `LIST`", text(func(r *apiv1.UpdateJobRequest) **string { return &r.Exclude })},
	{"constraint", "run only on nodes with these `FEATURES`", text(func(r *apiv1.UpdateJobRequest) **string { return &r.Features })},
	{"reservation", "run inside the reservation `NAME`", text(func(r *apiv1.UpdateJobRequest) **string { return &r.Reservation })},
	{"begin", "do not start before `TIME`, such as now+2hours; now for immediately", SetUpdateBegin},
	{"dependency", "start after other jobs, a `LIST` such as afterok:17; \"\" for none", SetUpdateDepends},
}

// NewUpdateCmd returns the command update.
func NewUpdateCmd(e *console.Env, c *client.Client) *cobra.Command {
	said := make([]string, len(updateFlags))
	var throttle uint32
	cmd := &cobra.Command{
		Use: "update (JOB|ARRAY_TASK) [flags]", Short: "Change a job's resources, limits and options",
		Long: "Change a job while it waits. For a running job, you can change the time limit, name, comment, nice\n" +
			"value and retries; for an array, or some of its tasks, the time limit. Users may lower time limits;\n" +
			"only administrators may raise them.",
		Example: "  berth update 12 --time 2h --constraint a100\n  berth update 12 --time +30\n  berth update '30_[5-9]' --time 2:00:00\n  berth update 12 --reservation ''",
		Args:    console.OneArg("job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, tasks, err := jobOrTasks(args[0])
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("throttle") {
				if cmd.Flags().NFlag() > 1 || tasks != "" {
					return console.Usagef("--throttle applies to a whole array; give it alone")
				}
				return Throttle(cmd.Context(), e, c, id, throttle)
			}
			req, any, sign := &apiv1.UpdateJobRequest{Id: id, Tasks: tasks}, false, 0
			for i, f := range updateFlags {
				if !cmd.Flags().Changed(f.name) {
					continue
				}
				any = true
				if f.name == "time" {
					sign, said[i] = Signed(said[i])
				}
				if err := f.set(e, req, said[i]); err != nil {
					return console.Usagef("--%s: %w", f.name, err)
				}
			}
			if !any {
				return console.Usagef("nothing to change; give a flag, such as --time 2h")
			}
			if err := Update(cmd.Context(), e, c, req, sign); err != nil {
				return err
			}
			e.Printf("job %s changed\n", console.JobOrTasks(id, tasks))
			return nil
		},
	}
	for i, f := range updateFlags {
		cmd.Flags().StringVar(&said[i], f.name, "", f.usage)
	}
	cmd.Flags().Uint32Var(&throttle, "throttle", 0, "let at most `N` array tasks run at once; 0 for no limit")
	cmd.Flags().SortFlags = false
	return cmd
}

// Update changes what req names, see UpdateRequests, and prints any warnings.
func Update(ctx context.Context, e *console.Env, c *client.Client, req *apiv1.UpdateJobRequest, sign int) error {
	reqs, err := UpdateRequests(ctx, c, req, sign)
	if err != nil {
		return err
	}
	for _, r := range reqs {
		resp, err := client.UpdateJob(ctx, c, r)
		if err != nil {
			return err
		}
		for _, w := range resp.GetWarnings() {
			e.Warnf("warning: %s", console.Escape(w))
		}
		for _, p := range resp.GetPromises() {
			e.Warnf("%s", console.Escape(p))
		}
	}
	return nil
}

// jobOrTasks reads one job, array, task, or list of tasks of one array.
func jobOrTasks(arg string) (id uint64, tasks string, err error) {
	ids, refs, err := console.ParseJobs([]string{arg})
	switch {
	case err != nil:
		return 0, "", err
	case len(ids)+len(refs) != 1:
		return 0, "", console.Usagef("job %s: want one job, array, or task list such as 12_[3-9]", console.ShortQuote(arg))
	case len(ids) == 1:
		return ids[0], "", nil
	}
	return refs[0].Array, refs[0].Tasks, nil
}

// Throttle changes how many tasks of an array may run at once, 0 for any
// number, and reports it.
func Throttle(ctx context.Context, e *console.Env, c *client.Client, array uint64, n uint32) error {
	results, err := client.Control(ctx, e, c, &apiv1.ControlJobsRequest{Ids: []uint64{array}, Action: apiv1.JobAction_JOB_ACTION_THROTTLE, Throttle: n})
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.GetFault() != "" {
			return &console.ExitError{Code: console.ExitFailed, Err: errors.New(r.GetMessage())}
		}
	}
	e.Printf("array %d: %s\n", array, atOnce(n))
	return nil
}

func atOnce(n uint32) string {
	if n == 0 {
		return "any number of tasks at once"
	}
	return console.Plural(int(n), "task", "tasks") + " at once"
}

func text(of func(*apiv1.UpdateJobRequest) **string) func(*console.Env, *apiv1.UpdateJobRequest, string) error {
	return func(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error {
		*of(r) = &v
		return nil
	}
}

// SetUpdateTime reads a time limit.
func SetUpdateTime(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error {
	if v == "none" {
		r.TimeLimit = durationpb.New(0)
		return nil
	}
	d, err := units.ParseDuration(v)
	r.TimeLimit = durationpb.New(d)
	return err
}

func setUpdateRetry(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error {
	n, err := strconv.ParseUint(v, 10, 32)
	if err != nil || n > cluster.MaxRetries {
		return console.Usagef("%s: want a whole number from 0 to %d", console.ShortQuote(v), cluster.MaxRetries)
	}
	r.Retries = new(uint32(n))
	return nil
}

func setUpdateGPUs(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error {
	n, err := units.ParseGPUs(v)
	r.Gpus = new(uint32(n))
	return err
}

func setUpdateNodes(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error {
	n, err := strconv.ParseUint(v, 10, 32)
	if err != nil || n < 1 || n > cluster.MaxNodes {
		return console.Usagef("%s: want a whole number from 1 to %d", console.ShortQuote(v), cluster.MaxNodes)
	}
	r.Nodes = new(uint32(n))
	return nil
}

func setUpdateNice(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error {
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil || n > cluster.MaxNice || n < -cluster.MaxNice {
		return console.Usagef("%s: want a whole number from -%d to %d", console.ShortQuote(v), cluster.MaxNice, cluster.MaxNice)
	}
	r.Nice = new(int32(n))
	return nil
}

// SetUpdateBegin reads the earliest start.
func SetUpdateBegin(e *console.Env, r *apiv1.UpdateJobRequest, v string) error {
	at, ok := slurm.ParseNext(v, e.Now())
	if !ok {
		return console.Usagef("%s: want a time such as %s", console.ShortQuote(v), slurm.TimeForms)
	}
	if r.BeginNow = !at.After(e.Now()); !r.BeginNow {
		r.Begin = timestamppb.New(at)
	}
	return nil
}

// SetUpdateDepends reads which jobs the job waits for.
func SetUpdateDepends(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error {
	r.SetDepends = true
	if v == "" {
		return nil
	}
	deps, anyOf, err := cluster.ParseDepends(v)
	r.Depends, r.DependAny = apiconv.DependsToAPI(deps), anyOf
	return err
}
