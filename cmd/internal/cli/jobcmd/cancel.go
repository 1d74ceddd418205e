package jobcmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewCancelCmd returns the command cancel.
func NewCancelCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o cancelOptions
	cmd := &cobra.Command{
		Use:   "cancel [JOB…]",
		Short: "Cancel waiting or running jobs",
		Long: "Cancel waiting or running jobs: those named (all ids are checked before any job is touched), or those\n" +
			"that match every filter given; only your own, unless --all is given. An array's id means all its tasks.\n" +
			"Jobs that have already ended are left alone, which is no error.",
		Example: "  berth cancel 12\n  berth cancel 12,14 20-30\n  berth cancel '40_[3-9]' 41_7\n  berth cancel --me --state PD\n" +
			"  berth cancel --name sweep --partition debug\n  berth queue --me -o name | xargs -r berth cancel",
		RunE: func(cmd *cobra.Command, args []string) error {
			return runCancel(cmd.Context(), e, c, &o, args)
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.me, "me", false, "all your jobs")
	fs.BoolVar(&o.all, "all", false, "everyone's jobs; only administrators may cancel those of others")
	fs.StringVar(&o.names, "name", "", "jobs with these names, a comma-separated `LIST`")
	fs.StringVarP(&o.states, "state", "t", "", "jobs in these states, a comma-separated `LIST` of names or codes")
	fs.StringVarP(&o.partitions, "partition", "p", "", "jobs of these partitions, a comma-separated `LIST`")
	fs.BoolVarP(&o.yes, "yes", "y", false, "with --all, do not ask for confirmation")
	return cmd
}

// runCancel ends the named or chosen jobs. The exit code is ExitFailed when
// one may not be cancelled, otherwise ExitNotFound when one does not exist.
func runCancel(ctx context.Context, e *console.Env, c *client.Client, o *cancelOptions, args []string) error {
	switch chooses := o.chooses(); {
	case len(args) == 0 && !chooses:
		return console.Usagef("job id is missing; or select jobs with --me, --name, --state, --partition or --all")
	case len(args) > 0 && chooses:
		return console.Usagef("%s: cannot be combined with an option that selects jobs", console.ShortQuote(args[0]))
	case chooses:
		return cancelChosen(ctx, e, c, o)
	}
	ids, tasks, err := console.ParseManyJobs(args)
	if err != nil {
		return err
	}
	code := console.ExitDone
	err = console.Batches(ids, tasks, func(ids []uint64, tasks []console.TaskRef) error {
		results, err := cancelBatch(ctx, e, c, ids, tasks)
		code = worse(code, printCancelled(e, results))
		return err
	})
	if err != nil {
		return console.UnknownChange(err, "Repeating this is safe: berth cancel "+briefly(args))
	}
	if code != console.ExitDone {
		return &console.ExitError{Code: code}
	}
	return nil
}

func cancelBatch(ctx context.Context, e *console.Env, c *client.Client, ids []uint64, tasks []console.TaskRef) ([]*apiv1.CancelResult, error) {
	req := &apiv1.CancelJobsRequest{RequestId: e.RequestID(), Ids: ids, Tasks: client.ArrayTasks(tasks)}
	resp, err := client.CancelJobs.Ask(ctx, c, client.Changes, req)
	return resp.GetResults(), err
}

// printCancelled prints one line per job, in the order given, and returns the
// exit code.
func printCancelled(e *console.Env, results []*apiv1.CancelResult) int {
	code := console.ExitDone
	for _, r := range results {
		switch r.GetOutcome() {
		case apiv1.CancelOutcome_CANCEL_OUTCOME_CANCELLED:
			e.Printf("job %s: cancelled%s\n", console.JobOrTasks(r.GetId(), r.GetTasks()), taskCount(r.GetCount()))
		case apiv1.CancelOutcome_CANCEL_OUTCOME_ALREADY_FINISHED:
			e.Printf("job %s: had already ended, nothing changed\n", console.JobOrTasks(r.GetId(), r.GetTasks()))
		case apiv1.CancelOutcome_CANCEL_OUTCOME_NOT_FOUND:
			e.Warnf("job %s: no such job", console.JobOrTasks(r.GetId(), r.GetTasks()))
			if code == console.ExitDone {
				code = console.ExitNotFound
			}
		case apiv1.CancelOutcome_CANCEL_OUTCOME_DENIED:
			e.Warnf("job %s: only its owner and administrators may cancel it", console.JobOrTasks(r.GetId(), r.GetTasks()))
			code = console.ExitFailed
		default:
			e.Warnf("job %d: the coordinator's answer (%d) is from a newer release; check with: berth show %d", r.GetId(), r.GetOutcome(), r.GetId())
			code = console.ExitFailed
		}
	}
	return code
}
