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

func newVersionCmd(e *console.Env) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version of this program",
		Example: "  berth version",
		Args:    console.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := console.Version()
			if done, err := console.PrintList(e, console.Format(output), v); done {
				return err
			}
			line := "berth " + v.Version
			if v.Revision != "" {
				line += " (" + v.Revision[:min(12, len(v.Revision))] + ")"
			}
			e.Printf("%s %s %s\n", line, v.Go, v.Platform)
			return nil
		},
	}
	console.AddFormat(cmd, &output, console.FormatTable, console.FormatJSON, console.FormatYAML)
	return cmd
}
