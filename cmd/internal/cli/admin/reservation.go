package admin

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewReservationCmd returns the command reservation.
func NewReservationCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "reservation", Short: "List, add, change and remove reservations",
		Long: "A reservation keeps nodes or GPUs, for some time from a given start, for certain users or accounts or\n" +
			"for maintenance. Other jobs do not start there if they might still run when it begins; jobs submitted\n" +
			"with --reservation NAME run inside it.",
		Example: "  berth reservation add maint --nodes 'gpu[01-04]' --start 2026-03-14T18:00 --duration 4h --maint\n" +
			"  berth reservation add course --gpus 8 --start now --duration 2h --repeat weekly --users ann,bob\n" +
			"  berth reservation list",
	}
	cmd.AddCommand(newReservationListCmd(e, c), newReservationShowCmd(e, c), newReservationSetCmd(e, c, true), newReservationSetCmd(e, c, false), newReservationRemoveCmd(e, c))
	return cmd
}

func newReservationListCmd(e *console.Env, c *client.Client) *cobra.Command {
	return console.Formatted(&cobra.Command{
		Use: "list [NAME…]", Aliases: []string{"ls"}, Short: "List current and upcoming reservations",
		Example: "  berth reservation list\n  berth reservation list -o json",
	}, client.Bound(e, c, runReservationList), console.FormatTable, console.FormatJSON, console.FormatYAML, console.FormatName)
}

func newReservationShowCmd(e *console.Env, c *client.Client) *cobra.Command {
	return console.Formatted(&cobra.Command{
		Use: "show NAME…", Short: "Show reservations in full",
		Example: "  berth reservation show maint",
		Args:    console.SomeArgs("reservation"),
	}, client.Bound(e, c, runReservationShow), console.FormatTable, console.FormatJSON, console.FormatYAML, console.FormatName)
}

type reservationView struct {
	Name     string   `json:"name"`
	Active   bool     `json:"active"`
	Start    string   `json:"start"`
	End      string   `json:"end"`
	Repeat   string   `json:"repeat"`
	Nodes    string   `json:"nodes"`
	GPUs     []string `json:"gpus"`
	Users    []string `json:"users"`
	Accounts []string `json:"accounts"`
	Maint    bool     `json:"maint"`
	Features string   `json:"features"`
	Comment  string   `json:"comment"`
	Waiting  uint32   `json:"jobs_waiting"`
	Running  uint32   `json:"jobs_running"`
	InTheWay []uint64 `json:"jobs_in_the_way"`
}

func viewReservations(rs []*apiv1.Reservation) []reservationView {
	out := make([]reservationView, 0, len(rs))
	for _, r := range rs {
		v := reservationView{
			Name: r.GetName(), Active: r.GetActive(), Start: r.GetStart().AsTime().UTC().Format("2006-01-02T15:04:05Z"), End: r.GetEnd().AsTime().UTC().Format("2006-01-02T15:04:05Z"),
			Repeat: r.GetRepeat(), Nodes: r.GetNodes(), GPUs: []string{}, Users: append([]string{}, r.GetUsers()...), Accounts: append([]string{}, r.GetAccounts()...),
			Maint: r.GetMaint(), Features: r.GetFeatures(), Comment: r.GetComment(), Waiting: r.GetJobsWaiting(), Running: r.GetJobsRunning(), InTheWay: append([]uint64{}, r.GetInTheWay()...),
		}
		for _, g := range r.GetGpus() {
			v.GPUs = append(v.GPUs, g.GetUuid())
		}
		out = append(out, v)
	}
	return out
}

func runReservationList(ctx context.Context, e *console.Env, c *client.Client, f console.Format, names []string) error {
	rs, err := client.GetReservations(ctx, c, names)
	if err != nil {
		return err
	}
	if done, err := console.PrintRows(e, f, viewReservations(rs), func(v reservationView) string { return v.Name }); done {
		return err
	}
	t := &console.Table{Cols: []console.Column{{Head: "NAME"}, {Head: "STATE"}, {Head: "START"}, {Head: "END"}, {Head: "REPEAT"}, {Head: "GPUS", Right: true}, {Head: "FOR"}, {Head: "NODES", Shrink: true}}}
	for _, r := range rs {
		t.Add(r.GetName(), reservationState(r), console.When(e, r.GetStart()), console.When(e, r.GetEnd()), console.OrDash(r.GetRepeat()),
			strconv.Itoa(int(r.GetGpuCount())), console.OrDash(forWhom(r)), r.GetNodes())
	}
	t.Print(e)
	return nil
}

