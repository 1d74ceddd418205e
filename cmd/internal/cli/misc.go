package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/complete"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/sruncmd"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
	slurmnames "github.com/berth-scheduler/berth/cmd/internal/slurm"
)

func newCompletionCmd(e *console.Env) *cobra.Command {
	shells := strings.Join(complete.Shells(), "|")
	return &cobra.Command{
		Use: "completion " + shells, Short: "Print a shell completion script",
		Long: "Print a script with which the shell completes commands and options of berth and of Slurm's commands\n" +
			"linked to it, and jobs, nodes, partitions, GPU types and the like as the cluster has them right then.",
		Example: "  source <(berth completion bash)\n  berth completion zsh > \"${fpath[1]}/_berth\"\n  berth completion fish | source",
		Args:    console.OneArg("shell (" + shells + ")"),
		RunE: func(cmd *cobra.Command, args []string) error {
			script, ok := complete.Script(args[0], slurmnames.Commands())
			if !ok {
				return console.Usagef("shell %s: want one of %s%s", console.ShortQuote(args[0]), strings.Join(complete.Shells(), ", "), console.DidYouMean(args[0], complete.Shells()))
			}
			e.Printf("%s", script)
			return nil
		},
	}
}

// completed enables completion of all commands.
func completed(root *cobra.Command, e *console.Env, c *client.Client) {
	both := func() []string { return append(sbatch.OptionNames(), sruncmd.OptionNames()...) }
	complete.Attach(root, e, c, map[string]func() []string{"sbatch": sbatch.OptionNames, "srun": both, "salloc": both})
}
