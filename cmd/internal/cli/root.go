package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// newRoot returns the root command with all commands and extra ones, which ask
// coordinators through c. Commands report what was typed wrongly with Usagef.
func newRoot(env *Env, c *client, extra ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "berth",
		Short: "Run GPU jobs beside each other",
		Long: "Berth runs GPU jobs on your own machines and lays several on one GPU when they fit.\n" +
			"It talks to the coordinators named in $BERTH_SOCKET (a comma-separated list of unix\n" +
			"sockets), by default " + DefaultSocket + ".",
		Version:       version().Version,
		SilenceErrors: true, SilenceUsage: true, TraverseChildren: false,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:              cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{cmd: "berth", err: errors.New("a command is missing, for example: berth queue")}
			}
			return unknownCommand(cmd, args[0])
		},
	}
	root.PersistentFlags().DurationVar(&c.timeout, "timeout", defaultTimeout, "how long to go on asking for a definite answer")
	root.AddCommand(
		newSubmitCmd(env, c), newQueueCmd(env, c), newShowCmd(env, c), newWhyCmd(env, c), newLogsCmd(env, c),
		newCancelCmd(env, c), newHoldCmd(env, c), newReleaseCmd(env, c), newRequeueCmd(env, c), newWaitCmd(env, c), newNodeCmd(env, c), newGPUCmd(env, c), newPartitionCmd(env, c), newClusterCmd(env, c), newTokenCmd(env, c),
		newPredictCmd(env, c), newFeaturesCmd(env), newModelCmd(env, c), newSimCmd(env, c), newLintCmd(env), newSbatchCmd(env, c), newSqueueCmd(env, c), newScancelCmd(env, c), newSinfoCmd(env, c), newScontrolCmd(env, c), newSacctCmd(env, c), newCompletionCmd(env), newVersionCmd(env),
	)
	root.AddCommand(newImageCmd(env), newShellCmd(env, c), newExecCmd(env, c))
	for _, x := range extra {
		addOrMerge(root, x)
	}
	root.SetOut(env.out)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(flagError)
	wrapUsage(root)
	return root
}

// addOrMerge adds x, or its subcommands when a command of that name is there
// already, so that "cluster init" and "cluster status" may come from two sides.
func addOrMerge(root, x *cobra.Command) {
	for _, have := range root.Commands() {
		if have.Name() == x.Name() && x.HasSubCommands() {
			have.AddCommand(x.Commands()...)
			return
		}
	}
	root.AddCommand(x)
}

// wrapUsage tells usage errors of every command which command they are of, and
// makes groups such as "node" refuse what they do not know.
func wrapUsage(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		wrapUsage(sub)
	}
	if args := cmd.Args; args != nil {
		cmd.Args = func(cmd *cobra.Command, a []string) error { return inCommand(cmd, args(cmd, a), true) }
	}
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, a []string) error { return inCommand(cmd, run(cmd, a), false) }
		return
	}
	if cmd.HasSubCommands() && cmd.Run == nil {
		cmd.RunE = func(cmd *cobra.Command, a []string) error {
			known := verbs(cmd)
			if len(a) == 0 {
				return &usageError{cmd: cmd.CommandPath(), err: fmt.Errorf("a command is missing; one of %s", strings.Join(known, ", "))}
			}
			return unknownCommand(cmd, a[0])
		}
		cmd.Args = cobra.ArbitraryArgs
	}
}

func inCommand(cmd *cobra.Command, err error, always bool) error {
	if err == nil {
		return nil
	}
	var u *usageError
	switch {
	case errors.As(err, &u):
		if u.cmd == "" {
			return &usageError{cmd: cmd.CommandPath(), err: u.err}
		}
		return err
	case always:
		return &usageError{cmd: cmd.CommandPath(), err: err}
	default:
		return err
	}
}
