package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/acctcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/admin"
	"github.com/berth-scheduler/berth/cmd/internal/cli/backupcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/enter"
	"github.com/berth-scheduler/berth/cmd/internal/cli/importcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/modelcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/notifycmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/simcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/sruncmd"
)

// newRoot returns the root command with all commands and extra ones, which ask
// coordinators through c. Commands report what was typed wrongly with Usagef.
func newRoot(env *console.Env, c *client.Client, extra ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "berth",
		Short: "Run GPU jobs beside each other",
		Long: "Berth runs GPU jobs on your own machines and lays several on one GPU when they fit.\n" +
			"It talks to the coordinators named in $BERTH_SOCKET (a comma-separated list of unix\n" +
			"sockets), by default " + console.DefaultSocket + ".",
		Version:       console.Version().Version,
		SilenceErrors: true, SilenceUsage: true, TraverseChildren: false,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:              cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &console.UsageError{Cmd: "berth", Err: errors.New("a command is missing, for example: berth queue")}
			}
			return console.UnknownCommand(cmd, args[0])
		},
	}
	root.PersistentFlags().DurationVar(&c.Timeout, "timeout", client.DefaultTimeout, "how long to go on asking for a definite answer")
	root.AddCommand(
		jobcmd.NewSubmitCmd(env, c), jobcmd.NewQueueCmd(env, c), jobcmd.NewShowCmd(env, c), jobcmd.NewWhyCmd(env, c), enter.NewLogsCmd(env, c),
		jobcmd.NewCancelCmd(env, c), jobcmd.NewHoldCmd(env, c), jobcmd.NewReleaseCmd(env, c), jobcmd.NewRequeueCmd(env, c), jobcmd.NewWaitCmd(env, c), admin.NewNodeCmd(env, c), admin.NewGPUCmd(env, c), admin.NewPartitionCmd(env, c), admin.NewReservationCmd(env, c), jobcmd.NewUpdateCmd(env, c), admin.NewClusterCmd(env, c), admin.NewTokenCmd(env, c), admin.NewDenyCmd(env, c), admin.NewAllowCmd(env, c),
		modelcmd.NewPredictCmd(env, c), modelcmd.NewFeaturesCmd(env), modelcmd.NewModelCmd(env, c), simcmd.NewSimCmd(env, c), slurmcmd.NewLintCmd(env), slurmcmd.NewSbatchCmd(env, c), slurmcmd.NewSqueueCmd(env, c), slurmcmd.NewScancelCmd(env, c), slurmcmd.NewSinfoCmd(env, c), slurmcmd.NewScontrolCmd(env, c), slurmcmd.NewSacctCmd(env, c), slurmcmd.NewSeffCmd(env, c), slurmcmd.NewSshareCmd(env, c), newCompletionCmd(env), newVersionCmd(env), newReferenceCmd(env),
	)
	root.AddCommand(sruncmd.NewRunCmd(env, c), sruncmd.NewNotebookCmd(env, c), sruncmd.NewTunnelCmd(env, c), sruncmd.NewSrunCmd(env, c), sruncmd.NewSallocCmd(env, c))
	root.AddCommand(admin.NewAccountCmd(env, c), admin.NewQOSCmd(env, c), admin.NewQuotaCmd(env, c))
	root.AddCommand(admin.NewImageCmd(env), enter.NewShellCmd(env, c), enter.NewExecCmd(env, c), enter.NewSignalCmd(env, c))
	root.AddCommand(acctcmd.NewHistoryCmd(env, c), acctcmd.NewEffCmd(env, c), acctcmd.NewReportCmd(env, c))
	root.AddCommand(notifycmd.NewWebhookCmd(env, c))
	root.AddCommand(importcmd.NewImportCmd(env, c, again(env, c)))
	addOrMerge(root, backupcmd.NewClusterCmd(env, c))
	for _, x := range extra {
		addOrMerge(root, x)
	}
	addOrMerge(root, backupcmd.NewCoordinatorCmd(env)) // after the daemon, whose name it has
	root.SetOut(env.Out)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(console.FlagError)
	wrapUsage(root)
	return root
}

// again runs a command of its own tree, asking as the one that calls it does.
func again(env *console.Env, c *client.Client) importcmd.Runner {
	return func(ctx context.Context, args []string) error {
		timeout := c.Timeout
		root := newRoot(env, c)
		c.Timeout = timeout // its flag set the default
		root.SetArgs(args)
		return root.ExecuteContext(ctx)
	}
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
			known := console.Verbs(cmd)
			if len(a) == 0 {
				return &console.UsageError{Cmd: cmd.CommandPath(), Err: fmt.Errorf("a command is missing; one of %s", strings.Join(known, ", "))}
			}
			return console.UnknownCommand(cmd, a[0])
		}
		cmd.Args = cobra.ArbitraryArgs
	}
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
