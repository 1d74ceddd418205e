package admin

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"
	"github.com/berth-scheduler/berth/cmd/internal/units"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewClusterCmd returns the command cluster.
func NewClusterCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Manage the coordinators", Example: "  berth cluster status"}
	cmd.AddCommand(newClusterStatusCmd(e, c))
	return cmd
}

func newClusterStatusCmd(e *console.Env, c *client.Client) *cobra.Command {
	return console.Formatted(&cobra.Command{
		Use: "status", Short: "Show the coordinators and the number of jobs",
		Example: "  berth cluster status\n  berth cluster status -o json",
		Args:    console.NoArgs,
	}, client.Bound(e, c, runClusterStatus), console.FormatTable, console.FormatJSON, console.FormatYAML)
}

func runClusterStatus(ctx context.Context, e *console.Env, c *client.Client, f console.Format, _ []string) error {
	resp, err := client.GetStatus.Ask(ctx, c, client.Reads, &apiv1.GetStatusRequest{})
	if err != nil {
		return err
	}
	if done, err := console.PrintList(e, f, view.Status(resp)); done {
		return err
	}
	var jobs []string
	for _, j := range resp.GetJobs() {
		jobs = append(jobs, fmt.Sprintf("%d %s", j.GetCount(), j.GetState()))
	}
	console.KeyValues(e, "",
		"Cluster", resp.GetName()+" ("+resp.GetClusterId()+")",
		"Jobs", console.OrNone(strings.Join(jobs, ", ")),
		"Index", strconv.FormatUint(resp.GetIndex(), 10),
		"Answered by", resp.GetAnsweredBy(),
	)
	e.Printf("\n")
	t := &console.Table{Cols: []console.Column{
		{Head: "COORDINATOR"}, {Head: "ADDRESS"}, {Head: "ROLE"}, {Head: "REACHABLE"}, {Head: "TERM", Right: true},
		{Head: "LOG", Right: true}, {Head: "APPLIED", Right: true}, {Head: "STATE_HASH"}, {Head: "VERSION"},
	}}
	for _, m := range resp.GetMembers() {
		reachable := "yes"
		if !m.GetReachable() {
			reachable = "no"
		}
		t.Add(m.GetId(), m.GetAddress(), memberRole(m), reachable, strconv.FormatUint(m.GetTerm(), 10), strconv.FormatUint(m.GetLastIndex(), 10),
			strconv.FormatUint(m.GetAppliedIndex(), 10), hashText(m), console.OrDash(m.GetVersion()))
	}
	t.Print(e)
	printHistories(e, resp.GetMembers())
	return nil
}

func memberRole(m *apiv1.Member) string {
	switch {
	case !m.GetReachable():
		return "-" // its present state is unknown
	case m.GetLeader():
		return "leader"
	case m.GetVoter():
		return "follower"
	default:
		return "learner"
	}
}

func hashText(m *apiv1.Member) string {
	h := m.GetStateHash()
	if h == "" {
		return "-"
	}
	return fmt.Sprintf("%s@%d", h[:min(12, len(h))], m.GetStateHashIndex())
}

// NewTokenCmd returns the command token.
func NewTokenCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "token", Short: "Create join tokens",
		Example: "  berth token create --role agent --id n7",
	}
	cmd.AddCommand(newTokenCreateCmd(e, c))
	return cmd
}

type tokenOptions struct {
	role, id, ttl string
}

func newTokenCreateCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o tokenOptions
	cmd := &cobra.Command{
		Use: "create --role ROLE --id ID", Short: "Create a single-use token for one machine to join",
		Long: "Create a token that lets one machine join once. It is printed only here and is as good as a key:\n" +
			"hand it over in a file that only root can read.",
		Example: "  berth token create --role agent --id n7 --ttl 1h > n7.token",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runTokenCreate(cmd.Context(), e, c, o)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.role, "role", "agent", "role to join as: agent, coordinator or gate")
	fs.StringVar(&o.id, "id", "", "`NAME` of the node or coordinator; required")
	fs.StringVar(&o.ttl, "ttl", "1h", "`TIME` for which the token is valid")
	return cmd
}

func runTokenCreate(ctx context.Context, e *console.Env, c *client.Client, o tokenOptions) error {
	switch o.role {
	case "agent", "coordinator", "gate":
	default:
		return console.Usagef("--role %s: want agent, coordinator or gate", console.ShortQuote(o.role))
	}
	if o.id == "" {
		return console.Usagef("--id is missing: name the node or coordinator that will join")
	}
	if err := cluster.CheckName(o.role, o.id); err != nil {
		return console.Usagef("--id: %w", err)
	}
	ttl, err := units.ParseDuration(o.ttl)
	if err != nil {
		return console.Usagef("--ttl: %w", err)
	}
	resp, err := client.CreateToken.Ask(ctx, c, client.Changes, &apiv1.CreateTokenRequest{Role: o.role, Id: o.id, Ttl: durationpb.New(ttl)})
	if err != nil {
		return console.UnknownChange(err, "An unseen token expires by itself; create another.")
	}
	e.Printf("%s\n", console.Escape(resp.GetToken()))
	if t := console.When(e, resp.GetExpires()); t != "" {
		e.Warnf("for %s %s, once, until %s", o.role, o.id, t)
	}
	return nil
}
