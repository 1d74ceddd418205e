package frame

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// awayKey is the annotation of a command that another program provides.
const awayKey = "berth/program"

// Away returns a command, of one or more words, that another program
// provides. It is listed with that program's short help, and started there
// with all its arguments.
func Away(program, path, short string) Command {
	words := strings.Fields(path)
	return Command{Name: words[0], New: func(e *console.Env, _ *client.Client) *cobra.Command {
		cmd := &cobra.Command{
			Use: words[len(words)-1], Short: short, Hidden: short == "", DisableFlagParsing: true, Args: cobra.ArbitraryArgs,
			Annotations: map[string]string{awayKey: program},
			RunE: func(_ *cobra.Command, args []string) error {
				return e.Become(program, append(words[:len(words):len(words)], args...))
			},
		}
		for i := len(words) - 2; i >= 0; i-- {
			group := &cobra.Command{Use: words[i]}
			group.AddCommand(cmd)
			cmd = group
		}
		return cmd
	}}
}

// Awaits returns the program that provides the command, "" for this one.
func Awaits(cmd *cobra.Command) string { return cmd.Annotations[awayKey] }

// asked returns the program that provides the command whose help or
// completion args request.
func asked(root *cobra.Command, args []string) (program string, ok bool) {
	if len(args) < 2 {
		return "", false
	}
	words := args[1:]
	switch args[0] {
	case "help":
	case cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd:
		words = words[:len(words)-1] // the last one is being typed
	default:
		return "", false
	}
	cmd, _, err := root.Find(words)
	if err != nil || Awaits(cmd) == "" {
		return "", false
	}
	return Awaits(cmd), true
}

// merge adds x to a command, or its subcommands if a command of that name
// exists already, so that "cluster init" and "cluster status" may come from
// two places. A command of another program gives way to a local one, in
// either order, and the first of two such commands stays.
func merge(to, x *cobra.Command) {
	for _, have := range to.Commands() {
		switch {
		case have.Name() != x.Name():
			continue
		case Awaits(have) != "":
			to.RemoveCommand(have)
			to.AddCommand(x)
		case x.HasSubCommands():
			for _, sub := range x.Commands() {
				merge(have, sub)
			}
		}
		return
	}
	to.AddCommand(x)
}
