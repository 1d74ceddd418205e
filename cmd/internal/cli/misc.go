package cli

import (
	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

func newCompletionCmd(e *console.Env) *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh", Short: "Print a completion script for the shell",
		Example: "  source <(berth completion bash)\n  berth completion zsh > \"${fpath[1]}/_berth\"",
		Args:    console.OneArg("shell (bash or zsh)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(e.Out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(e.Out)
			}
			return console.Usagef("shell %s: want bash or zsh", console.ShortQuote(args[0]))
		},
	}
}
