package admin

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewAccountCmd returns the command account.
func NewAccountCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "account", Short: "Manage accounts and their users",
		Long: "Jobs are charged to accounts. Accounts form a tree: each has shares relative to its siblings, and its\n" +
			"users have shares among themselves. With no accounts defined, jobs need none.",
		Example: "  berth account add bio --shares 3\n  berth account add bio --user ada,ben\n  berth account show bio --usage",
	}
	cmd.AddCommand(newAccountListCmd(e, c), newAccountShowCmd(e, c), newAccountSetCmd(e, c, true), newAccountSetCmd(e, c, false), newAccountRemoveCmd(e, c), newAccountPolicyCmd(e, c))
	return cmd
}

// getStanding reads accounts, QOS and quotas.
func getStanding(ctx context.Context, c *client.Client, req *apiv1.ListStandingRequest) (*apiv1.ListStandingResponse, error) {
	resp, err := client.ListStanding.Ask(ctx, c, client.Reads, req)
	return resp, err
}

// setStanding sets a rule, or removes it.
func setStanding(ctx context.Context, c *client.Client, s *apiv1.Standing, remove bool) error {
	_, err := client.SetStanding.Ask(ctx, c, client.Changes, &apiv1.SetStandingRequest{Standing: s, Remove: remove})
	if err != nil {
		return console.UnknownChange(err, "Check whether it was done, and repeat it if not.")
	}
	return nil
}

// uidOf looks up a user by name or number on this machine.
func uidOf(e *console.Env, name string) (uid uint32, known string, err error) {
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		if u, err := e.Accounts.UserID(name); err == nil {
			return uint32(n), u.Username, nil
		}
		return uint32(n), name, nil
	}
	u, err := e.Accounts.User(name)
	if err != nil {
		return 0, "", console.Usagef("user %s: not known on this machine; give the user id", console.ShortQuote(name))
	}
	n, err := strconv.ParseUint(u.Uid, 10, 31)
	return uint32(n), u.Username, err
}

func newAccountListCmd(e *console.Env, c *client.Client) *cobra.Command {
	return console.Formatted(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List accounts as a tree", Args: cobra.NoArgs,
		Example: "  berth account list",
	}, func(ctx context.Context, f console.Format, _ []string) error {
		return runAccounts(ctx, e, c, f, &apiv1.ListStandingRequest{Usage: true}, false, true)
	}, console.FormatTable, console.FormatJSON, console.FormatYAML, console.FormatName)
}

func newAccountShowCmd(e *console.Env, c *client.Client) *cobra.Command {
	var output string
	var usage bool
	cmd := &cobra.Command{
		Use: "show [NAME…]", Short: "Show accounts with their users and fair share",
		Long:    "Show accounts with their users. --usage adds what each used, like sshare: GPU-hours in total and\nafter decay, and the rank by fair share.",
		Example: "  berth account show --usage\n  berth account show bio",
		RunE: func(cmd *cobra.Command, args []string) error {
			return runAccounts(cmd.Context(), e, c, console.Format(output), &apiv1.ListStandingRequest{Accounts: args, Usage: usage}, true, usage)
		},
	}
	cmd.Flags().BoolVar(&usage, "usage", false, "also show usage and fair share")
	console.AddFormat(cmd, &output, console.FormatTable, console.FormatJSON, console.FormatYAML, console.FormatName)
	return cmd
}

type useView struct {
	Account     string  `json:"account"`
	Parent      string  `json:"parent,omitempty"`
	User        string  `json:"user,omitempty"`
	UID         *uint32 `json:"uid,omitempty"`
	Shares      int64   `json:"shares"`
	SharesPart  float64 `json:"shares_part"`
	GPUHours    float64 `json:"gpu_hours"`
	CoreHours   float64 `json:"core_hours"`
	LeftHours   float64 `json:"left_gpu_hours"`
	UsePart     float64 `json:"use_part"`
	GPUs        float64 `json:"gpus"`
	Running     int64   `json:"running"`
	Place       uint32  `json:"place,omitempty"`
	Of          uint32  `json:"of,omitempty"`
	Default     bool    `json:"default,omitempty"`
	Coordinator bool    `json:"coordinator,omitempty"`
	QOS         string  `json:"qos,omitempty"`
	DefaultQOS  string  `json:"default_qos,omitempty"`
}

