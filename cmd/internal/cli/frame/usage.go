package frame

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// WrapUsage adds the command's name to the usage errors of every command, and
// makes groups such as "node" refuse unknown words.
func WrapUsage(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		WrapUsage(sub)
	}
	if args := cmd.Args; args != nil {
		cmd.Args = func(cmd *cobra.Command, a []string) error {
			return inCommand(cmd, argFault(cmd, a, args(cmd, a)), true)
		}
	}
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, a []string) error { return inCommand(cmd, run(cmd, a), false) }
		return
	}
	if cmd.HasSubCommands() && cmd.Run == nil {
		cmd.RunE = func(cmd *cobra.Command, a []string) error {
			known := console.Verbs(cmd)
			if len(a) == 0 {
				return &console.UsageError{Cmd: cmd.CommandPath(), Err: fmt.Errorf("a command is missing; one of %s", strings.Join(known, ", "))}
			}
			return console.UnknownCommand(cmd, a[0])
		}
		cmd.Args = cobra.ArbitraryArgs
	}
}

// argFault rephrases cobra's error about a number of arguments for users.
func argFault(cmd *cobra.Command, args []string, err error) error {
	var u *console.UsageError
	if err == nil || errors.As(err, &u) {
		return err
	}
	said, use := err.Error(), strings.TrimSuffix(cmd.UseLine(), " [flags]")
	want := 0
	_, _ = fmt.Sscanf(said, "accepts %d arg(s)", &want)
	switch {
	case strings.HasPrefix(said, "unknown command") && len(args) > 0:
		return console.NoArgs(cmd, args)
	case !strings.Contains(said, " arg(s), "):
		return err
	case len(args) == 0:
		return fmt.Errorf("an argument is missing: %s", use)
	case strings.HasPrefix(said, "requires"), len(args) < want:
		return fmt.Errorf("an argument is missing after %s: %s", console.ShortQuote(args[len(args)-1]), use)
	}
	return fmt.Errorf("%s too many: %s", console.Plural(len(args), "argument is", "arguments are"), use)
}

func inCommand(cmd *cobra.Command, err error, always bool) error {
	if err == nil {
		return nil
	}
	var u *console.UsageError
	switch {
	case errors.As(err, &u):
		if u.Cmd == "" {
			return &console.UsageError{Cmd: cmd.CommandPath(), Err: u.Err}
		}
		return err
	case always:
		return &console.UsageError{Cmd: cmd.CommandPath(), Err: err}
	default:
		return err
	}
}
