package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/berth-scheduler/berth/cmd/internal/cli/wire"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// historyPage is how many jobs are requested at once: few enough that any
// coordinator answers in time, and that nothing is held for long.
const historyPage = 5000

// HistoryGaps is what may be missing from an answer about finished jobs. The
// zero value is nothing.
type HistoryGaps struct {
	// Incomplete means that a coordinator that answered is still fetching a part.
	Incomplete bool
	// Behind means that a coordinator that answered, at Index, was not known to
	// be as far as the leader, at Leader, which is 0 when none could tell.
	Behind        bool
	Index, Leader uint64
}

// Texts says what may be missing.
func (g HistoryGaps) Texts() []string {
	var out []string
	if g.Incomplete {
		out = append(out, "the coordinator that answered is still fetching part of the history from the others; jobs may be missing")
	}
	switch {
	case g.Behind && g.Leader == 0:
		out = append(out, "the coordinators have no leader now, so the one that answered may be out of date; the latest events may be missing")
	case g.Behind:
		out = append(out, fmt.Sprintf("the coordinator that answered is behind the leader (at index %d of %d); the latest events may be missing; see: berth cluster status", g.Index, g.Leader))
	}
	return out
}

// historyAnswer is any answer about finished jobs.
type historyAnswer interface {
	GetIncomplete() bool
	GetBehind() bool
	GetIndex() uint64
	GetLeaderIndex() uint64
}

func (g *HistoryGaps) note(r historyAnswer) {
	g.Incomplete = g.Incomplete || r.GetIncomplete()
	if r.GetBehind() {
		g.Behind, g.Index, g.Leader = true, r.GetIndex(), r.GetLeaderIndex()
	}
}

// Report adds up finished jobs.
func Report(ctx context.Context, c *Client, req *apiv1.GetReportRequest) (r *apiv1.GetReportResponse, gaps HistoryGaps, err error) {
	r, err = GetReport.Ask(ctx, c, Reads, req)
	gaps.note(r)
	return r, gaps, err
}

// ListHistory calls see with the jobs that req chooses, page by page, so that
// any number of them is read without being held, and each comes once, as it was
// when it came. When a coordinator goes away, another goes on where it was.
func ListHistory(ctx context.Context, c *Client, req *apiv1.ListHistoryRequest, see func([]*apiv1.Job) error) (gaps HistoryGaps, err error) {
	left, running := req.GetLimit(), map[uint64]struct{}{}
	for first := true; ; first = false {
		req.Limit = historyPage
		if left > 0 {
			req.Limit = min(left, historyPage)
		}
		req.Unfinished = req.Unfinished && first
		page, index, err := historyPages(ctx, c, req, &gaps)
		if err != nil {
			return gaps, err
		}
		if first { // later pages need not ask the leader again
			req.MinIndex = index
		}
		ended := 0
		page = slices.DeleteFunc(page, func(j *apiv1.Job) bool {
			if j.GetEnded() == nil {
				running[j.GetId()] = struct{}{}
				return false
			}
			ended++
			req.AfterIndex, req.AfterJob = j.GetRevision(), j.GetId()
			_, told := running[j.GetId()] // it ended in the meantime
			return told
		})
		if err := see(page); err != nil {
			return gaps, err
		}
		if ended < int(req.Limit) || left > 0 && left <= req.Limit {
			return gaps, nil
		}
		if left > 0 {
			left -= req.Limit
		}
	}
}

func historyPages(ctx context.Context, c *Client, req *apiv1.ListHistoryRequest, gaps *HistoryGaps) (jobs []*apiv1.Job, index uint64, err error) {
	err = c.Call(ctx, Reads, func(ctx context.Context, on *wire.Conn) error {
		jobs, index = nil, 0
		stream, err := follow[*apiv1.ListHistoryResponse](ctx, on, "HistoryService/ListHistory", req)
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
			jobs = append(jobs, r.GetJobs()...)
			if index == 0 { // at least as far as the first of them
				index = r.GetIndex()
			}
			gaps.note(r)
		}
	})
	return jobs, index, err
}
