package console

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagError suggests the nearest flag for one that does not exist. pflag's
// errors carry what was typed.
func FlagError(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 { // the flag belongs to a command that does not exist
		return UnknownCommand(cmd, cmd.Flags().Arg(0))
	}
	var none *pflag.NotExistError
	if !errors.As(err, &none) {
		return &UsageError{Cmd: cmd.CommandPath(), Err: err}
	}
	typed := none.GetSpecifiedName()
	if group := none.GetSpecifiedShortnames(); group == typed {
		return &UsageError{Cmd: cmd.CommandPath(), Err: fmt.Errorf("unknown flag -%s", typed)}
	} else if group != "" {
		return &UsageError{Cmd: cmd.CommandPath(), Err: fmt.Errorf("unknown flag -%s in -%s", typed, group)}
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
	return &UsageError{Cmd: cmd.CommandPath(), Err: fmt.Errorf("unknown flag --%s%s", typed, hint)}
}

// UnknownCommand returns the error for a word that is not a command of group.
func UnknownCommand(group *cobra.Command, typed string) error {
	of := ""
	if group.HasParent() {
		of = fmt.Sprintf(" for %q", group.CommandPath())
	}
	return &UsageError{Cmd: group.CommandPath(), Err: fmt.Errorf("unknown command %q%s%s", typed, of, cmp.Or(DidYouMean(typed, Verbs(group)), DidYouMean(typed, hidden(group))))}
}

// hidden lists the names of the hidden commands, which are Slurm's.
func hidden(cmd *cobra.Command) []string {
	var out []string
	for _, c := range cmd.Commands() {
		if c.Hidden && !strings.HasPrefix(c.Name(), "_") {
			out = append(out, c.Name())
		}
	}
	return out
}

// Verbs lists the names of the commands below cmd that help shows.
func Verbs(cmd *cobra.Command) []string {
	var out []string
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			out = append(out, c.Name())
		}
	}
	return out
}
