package jobcmd

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewWaitCmd returns the command wait.
func NewWaitCmd(e *console.Env, c *client.Client) *cobra.Command {
	var timeout string
	var first bool
	cmd := &cobra.Command{
		Use:   "wait (JOB|ARRAY_TASK)…",
		Short: "Wait for jobs to end",
		Long: "Wait for jobs to end. The exit code is that of the first job given that did not end with 0: 128+n if\n" +
			"signal n ended it, 1 if it never ran, and 75 if --timeout expired. An array's id means all its tasks:\n" +
			"it ends with the last of them, and its exit code is their highest. With --any, the exit code is that of\n" +
			"the first job to end, whose id is printed. Coordinators may come and go meanwhile.",
		Example: "  berth wait 12 && ./evaluate.sh\n  berth wait --timeout 2h 12-20\n  berth wait 30_7 30_[8-9]\n  berth wait --any 12 13 14",
		Args:    console.SomeArgs("job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var limit time.Duration
			if timeout != "" {
				d, err := units.ParseDuration(timeout)
				if err != nil {
					return console.Usagef("--timeout: %w", err)
				}
				limit = d
			}
			jobs, err := client.ParseJobRefs(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			return (&waiter{env: e, c: c, jobs: jobs, any: first}).run(cmd.Context(), limit)
		},
	}
	cmd.Flags().BoolVar(&first, "any", false, "return as soon as any one of the jobs ends")
	cmd.Flags().StringVar(&timeout, "timeout", "", "give up after `TIME`, such as 30 (minutes) or 90s; by default never")
	return cmd
}

var errWaitTimeout = errors.New("wait timed out")

func endReason(j *apiv1.Job) string {
	if r := console.ReasonText(j.GetReason(), j.GetReasonDetail()); r != "" {
		return " (" + r + ")"
	}
	return ""
}

// jobExitCode returns what a shell would report: 0 only for COMPLETED.
func jobExitCode(j *apiv1.Job) int {
	switch {
	case j.GetSignal() > 0:
		return 128 + int(j.GetSignal())
	case j.GetExitCode() > 0:
		return int(j.GetExitCode())
	case j.GetState() == cluster.JobCompleted.String():
		return console.ExitDone
	default:
		return console.ExitFailed
	}
}
