package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/terms"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

const scontrolExamples = "  berth scontrol show job 12\n  berth scontrol update nodename=gpu3 state=drain reason=\"Xid 79\"\n  ln -s /usr/bin/berth /usr/local/bin/scontrol && scontrol show hostnames 'gpu[01-04]'"

// NewScontrolCmd returns the command scontrol.
func NewScontrolCmd(e *console.Env, c *client.Client) *cobra.Command {
	var r recordOptions
	return option.Command(e, "scontrol [OPTIONS…] COMMAND…", "Show and change jobs, nodes and partitions, like Slurm's scontrol", scontrolExamples, func(fs *pflag.FlagSet) {
		fs.BoolVarP(&r.OneLine, "oneliner", "o", false, "print one line per record")
		fs.BoolVarP(&r.Detail, "details", "d", false, "show more of each job")
		option.Ignore(fs, option.NothingHides, "all,a", "hide")
		option.Ignore(fs, "all nodes are shown", "future,F")
		option.Ignore(fs, "verbosity cannot be changed", "quiet,Q", "verbose,v")
		option.Clusters(fs)
		option.OfClusters(fs, "federation", "local", "sibling")
		option.Refuse(fs, "uid", "u", true, "jobs are changed as the calling user; use sudo -u USER scontrol")
		fs.BoolVar(&r.json, "json", false, "show jobs and nodes as JSON")
	}, func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return errNoAction
		}
		verb, rest := verbOf(args[0]), args[1:]
		switch verb {
		case "show":
			return runScontrolShow(ctx, e, c, &r, rest)
		case "hold", "uhold", "holdu", "release", "requeue", "requeuehold":
			return runScontrolJobs(ctx, e, c, verb, rest)
		case "update":
			return runScontrolChange(ctx, e, c, rest)
		case "create":
			return runScontrolReserve(ctx, e, c, rest, true)
		case "delete":
			return runScontrolDelete(ctx, c, rest)
		case "ping":
			return runScontrolPing(ctx, e, c)
		case "top":
			return runScontrolTop(ctx, e, c, rest)
		case "wait_job":
			return runScontrolWait(ctx, e, c, rest)
		case "version":
			e.Printf("%s\n", slurm.Versioned)
			return nil
		}
		if way := scontrolWays[verb]; way != "" {
			return errors.New(way)
		}
		return option.Bare("invalid keyword: " + args[0] + console.DidYouMean(args[0], scontrolVerbs))
	})
}

// scontrolVerbs and scontrolShown are the words that follow scontrol and its show.
var (
	scontrolVerbs = []string{"show", "hold", "release", "requeue", "requeuehold", "update", "create", "delete", "ping", "top", "wait_job", "version"}
	scontrolShown = []string{"config", "hostlist", "hostlistsorted", "hostnames", "job", "node", "partition", "reservation", "topology"}
)

// recordOptions are the display options of scontrol.
type recordOptions struct {
	slurm.Record
	json bool
}

func runScontrolShow(ctx context.Context, e *console.Env, c *client.Client, r *recordOptions, args []string) error {
	if len(args) == 0 {
		return errors.New("say what to show: job, node, partition, reservation, config, hostnames, hostlist")
	}
	what, rest := strings.ToLower(args[0]), args[1:]
	if r.json && !strings.HasPrefix(what, "job") && !strings.HasPrefix(what, "node") {
		return errors.New("--json works only with show job and show node")
	}
	what, value, has := strings.Cut(what, "=")
	if has {
		rest = append([]string{value}, rest...)
	}
	switch entityOf(what) {
	case "jobs", "jobid":
		return showSlurmJobs(ctx, e, c, r, rest)
	case "nodes", "nodename":
		return showSlurmNodes(ctx, e, c, r, rest)
	case "partitions", "partitionname":
		return showSlurmPartitions(ctx, e, c, r, rest)
	case "reservations", "reservationname":
		return showSlurmReservations(ctx, e, c, r, rest)
	case "config":
		return runScontrolConfig(ctx, e, c)
	case "topology":
		return showSlurmTopology(ctx, e, c, rest)
	case "hostnames":
		list := cmp.Or(strings.Join(rest, ","), e.Getenv("SLURM_JOB_NODELIST"))
		if list == "" {
			return errors.New("host list is empty")
		}
		names, err := slurm.Unfold(list)
		if err != nil {
			return text.Message(fmt.Sprintf("Invalid hostlist: %v", err))
		}
		e.Printf("%s\n", strings.Join(names, "\n"))
		return nil
	case "hostlist", "hostlistsorted":
		if len(rest) == 0 {
			return errors.New("host list is empty")
		}
		e.Printf("%s\n", hostnames.FoldSet(option.List(rest[0])))
		return nil
	}
	for name, way := range showWays {
		if len(what) > 2 && strings.HasPrefix(name, what) {
			return errors.New(way)
		}
	}
	return option.Bare("invalid entity:" + what + " for keyword:show " + console.DidYouMean(what, scontrolShown))
}