func (v useView) with(u *apiv1.Use) useView {
	const hour = 3.6e9
	v.SharesPart, v.UsePart = u.GetSharesPart(), u.GetUsePart()
	v.GPUHours, v.CoreHours, v.LeftHours = float64(u.GetGpuUs())/hour, float64(u.GetCoreUs())/hour, float64(u.GetLeftUs())/hour
	v.GPUs, v.Running, v.Place, v.Of = float64(u.GetGpuMilli())/1000, u.GetRunning(), u.GetRank(), u.GetOf()
	return v
}

// viewAccounts places the users of an account below it.
func viewAccounts(resp *apiv1.ListStandingResponse, users bool) []useView {
	out := []useView{}
	for _, a := range resp.GetAccounts() {
		out = append(out, useView{
			Account: a.GetName(), Parent: a.GetParent(), Shares: a.GetShares(), QOS: strings.Join(a.GetQos(), ","), DefaultQOS: a.GetDefaultQos(),
		}.with(a.GetUse()))
		for _, m := range resp.GetMembers() {
			if users && m.GetAccount() == a.GetName() {
				out = append(out, useView{
					Account: m.GetAccount(), User: m.GetName(), UID: new(m.GetUid()), Shares: m.GetShares(), Default: m.GetDefault(), Coordinator: m.GetCoordinator(),
				}.with(m.GetUse()))
			}
		}
	}
	return out
}

func runAccounts(ctx context.Context, e *console.Env, c *client.Client, f console.Format, req *apiv1.ListStandingRequest, users, usage bool) error {
	resp, err := getStanding(ctx, c, req)
	if err != nil {
		return err
	}
	list := viewAccounts(resp, users)
	if done, err := console.PrintList(e, f, list); done {
		return err
	}
	if f == console.FormatName {
		for _, a := range resp.GetAccounts() {
			e.Printf("%s\n", console.Escape(a.GetName()))
		}
		return nil
	}
	if len(list) == 0 {
		e.Warnf("there are no accounts, so jobs need none; create one with: berth account add NAME")
		return nil
	}
	printAccounts(e, list, usage)
	st, err := client.GetStatus.Ask(ctx, c, client.Reads, &apiv1.GetStatusRequest{Brief: true})
	for _, t := range st.GetTrades() {
		e.Printf("%s\n", console.Escape(t))
	}
	return err
}

// printAccounts shows the tree by its indentation.
func printAccounts(e *console.Env, list []useView, usage bool) {
	depth := map[string]int{}
	t := &console.Table{Cols: []console.Column{{Head: "ACCOUNT"}, {Head: "USER"}, {Head: "SHARES", Right: true}, {Head: "QOS"}}}
	if usage {
		t.Cols = append(t.Cols, console.Column{Head: "PART", Right: true}, console.Column{Head: "GPU-HOURS", Right: true}, console.Column{Head: "NOT DECAYED", Right: true},
			console.Column{Head: "USED", Right: true}, console.Column{Head: "GPUS", Right: true}, console.Column{Head: "RUNNING", Right: true}, console.Column{Head: "PLACE", Right: true})
	}
	for _, v := range list {
		if v.UID == nil {
			depth[v.Account] = 0
			if d, ok := depth[v.Parent]; ok {
				depth[v.Account] = d + 1
			}
		}
		name, who, place := strings.Repeat(" ", depth[v.Account])+v.Account, "", "-"
		if v.UID != nil {
			if who = cmp.Or(v.User, strconv.Itoa(int(*v.UID))); v.Default {
				who += "*"
			}
			place = fmt.Sprintf("%d/%d", v.Place, v.Of)
		}
		row := []string{name, console.OrDash(who), strconv.FormatInt(v.Shares, 10), console.OrDash(v.QOS)}
		if usage {
			row = append(row, percent(v.SharesPart), fmt.Sprintf("%.1f", v.GPUHours), fmt.Sprintf("%.1f", v.LeftHours),
				percent(v.UsePart), accounting.Milli(int64(v.GPUs*1000)), strconv.FormatInt(v.Running, 10), place)
		}
		t.Add(row...)
	}
	t.Print(e)
}