func reservationState(r *apiv1.Reservation) string {
	if r.GetActive() {
		return "open"
	}
	return "to come"
}

func forWhom(r *apiv1.Reservation) string {
	who := append(slices.Clone(r.GetUsers()), prefixed("account ", r.GetAccounts())...)
	if r.GetMaint() {
		who = append([]string{"maintenance"}, who...)
	}
	return strings.Join(who, ",")
}

func prefixed(p string, names []string) (out []string) {
	for _, n := range names {
		out = append(out, p+n)
	}
	return out
}

func runReservationShow(ctx context.Context, e *console.Env, c *client.Client, f console.Format, names []string) error {
	rs, err := client.GetReservations(ctx, c, names)
	if err != nil {
		return err
	}
	if done, err := console.PrintList(e, f, viewReservations(rs)); done {
		return err
	}
	for i, r := range rs {
		if f == console.FormatName {
			e.Printf("%s\n", console.Escape(r.GetName()))
			continue
		}
		if i > 0 {
			e.Printf("\n")
		}
		showReservation(ctx, e, c, r)
	}
	return nil
}

func showReservation(ctx context.Context, e *console.Env, c *client.Client, r *apiv1.Reservation) {
	var cards []string
	for _, g := range r.GetGpus() {
		cards = append(cards, fmt.Sprintf("%s:%d (%s)", g.GetNode(), g.GetIndex(), g.GetType()))
	}
	console.KeyValues(e, "",
		"Reservation", r.GetName(),
		"State", reservationState(r),
		"From", console.When(e, r.GetStart()),
		"Until", console.When(e, r.GetEnd()),
		"Again", r.GetRepeat(),
		"Nodes", r.GetNodes(),
		"GPUs", strings.Join(cards, ", "),
		"Features", r.GetFeatures(),
		"For", console.OrDash(forWhom(r)),
		"Comment", r.GetComment(),
		"Jobs", fmt.Sprintf("%d running, %d waiting", r.GetJobsRunning(), r.GetJobsWaiting()),
		"Conflicts", client.Labels(ctx, c, r.GetInTheWay())(r.GetInTheWay()),
	)
}

type reservationOptions struct {
	nodes, features, gpuType, partition, start, end, duration, repeat, users, accounts, comment string
	gpus                                                                                        uint32
	maint, ignoreJobs, overlap                                                                  bool
}

