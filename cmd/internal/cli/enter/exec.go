package enter

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

type execOptions struct {
	terminal, noInput bool
	// node selects a node of a job on several; "" is the first.
	node string
}

// NewExecCmd returns the command exec.
func NewExecCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec (JOB|ARRAY_TASK) [--] COMMAND [ARG...]",
		Short: "Run a command inside a running job",
		Long: "Run a command inside one of your jobs: on its node, as its user, in its environment, directory,\n" +
			"container and limits. What the command uses counts as the job's; at the job's memory limit both end.\n" +
			"The command ends with the job and does not keep it alive. Standard input, output and signals are\n" +
			"passed on.\n" +
			"\n" +
			"The exit code is the command's; 128+n if signal n ended it; 127 if there is no such command and 126 if\n" +
			"it cannot be run. Berth's own errors are prefixed with \"berth: \" and use the usual codes: 1 refused,\n" +
			"2 wrong usage, 3 no such job, 4 the node or the coordinators do not answer, 75 the connection broke\n" +
			"while it ran (the command is then ended).",
		Example: "  berth exec 12 nvidia-smi\n  berth exec 12 -- sh -c 'ps aux | head'\n  berth exec -t 12 -- top",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return console.Usagef("job id is missing")
			case len(commandOf(args)) == 0:
				return console.Usagef("a command is missing, for example: berth exec %s -- nvidia-smi; berth shell %s opens a shell", args[0], args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runExec(cmd.Context(), e, c, o, args[0], commandOf(args))
		},
	}
	fs := cmd.Flags()
	fs.SetInterspersed(false) // what follows the job belongs to the command
	fs.BoolVarP(&o.terminal, "tty", "t", false, "give the command a terminal")
	fs.StringVar(&o.node, "node", "", "node to use if the job has several; by default the first")
	fs.BoolVarP(&o.noInput, "no-input", "n", false, "do not read standard input, for use in loops that read it themselves")
	return cmd
}

// commandOf returns what follows the job; a "--" before it is accepted out of habit.
func commandOf(args []string) []string {
	args = args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	return args
}

func runExec(ctx context.Context, e *console.Env, c *client.Client, o execOptions, arg string, command []string) error {
	job, err := client.OneJob(ctx, c, arg)
	if err != nil {
		return err
	}
	x := &apiv1.AttachExec{Terminal: o.terminal, Command: apiconv.Texts[[]byte](command)}
	if o.terminal {
		x.Term = e.Getenv("TERM")
	}
	return runInJob(ctx, e, c, &InsideJob{
		Open: &apiv1.AttachOpen{Job: job.GetId(), Node: o.node, What: &apiv1.AttachOpen_Exec{Exec: x}}, NoInput: o.noInput,
	})
}