func percent(f float64) string { return fmt.Sprintf("%.1f%%", 100*f) }

type accountOptions struct {
	parent, qos, defaultQOS, users string
	shares                         int64
	standard, coordinator          bool
}

func newAccountSetCmd(e *console.Env, c *client.Client, add bool) *cobra.Command {
	var o accountOptions
	cmd := &cobra.Command{
		Use: "set NAME [flags]", Short: "Change an account, or users of it",
		Example: "  berth account set bio --shares 5\n  berth account set bio --user ada --coordinator",
		Args:    console.OneArg("account"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), e, c, strings.ToLower(args[0]), add, cmd.Flags().Changed)
		},
	}
	if add {
		cmd.Use, cmd.Short = "add NAME [flags]", "Create an account, or add users to one"
		cmd.Example = "  berth account add bio --parent science --shares 3\n  berth account add bio --user ada,1007"
	}
	fs := cmd.Flags()
	fs.StringVar(&o.users, "user", "", "apply to these users of the account, a comma-separated `LIST` of names and numbers, not to the account itself")
	fs.Int64Var(&o.shares, "shares", 1, "`NUMBER` of shares relative to its siblings, or the users' among themselves")
	fs.StringVar(&o.parent, "parent", "", "parent `ACCOUNT`; \"\" for none")
	fs.StringVar(&o.qos, "qos", "", "QOS that its jobs may use, a comma-separated `LIST`; \"\" for its parent's, or all at the top")
	fs.StringVar(&o.defaultQOS, "default-qos", "", "default `QOS` of its jobs; \"\" for its parent's")
	fs.BoolVar(&o.standard, "default", false, "make this the users' default account")
	fs.BoolVar(&o.coordinator, "coordinator", false, "make the users coordinators, who may set quotas of the account's users")
	fs.SortFlags = false
	return cmd
}

func (o *accountOptions) run(ctx context.Context, e *console.Env, c *client.Client, name string, add bool, said func(string) bool) error {
	if err := cluster.CheckAccountName(name); err != nil {
		return console.Usagef("%w", err)
	}
	have, err := getStanding(ctx, c, &apiv1.ListStandingRequest{})
	if err != nil {
		return err
	}
	if o.users != "" {
		return o.setUsers(ctx, e, c, name, add, have, said)
	}
	if said("default") || said("coordinator") {
		return console.Usagef("--default, --coordinator: apply to users; name them with --user")
	}
	a := &apiv1.Account{Name: name, Shares: 1}
	i := slices.IndexFunc(have.GetAccounts(), func(x *apiv1.Account) bool { return x.GetName() == name })
	switch {
	case add && i >= 0:
		return console.Usagef("account %s already exists; change it with: berth account set %s", name, name)
	case !add && i < 0:
		return unknownAccount(name, have.GetAccounts(), "")
	case !add:
		a = have.Accounts[i]
	}
	if said("shares") {
		a.Shares = o.shares
	}
	if said("parent") {
		a.Parent = o.parent
	}
	if said("qos") {
		a.Qos = console.Items(o.qos)
	}
	if said("default-qos") {
		a.DefaultQos = o.defaultQOS
	}
	a.Use = nil
	if err := setStanding(ctx, c, &apiv1.Standing{Kind: &apiv1.Standing_Account{Account: a}, Revision: a.Revision}, false); err != nil {
		return err
	}
	e.Printf("account %s: %s%s\n", a.Name, console.Plural(int(a.Shares), "share", "shares"), below(a.Parent))
	return nil
}

// unknownAccount says what to do about an account that does not exist.
func unknownAccount(name string, have []*apiv1.Account, then string) error {
	there := "there are none yet"
	if len(have) > 0 {
		var list []string
		for _, a := range have[:min(10, len(have))] {
			list = append(list, a.GetName())
		}
		if there = "there are " + strings.Join(list, ", "); len(have) > len(list) {
			there += fmt.Sprintf(" and %d more", len(have)-len(list))
		}
	}
	return cluster.Errorf(cluster.CodeNotFound, "account %q is not known (%s); create it first with: berth account add %s%s", name, there, name, then)
}

