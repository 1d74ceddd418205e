package cli

import "github.com/spf13/cobra"

// noArgs, someArgs and oneArg say what is missing in the user's words.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("takes no arguments, got %q", args[0])
	}
	return nil
}

func oneArg(what string) cobra.PositionalArgs {
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

func someArgs(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Usagef("%s is missing", what)
		}
		return nil
	}
}
