package accounting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/terms"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

const sacctmgrExamples = "  berth sacctmgr -nP show assoc where user=ann format=account,qos\n  ln -s /usr/bin/berth /usr/local/bin/sacctmgr && sacctmgr show qos"

// changesAccounts names the commands that change what sacctmgr shows.
const changesAccounts = "accounts and their users are changed by berth account, qualities of service by berth qos, limits by berth quota"

// errNothingToShow names what sacctmgr shows here.
var errNothingToShow = errors.New("say what to show: account, association, cluster, qos, tres or user")

// managedUsual are the fields shown without format=; the second list, if any,
// applies with associations.
var managedUsual = map[string][2]string{
	"user": {
		"User,DefAcct,Admin",
		"User,DefAcct,Admin,Cluster,Account,Partition,Share,Priority,MaxJobs,MaxTRESPerNode,MaxTRES,MaxSubmit,MaxWall,MaxTRESMins,QOS,DefQOS",
	},
	"account": {
		"Account,Descr,Org",
		"Account,Descr,Org,Cluster,ParName,User,Share,Priority,GrpJobs,GrpTRES,GrpSubmit,GrpWall,GrpTRESMins,MaxJobs,MaxTRES,MaxTRESPerNode,MaxSubmit,MaxWall,MaxTRESMins,QOS,DefQOS",
	},
	"association": {"Cluster,Account,User,Partition,Share,Priority,GrpJobs,GrpTRES,GrpSubmit,GrpWall,GrpTRESMins,MaxJobs,MaxTRES,MaxTRESPerNode,MaxSubmit,MaxWall,MaxTRESMins,QOS,DefQOS,GrpTRESRunMin"},
	"cluster":     {"Cluster,ControlHost,ControlPort,RPC,Share,GrpJobs,GrpTRES,GrpSubmit,MaxJobs,MaxTRES,MaxSubmit,MaxWall,QOS,DefQOS"},
	"qos":         {"Name,Priority,GraceTime,Preempt,PreemptExemptTime,PreemptMode,Flags%40,UsageThres,UsageFactor,GrpTRES,GrpTRESMins,GrpTRESRunMin,GrpJobs,GrpSubmit,GrpWall,MaxTRES,MaxTRESPerNode,MaxTRESMins,MaxWall,MaxTRESPU,MaxJobsPU,MaxSubmitPU,MaxTRESPA,MaxJobsPA,MaxSubmitPA,MinTRES"},
	"tres":        {"Type,Name%15,ID"},
}

// mgrOptions are the options of sacctmgr, and the words after show.
type mgrOptions struct {
	print slurm.Sacctmgr
	assoc bool
	// where are the selected names, by kind: user, account, qos, cluster, partition.
	where map[string][]string
}

// NewSacctmgrCmd returns the command sacctmgr.
func NewSacctmgrCmd(e *console.Env, c *client.Client) *cobra.Command {
	o := mgrOptions{where: map[string][]string{}}
	var immediate, quiet, readonly, verbose, oneliner bool
	return option.Command(e, "sacctmgr [OPTIONS…] show ENTITY…", "Show accounts, users and limits, like Slurm's sacctmgr", sacctmgrExamples, func(fs *pflag.FlagSet) {
		fs.BoolVarP(&o.print.NoHead, "noheader", "n", false, "omit the header line")
		fs.BoolVarP(&o.print.Parsable, "parsable", "p", false, "end fields with |")
		fs.BoolVarP(&o.print.Parsable2, "parsable2", "P", false, "separate fields with |")
		fs.BoolVarP(&o.assoc, "associations", "s", false, "users and accounts with their associations")
		fs.BoolVarP(&immediate, "immediate", "i", false, "accepted for compatibility; nothing is changed")
		fs.BoolVarP(&quiet, "quiet", "Q", false, "accepted for compatibility")
		fs.BoolVarP(&readonly, "readonly", "r", false, "accepted for compatibility; nothing is changed")
		fs.BoolVarP(&verbose, "verbose", "v", false, "accepted for compatibility")
		fs.BoolVarP(&oneliner, "oneliner", "o", false, "accepted for compatibility")
	}, func(ctx context.Context, args []string) error {
		return runSacctmgr(ctx, e, c, &o, args)
	})
}

