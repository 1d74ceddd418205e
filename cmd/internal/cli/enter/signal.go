package enter

import (
	"context"
	"errors"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewSignalCmd returns the command signal.
func NewSignalCmd(e *console.Env, c *client.Client) *cobra.Command {
	var first, all bool
	cmd := &cobra.Command{
		Use:   "signal SIGNAL (JOB|ARRAY_TASK)…",
		Short: "Send a signal to the processes of running jobs",
		Long: "Send a signal, by name (USR1) or number, to the processes of your running jobs on all their nodes: to\n" +
			"every process except the shell that runs a batch script. A signal is delivered once, even if a\n" +
			"request is retried because its answer was lost. KILL is refused: use berth cancel to end jobs.",
		Example: "  berth signal USR1 12\n  berth signal --first HUP 12 14 40_3",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return console.Usagef("a signal is missing, for example: berth signal USR1 12")
			case len(args) == 1:
				return console.Usagef("job id is missing")
			case first && all:
				return console.Usagef("--first and --all: give only one of them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			sig, err := client.ParseSignal(args[0])
			if err != nil {
				return err
			}
			return runSignal(cmd.Context(), e, c, &apiv1.AttachSignal{Number: uint32(sig), First: first, All: all}, args[1:])
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&first, "first", false, "signal only the job's first process, such as the shell that runs its script")
	fs.BoolVar(&all, "all", false, "signal that shell, too")
	return cmd
}

// runSignal signals one job after another; a failure does not stop it.
func runSignal(ctx context.Context, e *console.Env, c *client.Client, what *apiv1.AttachSignal, args []string) error {
	for _, arg := range args {
		if _, _, err := console.ParseTask(arg); err != nil {
			return err
		}
	}
	var faults []error
	for _, arg := range args {
		job, err := client.OneJob(ctx, c, arg)
		if err == nil {
			err = c.Signal(ctx, job, what)
		}
		if err != nil {
			faults = append(faults, err)
			if ctx.Err() != nil {
				break
			}
			continue
		}
		e.Printf("job %s: got %s\n", arg, syscall.Signal(what.GetNumber()))
	}
	return errors.Join(faults...)
}
