package console

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Format is a value of -o.
type Format string

const (
	// FormatTable is a table for people.
	FormatTable Format = "table"
	// FormatWide is a table with more columns.
	FormatWide Format = "wide"
	// FormatJSON is JSON, indented.
	FormatJSON Format = "json"
	// FormatYAML is YAML.
	FormatYAML Format = "yaml"
	// FormatName is ids or names alone, one per line.
	FormatName Format = "name"
)

// AddFormat registers -o with the formats that the command knows, the first
// being the default.
func AddFormat(cmd *cobra.Command, p *string, known ...Format) {
	cmd.Flags().StringVarP(p, "output", "o", string(known[0]), "output `FORMAT`: "+Joined(known))
	AddFilter(cmd, p, "output", known...)
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(known, Format(*p)) {
			return &UsageError{Cmd: cmd.CommandPath(), Err: formatError(*p, known)}
		}
		if check != nil {
			return check(cmd, args)
		}
		return nil
	}
}

// Formatted returns cmd with -o, whose value run receives.
func Formatted(cmd *cobra.Command, run func(ctx context.Context, f Format, args []string) error, known ...Format) *cobra.Command {
	var output string
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), Format(output), args) }
	AddFormat(cmd, &output, known...)
	return cmd
}

// AddFilter registers --jq if one of the formats that the named flag takes is JSON.
func AddFilter(cmd *cobra.Command, p *string, flag string, known ...Format) {
	if !slices.Contains(known, FormatJSON) {
		return
	}
	var expr string
	cmd.Flags().StringVar(&expr, "jq", "", "filter the JSON with this jq `EXPRESSION` and print strings raw")
	_ = cmd.RegisterFlagCompletionFunc("jq", cobra.NoFileCompletions) // the flag exists
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("jq") {
			switch f := Format(*p); {
			case !cmd.Flags().Changed(flag):
				*p = string(FormatJSON)
			case f != FormatJSON && (f != FormatJSONLines || !slices.Contains(known, f)):
				return &UsageError{Cmd: cmd.CommandPath(), Err: Usagef("--jq: works on JSON, but --%s is %s; leave that out", flag, ShortQuote(*p))}
			}
			if err := envOf(cmd.Context()).filter(expr); err != nil {
				return &UsageError{Cmd: cmd.CommandPath(), Err: Usagef("--jq: %s", err.Error())}
			}
		}
		if check != nil {
			return check(cmd, args)
		}
		return nil
	}
}

func formatError(got string, known []Format) error {
	var names []string
	for _, f := range known {
		names = append(names, string(f))
	}
	return Usagef("-o %s: want one of %s%s", ShortQuote(got), Joined(known), DidYouMean(got, names))
}

// PrintList prints views as JSON or YAML; it reports false when f is neither.
func PrintList(e *Env, f Format, v any) (bool, error) {
	switch f {
	case FormatJSON:
		return true, printJSON(e, v)
	case FormatYAML:
		return true, printYAML(e, v)
	default:
		return false, nil
	}
}

// PrintRows is PrintList that also prints the names of rows, one per line.
func PrintRows[T any](e *Env, f Format, rows []T, name func(T) string) (bool, error) {
	if f != FormatName {
		return PrintList(e, f, rows)
	}
	for _, r := range rows {
		e.Printf("%s\n", Escape(name(r)))
	}
	return true, nil
}

// KeyValues prints "key  value" lines with aligned values; empty values are left out.
func KeyValues(e *Env, indent string, kv ...string) {
	width := 0
	for i := 0; i+1 < len(kv); i += 2 {
		if kv[i+1] != "" {
			width = max(width, len(kv[i]))
		}
	}
	for i := 0; i+1 < len(kv); i += 2 {
		if kv[i+1] != "" {
			e.Printf("%s%s%s  %s\n", indent, kv[i], strings.Repeat(" ", width-len(kv[i])), Escape(kv[i+1]))
		}
	}
}
