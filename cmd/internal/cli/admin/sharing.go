package admin

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// place is where to switch sharing, as the user named it.
type place struct {
	node, partition string
	cluster         bool
}

func (p *place) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.node, "node", "", "on all GPUs of this `NODE`")
	cmd.Flags().StringVar(&p.partition, "partition", "", "on all GPUs of this `PARTITION`, including ones added later")
	cmd.Flags().BoolVar(&p.cluster, "cluster", false, "on all GPUs of the cluster")
}

func (p *place) request(args []string) (*apiv1.SetSharingRequest, error) {
	req := &apiv1.SetSharingRequest{Node: p.node, Partition: p.partition, Cluster: p.cluster}
	named := len(args)
	for _, yes := range []bool{p.node != "", p.partition != "", p.cluster} {
		if yes {
			named++
		}
	}
	if named != 1 {
		return nil, console.Usagef("name exactly one of NODE/INDEX, UUID, --node, --partition and --cluster")
	}
	if p.node != "" {
		if err := cluster.CheckName("node", p.node); err != nil {
			return nil, console.Usagef("%w", err)
		}
	}
	if p.partition != "" {
		if err := cluster.CheckPartitionName(p.partition); err != nil {
			return nil, console.Usagef("%w", err)
		}
	}
	if len(args) == 1 {
		var err error
		req.Node, req.Index, req.Gpu, err = ParseGPU(args[0])
		return req, err
	}
	return req, nil
}

func newGPUSharingCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "sharing", Short: "Turn GPU sharing off at once, or on again",
		Example: "  berth gpu sharing off n7/2 --reason 'caps do not hold'\n  berth gpu sharing off --partition train --reason 'benchmarks until Friday'\n" +
			"  berth gpu sharing list\n  berth gpu sharing on n7/2",
	}
	cmd.AddCommand(newSharingOffCmd(e, c), newSharingOnCmd(e, c), newSharingListCmd(e, c))
	return cmd
}

func newSharingOffCmd(e *console.Env, c *client.Client) *cobra.Command {
	var p place
	var reason string
	cmd := &cobra.Command{
		Use: "off [NODE/INDEX|UUID] --reason TEXT", Short: "Stop placing jobs beside others on a GPU, node or partition",
		Long: "Stop placing jobs beside others, effective with the next scheduling decision. Jobs that share now finish\n" +
			"together, and none joins them; idle GPUs take one job each. This lasts, even if a node reboots, until\n" +
			"berth gpu sharing on for the same place.",
		Example: "  berth gpu sharing off n7/2 --reason 'caps do not hold'\n  berth gpu sharing off --cluster --reason 'driver 570 miscounts memory'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := p.request(args)
			if err != nil {
				return err
			}
			if strings.TrimSpace(reason) == "" || len(reason) > 256 || console.Escape(reason) != reason {
				return console.Usagef("--reason: want 1 to 256 bytes of printable text that tells others why")
			}
			req.Off, req.Reason = true, reason
			return runSharing(cmd.Context(), e, c, req)
		},
	}
	p.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` shown to others (required)")
	return cmd
}

func newSharingOnCmd(e *console.Env, c *client.Client) *cobra.Command {
	var p place
	cmd := &cobra.Command{
		Use: "on [NODE/INDEX|UUID]", Short: "Let jobs share GPUs again where sharing is off",
		Long: "Let jobs share GPUs again where sharing was turned off. If it is also off at another level, such as the\n" +
			"GPU's partition, that stays; berth gpu sharing list shows all of them.",
		Example: "  berth gpu sharing on n7/2\n  berth gpu sharing on --partition train",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := p.request(args)
			if err != nil {
				return err
			}
			return runSharing(cmd.Context(), e, c, req)
		},
	}
	p.flags(cmd)
	return cmd
}

func newSharingListCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List where GPU sharing is off",
		Example: "  berth gpu sharing list", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runSharing(cmd.Context(), e, c, &apiv1.SetSharingRequest{Look: true})
		},
	}
}

func runSharing(ctx context.Context, e *console.Env, c *client.Client, req *apiv1.SetSharingRequest) error {
	kind := client.Changes
	if req.Look {
		kind = client.Reads
	}
	resp, err := client.SetSharing.Ask(ctx, c, kind, req)
	if err != nil {
		if req.Look {
			return err
		}
		return console.UnknownChange(err, "Repeating this is safe.")
	}
	for _, o := range resp.GetOff() {
		what := "cluster"
		switch {
		case o.GetGpu() != "":
			what = "GPU " + o.GetGpu()
		case o.GetNode() != "":
			what = "node " + o.GetNode()
		case o.GetPartition() != "":
			what = "partition " + o.GetPartition()
		}
		e.Printf("off: %s, by uid %d %s: %s\n", console.Escape(what), o.GetByUid(), console.When(e, o.GetAt()), console.Escape(o.GetReason()))
	}
	if len(resp.GetOff()) == 0 {
		e.Printf("Sharing is not off anywhere.\n")
	}
	return nil
}
