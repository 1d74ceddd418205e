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
		Use: "completion " + shells, Short: "Print a completion script for the shell",
		Long: "Print a script by which a shell completes what is typed after berth, and after those of\n" +
			"Slurm's commands that are links to it: commands and options, and jobs, nodes, partitions,\n" +
			"GPU types and the like as the cluster has them at that moment.",
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

// completed lets all commands be completed.
func completed(root *cobra.Command, e *console.Env, c *client.Client) {
	both := func() []string { return append(sbatch.OptionNames(), sruncmd.OptionNames()...) }
	complete.Attach(root, e, c, map[string]func() []string{"sbatch": sbatch.OptionNames, "srun": both, "salloc": both})
}
