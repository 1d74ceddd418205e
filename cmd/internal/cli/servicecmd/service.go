package servicecmd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/cluster/study"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/enter"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobcmd"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewServiceCmd returns the command service.
func NewServiceCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "service", Short: "Run servers with health checks, rolling updates and scaling",
		Long: "A service is a set of replicas of a server, each a job with a share of a GPU. Each replica finds the\n" +
			"port to listen on in PORT; unhealthy ones are ended and restarted, a new revision replaces the old\n" +
			"one replica by replica, and the endpoints of ready replicas are listed for load balancers and\n" +
			"Prometheus.",
		Example: "  berth service create chat --replicas 2 --gpus 0.25 --health /healthz -- python serve.py\n" +
			"  berth service show chat\n  berth service scale chat 4\n  berth service endpoints chat\n  berth service delete chat",
	}
	cmd.AddCommand(newCreateCmd(e, c), newUpdateCmd(e, c), newListCmd(e, c), newShowCmd(e, c), newScaleCmd(e, c), newLogsCmd(e, c), newEndpointsCmd(e, c), newDeleteCmd(e, c))
	return cmd
}

// options are the flags of create and update in addition to those of submit.
type options struct {
	jobcmd.SubmitOptions
	replicas, every, startWithin, drain, scaleOn, slo, idleAfter, forecast string
	s                                                                      service.Service
	named                                                                  bool // by --name
}

func (o *options) register(fs *pflag.FlagSet) {
	fs.StringVar(&o.replicas, "replicas", "1", "number of replicas, or a range such as 1-8: start with the first, scale up to the second; a range from 0 scales to none while there are no requests")
	fs.StringVar(&o.s.Port, "port", service.DefaultPort, "name of its port; the number is chosen for each replica and given in PORT, and for {port} in the command")
	fs.StringVar(&o.s.Health, "health", "", "`PATH` whose GET answers 2xx or 3xx while a replica is healthy, such as /healthz; by default accepting connections is enough")
	fs.StringVar(&o.every, "health-every", units.FormatDuration(service.DefaultEvery), "interval between health checks, a `TIME`")
	fs.IntVar(&o.s.Fails, "health-fails", service.DefaultFails, "send a replica no requests after `N` failed checks in a row, and end it after twice as many")
	fs.StringVar(&o.startWithin, "start-within", units.FormatDuration(service.DefaultStartWithin), "end a replica that does not become healthy within `TIME`")
	fs.StringVar(&o.drain, "drain", units.FormatDuration(service.DefaultDrain), "how long an ending replica keeps running without new requests, a `TIME`")
	fs.StringVar(&o.scaleOn, "scale-on", "", "within the range of --replicas, scale so that each has this `LOAD`: gpu=70%, or KEY=NUMBER for a value in BERTH_PROGRESS such as in_flight=4; rps and in_flight are measured for requests through berth service proxy")
	fs.StringVar(&o.slo, "slo", "", "response time to hold, an `OBJECTIVE` such as p99=200ms: within the range of --replicas, run as many as that takes")
	fs.StringVar(&o.forecast, "forecast", "on", "on or off: when scaling by load with a day of it known, start replicas ahead of the load seen on other days, by their start-up time")
	fs.StringVar(&o.idleAfter, "idle-after", "", "with a range from 0, scale to none after `TIME` without a request to berth service proxy (default 10m)")
}

// fill reads the flags into o.s, and checks the result.
func (o *options) fill(name string) error {
	if err := o.readService(name); err != nil {
		return err
	}
	if err := o.s.Check(); err != nil {
		return console.Usagef("service: %w", err)
	}
	return nil
}

// readService reads the flags into o.s.
func (o *options) readService(name string) error {
	o.s.Name = name
	for _, d := range []struct {
		flag, text string
		to         *int64
	}{{"health-every", o.every, (*int64)(&o.s.Every)}, {"start-within", o.startWithin, (*int64)(&o.s.StartWithin)}, {"drain", o.drain, (*int64)(&o.s.Drain)}} {
		v, err := units.ParseDuration(d.text)
		if d.text == "0" {
			v, err = 0, nil
		}
		if err != nil {
			return console.Usagef("--%s: %w", d.flag, err)
		}
		*d.to = int64(v)
	}
	var err error
	if o.s.Replicas, o.s.Max, err = parseReplicas(o.replicas); err != nil {
		return err
	}
	if o.s.Scale, err = parseScale(o.scaleOn); err != nil {
		return err
	}
	if o.s.SLO, err = service.ParseSLO(o.slo); err != nil {
		return console.Usagef("--slo %w", err)
	}
	switch o.forecast {
	case "on", "off":
		o.s.NoForecast = o.forecast == "off"
	default:
		return console.Usagef("--forecast %s: want on or off", console.ShortQuote(o.forecast))
	}
	if o.s.Min = o.s.LeastOf(o.s.Replicas); o.s.Min > 0 && o.idleAfter == "" {
		return nil
	}
	if o.idleAfter == "" {
		o.s.IdleAfter = service.DefaultIdleAfter
		return nil
	}
	if o.s.IdleAfter, err = units.ParseDuration(o.idleAfter); err != nil {
		return console.Usagef("--idle-after: %w", err)
	}
	return nil
}

