package accounting

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

const sshareExamples = "  berth sshare -a\n  ln -s /usr/bin/berth /usr/local/bin/sshare && sshare -U -u ann -P -o Account,FairShare"

// NewSshareCmd returns the command sshare.
func NewSshareCmd(e *console.Env, c *client.Client) *cobra.Command {
	var s slurm.Sshare
	var accounts, users, clusters string
	var all, help, noHead, verbose bool
	return option.Command(e, "sshare [OPTIONS…]", "Show shares and usage, like Slurm's sshare", sshareExamples, func(fs *pflag.FlagSet) {
		fs.StringVarP(&accounts, "accounts", "A", "", "only these accounts, and their users")
		fs.BoolVarP(&all, "all", "a", false, "include users other than the caller")
		fs.BoolVarP(&help, "helpformat", "e", false, "list the fields")
		fs.BoolVarP(&s.Long, "long", "l", false, "more fields")
		fs.BoolVarP(&s.Partitions, "partition", "m", false, "add a column for partitions, which is empty")
		fs.StringVarP(&clusters, "clusters", "M", "", "accepted for compatibility")
		fs.BoolVarP(&s.NoHead, "noheader", "n", false, "omit the header line")
		fs.BoolVarP(&noHead, "no-head", "h", false, "the same")
		fs.StringVarP(&s.Format, "format", "o", "", "fields, each with %WIDTH")
		fs.BoolVarP(&s.Parsable, "parsable", "p", false, "end fields with |")
		fs.BoolVarP(&s.Parsable2, "parsable2", "P", false, "separate fields with |")
		fs.StringVarP(&users, "users", "u", "", "only these users; -1 for all")
		fs.BoolVarP(&s.UsersOnly, "Users", "U", false, "omit the lines of accounts")
		fs.BoolVarP(&verbose, "verbose", "v", false, "accepted for compatibility")
	}, func(ctx context.Context, args []string) error {
		if help {
			e.Printf("%s\n", slurm.ShareFields())
			return nil
		}
		s.NoHead = s.NoHead || noHead
		var who []string
		if !all && users != "-1" {
			if who = option.List(users); len(who) == 0 {
				who = []string{e.User()}
			}
		}
		resp, err := client.ListStanding.Ask(ctx, c, client.Reads, &apiv1.ListStandingRequest{Usage: true})
		if err != nil {
			return err
		}
		return s.Print(e.Out, shares(resp, option.List(accounts), who))
	})
}

// shares returns accounts and users in Slurm's terms: the users of an
// account, and then the accounts below it. No accounts means all; users may
// be numbers, and nil means all.
func shares(resp *apiv1.ListStandingResponse, accounts, users []string) []slurm.Share {
	w := shareWalk{resp: resp, accounts: accounts, who: users}
	var left int64
	for _, a := range resp.GetAccounts() {
		if a.GetParent() == "" {
			left += a.GetUse().GetLeftUs()
		}
	}
	w.total = float64(max(1, left))
	depth := 0
	if len(accounts) == 0 || slices.Contains(accounts, slurm.Root) {
		w.out = append(w.out, slurm.Share{Account: slurm.Root, Cluster: option.ClusterName, RawUsage: left / 1e6, EffUsage: 1})
		depth = 1
	}
	w.below("", depth)
	return w.out
}

type shareWalk struct {
	resp          *apiv1.ListStandingResponse
	accounts, who []string
	total         float64
	out           []slurm.Share
}

func (w *shareWalk) below(parent string, depth int) {
	children := slices.DeleteFunc(slices.Clone(w.resp.GetAccounts()), func(a *apiv1.Account) bool { return a.GetParent() != parent })
	slices.SortFunc(children, func(a, b *apiv1.Account) int { return cmp.Compare(a.GetName(), b.GetName()) })
	for _, a := range children {
		under := depth
		if len(w.accounts) == 0 || slices.Contains(w.accounts, a.GetName()) {
			w.out = append(w.out, w.share(a.GetUse(), slurm.Share{Account: console.Escape(a.GetName()), Depth: depth, Shares: a.GetShares()}))
			under++
			w.users(a.GetName(), under)
		}
		w.below(a.GetName(), under)
	}
}

// users adds those of an account by name.
func (w *shareWalk) users(account string, depth int) {
	from := len(w.out)
	for _, m := range w.resp.GetMembers() {
		id := strconv.FormatUint(uint64(m.GetUid()), 10)
		if m.GetAccount() != account || w.who != nil && !slices.Contains(w.who, m.GetName()) && !slices.Contains(w.who, id) {
			continue
		}
		w.out = append(w.out, w.share(m.GetUse(), slurm.Share{Account: console.Escape(account), User: cmp.Or(console.Escape(m.GetName()), id), Depth: depth, Shares: m.GetShares()}))
	}
	slices.SortFunc(w.out[from:], func(a, b slurm.Share) int { return cmp.Compare(a.User, b.User) })
}

// share adds the usage to s.
func (w *shareWalk) share(u *apiv1.Use, s slurm.Share) slurm.Share {
	s.Cluster = option.ClusterName
	s.NormShares, s.EffUsage = u.GetSharesPart(), u.GetUsePart()
	s.RawUsage, s.NormUsage = u.GetLeftUs()/1e6, float64(u.GetLeftUs())/w.total
	if of := u.GetOf(); of > 0 && u.GetRank() > 0 {
		s.FairShare = float64(of-u.GetRank()+1) / float64(of)
	}
	return s
}
