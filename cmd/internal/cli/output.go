package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// format is what -o takes.
type format string

const (
	formatTable format = "table"
	formatWide  format = "wide"
	formatJSON  format = "json"
	formatYAML  format = "yaml"
	formatName  format = "name"
)

// addFormat registers -o with the formats that the command knows, the first
// being the default.
func addFormat(cmd *cobra.Command, p *string, known ...format) {
	cmd.Flags().StringVarP(p, "output", "o", string(known[0]), "output `FORMAT`: "+joined(known))
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(known, format(*p)) {
			return &usageError{cmd: cmd.CommandPath(), err: formatError(*p, known)}
		}
		if check != nil {
			return check(cmd, args)
		}
		return nil
	}
}

func formatError(got string, known []format) error {
	return Usagef("-o %s: want one of %s", shortQuote(got), joined(known))
}

// printList prints views as JSON or YAML; false when f is neither.
func printList(e *Env, f format, v any) (bool, error) {
	switch f {
	case formatJSON:
		return true, printJSON(e, v)
	case formatYAML:
		return true, printYAML(e, v)
	default:
		return false, nil
	}
}

// keyValues prints "key  value" lines, keys of one width; empty values are
// left out.
func keyValues(e *Env, indent string, kv ...string) {
	width := 0
	for i := 0; i+1 < len(kv); i += 2 {
		if kv[i+1] != "" {
			width = max(width, len(kv[i]))
		}
	}
	for i := 0; i+1 < len(kv); i += 2 {
		if kv[i+1] != "" {
			e.printf("%s%s%s  %s\n", indent, kv[i], strings.Repeat(" ", width-len(kv[i])), escape(kv[i+1]))
		}
	}
}