func below(parent string) string {
	if parent == "" {
		return ""
	}
	return " below " + parent
}

func (o *accountOptions) setUsers(ctx context.Context, e *console.Env, c *client.Client, name string, add bool, have *apiv1.ListStandingResponse, said func(string) bool) error {
	if said("parent") || said("qos") || said("default-qos") {
		return console.Usagef("--parent, --qos, --default-qos: apply to an account, not to its users; leave out --user")
	}
	if !slices.ContainsFunc(have.GetAccounts(), func(x *apiv1.Account) bool { return x.GetName() == name }) {
		return unknownAccount(name, have.GetAccounts(), ", then add its users")
	}
	for _, who := range console.Items(o.users) {
		uid, known, err := uidOf(e, who)
		if err != nil {
			return err
		}
		m := &apiv1.AccountUser{Account: name, Uid: uid, Name: known, Shares: 1}
		i := slices.IndexFunc(have.GetMembers(), func(x *apiv1.AccountUser) bool { return x.GetAccount() == name && x.GetUid() == uid })
		switch {
		case !add && i < 0:
			return cluster.Errorf(cluster.CodeNotFound, "user %s is not in account %s; add them with: berth account add %s --user %s", known, name, name, known)
		case i >= 0:
			m = have.Members[i]
		}
		if said("shares") {
			m.Shares = o.shares
		}
		if said("default") {
			m.Default = o.standard
		}
		if said("coordinator") {
			m.Coordinator = o.coordinator
		}
		m.Use = nil
		if err := setStanding(ctx, c, &apiv1.Standing{Kind: &apiv1.Standing_Member{Member: m}, Revision: m.Revision}, false); err != nil {
			return err
		}
		e.Printf("account %s: user %s (%d), %s\n", name, console.Escape(known), uid, console.Plural(int(m.Shares), "share", "shares"))
	}
	return nil
}

func newAccountRemoveCmd(e *console.Env, c *client.Client) *cobra.Command {
	var users string
	cmd := &cobra.Command{
		Use: "remove NAME [--user LIST]", Short: "Remove an account with no active jobs, or some of its users",
		Long:    "Remove an account with its users and quotas, or only some of its users. Past charges stay on record.",
		Example: "  berth account remove bio\n  berth account remove bio --user ada",
		Args:    console.OneArg("account"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := strings.ToLower(args[0])
			if err := cluster.CheckAccountName(name); err != nil {
				return console.Usagef("%w", err)
			}
			for _, who := range console.Items(users) {
				uid, known, err := uidOf(e, who)
				if err != nil {
					return err
				}
				m := &apiv1.AccountUser{Account: name, Uid: uid, Shares: 1}
				if err := setStanding(cmd.Context(), c, &apiv1.Standing{Kind: &apiv1.Standing_Member{Member: m}}, true); err != nil {
					return err
				}
				e.Printf("account %s: user %s removed\n", name, console.Escape(known))
			}
			if users != "" {
				return nil
			}
			if err := setStanding(cmd.Context(), c, &apiv1.Standing{Kind: &apiv1.Standing_Account{Account: &apiv1.Account{Name: name, Shares: 1}}}, true); err != nil {
				return err
			}
			e.Printf("account %s: removed\n", name)
			return nil
		},
	}
	cmd.Flags().StringVar(&users, "user", "", "remove only these users from it, a comma-separated `LIST`")
	return cmd
}

// gpuWeights reads TYPE=WEIGHT,…, the complete list, ordered by type.
func gpuWeights(list string) ([]*apiv1.GPUWeight, error) {
	if list == "none" || list == "" {
		return nil, nil
	}
	var out []*apiv1.GPUWeight
	for item := range strings.SplitSeq(list, ",") {
		name, text, ok := strings.Cut(item, "=")
		w, err := strconv.ParseFloat(text, 64)
		if !ok || name == "" || err != nil || !(w >= 0 && w <= 1000) {
			return nil, console.Usagef("--gpu-weight %s: want TYPE=WEIGHT with a weight from 0 to 1000, such as T4=0.2", console.ShortQuote(item))
		}
		out = append(out, &apiv1.GPUWeight{GpuType: name, Milli: int64(math.Round(1000 * w))})
	}
	return out, nil
}