// parseReplicas reads 2 or 1-8. A single number leaves room to scale by hand.
func parseReplicas(text string) (first, most int, err error) {
	from, to, ranged := strings.Cut(text, "-")
	a, err := strconv.ParseUint(from, 10, 16)
	b := a
	if err == nil && ranged {
		b, err = strconv.ParseUint(to, 10, 16)
	}
	if err != nil {
		return 0, 0, console.Usagef("--replicas %s: want a number from 1 to %d, or a range such as 1-8", console.ShortQuote(text), service.MaxReplicas)
	}
	if b < a {
		return 0, 0, console.Usagef("--replicas %s: the range is upside down; the smaller number comes first: %d-%d", console.ShortQuote(text), b, a)
	}
	if !ranged && b > 0 {
		b = max(b, min(b+service.Spare, service.MaxReplicas))
	}
	return int(a), int(b), nil
}

// parseScale reads gpu=70% or KEY=NUMBER, "" for none.
func parseScale(text string) (service.Scale, error) {
	if text == "" {
		return service.Scale{}, nil
	}
	on, v, ok := strings.Cut(text, "=")
	number, percent := strings.CutSuffix(v, "%")
	f, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || math.IsNaN(f) || percent != (on == service.GPU) {
		return service.Scale{}, console.Usagef("--scale-on %s: want gpu=70%%, or the key and number of a load such as in_flight=4", console.ShortQuote(text))
	}
	if percent {
		f /= 100
	}
	return service.Scale{On: on, Target: f}, nil
}

// prepare turns the spec of a job into that of the service.
func (o *options) prepare(s *cluster.Spec) error {
	if s.Array != nil || s.Study.Searches() {
		return console.Usagef("a service has replicas, not array tasks or trials; leave out --array, and the study in the spec file")
	}
	tasks, err := cluster.ParseTasks(fmt.Sprintf("0-%d", o.s.Max-1))
	if err != nil {
		return err
	}
	s.Service, s.Array = &o.s, &cluster.Array{Tasks: tasks, Throttle: o.s.Replicas}
	if s.Name == "" || !o.named {
		s.Name = o.s.Name
	}
	if on := o.s.Metric(); on != "" {
		if s.Study, err = study.ParseMetric(on); err != nil {
			return console.Usagef("--scale-on: %w", err)
		}
	}
	if s.Image != "" && s.Container.Network == "" {
		s.Container.Network = cluster.NetHost
	}
	return s.Check()
}

func newCreateCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd, _ := submitCmd(e, c, &cobra.Command{
		Use: "create NAME [flags] (SCRIPT | FILE.yaml | -- COMMAND [ARG…])", Short: "Start a service",
		Long: "Start a service. All options of berth submit are accepted besides those below: a replica's GPU use,\n" +
			"memory and time are predicted, capped and learned as for any job. Each replica finds its port in\n" +
			"PORT and BERTH_PORT_NAME, and in place of {port} in the command.",
		Example: "  berth service create chat --replicas 2 --gpus 0.25 --health /healthz -- python serve.py\n" +
			"  berth service create embed --replicas 1-8 --gpus 0.5 --scale-on gpu=70% -- ./embed --port {port}",
	}, func(ctx context.Context, name string) error {
		all, err := read(ctx, c, e.User(), name)
		if err == nil && len(all) > 0 && len(all[0].alive()) > 0 {
			return cluster.Errorf(cluster.CodeConflict, "service %s already exists; berth service update %s changes it, berth service delete %s ends it", name, name, name)
		}
		return err
	})
	return cmd
}

