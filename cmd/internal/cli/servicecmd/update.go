package servicecmd

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/batch"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobspec"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// changes are the fields of a job's description that each option sets,
// separated by spaces. Other options are not valid for a service.
var changes = map[string]string{
	"name": "name", "mem": "mem_mib all_mem", "cpus": "cpu_milli", "time": "time_limit", "signal": "warning", "expect": "expected", "objective": "objective",
	"max-power": "max_power_w", "max-cost": "max_cost_milli", "partition": "partition", "node": "node", "requeue-on-loss": "requeue_on_loss",
	"checkpoint": "checkpoint_signal checkpoint_grace", "hold": "hold", "begin": "begin", "dependency": "depends depend_any", "kill-on-invalid-dep": "kill_invalid_depend",
	"comment": "comment", "image": "image", "mount": "container.mounts", "read-only": "container.read_only", "tmp": "container.tmp_mib", "shm": "container.shm_mib",
	"net": "container.network", "gpus": "gpus gpu_util_milli", "gpu-type": "gpu_type", "gpu-mem": "gpu_mem_mib", "gpu-util": "gpu_util_milli", "or-cpu": "or_cpu",
	"exclusive": "exclusive", "power-cap": "power_cap", "gpu-freq": "gpu_freq", "chdir": "dir", "output": "stdout", "error": "stderr", "input": "stdin",
	"open-mode": "truncate", "export": "env", "nodelist": "where.nodes", "exclude": "where.exclude", "constraint": "where.features", "data": "data", "reservation": "where.reservation",
	"whole-nodes": "where.whole", "switches": "where.switches", "account": "account", "qos": "qos", "nice": "nice", "mail-type": "mail_type", "mail-user": "mail_user", "no-resize": "no_resize", "idle-ok": "idle_ok",
	"replicas": "service.replicas service.most", "port": "service.port", "health": "service.health", "health-every": "service.every", "health-fails": "service.fails",
	"start-within": "service.start_within", "drain": "service.drain", "scale-on": "service.scale_on service.scale_target",
	"slo": "service.slo_percent service.slo_within", "idle-after": "service.idle_after", "forecast": "service.no_forecast",
}

func newUpdateCmd(e *console.Env, c *client.Client) *cobra.Command {
	var anew bool
	cmd, o := submitCmd(e, c, &cobra.Command{
		Use: "update NAME [flags] [SCRIPT | FILE.yaml | -- COMMAND [ARG…]]", Short: "Roll out a new revision of a service, replica by replica",
		Long: "Roll out a new revision of a service. Whatever is not given stays as in the current revision: command,\n" +
			"environment, directory, all options, and the current number of replicas. With --anew, a script or a\n" +
			"spec file, it is described in full, as for create. Its first replica starts beside the old ones; once\n" +
			"it is healthy, an old one takes no new requests and ends, and so on. A revision that never becomes\n" +
			"healthy replaces nothing: cancel it by its id.",
		Example: "  berth service update chat --gpu-mem 4G\n  berth service update chat --drain 30s -- python serve2.py",
	}, func(ctx context.Context, name string) error {
		return mine(ctx, e, c, name)
	})
	inFull := cmd.RunE
	cmd.Flags().BoolVar(&anew, "anew", false, "describe it in full: settings not given are reset, not kept")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dash := cmd.ArgsLenAtDash()
		if anew || cmd.Flags().Changed("spec") || dash < 0 && len(args) > 1 || dash > 1 {
			return inFull(cmd, args)
		}
		return update(cmd, e, c, o, args)
	}
	return cmd
}

// mine refuses to change a service that is not the caller's: a new revision runs as
// whoever submits it.
func mine(ctx context.Context, e *console.Env, c *client.Client, name string) error {
	own, err := read(ctx, c, e.User(), name)
	if err == nil && len(own) == 0 {
		return cluster.Errorf(cluster.CodeNotFound, "no service %s is running that is yours; berth service create starts one, and only its owner updates one", console.ShortQuote(name))
	}
	return err
}

// partial reads only the options that were given, and which fields they set.
func partial(fs *pflag.FlagSet, e *console.Env, o *options, args []string) (*apiv1.JobSpec, error) {
	var fields []string
	bad := ""
	fs.Visit(func(f *pflag.Flag) {
		of, known := changes[f.Name]
		switch {
		case known:
			fields = append(fields, strings.Fields(of)...)
		case isModel(f.Name):
			fields = append(fields, "features")
		default:
			bad = f.Name
		}
	})
	if bad != "" {
		return nil, console.Usagef("--%s: cannot be changed by an update of a service", bad)
	}
	if err := o.ApplyFlags(); err != nil {
		return nil, err
	}
	o.Spec.Command = []string{"-"} // it must not be empty
	if len(args) > 1 {
		o.Spec.Command = args[1:]
		fields = append(fields, "command", "script")
		if w := batch.SecretsWarning(nil, o.Spec.Command); w != "" {
			e.Warnf("warning: %s", console.Escape(w))
		}
	}
	warnings, err := o.Fill(e)
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		e.Warnf("warning: %s", console.Escape(w))
	}
	o.Spec.Service = &o.s
	js := apiconv.SpecToAPI(&o.Spec)
	if fs.Changed("data") && js.GetWhere().GetFeatures() != "" { // --data NAME! is a constraint, too
		fields = append(fields, "where.features")
	}
	js.Change = &apiv1.ServiceChange{Fields: fields}
	return js, nil
}

// isModel reports whether a flag describes the model, all of which is
// replaced by any of them.
func isModel(name string) bool {
	return slices.ContainsFunc(jobspec.ModelFields(), func(f jobspec.Field) bool { return f.Name == name })
}

// update submits the changes to a service.
func update(cmd *cobra.Command, e *console.Env, c *client.Client, o *options, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); dash {
	case 0:
		return console.Usagef("the name of the service is missing before --")
	case len(args):
		return console.Usagef("the command after -- is missing, such as: -- python serve.py")
	}
	ctx := cmd.Context()
	if err := o.readService(args[0]); err != nil {
		return err
	}
	js, err := partial(cmd.Flags(), e, o, args)
	if err != nil {
		return err
	}
	if err := mine(ctx, e, c, args[0]); err != nil {
		return err
	}
	if js.GpuType, err = client.GPUType(ctx, c, js.GpuType); err != nil {
		return err
	}
	req := &apiv1.SubmitJobsRequest{RequestId: e.RequestID(), Jobs: []*apiv1.JobSpec{js}}
	resp, err := client.SubmitJobs.Ask(ctx, c, client.Changes, req)
	if err != nil {
		return err
	}
	for _, w := range resp.GetWarnings() {
		e.Warnf("warning: %s", console.Escape(w))
	}
	if len(resp.GetIds()) != 1 {
		return cluster.Errorf(cluster.CodeUnknown, "service %s: %d jobs were submitted for one revision", args[0], len(resp.GetIds()))
	}
	what := "nothing, but its replicas are replaced"
	if n := resp.GetChanges(); len(n) > 0 {
		what = strings.Join(n, ", ")
	}
	e.Printf("Submitted service %s as job %d; it changes %s\n", args[0], resp.GetIds()[0], console.Escape(what))
	return e.Flush()
}
