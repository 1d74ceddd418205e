package cli

import (
	"github.com/spf13/cobra"
)

func newCompletionCmd(e *Env) *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh", Short: "Print a completion script for the shell",
		Example: "  source <(berth completion bash)\n  berth completion zsh > \"${fpath[1]}/_berth\"",
		Args:    oneArg("shell (bash or zsh)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(e.out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(e.out)
			}
			return Usagef("shell %s: want bash or zsh", shortQuote(args[0]))
		},
	}
}

func newVersionCmd(e *Env) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version of this program",
		Example: "  berth version",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := version()
			if done, err := printList(e, format(output), v); done {
				return err
			}
			line := "berth " + v.Version
			if v.Revision != "" {
				line += " (" + v.Revision[:min(12, len(v.Revision))] + ")"
			}
			e.printf("%s %s %s\n", line, v.Go, v.Platform)
			return nil
		},
	}
	addFormat(cmd, &output, formatTable, formatJSON, formatYAML)
	return cmd
}
