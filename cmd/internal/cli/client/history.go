package client

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// historyPage is how many jobs are asked for at once: little enough that any
// coordinator answers in time, and that nothing is held for long.
const historyPage = 5000

// Histories runs do with the service for jobs that have ended.
func (c *Client) Histories(ctx context.Context, eff effect, do func(context.Context, apiv1.HistoryServiceClient) error) error {
	return c.call(ctx, eff, func(ctx context.Context, cc grpc.ClientConnInterface) error {
		return do(ctx, apiv1.NewHistoryServiceClient(cc))
	})
}

// ListHistory calls see with the jobs that req chooses, page by page, so that
// any number of them is read without being held. When a coordinator goes away,
// another goes on where it was. incomplete tells that one of them is still
// fetching a part of its history.
func ListHistory(ctx context.Context, c *Client, req *apiv1.ListHistoryRequest, see func([]*apiv1.Job) error) (incomplete bool, err error) {
	left := req.GetLimit()
	for first := true; ; first = false {
		req.Limit = historyPage
		if left > 0 {
			req.Limit = min(left, historyPage)
		}
		req.Unfinished = req.Unfinished && first
		page, part, err := historyPages(ctx, c, req)
		if err != nil {
			return incomplete, err
		}
		incomplete = incomplete || part
		ended := 0
		for _, j := range page {
			if j.GetEnded() != nil {
				ended++
				req.AfterIndex, req.AfterJob = j.GetRevision(), j.GetId()
			}
		}
		if err := see(page); err != nil {
			return incomplete, err
		}
		if ended < int(req.Limit) || left > 0 && left <= req.Limit {
			return incomplete, nil
		}
		if left > 0 {
			left -= req.Limit
		}
	}
}

func historyPages(ctx context.Context, c *Client, req *apiv1.ListHistoryRequest) (jobs []*apiv1.Job, incomplete bool, err error) {
	err = c.Histories(ctx, Reads, func(ctx context.Context, s apiv1.HistoryServiceClient) error {
		jobs, incomplete = nil, false
		stream, err := s.ListHistory(ctx, req)
		if err != nil {
			return err
		}
		for {
			r, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			jobs, incomplete = append(jobs, r.GetJobs()...), incomplete || r.GetIncomplete()
		}
	})
	return jobs, incomplete, err
}
