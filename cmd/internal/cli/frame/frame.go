package frame

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/programs"
)

// Program is one of Berth's programs as a command line.
type Program struct {
	// Name is what messages call it, Example an example command.
	Name, Example string
	Commands      []Command
	// Groups are the groups under which help lists the commands, in order.
	Groups []cobra.Group
	// Bare runs when nothing else was typed; nil means to say what is missing.
	Bare func(context.Context, *console.Env, *client.Client) error
	// Complete sets up shell completion of the commands below root; nil means none.
	Complete func(root *cobra.Command, e *console.Env, c *client.Client)
}

// CalledAs returns p under the name by which its process was started: a user
// who types berth, and is served by another program, reads of berth.
func (p Program) CalledAs(argv0 string) Program {
	if filepath.Base(argv0) != p.Name {
		p.Name = programs.Users
	}
	return p
}

// Command is a top-level command, or a part of one: those of the same name
// become one command with all their subcommands.
type Command struct {
	Name string
	New  Constructor
	// Group is the id of one of the program's groups; "" means none.
	Group string
}

// In puts commands into a group.
func In(group string, commands ...Command) []Command {
	for i := range commands {
		commands[i].Group = group
	}
	return commands
}

// Constructor builds a command, which asks coordinators through c.
type Constructor func(e *console.Env, c *client.Client) *cobra.Command

// Local returns the constructor of a command that asks no coordinator.
func Local(build func(*console.Env) *cobra.Command) Constructor {
	return func(e *console.Env, _ *client.Client) *cobra.Command { return build(e) }
}

// Main runs the command that args name (without the program's name) and
// returns the exit code. The context of commands ends with the first SIGINT
// or SIGTERM; a second one kills the process by default.
func Main(args []string, env *console.Env, p Program) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(ch)
	go func() { // ends with the process at the latest
		select {
		case s := <-ch:
			signal.Stop(ch)
			sig, _ := s.(syscall.Signal)
			cancel(&console.Interruption{Sig: sig})
		case <-ctx.Done():
		}
	}()
	env.Interrupted = ctx
	return Execute(ctx, args, env, p)
}

// Execute is Main without signals.
func Execute(ctx context.Context, args []string, env *console.Env, p Program) int {
	env.Start()
	c := client.NewClient(env)
	err := Again(ctx, args, env, c, p)
	c.Close()
	code, msg := console.Classify(ctx, env.End(err))
	if msg != "" {
		env.Fail(msg)
	}
	return code
}

// Again runs a command on behalf of another one, through its client.
func Again(ctx context.Context, args []string, env *console.Env, c *client.Client, p Program) error {
	if len(args) == 0 && p.Bare != nil {
		return p.Bare(ctx, env, c)
	}
	timeout := c.Timeout
	root := newRoot(env, c, p, args)
	if timeout != 0 {
		c.Timeout = timeout // its flag set the default
	}
	if away, ok := asked(root, args); ok {
		return env.Become(away, args)
	}
	if err := unknown(root, args); err != nil {
		return err
	}
	root.SetArgs(args)
	return root.ExecuteContext(env.With(ctx))
}

// unknown returns the error for args that request help on an unknown command.
func unknown(root *cobra.Command, args []string) error {
	if len(args) < 2 || args[0] != "help" {
		return nil
	}
	cmd, rest, err := root.Find(args[1:])
	if err == nil && (len(rest) == 0 || !cmd.HasSubCommands() || strings.HasPrefix(rest[0], "-")) {
		return nil
	}
	if cmd == nil {
		cmd, rest = root, args[1:]
	}
	return console.UnknownCommand(cmd, rest[0])
}

// Tree returns the whole tree of commands, that of p and those of others,
// which replace what p only knows to be theirs.
func Tree(env *console.Env, c *client.Client, p Program, others ...Program) *cobra.Command {
	for _, o := range others {
		p.Commands = append(slices.Clone(p.Commands), o.Commands...)
	}
	return newRoot(env, c, p, nil)
}

// newRoot returns the root command, with those of p's commands that args can
// mean. Commands report usage mistakes with Usagef.
func newRoot(env *console.Env, c *client.Client, p Program, args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   p.Name,
		Short: "Run GPU jobs side by side",
		Long: "Berth runs GPU jobs on your own machines, and several on one GPU when they fit.\n" +
			"It talks to the coordinators named in $BERTH_SOCKET (a comma-separated list of unix\n" +
			"sockets), by default " + console.DefaultSocket + " or the cluster that your berth dev runs.\n" +
			"Slurm's commands work, too: berth sbatch --help.",
		SilenceErrors: true, SilenceUsage: true, TraverseChildren: false,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:              cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &console.UsageError{Cmd: p.Name, Err: errors.New("a command is missing, for example: " + p.Example)}
			}
			return console.UnknownCommand(cmd, args[0])
		},
	}
	root.PersistentFlags().DurationVar(&c.Timeout, "timeout", client.DefaultTimeout, "how long to retry until the coordinators answer")
	for i := range p.Groups {
		root.AddGroup(&p.Groups[i])
	}
	for _, x := range meant(p.Commands, args) {
		cmd := x.New(env, c)
		cmd.GroupID = x.Group
		merge(root, cmd)
	}
	if p.Complete != nil && len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		p.Complete(root, env, c)
	}
	if n := len(p.Groups); n > 0 {
		root.SetHelpCommandGroupID(p.Groups[n-1].ID)
	}
	if len(args) == 0 || len(meant(p.Commands, args)) == len(p.Commands) {
		root.Version = console.Version().Version
	}
	root.SetOut(env.Out)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(console.FlagError)
	WrapUsage(root)
	return root
}

// meant returns the commands that args can mean: all, unless the first word
// is a command's name. The names of commands that look at the others are in
// whole.
func meant(all []Command, args []string) []Command {
	if len(args) == 0 || slices.Contains(whole, args[0]) {
		return all
	}
	var out []Command
	for _, x := range all {
		if x.Name == args[0] {
			out = append(out, x)
		}
	}
	if len(out) == 0 {
		return all
	}
	return out
}

// whole are the names of commands that look at the others.
var whole = []string{"help", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}
