package admin

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewQOSCmd returns the command qos.
func NewQOSCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "qos", Short: "Manage qualities of service (QOS)",
		Long: "A quality of service (QOS) sets the priority of jobs, and which jobs make room for them. Its limits\n" +
			"are quotas: berth quota set --qos NAME.",
		Example: "  berth qos add scavenger --grace 60s\n  berth qos add high --priority 10 --preempts scavenger\n  berth submit --qos high -- python train.py",
	}
	cmd.AddCommand(newQOSListCmd(e, c, "list"), newQOSListCmd(e, c, "show"), newQOSSetCmd(e, c, true), newQOSSetCmd(e, c, false), newQOSRemoveCmd(e, c))
	return cmd
}

func durationOf(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

type qosView struct {
	Name         string   `json:"name"`
	Priority     int64    `json:"priority"`
	Preempts     []string `json:"preempts"`
	GraceSeconds float64  `json:"grace_seconds"`
	Cancel       bool     `json:"cancel"`
	Default      bool     `json:"default"`
}

func newQOSListCmd(e *console.Env, c *client.Client, use string) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: use + " [NAME…]", Short: "List qualities of service; * marks the default", Example: "  berth qos " + use,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runQOSList(cmd.Context(), e, c, console.Format(output), args)
		},
	}
	if use == "show" {
		cmd.Short = "Show qualities of service"
	}
	console.AddFormat(cmd, &output, console.FormatTable, console.FormatJSON, console.FormatYAML, console.FormatName)
	return cmd
}

func runQOSList(ctx context.Context, e *console.Env, c *client.Client, f console.Format, only []string) error {
	resp, err := getStanding(ctx, c, &apiv1.ListStandingRequest{})
	if err != nil {
		return err
	}
	list := []qosView{}
	for _, q := range resp.GetQos() {
		if len(only) == 0 || slices.Contains(only, q.GetName()) {
			list = append(list, qosView{q.GetName(), q.GetPriority(), append([]string{}, q.GetPreempts()...), q.GetGrace().AsDuration().Seconds(), q.GetCancel(), q.GetDefault()})
		}
	}
	for _, name := range only {
		if !slices.ContainsFunc(list, func(v qosView) bool { return v.Name == name }) {
			return cluster.Errorf(cluster.CodeNotFound, "qos %q is not known; see: berth qos list", name)
		}
	}
	if done, err := console.PrintRows(e, f, list, func(v qosView) string { return v.Name }); done {
		return err
	}
	if len(list) == 0 {
		e.Warnf("there are no qualities of service; create one with: berth qos add NAME")
		return nil
	}
	t := &console.Table{Cols: []console.Column{{Head: "QOS"}, {Head: "PRIORITY", Right: true}, {Head: "PREEMPTS"}, {Head: "GRACE", Right: true}, {Head: "PREEMPTED"}}}
	for _, v := range list {
		name, grace, mode := v.Name, "-", "requeue"
		if v.Default {
			name += "*"
		}
		if v.GraceSeconds > 0 {
			grace = units.FormatDuration(durationOf(v.GraceSeconds))
		}
		if v.Cancel {
			mode = "cancel"
		}
		t.Add(name, strconv.FormatInt(v.Priority, 10), console.OrDash(strings.Join(v.Preempts, ",")), grace, mode)
	}
	t.Print(e)
	return nil
}

func newQOSSetCmd(e *console.Env, c *client.Client, add bool) *cobra.Command {
	var priority int64
	var preempts, grace, mode string
	var standard bool
	cmd := &cobra.Command{
		Use: "set NAME [flags]", Short: "Change a quality of service", Example: "  berth qos set high --priority 20", Args: console.OneArg("qos"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, said := strings.ToLower(args[0]), cmd.Flags().Changed
			q, err := findQOS(cmd.Context(), c, name, add)
			if err != nil {
				return err
			}
			if said("priority") {
				q.Priority = priority
			}
			if said("preempts") {
				q.Preempts = console.Items(preempts)
			}
			if said("grace") {
				d, err := timeOrNone(grace)
				if err != nil {
					return console.Usagef("--grace: %w", err)
				}
				q.Grace = durationpb.New(d)
			}
			if said("mode") {
				if q.Cancel = mode == "cancel"; !q.Cancel && mode != "requeue" {
					return console.Usagef("--mode %s: want requeue or cancel", console.ShortQuote(mode))
				}
			}
			if said("default") {
				q.Default = standard
			}
			if err := setStanding(cmd.Context(), c, &apiv1.Standing{Kind: &apiv1.Standing_Qos{Qos: q}, Revision: q.Revision}, false); err != nil {
				return err
			}
			e.Printf("qos %s: priority %d\n", name, q.Priority)
			return nil
		},
	}
	if add {
		cmd.Use, cmd.Short, cmd.Example = "add NAME [flags]", "Create a quality of service", "  berth qos add high --priority 10 --preempts scavenger"
	}
	fs := cmd.Flags()
	fs.Int64Var(&priority, "priority", 0, "priority, a `NUMBER` from 0 to 100; jobs of a higher one go first, and jobs without a QOS have 0")
	fs.StringVar(&preempts, "preempts", "", "QOS whose jobs it may preempt, a comma-separated `LIST`; their priority must be lower")
	fs.StringVar(&grace, "grace", "", "`TIME` that its preempted jobs have after SIGTERM, such as 60s; a job's own --checkpoint takes precedence")
	fs.StringVar(&mode, "mode", "requeue", "what happens to its preempted jobs, a `MODE`: requeue or cancel")
	fs.BoolVar(&standard, "default", false, "make it the default where no account sets one")
	fs.SortFlags = false
	return cmd
}

func findQOS(ctx context.Context, c *client.Client, name string, add bool) (*apiv1.QOS, error) {
	if err := cluster.CheckQOSName(name); err != nil {
		return nil, console.Usagef("%w", err)
	}
	have, err := getStanding(ctx, c, &apiv1.ListStandingRequest{})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(have.GetQos(), func(x *apiv1.QOS) bool { return x.GetName() == name })
	switch {
	case add && i >= 0:
		return nil, console.Usagef("qos %s already exists; change it with: berth qos set %s", name, name)
	case add:
		return &apiv1.QOS{Name: name}, nil
	case i < 0:
		return nil, cluster.Errorf(cluster.CodeNotFound, "qos %q is not known; see: berth qos list", name)
	}
	return have.Qos[i], nil
}

func newQOSRemoveCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Remove a QOS with no waiting or running jobs", Example: "  berth qos remove scavenger", Args: console.OneArg("qos"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := strings.ToLower(args[0])
			if err := cluster.CheckQOSName(name); err != nil {
				return console.Usagef("%w", err)
			}
			if err := setStanding(cmd.Context(), c, &apiv1.Standing{Kind: &apiv1.Standing_Qos{Qos: &apiv1.QOS{Name: name}}}, true); err != nil {
				return err
			}
			e.Printf("qos %s: removed\n", name)
			return nil
		},
	}
}
