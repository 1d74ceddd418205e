package admin

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

func newNodePowerCmd(e *console.Env, c *client.Client, up bool) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "power-down NODE", Short: "Power down an idle node until it is powered up again",
		Long: "Power down an idle node with the site's own program; see docs/power.md. It stays down until\n" +
			"berth node power-up, even if jobs wait for it.",
		Example: "  berth node power-down n7 --reason 'moves to another rack'",
		Args:    console.OneArg("node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runNodePower(cmd.Context(), e, c, &apiv1.PowerNodeRequest{Id: args[0], Up: up, Reason: reason})
		},
	}
	if up {
		cmd.Use, cmd.Short = "power-up NODE", "Power up a node"
		cmd.Long = "Power up a node that was powered down, by Berth or by hand, or that did not come back in time. It takes\n" +
			"jobs once its agent has registered."
		cmd.Example = "  berth node power-up n7"
		return cmd
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` shown to others")
	return cmd
}

func runNodePower(ctx context.Context, e *console.Env, c *client.Client, req *apiv1.PowerNodeRequest) error {
	if err := cluster.CheckName("node", req.GetId()); err != nil {
		return console.Usagef("%w", err)
	}
	resp, err := client.PowerNode.Ask(ctx, c, client.Changes, req)
	if err != nil {
		return console.UnknownChange(err, "Repeating this is safe.")
	}
	node := resp.GetNode()
	e.Printf("node %s: %s\n", console.Escape(req.GetId()), NodeState(node))
	return nil
}

// SavesPower reports whether a node is powered down, or on its way down or
// up, as intended: nothing is wrong with it.
func SavesPower(n *apiv1.Node) bool {
	switch n.GetState() {
	case cluster.PoweringDown.String(), cluster.PoweredDown.String(), cluster.PoweringUp.String():
		return !n.GetDrain()
	}
	return false
}

// keptUp reports whether a node is idle and up, although idle nodes are powered down.
func keptUp(n *apiv1.Node) bool {
	return n.GetState() == cluster.NodeReady.String() && n.GetPowerSince() != nil
}

// PowerFault says why a node is powered down or was to be, "" for one that is
// up as intended.
func PowerFault(n *apiv1.Node) string {
	if keptUp(n) {
		return ""
	}
	return n.GetPowerReason()
}

// nodePowerText says since when a node is powered down or on its way, and
// why; for one that is up, what went wrong last, or since when it is idle and
// why it is up.
func nodePowerText(e *console.Env, n *apiv1.Node) string {
	text := ""
	if since := n.GetPowerSince(); since != nil {
		state := n.GetState()
		if keptUp(n) {
			state = "idle"
		}
		text = state + " since " + console.When(e, since)
		if n.GetPowerAsked() {
			text += ", by an administrator"
		}
	}
	switch why := n.GetPowerReason(); {
	case text == "" || why == "":
		return text + why
	default:
		return text + ": " + why
	}
}
