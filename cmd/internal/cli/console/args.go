package console

import "github.com/spf13/cobra"

// NoArgs refuses arguments.
func NoArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("takes no arguments, got %q", args[0])
	}
	return nil
}

// OneArg takes exactly one argument; what names it in messages.
func OneArg(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return Usagef("%s is missing", what)
		case 1:
			return nil
		default:
			return Usagef("takes one %s, got %d arguments", what, len(args))
		}
	}
}

// MaybeOneArg takes one argument or none; what names it in messages.
func MaybeOneArg(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return Usagef("takes one %s, got %d arguments", what, len(args))
		}
		return nil
	}
}

// SomeArgs takes one argument or more; what names them in messages.
func SomeArgs(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Usagef("%s is missing", what)
		}
		return nil
	}
}
