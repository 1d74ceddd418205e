package client

import (
	"context"
	"strconv"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// OrLatest returns args or, if there are none, the user's latest job, and
// names that on standard error. If it is an array, that is the whole array.
func OrLatest(ctx context.Context, e *console.Env, c *Client, args []string) ([]string, error) {
	return orLatest(ctx, e, c, args, func(j *apiv1.Job) string {
		if of := j.GetArrayJobId(); of != 0 {
			return strconv.FormatUint(of, 10)
		}
		return JobLabel(j)
	})
}

// OrLatestTask is OrLatest for requests about a single job: of an array it
// returns the last task.
func OrLatestTask(ctx context.Context, e *console.Env, c *Client, args []string) ([]string, error) {
	return orLatest(ctx, e, c, args, func(j *apiv1.Job) string {
		if of := j.GetArrayJobId(); of != 0 && j.GetArrayCount() > 1 { // none of these has begun
			return strconv.FormatUint(of, 10)
		}
		return JobLabel(j)
	})
}

func orLatest(ctx context.Context, e *console.Env, c *Client, args []string, name func(*apiv1.Job) string) ([]string, error) {
	if len(args) > 0 {
		return args, nil
	}
	j, err := latest(ctx, c, e.User())
	if err != nil {
		return nil, err
	}
	e.Warnf("job %s (%s), your latest", name(j), console.Escape(j.GetName()))
	return []string{name(j)}, nil
}

// latest returns the last job that a user submitted among those that
// coordinators still hold.
func latest(ctx context.Context, c *Client, me string) (*apiv1.Job, error) {
	if me == "" {
		return nil, console.Usagef("your user name is not known; name a job")
	}
	var last *apiv1.Job
	req := &apiv1.ListJobsRequest{Users: []string{me}, Finished: true, Brief: true, Columns: apiv1.JobColumnsOf_JOB_COLUMNS_OF_ALL}
	err := ListPages(ctx, c, req, func(resp *apiv1.ListJobsResponse) {
		rows, at := apiconv.Columns{M: resp.GetColumns()}, -1
		for i, id := range rows.M.GetIds() {
			if id >= last.GetId() && (at < 0 || id > rows.M.GetIds()[at]) {
				at = i
			}
		}
		if at >= 0 {
			last = rows.Job(at)
		}
		for _, j := range resp.GetJobs() {
			if j.GetId() >= last.GetId() {
				last = j
			}
		}
	})
	if err == nil && last == nil {
		err = cluster.Errorf(cluster.CodeNotFound, "you have no jobs now; name one, or find it with: berth history")
	}
	return last, err
}