func gpuWeightWords(ws []*apiv1.GPUWeight) string {
	if len(ws) == 0 {
		return "1 for every type"
	}
	var words []string
	for _, w := range ws {
		words = append(words, fmt.Sprintf("%s %g", w.GetGpuType(), float64(w.GetMilli())/1000))
	}
	return strings.Join(words, ", ") + "; 1 for the others"
}

func printAccountPolicy(e *console.Env, p *apiv1.AccountPolicy) {
	life, asked, by := "usage does not decay", "no", "the table"
	if d := p.GetHalfLife().AsDuration(); d > 0 {
		life = units.FormatDuration(d)
	}
	if p.GetRequire() {
		asked = "yes"
	}
	if p.GetBySpeed() {
		by = "the job's predicted speed, where that is known"
	}
	console.KeyValues(e, "", "Half-life", life, "Core weight", fmt.Sprintf("%g of a GPU, for jobs without GPUs", float64(p.GetCoreMicro())/1e6), "GPU weights", gpuWeightWords(p.GetGpuWeights()), "Weighed by", by, "Account required", asked)
}

func newAccountPolicyCmd(e *console.Env, c *client.Client) *cobra.Command {
	var half, require, weights, by string
	var core float64
	cmd := &cobra.Command{
		Use: "policy [flags]", Short: "Show or change how usage is charged and decays", Args: cobra.NoArgs,
		Example: "  berth account policy\n  berth account policy --half-life 336h --require yes\n  berth account policy --gpu-weight T4=0.2,V100-SXM2-16GB=0.5",
		RunE: func(cmd *cobra.Command, _ []string) error {
			have, err := getStanding(cmd.Context(), c, &apiv1.ListStandingRequest{})
			if err != nil {
				return err
			}
			p, said := have.GetPolicy(), cmd.Flags().Changed
			if said("half-life") {
				d, err := timeOrNone(half)
				if err != nil {
					return console.Usagef("--half-life: %w", err)
				}
				p.HalfLife = durationpb.New(d)
			}
			if said("core-weight") {
				p.CoreMicro = int64(core * 1e6)
			}
			if said("require") {
				if require != "yes" && require != "no" {
					return console.Usagef("--require %s: want yes or no", console.ShortQuote(require))
				}
				p.Require = require == "yes"
			}
			if said("gpu-weight") {
				if p.GpuWeights, err = gpuWeights(weights); err != nil {
					return err
				}
			}
			if said("gpu-weight-by") {
				if by != "table" && by != "speed" {
					return console.Usagef("--gpu-weight-by %s: want table or speed", console.ShortQuote(by))
				}
				p.BySpeed = by == "speed"
			}
			if cmd.Flags().NFlag() > 0 {
				if err := setStanding(cmd.Context(), c, &apiv1.Standing{Kind: &apiv1.Standing_Policy{Policy: p}, Revision: p.Revision}, false); err != nil {
					return err
				}
			}
			printAccountPolicy(e, p)
			return nil
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&half, "half-life", "", "`TIME` after which usage counts half; none for no decay (default 7 days)")
	fs.StringVar(&weights, "gpu-weight", "", "charge per GPU-hour by type, a `LIST` such as A100-SXM4-80GB=1,T4=0.2; other types count 1; none for 1 each")
	fs.StringVar(&by, "gpu-weight-by", "", "`table` charges an hour of a type alike to all; speed charges a job by how fast it runs there beside the dearest type")
	fs.Float64Var(&core, "core-weight", 0.02, "charge per core relative to a GPU, a `PART`, for jobs without GPUs")
	fs.StringVar(&require, "require", "", "`YES` refuses jobs from users without an account; no lets them run")
	fs.SortFlags = false
	return cmd
}
