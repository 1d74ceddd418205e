package cli

import (
	"context"

	"github.com/spf13/cobra"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

func newCancelCmd(e *Env, c *client) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel JOB…",
		Short: "End jobs, or take them out of the queue",
		Long: "End jobs, or take them out of the queue. At most 1000 at once; all ids are read before any\n" +
			"job is touched. Jobs that had ended before stay as they are, which is no error.",
		Example: "  berth cancel 12\n  berth cancel 12,14 20-30\n  berth queue --me -o name | xargs -r berth cancel",
		Args:    someArgs("job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runCancel(cmd.Context(), e, c, args)
		},
	}
	return cmd
}

// runCancel prints one line for each id in the order given. The exit code is
// ExitFailed when one may not be cancelled, otherwise ExitNotFound when one is
// not there.
func runCancel(ctx context.Context, e *Env, c *client, args []string) error {
	ids, err := parseIDs(args)
	if err != nil {
		return err
	}
	req := &apiv1.CancelJobsRequest{RequestId: e.RequestID(), Ids: ids}
	var resp *apiv1.CancelJobsResponse
	err = c.jobs(ctx, changes, func(ctx context.Context, s apiv1.JobServiceClient) (err error) {
		resp, err = s.CancelJobs(ctx, req)
		return err
	})
	if err != nil {
		return unknownChange(err, "Cancelling again is safe: berth cancel "+idRanges(ids))
	}
	code := ExitDone
	for _, r := range resp.GetResults() {
		switch r.GetOutcome() {
		case apiv1.CancelOutcome_CANCEL_OUTCOME_CANCELLED:
			e.printf("job %d: cancelled\n", r.GetId())
		case apiv1.CancelOutcome_CANCEL_OUTCOME_ALREADY_FINISHED:
			e.printf("job %d: had ended before, nothing changed\n", r.GetId())
		case apiv1.CancelOutcome_CANCEL_OUTCOME_NOT_FOUND:
			e.warnf("job %d: no such job", r.GetId())
			if code == ExitDone {
				code = ExitNotFound
			}
		case apiv1.CancelOutcome_CANCEL_OUTCOME_DENIED:
			e.warnf("job %d: only its owner and administrators may cancel it", r.GetId())
			code = ExitFailed
		default:
			e.warnf("job %d: the coordinator's answer (%d) is of a newer release; look with: berth show %d", r.GetId(), r.GetOutcome(), r.GetId())
			code = ExitFailed
		}
	}
	if code != ExitDone {
		return &ExitError{Code: code}
	}
	return nil
}
