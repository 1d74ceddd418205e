package slurmcmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/terms"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"
)

const sinfoExamples = "  berth sinfo -N -l\n  ln -s /usr/bin/berth /usr/local/bin/sinfo && sinfo -h -o '%N %G %C'"

// NewSinfoCmd returns the command sinfo.
func NewSinfoCmd(e *console.Env, c *client.Client) *cobra.Command {
	var s slurm.Sinfo
	var nodes, parts, states, every string
	var json, reserved bool
	return option.Command(e, "sinfo [OPTIONS…]", "List nodes, like Slurm's sinfo", sinfoExamples, func(fs *pflag.FlagSet) {
		fs.StringVarP(&s.Format, "format", "o", "", "columns, such as '%P %.5a %N'")
		fs.StringVarP(&s.Fields, "Format", "O", "", "columns by name, such as NodeList,Gres,GresUsed")
		fs.BoolVarP(&s.Each, "Node", "N", false, "one line per node")
		fs.BoolVarP(&s.Long, "long", "l", false, "a longer table")
		fs.BoolVarP(&s.Summary, "summarize", "s", false, "one line per partition")
		fs.BoolVarP(&s.Reasons, "list-reasons", "R", false, "why nodes are drained")
		fs.BoolVarP(&s.NoHead, "noheader", "h", false, "omit the header line")
		fs.StringVarP(&nodes, "nodes", "n", "", "only these nodes")
		fs.StringVarP(&parts, "partition", "p", "", "only these partitions")
		fs.StringVarP(&states, "states", "t", "", "only nodes in these states")
		fs.BoolVarP(&s.Dead, "dead", "d", false, "only nodes that do not answer")
		fs.BoolVarP(&s.Responding, "responding", "r", false, "only nodes that answer")
		fs.StringVarP(&s.Sort, "sort", "S", "", "letters of -o, each with + or -")
		fs.StringVarP(&every, "iterate", "i", "", "repeat every so many seconds")
		fs.BoolVarP(&reserved, "reservation", "T", false, "list reservations")
		option.Ignore(fs, option.NothingHides, "all,a", "hide")
		option.Ignore(fs, "nodes share a line only if everything in it holds for each", "exact,e")
		option.Ignore(fs, "memory is in MiB", "noconvert")
		option.Ignore(fs, "there is no more detail", "verbose,v")
		option.Clusters(fs)
		option.Headed(fs)
		option.OfClusters(fs, "federation", "local")
		option.Refuse(fs, "yaml", "", false, "for YAML use berth node list -o yaml")
		option.Variables(fs, "SINFO_PARTITION=partition", "SINFO_SORT=sort", "SINFO_FORMAT=format")
		option.Mark(fs, "format", option.MarkUnless, "Format", "Node", "summarize", "list-reasons")
		fs.BoolVar(&json, "json", false, "print JSON, as Slurm does")
	}, func(ctx context.Context, args []string) error {
		var err error
		if s.Nodes, err = slurm.Unfold(nodes); err != nil {
			return text.Message(fmt.Sprintf("Invalid node name %v", err))
		}
		s.Partitions, s.States = option.List(parts), option.List(strings.ToLower(states))
		if json {
			return terms.PrintNodes(ctx, e, c, &s)
		}
		return option.Repeat(ctx, e, every, !s.NoHead && !s.Long, func() error {
			if reserved {
				return listReservations(ctx, e, c, &s)
			}
			ps, ns, err := terms.Cluster(ctx, e, c)
			if err != nil {
				return err
			}
			return s.Print(e.Out, ps, ns, e.Now())
		})
	})
}

// listReservations is sinfo --reservation.
func listReservations(ctx context.Context, e *console.Env, c *client.Client, s *slurm.Sinfo) error {
	all, err := client.GetReservations(ctx, c, nil)
	if err != nil {
		return err
	}
	list := make([]slurm.Reservation, len(all))
	for i, m := range all {
		list[i] = terms.Reservation(m, e.Now())
	}
	return s.PrintReservations(e.Out, list, e.Now())
}
