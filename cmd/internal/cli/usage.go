package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError names the nearest flag for one that does not exist. pflag's errors
// carry what was typed.
func flagError(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 { // the flag is of a command that does not exist
		return unknownCommand(cmd, cmd.Flags().Arg(0))
	}
	var none *pflag.NotExistError
	if !errors.As(err, &none) {
		return &usageError{cmd: cmd.CommandPath(), err: err}
	}
	typed := none.GetSpecifiedName()
	if group := none.GetSpecifiedShortnames(); group == typed {
		return &usageError{cmd: cmd.CommandPath(), err: fmt.Errorf("unknown flag -%s", typed)}
	} else if group != "" {
		return &usageError{cmd: cmd.CommandPath(), err: fmt.Errorf("unknown flag -%s in -%s", typed, group)}
	}
	var names []string
	add := func(f *pflag.Flag) {
		if !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
	}
	cmd.Flags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	hint := nearest(typed, names)
	if hint != "" {
		hint = "; did you mean --" + hint + "?"
	}
	return &usageError{cmd: cmd.CommandPath(), err: fmt.Errorf("unknown flag --%s%s", typed, hint)}
}

func unknownCommand(group *cobra.Command, typed string) error {
	of := ""
	if group.HasParent() {
		of = fmt.Sprintf(" for %q", group.CommandPath())
	}
	return &usageError{cmd: group.CommandPath(), err: fmt.Errorf("unknown command %q%s%s", typed, of, didYouMean(typed, verbs(group)))}
}

func verbs(cmd *cobra.Command) []string {
	var out []string
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			out = append(out, c.Name())
		}
	}
	return out
}
