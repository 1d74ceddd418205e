package cli

import "github.com/spf13/cobra"

// newModelCmd groups what works on the predictor itself: evaluating it here,
// on files, and asking a coordinator for the one in use.
func newModelCmd(e *Env, c *client) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "model",
		Short:   "Evaluate the model that predicts what jobs need, and manage it",
		Example: "  berth model list\n  berth model show\n  berth model eval --train data --test held-out",
	}
	cmd.AddCommand(newModelEvalCmd(e), newModelFitCmd(e))
	cmd.AddCommand(clusterModelCmds(e, c)...)
	return cmd
}
