package client

import (
	"cmp"
	"context"
	"slices"

	"github.com/berth-scheduler/berth/cmd/internal/cli/wire"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// ListPages reads all pages of jobs, some of which arrive as columns. A
// coordinator that does not know columns sends all of them one by one.
func ListPages(ctx context.Context, c *Client, req *apiv1.ListJobsRequest, each func(*apiv1.ListJobsResponse)) error {
	return pages(req, each, func() (*apiv1.ListJobsResponse, error) { return PageOfJobs.Ask(ctx, c, Reads, req) })
}

func pages(req *apiv1.ListJobsRequest, each func(*apiv1.ListJobsResponse), ask func() (*apiv1.ListJobsResponse, error)) error {
	for req.PageToken = ""; ; {
		resp, err := ask()
		if err != nil {
			return err
		}
		each(resp)
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			return nil
		}
	}
}

// ListBrief is ListJobs limited to what tables show of each job. It costs
// only the reading, whereas ListJobs encodes and decodes a message for each
// job.
func ListBrief(ctx context.Context, c *Client, req *apiv1.ListJobsRequest) ([]*apiv1.Job, error) {
	var rows briefRows
	err := ListPages(ctx, c, rows.of(req), rows.add)
	return rows.sorted(), err
}

// BriefFrom is ListBrief from the coordinator at the other end of the connection.
func BriefFrom(ctx context.Context, on *wire.Conn, req *apiv1.ListJobsRequest) ([]*apiv1.Job, error) {
	var rows briefRows
	err := pages(rows.of(req), rows.add, func() (*apiv1.ListJobsResponse, error) { return PageOfJobs.On(ctx, on, req) })
	return rows.sorted(), err
}

// briefRows are jobs, some of which arrived as columns.
type briefRows []*apiv1.Job

func (*briefRows) of(req *apiv1.ListJobsRequest) *apiv1.ListJobsRequest {
	req.Brief, req.PageSize, req.Columns = true, 20000, apiv1.JobColumnsOf_JOB_COLUMNS_OF_WAITING
	return req
}

func (b *briefRows) add(resp *apiv1.ListJobsResponse) {
	rows := apiconv.Columns{M: resp.GetColumns()}
	*b = slices.Grow(*b, len(rows.M.GetIds())+len(resp.GetJobs()))
	for i := range rows.M.GetIds() {
		*b = append(*b, rows.Job(i))
	}
	*b = append(*b, resp.GetJobs()...)
}

// sorted returns the jobs by id, each once.
func (b briefRows) sorted() []*apiv1.Job {
	slices.SortFunc(b, func(a, b *apiv1.Job) int { return cmp.Compare(a.GetId(), b.GetId()) })
	return slices.CompactFunc(b, func(a, b *apiv1.Job) bool { return a.GetId() == b.GetId() })
}
