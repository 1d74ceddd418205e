package admin

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

type drainOptions struct{ reason, from, until string }

func newNodeDrainCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o drainOptions
	cmd := &cobra.Command{
		Use: "drain NODE --reason TEXT", Short: "Drain a node: start no more jobs, let running ones finish",
		Long: "Drain a node: start no more jobs there and let running ones finish. Replicas of services move to other\n" +
			"nodes, one healthy there before one here ends. With --until the node returns to service by itself. With\n" +
			"--from the drain begins later: until then, only jobs whose time limit ends before it start there, and it\n" +
			"is kept as a maintenance reservation named drain-NODE. berth node resume ends either.",
		Example: "  berth node drain n7 --reason 'GPU 2 reports ECC errors'\n" +
			"  berth node drain n7 --reason 'new driver' --until now+2hours\n" +
			"  berth node drain n7 --reason 'new driver' --from 2026-03-14T18:00 --until 2026-03-14T22:00",
		Args: console.OneArg("node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runNodeDrain(cmd.Context(), e, c, args[0], &o)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.reason, "reason", "", "`TEXT` shown to others (required)")
	fs.StringVar(&o.until, "until", "", "`TIME` to return to service, such as 2026-03-14T22:00 or now+2hours (default until resumed)")
	fs.StringVar(&o.from, "from", "", "`TIME` when the drain begins, with --until (default now)")
	fs.SortFlags = false
	return cmd
}

// request returns the request of the flags.
func (o *drainOptions) request(e *console.Env, id string) (*apiv1.DrainNodeRequest, error) {
	if err := cluster.CheckName("node", id); err != nil {
		return nil, console.Usagef("%w", err)
	}
	if err := checkReason(o.reason, "the node"); err != nil {
		return nil, err
	}
	if o.from != "" && o.until == "" {
		return nil, console.Usagef("--from: requires --until, so that jobs can be scheduled around it")
	}
	req := &apiv1.DrainNodeRequest{Id: id, Reason: o.reason}
	if err := setTimes(e, timeFlag{"from", o.from, &req.From}, timeFlag{"until", o.until, &req.Until}); err != nil {
		return nil, err
	}
	return req, nil
}

// timeFlag is the text of a flag that takes a time, and where that goes.
type timeFlag struct {
	name, text string
	to         **timestamppb.Timestamp
}

// setTimes reads the flags that were given.
func setTimes(e *console.Env, flags ...timeFlag) error {
	for _, t := range flags {
		if t.text == "" {
			continue
		}
		at, ok := slurm.ParseNext(t.text, e.Now())
		if !ok {
			return console.Usagef("--%s %s: want a time such as %s", t.name, console.ShortQuote(t.text), slurm.TimeForms)
		}
		*t.to = timestamppb.New(at)
	}
	return nil
}

func runNodeDrain(ctx context.Context, e *console.Env, c *client.Client, id string, o *drainOptions) error {
	req, err := o.request(e, id)
	if err != nil {
		return err
	}
	resp, err := client.DrainNode.Ask(ctx, c, client.Changes, req)
	if err != nil {
		return console.UnknownChange(err, "Repeating this is safe.")
	}
	for _, w := range resp.GetWarnings() {
		e.Warnf("warning: %s", console.Escape(w))
	}
	node, jobs := resp.GetNode(), console.Plural(len(resp.GetNode().GetJobs()), "job", "jobs")
	switch {
	case resp.GetReservation() != "":
		e.Printf("node %s: drains from %s until %s (reservation %s), %s on it\n",
			console.Escape(id), console.When(e, req.GetFrom()), console.When(e, req.GetUntil()), console.Escape(resp.GetReservation()), jobs)
	case req.GetUntil() != nil:
		e.Printf("node %s: %s until %s, %s on it\n", console.Escape(id), NodeState(node), console.When(e, req.GetUntil()), jobs)
	default:
		e.Printf("node %s: %s, %s on it\n", console.Escape(id), NodeState(node), jobs)
	}
	tellReplicas(ctx, e, c, node)
	return nil
}

// tellReplicas names the replicas of services on a node that is to be empty: those that move
// by themselves, and those that are the only one of their service and stay.
func tellReplicas(ctx context.Context, e *console.Env, c *client.Client, n *apiv1.Node) {
	if len(n.GetJobs()) == 0 {
		return
	}
	all, err := client.ListJobs(ctx, c, &apiv1.ListJobsRequest{Brief: true, Replicas: true, Nodes: []string{n.GetId()}})
	if err != nil {
		return // the node drains anyway
	}
	var move, stay []string
	for _, j := range all {
		switch r := j.GetReplica(); {
		case r == nil || !slices.Contains(n.GetJobs(), j.GetId()):
		case r.GetWant() == 1 && r.GetMost() == 1:
			stay = append(stay, client.JobLabel(j))
		default:
			move = append(move, client.JobLabel(j))
		}
	}
	if len(move) > 0 && n.GetDrain() {
		e.Warnf("%s of services there will start on other nodes one by one, once those have room: %s", console.Plural(len(move), "replica", "replicas"), strings.Join(move, " "))
	}
	if len(stay) > 0 {
		e.Warnf("%s there are all that their services may have, and run until somebody ends them; berth requeue %s starts them on other nodes, once those have room", console.Plural(len(stay), "replica", "replicas"), strings.Join(stay, " "))
	}
}
