package jobcmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewHoldCmd returns the command hold.
func NewHoldCmd(e *console.Env, c *client.Client) *cobra.Command {
	var asUser bool
	cmd := &cobra.Command{
		Use:   "hold JOB…",
		Short: "Keep jobs from starting",
		Long: "Keep jobs from starting until they are released. A running job continues, and is held if it is queued\n" +
			"again. A job held by an administrator can be released only by administrators, unless --as-user was used.",
		Example: "  berth hold 12\n  berth hold 12,14 20-30",
		Args:    console.SomeArgs("job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runControl(cmd.Context(), e, c, args, apiv1.JobAction_JOB_ACTION_HOLD, asUser)
		},
	}
	cmd.Flags().BoolVar(&asUser, "as-user", false, "let the owner release it, even if an administrator holds it")
	return cmd
}

// NewReleaseCmd returns the command release.
func NewReleaseCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use:     "release JOB…",
		Short:   "Release held jobs",
		Example: "  berth release 12\n  berth release 12,14 20-30",
		Args:    console.SomeArgs("job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runControl(cmd.Context(), e, c, args, apiv1.JobAction_JOB_ACTION_RELEASE, false)
		},
	}
}

// NewRequeueCmd returns the command requeue.
func NewRequeueCmd(e *console.Env, c *client.Client) *cobra.Command {
	var hold bool
	cmd := &cobra.Command{
		Use:   "requeue JOB…",
		Short: "Stop running jobs and put them back in the queue",
		Long: "Stop running jobs and put them back in the queue under the same ids. A job with a checkpoint hook saves\n" +
			"its state first; any other gets TERM, then KILL after a grace period, and starts over.",
		Example: "  berth requeue 12\n  berth requeue --hold 12",
		Args:    console.SomeArgs("job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			action := apiv1.JobAction_JOB_ACTION_REQUEUE
			if hold {
				action = apiv1.JobAction_JOB_ACTION_REQUEUE_HOLD
			}
			return runControl(cmd.Context(), e, c, args, action, false)
		},
	}
	cmd.Flags().BoolVar(&hold, "hold", false, "hold them afterwards")
	return cmd
}

// done says what became of a job.
var done = map[apiv1.JobAction]string{
	apiv1.JobAction_JOB_ACTION_HOLD: "held", apiv1.JobAction_JOB_ACTION_RELEASE: "released",
	apiv1.JobAction_JOB_ACTION_REQUEUE: "requeued", apiv1.JobAction_JOB_ACTION_REQUEUE_HOLD: "requeued, held",
}

// runControl prints a line per id in the order given, with the exit codes of cancel.
func runControl(ctx context.Context, e *console.Env, c *client.Client, args []string, action apiv1.JobAction, asUser bool) error {
	ids, tasks, err := console.ParseManyJobs(args)
	if err != nil {
		return err
	}
	code := console.ExitDone
	err = console.Batches(ids, tasks, func(ids []uint64, tasks []console.TaskRef) error {
		results, err := client.Control(ctx, e, c, &apiv1.ControlJobsRequest{Ids: ids, Tasks: client.ArrayTasks(tasks), Action: action, AsUser: asUser})
		code = worse(code, printControlled(e, results, action))
		return err
	})
	if err != nil {
		return console.UnknownChange(err, "Check with: berth show "+briefly(args))
	}
	if code != console.ExitDone {
		return &console.ExitError{Code: code}
	}
	return nil
}

// printControlled prints the results and returns the exit code.
func printControlled(e *console.Env, results []*apiv1.ControlResult, action apiv1.JobAction) int {
	code := console.ExitDone
	for _, r := range results {
		switch r.GetFault() {
		case "":
			if e.Printf("job %s: %s%s\n", console.JobOrTasks(r.GetId(), r.GetTasks()), done[action], taskCount(r.GetCount())); r.GetMessage() != "" {
				e.Warnf("job %d: %s", r.GetId(), console.Escape(r.GetMessage()))
			}
			continue
		case "NOT_FOUND":
			e.Warnf("job %s: no such job", console.JobOrTasks(r.GetId(), r.GetTasks()))
			if code == console.ExitDone {
				code = console.ExitNotFound
			}
			continue
		}
		text := console.Escape(r.GetMessage())
		if name := fmt.Sprintf("job %d ", r.GetId()); !strings.HasPrefix(text, name) {
			text = strings.TrimSpace(name) + ": " + text
		}
		e.Warnf("%s", text)
		code = console.ExitFailed
	}
	return code
}

// worse returns the exit code of two requests: a job that may not be touched
// counts for more than one that does not exist.
func worse(a, b int) int {
	if a == console.ExitDone || b == console.ExitFailed {
		return b
	}
	return a
}

// briefly returns what was typed, if it is short.
func briefly(args []string) string {
	if len(args) > 8 {
		return strings.Join(args[:8], " ") + " …"
	}
	return strings.Join(args, " ")
}
