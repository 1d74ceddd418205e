package client

import (
	"cmp"
	"context"
	"slices"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// ListPages reads all pages of jobs of which some come as columns. A
// coordinator that knows of none sends all of them one by one.
func ListPages(ctx context.Context, c *Client, req *apiv1.ListJobsRequest, each func(*apiv1.ListJobsResponse)) error {
	for req.PageToken = ""; ; {
		var resp *apiv1.ListJobsResponse
		err := c.Jobs(ctx, Reads, func(ctx context.Context, s apiv1.JobServiceClient) (err error) {
			resp, err = s.ListJobs(ctx, req)
			return err
		})
		if err != nil {
			return err
		}
		each(resp)
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			return nil
		}
	}
}

// ListBrief is ListJobs for what tables show of each job. It takes the time of
// reading, where ListJobs takes that of making and taking apart a message for
// each job.
func ListBrief(ctx context.Context, c *Client, req *apiv1.ListJobsRequest) ([]*apiv1.Job, error) {
	var jobs []*apiv1.Job
	req.Brief, req.PageSize, req.Columns = true, 20000, apiv1.JobColumnsOf_JOB_COLUMNS_OF_WAITING
	err := ListPages(ctx, c, req, func(resp *apiv1.ListJobsResponse) {
		rows := conv.Columns{M: resp.GetColumns()}
		jobs = slices.Grow(jobs, len(rows.M.GetIds())+len(resp.GetJobs()))
		for i := range rows.M.GetIds() {
			jobs = append(jobs, rows.Job(i))
		}
		jobs = append(jobs, resp.GetJobs()...)
	})
	slices.SortFunc(jobs, func(a, b *apiv1.Job) int { return cmp.Compare(a.GetId(), b.GetId()) })
	return slices.CompactFunc(jobs, func(a, b *apiv1.Job) bool { return a.GetId() == b.GetId() }), err
}