func runSacctmgr(ctx context.Context, e *console.Env, c *client.Client, o *mgrOptions, args []string) error {
	if len(args) == 0 {
		return errNothingToShow
	}
	switch verb := strings.ToLower(args[0]); {
	case len(verb) > 1 && strings.HasPrefix("show", verb), strings.HasPrefix("list", verb):
	case verb == "version":
		e.Printf("%s\n", slurm.Versioned)
		return nil
	default:
		return fmt.Errorf("%s: %s", console.Escape(args[0]), changesAccounts)
	}
	if len(args) == 1 {
		return errNothingToShow
	}
	entity := managedEntity(args[1])
	if entity == "" {
		return fmt.Errorf("%s is not supported; %w", console.Escape(args[1]), errNothingToShow)
	}
	if err := o.words(entity, args[2:]); err != nil {
		return err
	}
	usual := managedUsual[entity]
	o.print.Usual = usual[0]
	if o.assoc && usual[1] != "" {
		o.print.Usual = usual[1]
	}
	st, err := client.ListStanding.Ask(ctx, c, client.Reads, &apiv1.ListStandingRequest{})
	if err != nil {
		return err
	}
	t := roster{st: st, o: o}
	rows := map[string]func() []slurm.Managed{"user": t.users, "account": t.accounts, "association": t.associations, "qos": t.qualities, "tres": counted}[entity]
	if entity == "cluster" {
		return showClusters(ctx, e, c, o)
	}
	return o.print.Print(e.Out, rows())
}

// managedEntity resolves a word after show, "" if there is no such entity.
func managedEntity(word string) string {
	word = strings.ToLower(word)
	if word == "" {
		return ""
	}
	for _, x := range []struct {
		entity string
		names  []string
		least  int
	}{{"account", []string{"accounts"}, 2}, {"association", []string{"associations"}, 2}, {"cluster", []string{"clusters"}, 2}, {"qos", []string{"qos"}, 1}, {"tres", []string{"tres"}, 2}, {"user", []string{"users"}, 1}} {
		for _, n := range x.names {
			if len(word) >= x.least && strings.HasPrefix(n, word) {
				return x.entity
			}
		}
	}
	return ""
}

// words reads what follows an entity: with…, format=, where and conditions. A
// word alone is a name of the entity.
func (o *mgrOptions) words(entity string, words []string) error {
	for _, w := range words {
		key, value, has := strings.Cut(w, "=")
		key = strings.ToLower(key)
		switch {
		case !has && (key == "where" || key == "tree" || strings.HasPrefix(key, "wo") || key == "onlydefaults"):
		case !has && strings.HasPrefix(key, "with"):
			o.assoc = o.assoc || strings.HasPrefix(key, "witha")
		case !has:
			o.where[entity] = append(o.where[entity], option.List(w)...)
		case strings.HasPrefix("format", key):
			o.print.Format = value
		default:
			of := strings.TrimSuffix(key, "s")
			if of == "name" || of == "qo" {
				of = map[string]string{"name": entity, "qo": "qos"}[of]
			}
			if !slices.Contains([]string{"user", "account", "acct", "cluster", "partition", "qos"}, of) {
				return text.Message(" Unknown condition: " + console.Escape(w) + "\n Use keyword 'set' to modify value")
			}
			if of == "acct" {
				of = "account"
			}
			o.where[of] = append(o.where[of], option.List(value)...)
		}
	}
	return nil
}

// picks reports whether a name is among those selected; none means all.
func (o *mgrOptions) picks(what, name string) bool {
	return len(o.where[what]) == 0 || slices.ContainsFunc(o.where[what], func(w string) bool { return strings.EqualFold(w, name) })
}

// showClusters is sacctmgr show cluster: the only cluster, with its leading
// coordinator.
func showClusters(ctx context.Context, e *console.Env, c *client.Client, o *mgrOptions) error {
	st, err := terms.Status(ctx, c)
	if err != nil {
		return err
	}
	row := slurm.Managed{"cluster": option.ClusterName, "name": option.ClusterName, "share": "1"}
	for _, m := range st.GetMembers() {
		if m.GetLeader() {
			row["controlhost"], row["controlport"], _ = strings.Cut(m.GetAddress(), ":")
		}
	}
	var rows []slurm.Managed
	if o.picks("cluster", option.ClusterName) {
		rows = append(rows, row)
	}
	return o.print.Print(e.Out, rows)
}

// counted returns the resources that can be counted.
func counted() (rows []slurm.Managed) {
	for _, t := range [][3]string{{"cpu", "", "1"}, {"mem", "", "2"}, {"energy", "", "3"}, {"node", "", "4"}, {"billing", "", "5"}, {"gres", "gpu", "1001"}, {"gres", "gpumem", "1002"}, {"gres", "gpuutil", "1003"}} {
		rows = append(rows, slurm.Managed{"type": t[0], "name": t[1], "id": t[2]})
	}
	return rows
}
