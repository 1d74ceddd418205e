package jobcmd

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewCancelCmd returns the command cancel.
func NewCancelCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel JOB…",
		Short: "End jobs, or take them out of the queue",
		Long: "End jobs, or take them out of the queue. At most 1000 at once; all ids are read before any\n" +
			"job is touched. The id of an array is all its tasks. Jobs that had ended before stay as they are, which is no error.",
		Example: "  berth cancel 12\n  berth cancel 12,14 20-30\n  berth cancel '40_[3-9]' 41_7\n  berth queue --me -o name | xargs -r berth cancel",
		Args:    console.SomeArgs("job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runCancel(cmd.Context(), e, c, args)
		},
	}
	return cmd
}

// runCancel prints one line for each id in the order given. The exit code is
// ExitFailed when one may not be cancelled, otherwise ExitNotFound when one is
// not there.
func runCancel(ctx context.Context, e *console.Env, c *client.Client, args []string) error {
	ids, tasks, err := console.ParseJobs(args)
	if err != nil {
		return err
	}
	req := &apiv1.CancelJobsRequest{RequestId: e.RequestID(), Ids: ids, Tasks: client.ArrayTasks(tasks)}
	var resp *apiv1.CancelJobsResponse
	err = c.Jobs(ctx, client.Changes, func(ctx context.Context, s apiv1.JobServiceClient) (err error) {
		resp, err = s.CancelJobs(ctx, req)
		return err
	})
	if err != nil {
		return console.UnknownChange(err, "Cancelling again is safe: berth cancel "+strings.Join(args, " "))
	}
	code := console.ExitDone
	for _, r := range resp.GetResults() {
		switch r.GetOutcome() {
		case apiv1.CancelOutcome_CANCEL_OUTCOME_CANCELLED:
			e.Printf("job %s: cancelled%s\n", console.JobOrTasks(r.GetId(), r.GetTasks()), taskCount(r.GetCount()))
		case apiv1.CancelOutcome_CANCEL_OUTCOME_ALREADY_FINISHED:
			e.Printf("job %s: had ended before, nothing changed\n", console.JobOrTasks(r.GetId(), r.GetTasks()))
		case apiv1.CancelOutcome_CANCEL_OUTCOME_NOT_FOUND:
			e.Warnf("job %s: no such job", console.JobOrTasks(r.GetId(), r.GetTasks()))
			if code == console.ExitDone {
				code = console.ExitNotFound
			}
		case apiv1.CancelOutcome_CANCEL_OUTCOME_DENIED:
			e.Warnf("job %s: only its owner and administrators may cancel it", console.JobOrTasks(r.GetId(), r.GetTasks()))
			code = console.ExitFailed
		default:
			e.Warnf("job %d: the coordinator's answer (%d) is of a newer release; look with: berth show %d", r.GetId(), r.GetOutcome(), r.GetId())
			code = console.ExitFailed
		}
	}
	if code != console.ExitDone {
		return &console.ExitError{Code: code}
	}
	return nil
}
