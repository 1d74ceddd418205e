package modelcmd

import (
	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// NewModelCmd groups the commands on the predictor itself: querying a
// coordinator for the one in use, and package evalcmd's, which evaluate on
// files.
func NewModelCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "model",
		Short:   "Manage and evaluate the model that predicts jobs' needs",
		Example: "  berth model list\n  berth model show\n  berth model eval --train data --test held-out",
	}
	cmd.AddCommand(clusterModelCmds(e, c)...)
	return cmd
}