func showSlurmNodes(ctx context.Context, e *console.Env, c *client.Client, r *recordOptions, args []string) error {
	_, nodes, err := terms.Cluster(ctx, e, c)
	if err != nil {
		return err
	}
	want, err := slurm.Unfold(strings.Join(args, ","))
	if err != nil {
		return text.Message(fmt.Sprintf("Invalid node name %v", err))
	}
	for _, name := range want {
		if !slices.ContainsFunc(nodes, func(n slurm.Node) bool { return n.Name == name }) {
			return option.Bare("Node " + name + " not found")
		}
	}
	if r.json {
		return terms.PrintNodes(ctx, e, c, &slurm.Sinfo{Nodes: want})
	}
	for i := range nodes {
		if len(want) > 0 && !slices.Contains(want, nodes[i].Name) {
			continue
		}
		if err := r.Node(e.Out, &nodes[i]); err != nil {
			return err
		}
	}
	return nil
}

func showSlurmPartitions(ctx context.Context, e *console.Env, c *client.Client, r *recordOptions, args []string) error {
	parts, nodes, err := terms.Cluster(ctx, e, c)
	if err != nil {
		return err
	}
	found := false
	for i := range parts {
		if len(args) > 0 && !slices.Contains(args, parts[i].Name) {
			continue
		}
		found = true
		if err := r.Partition(e.Out, &parts[i], nodes); err != nil {
			return err
		}
	}
	if !found && len(args) > 0 {
		return option.Bare("Partition " + args[0] + " not found")
	}
	return nil
}

// runScontrolUpdate drains, resumes and powers nodes.
func runScontrolUpdate(ctx context.Context, c *client.Client, args []string) error {
	set := map[string]string{}
	for _, a := range args {
		key, value, ok := strings.Cut(a, "=")
		if key = strings.ToLower(key); !ok || !slices.Contains([]string{"nodename", "state", "reason"}, key) {
			return option.Bare("Update of this parameter is not supported: " + a + "\nRequest aborted")
		}
		set[key] = value
	}
	names, err := slurm.Unfold(set["nodename"])
	if err != nil || len(names) == 0 {
		return option.Bare("No valid entity in update command\nInput line must include \"NodeName\"")
	}
	drain, power := false, false
	switch state := strings.ToUpper(set["state"]); {
	case state == "POWER_DOWN", state == "POWER_UP":
		power = true
	case (state == "DRAIN" || state == "DOWN") && set["reason"] == "":
		return option.Bare("You must specify a reason when DOWNING or DRAINING a node. Request denied")
	case state == "DRAIN", state == "DOWN":
		drain = true
	case state != "RESUME" && state != "UNDRAIN" && state != "IDLE":
		return option.Bare(fmt.Sprintf("Invalid input: state=%s\nRequest aborted\nValid states are: DRAIN, RESUME, POWER_DOWN, POWER_UP", set["state"]))
	}
	for _, name := range names {
		var err error
		switch {
		case power:
			_, err = client.PowerNode.Ask(ctx, c, client.Changes, &apiv1.PowerNodeRequest{Id: name, Up: strings.EqualFold(set["state"], "POWER_UP"), Reason: set["reason"]})
		case drain:
			_, err = client.DrainNode.Ask(ctx, c, client.Changes, &apiv1.DrainNodeRequest{Id: name, Reason: set["reason"]})
		default:
			_, err = client.ResumeNode.Ask(ctx, c, client.Changes, &apiv1.ResumeNodeRequest{Id: name})
		}
		if err != nil {
			return nodeFault(err)
		}
	}
	return nil
}

// nodeFault says why a node could not be changed.
func nodeFault(err error) error {
	if ce, ok := errors.AsType[*cluster.Error](err); ok && (ce.Code == cluster.CodeUnavailable || ce.Code == cluster.CodeUnknown) {
		return err
	}
	return option.Bare("slurm_update error: " + sbatch.InSlurmWords(err))
}

// runScontrolPing reports which coordinators answer.
func runScontrolPing(ctx context.Context, e *console.Env, c *client.Client) error {
	st, err := terms.Status(ctx, c)
	if err != nil {
		return err
	}
	printPing(e, slices.SortedFunc(slices.Values(st.GetMembers()), leadersFirst))
	return nil
}

// printPing prints which coordinators answer, the leader first.
func printPing(e *console.Env, members []*apiv1.Member) {
	role := "primary"
	for _, m := range members {
		up := "DOWN"
		if m.GetReachable() {
			up = "UP"
		}
		e.Printf("Slurmctld(%s) at %s is %s\n", role, m.GetId(), up)
		role = "backup"
	}
}

func leadersFirst(a, b *apiv1.Member) int {
	switch {
	case a.GetLeader() && !b.GetLeader():
		return -1
	case b.GetLeader() && !a.GetLeader():
		return 1
	}
	return cmp.Compare(a.GetId(), b.GetId())
}
