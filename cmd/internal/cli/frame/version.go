package frame

import (
	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// NewVersionCmd returns the command version.
func NewVersionCmd(e *console.Env) *cobra.Command {
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