func newReservationSetCmd(e *console.Env, c *client.Client, isNew bool) *cobra.Command {
	var o reservationOptions
	cmd := &cobra.Command{
		Use: "set NAME [flags]", Short: "Change a reservation",
		Long:    "Change a reservation; settings not given stay as they are.",
		Example: "  berth reservation set maint --duration 6h\n  berth reservation set course --users ann,bob,cy",
		Args:    console.OneArg("reservation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := o.request(e, args[0], cmd.Flags().Changed)
			if err != nil {
				return err
			}
			req.OnlyNew, req.OnlyChange = isNew, !isNew
			return runReservationSet(cmd.Context(), e, c, req)
		},
	}
	if isNew {
		cmd.Use, cmd.Short = "add NAME [flags]", "Create a reservation"
		cmd.Long = "Create a reservation of named nodes, of a number of nodes (--nodes 4) or GPUs (--gpus 8), or of all\n" +
			"nodes with certain features. Nodes that are not named are chosen now: those that are free soonest. It\n" +
			"is refused on nodes with jobs that may still run at its start, unless --ignore-jobs is given."
		cmd.Example = "  berth reservation add maint --nodes 'gpu[01-04]' --start 2026-03-14T18:00 --duration 4h --maint\n" +
			"  berth reservation add course --gpus 8 --gpu-type A100-SXM4-80GB --start 14:00 --duration 2h --repeat weekly --users ann,bob"
	}
	fs := cmd.Flags()
	fs.StringVar(&o.start, "start", "", "`TIME` when it begins, such as 2026-03-14T18:00 or now+2hours (default now)")
	fs.StringVar(&o.end, "end", "", "`TIME` when it ends")
	fs.StringVar(&o.duration, "duration", "", "how long it lasts, a `TIME` such as 4h")
	fs.StringVar(&o.repeat, "repeat", "", "`HOW` to repeat it: daily, weekly, or none for once")
	fs.StringVar(&o.nodes, "nodes", "", "its nodes: a host `LIST` such as gpu[01-04], ALL, or a number of nodes")
	fs.Uint32Var(&o.gpus, "gpus", 0, "`NUMBER` of GPUs, instead of whole nodes")
	fs.StringVar(&o.gpuType, "gpu-type", "", "with --gpus, only GPUs of this `TYPE`")
	fs.StringVarP(&o.features, "constraint", "C", "", "choose among nodes with these `FEATURES`, such as a100&nvlink")
	fs.StringVar(&o.partition, "partition", "", "choose among the nodes of the partition `NAME`")
	fs.StringVar(&o.users, "users", "", "users whose jobs may run inside, a comma-separated `LIST`")
	fs.StringVar(&o.accounts, "accounts", "", "accounts whose jobs may run inside, a comma-separated `LIST`")
	fs.BoolVar(&o.maint, "maint", false, "for maintenance: shown on nodes, and may overlap other reservations")
	fs.BoolVar(&o.ignoreJobs, "ignore-jobs", false, "allow nodes with jobs that may still be running by then")
	fs.BoolVar(&o.overlap, "overlap", false, "allow overlap with other reservations")
	fs.StringVar(&o.comment, "comment", "", "`TEXT` to keep with it")
	fs.SortFlags = false
	return cmd
}

// request returns the changes of the flags.
func (o *reservationOptions) request(e *console.Env, name string, said func(string) bool) (*apiv1.SetReservationRequest, error) {
	if err := cluster.CheckReservationName(name); err != nil {
		return nil, console.Usagef("%w", err)
	}
	req := &apiv1.SetReservationRequest{Name: name, GpuCount: o.gpus, GpuType: o.gpuType, Features: o.features, Partition: o.partition, IgnoreJobs: o.ignoreJobs, Overlap: o.overlap}
	if err := setTimes(e, timeFlag{"start", o.start, &req.Start}, timeFlag{"end", o.end, &req.End}); err != nil {
		return nil, err
	}
	if o.duration != "" {
		d, err := units.ParseDuration(o.duration)
		if err != nil {
			return nil, console.Usagef("--duration: %w", err)
		}
		req.Duration = durationpb.New(d)
	}
	if said("repeat") {
		if o.repeat == "none" {
			o.repeat = ""
		}
		req.Repeat = &o.repeat
	}
	if n, err := strconv.ParseUint(o.nodes, 10, 31); err == nil && n > 0 {
		req.NodeCount = uint32(n)
	} else if said("nodes") {
		req.Nodes = &o.nodes
	}
	if said("maint") {
		req.Maint = &o.maint
	}
	if said("comment") {
		req.Comment = &o.comment
	}
	req.SetUsers, req.Users = said("users"), commaList(o.users)
	req.SetAccounts, req.Accounts = said("accounts"), commaList(o.accounts)
	return req, nil
}

func runReservationSet(ctx context.Context, e *console.Env, c *client.Client, req *apiv1.SetReservationRequest) error {
	resp, err := client.SetReservation(ctx, c, req)
	if err != nil {
		return err
	}
	for _, w := range resp.GetWarnings() {
		e.Warnf("%s", console.Escape(w))
	}
	showReservation(ctx, e, c, resp.GetReservation())
	return nil
}

func newReservationRemoveCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME…", Aliases: []string{"rm"}, Short: "Remove reservations; jobs running inside continue",
		Example: "  berth reservation remove maint",
		Args:    console.SomeArgs("reservation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				if err := client.RemoveReservation(cmd.Context(), c, name); err != nil {
					return err
				}
				e.Printf("reservation %s removed\n", console.Escape(name))
			}
			return nil
		},
	}
}

// commaList splits a list at commas.
func commaList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}
