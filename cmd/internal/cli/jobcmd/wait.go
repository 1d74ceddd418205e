package jobcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
		Use:   "wait JOB…",
		Short: "Wait for jobs to end",
		Long: "Wait for jobs to end. The exit code is that of the first job given that did not end with\n" +
			"0; it is 128+n when signal n ended it, 1 when it never ran, and 75 when --timeout passed. With\n" +
			"--any it is that of the first to end, whose id is printed. Coordinators may come and go meanwhile.",
		Example: "  berth wait 12 && ./evaluate.sh\n  berth wait --timeout 2h 12-20\n  berth wait --any 12 13 14",
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
			ids, err := console.ParseIDs(args)
			if err != nil {
				return err
			}
			if first {
				return waitAny(cmd.Context(), e, c, ids, limit)
			}
			return waitJobs(cmd.Context(), e, c, ids, limit)
		},
	}
	cmd.Flags().BoolVar(&first, "any", false, "wait for one of them alone, whichever ends first")
	cmd.Flags().StringVar(&timeout, "timeout", "", "give up after `TIME`, such as 30 (minutes) or 90s; by default never")
	return cmd
}

var errWaitTimeout = errors.New("time-out of wait")

// waitJobs returns when all jobs have ended, as the error that carries their
// exit code. A limit of 0 is none.
func waitJobs(ctx context.Context, e *console.Env, c *client.Client, ids []uint64, limit time.Duration) error {
	return waitUntil(ctx, e, c, ids, limit, nil)
}

// waitUntil is waitJobs that also returns once enough says so of those that have
// ended; they alone count then.
func waitUntil(ctx context.Context, e *console.Env, c *client.Client, ids []uint64, limit time.Duration, enough func(ended []uint64) []uint64) error {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errWaitTimeout)
		defer cancel()
	}
	req := &apiv1.ListJobsRequest{Ids: ids, Finished: true, Brief: true}
	jobs, err := client.ListJobs(ctx, c, req)
	if err != nil {
		return waitError(err, ids, nil, limit)
	}
	if err := missing(req, jobs); err != nil {
		return err
	}
	latest := map[uint64]*apiv1.Job{}
	open := func(news []*apiv1.Job) bool {
		for _, j := range news {
			latest[j.GetId()] = j
		}
		left := unended(ids, latest)
		if enough != nil && len(left) < len(ids) {
			ids, left = enough(slices.DeleteFunc(slices.Clone(ids), func(id uint64) bool { return slices.Contains(left, id) })), nil
		}
		return len(left) > 0
	}
	if open(jobs) {
		err := c.WatchJobs(ctx, ids, func(news []*apiv1.Job) bool { return !open(news) })
		if err != nil {
			return waitError(err, ids, latest, limit)
		}
	}
	code := 0
	for _, id := range ids {
		j := latest[id]
		if n := jobExitCode(j); n != 0 {
			x := exitText(j.ExitCode, j.GetSignal())
			if x != "" {
				x = ", " + x
			}
			e.Warnf("job %d: %s%s%s", id, j.GetState(), x, console.Escape(endReason(j)))
			if code == 0 {
				code = n
			}
		}
	}
	if code != 0 {
		return &console.ExitError{Code: code}
	}
	return nil
}

func endReason(j *apiv1.Job) string {
	if r := console.ReasonText(j.GetReason(), j.GetReasonDetail()); r != "" {
		return " (" + r + ")"
	}
	return ""
}

func waitError(err error, ids []uint64, latest map[uint64]*apiv1.Job, limit time.Duration) error {
	if !errors.Is(err, errWaitTimeout) {
		return err
	}
	open := unended(ids, latest)
	return &cluster.Error{Code: cluster.CodeUnknown, Msg: fmt.Sprintf(
		"not ended after %s: %s\nWait on with: berth wait %s", limit, console.IDRanges(open), console.IDRanges(open))}
}

// jobExitCode is what a shell would report: 0 only for COMPLETED.
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

// unended are those of the jobs that have not ended.
func unended(ids []uint64, latest map[uint64]*apiv1.Job) (out []uint64) {
	for _, id := range ids {
		if !console.Terminal(latest[id].GetState()) {
			out = append(out, id)
		}
	}
	return out
}

// waitAny returns when one of the jobs has ended, the first of those given that
// had by then.
func waitAny(ctx context.Context, e *console.Env, c *client.Client, ids []uint64, limit time.Duration) error {
	return waitUntil(ctx, e, c, ids, limit, func(ended []uint64) []uint64 {
		e.Printf("%d\n", ended[0])
		return ended[:1]
	})
}
