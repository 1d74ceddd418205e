package client

import (
	"context"
	"errors"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// Follow keeps its caller informed of all jobs, as listings have them, until
// ctx ends: each first gets the jobs that have not ended, with all true, and
// from then on those that changed, from one stream. Any coordinator will do,
// and when one goes away another continues where it stopped. Follow never
// gives up: lost is told why nothing arrives, and is called with nil once
// something does.
func (c *Client) Follow(ctx context.Context, each func(jobs []*apiv1.Job, all bool), lost func(error)) error {
	for {
		jobs, index, err := c.listFrom(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			lost(err)
			if !wait.Sleep(ctx, mostWait) {
				return context.Cause(ctx)
			}
			continue
		}
		lost(nil)
		each(jobs, true)
		if err := c.followFrom(ctx, index, each); err != nil {
			return err
		}
	}
}

// listFrom lists the jobs that have not ended, and returns the index from
// which to ask for changes.
func (c *Client) listFrom(ctx context.Context) (jobs []*apiv1.Job, index uint64, err error) {
	var rows briefRows
	err = ListPages(ctx, c, rows.of(&apiv1.ListJobsRequest{}), func(resp *apiv1.ListJobsResponse) {
		if index == 0 || resp.GetIndex() < index {
			index = resp.GetIndex()
		}
		rows.add(resp)
	})
	return rows.sorted(), index, err
}

// followFrom passes changes on until a coordinator does not answer, or no
// longer has the next ones, when it returns nil, or ctx ends.
func (c *Client) followFrom(ctx context.Context, index uint64, each func([]*apiv1.Job, bool)) error {
	w := &watcher{index: max(1, index), brief: true, see: func(jobs []*apiv1.Job) bool {
		if len(jobs) > 0 {
			each(jobs, false)
		}
		return false
	}}
	for k := c.best; ; k++ {
		err := w.stream(ctx, c.conns[k%len(c.conns)])
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err.Code == cluster.CodeOutOfRange:
			return nil
		case errors.Is(err, errQuietStream):
			continue
		case w.progress, time.Since(w.opened) > firstTry:
			if !wait.Sleep(ctx, FirstWait) {
				return context.Cause(ctx)
			}
			continue
		}
		// A stream without events looks like a dead one, so a listing shows who
		// answers.
		if !wait.Sleep(ctx, mostWait/2) {
			return context.Cause(ctx)
		}
		return nil
	}
}
