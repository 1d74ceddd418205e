// Package evalcmd implements the commands that evaluate and fit the predictor
// on data sets of measured runs.
package evalcmd

import (
	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// NewModelCmd returns the part of the command model that works on files, without a
// cluster.
func NewModelCmd(e *console.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "model", Short: "Evaluate the model that predicts jobs' needs",
		Example: "  berth model eval --train data --test held-out",
	}
	cmd.AddCommand(newModelEvalCmd(e), newModelFitCmd(e))
	return cmd
}
