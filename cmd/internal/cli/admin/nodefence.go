package admin

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

func newNodeFenceCmd(e *console.Env, c *client.Client) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "fence NODE --yes", Short: "Give up an unreachable node: fail or requeue its jobs",
		Long: "Give up a node that does not answer. Its jobs end as NODE_FAIL, or are requeued if they were submitted\n" +
			"with --requeue-on-loss. First make sure that the node is off or cut off: its processes keep running until\n" +
			"it reaches a coordinator, so a requeued job may run twice. If the node comes back, it stops what is left\n" +
			"of those jobs and takes new ones.",
		Example: "  berth node fence n7 --yes",
		Args:    console.OneArg("node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runNodeFence(cmd.Context(), e, c, args[0], yes)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return cmd
}

func runNodeFence(ctx context.Context, e *console.Env, c *client.Client, id string, yes bool) error {
	if err := cluster.CheckName("node", id); err != nil {
		return console.Usagef("%w", err)
	}
	if err := console.Confirm(e, yes, "Give up node "+id+" and end its jobs? It must be off or cut off from the network, or they may run twice."); err != nil {
		return err
	}
	resp, err := client.FenceNode.Ask(ctx, c, client.Changes, &apiv1.FenceNodeRequest{Id: id})
	if err != nil {
		return console.UnknownChange(err, "Repeating this is safe.")
	}
	e.Printf("node %s: given up", console.Escape(id))
	for _, x := range []struct {
		what string
		ids  []uint64
	}{{"ended", resp.GetLost()}, {"waiting again", resp.GetRequeued()}} {
		if len(x.ids) > 0 {
			e.Printf("; %s: %s", x.what, console.IDList(x.ids))
		}
	}
	e.Printf("\n")
	return nil
}

func newNodeRemoveCmd(e *console.Env, c *client.Client) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "remove NODE --yes", Short: "Remove an idle node for good",
		Long: "Remove a node on which nothing runs. Its certificate is refused from then on: to come back, it must\n" +
			"join under another name. Drain a healthy node first; fence a lost one.",
		Example: "  berth node remove n7 --yes",
		Args:    console.OneArg("node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runNodeRemove(cmd.Context(), e, c, args[0], yes)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return cmd
}

func runNodeRemove(ctx context.Context, e *console.Env, c *client.Client, id string, yes bool) error {
	if err := cluster.CheckName("node", id); err != nil {
		return console.Usagef("%w", err)
	}
	if err := console.Confirm(e, yes, "Remove node "+id+" for good? It can return only under another name, or after: berth allow node "+id+"."); err != nil {
		return err
	}
	_, err := client.RemoveNode.Ask(ctx, c, client.Changes, &apiv1.RemoveNodeRequest{Id: id})
	if err != nil {
		return console.UnknownChange(err, "Check whether it still exists: berth node list")
	}
	e.Printf("node %s: removed\n", console.Escape(id))
	return nil
}