// submitCmd adds the options to a command that describes a service in full.
func submitCmd(e *console.Env, c *client.Client, cmd *cobra.Command, before func(context.Context, string) error) (*cobra.Command, *options) {
	o := &options{SubmitOptions: jobcmd.SubmitOptions{Count: "1"}}
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dash := cmd.ArgsLenAtDash()
		if dash == 0 {
			return console.Usagef("the name of the service is missing before --")
		}
		if err := o.fill(args[0]); err != nil {
			return err
		}
		if loaded := (&service.Service{Min: o.s.Min, Max: o.s.Max, Scale: o.s.Scale, SLO: o.s.SLO}); cmd.Flags().Changed("forecast") && !loaded.Forecasts() {
			return console.Usagef("--forecast: is of a service that its load scales; add --scale-on or --slo, and a range such as --replicas 1-8")
		}
		if err := before(cmd.Context(), args[0]); err != nil {
			return err
		}
		o.Prepare = o.prepare
		o.named = cmd.Flags().Changed("name")
		return jobcmd.RunSubmit(cmd.Context(), e, c, &o.SubmitOptions, args[1:], max(-1, dash-1))
	}
	o.Register(cmd)
	o.register(cmd.Flags())
	cmd.Args = cobra.MinimumNArgs(1)
	return cmd, o
}

func newScaleCmd(e *console.Env, c *client.Client) *cobra.Command {
	var user string
	return addUser(&cobra.Command{
		Use: "scale NAME REPLICAS", Short: "Change the number of replicas",
		Long:    "Change the number of replicas. Surplus replicas take no new requests and end after the drain time.",
		Example: "  berth service scale chat 4", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := one(cmd.Context(), e, c, user, args[0])
			if err != nil {
				return err
			}
			n, err := strconv.ParseUint(args[1], 10, 16)
			if most := s.newest().Most; err != nil || n < min(1, uint64(s.newest().Least)) || n > uint64(most) {
				return console.Usagef("replicas %s: want a number from %d to %d, the maximum set for %s; berth service update %s --replicas 1-N allows more", console.ShortQuote(args[1]), min(1, s.newest().Least), most, s.Name, s.Name)
			}
			results, err := client.Control(cmd.Context(), e, c, &apiv1.ControlJobsRequest{Ids: []uint64{s.newest().ID}, Action: apiv1.JobAction_JOB_ACTION_THROTTLE, Throttle: uint32(n)})
			if err != nil {
				return err
			}
			for _, r := range results {
				switch r.GetFault() {
				case "":
				case "DENIED":
					return cluster.Errorf(cluster.CodeDenied, "service %s: only its owner and administrators may scale it", s.Name)
				default:
					return &console.ExitError{Code: console.ExitFailed, Err: errors.New(r.GetMessage())}
				}
			}
			e.Printf("service %s: %s\n", s.Name, console.Plural(int(n), "replica", "replicas"))
			return nil
		},
	}, &user)
}

func newDeleteCmd(e *console.Env, c *client.Client) *cobra.Command {
	var user string
	return addUser(&cobra.Command{
		Use: "delete NAME…", Short: "End a service", Aliases: []string{"rm"}, Example: "  berth service delete chat", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				s, err := one(cmd.Context(), e, c, user, name)
				if err != nil {
					return err
				}
				req := &apiv1.CancelJobsRequest{RequestId: e.RequestID()}
				for _, r := range s.alive() {
					req.Ids = append(req.Ids, r.ID)
				}
				resp, err := client.CancelJobs.Ask(cmd.Context(), c, client.Changes, req)
				if err != nil {
					return err
				}
				for _, r := range resp.GetResults() {
					if r.GetOutcome() == apiv1.CancelOutcome_CANCEL_OUTCOME_DENIED {
						return cluster.Errorf(cluster.CodeDenied, "service %s: only its owner and administrators may end it", name)
					}
				}
				e.Printf("service %s: ended\n", s.Name)
			}
			return nil
		},
	}, &user)
}

func newLogsCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := enter.NewLogsCmd(e, c)
	run, replica, user := cmd.RunE, "", ""
	cmd.Use, cmd.Short, cmd.Example = "logs NAME", "Print a replica's output", "  berth service logs chat\n  berth service logs chat --replica 3 -f"
	cmd.Long = "Print a replica's output: that of a ready one, or of the one named."
	cmd.Args = cobra.ExactArgs(1)
	cmd.Flags().StringVar(&replica, "replica", "", "replica `NUMBER`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := one(cmd.Context(), e, c, user, args[0])
		if err != nil {
			return err
		}
		r := s.pick(replica)
		if r == nil {
			return cluster.Errorf(cluster.CodeNotFound, "service %s has no such replica that ran; see: berth service show %s", s.Name, s.Name)
		}
		return run(cmd, []string{r.id()}) // the number of an array's first task is also that of the array
	}
	return addUser(cmd, &user)
}
