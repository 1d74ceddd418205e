package client

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

const (
	// fullPage is how many jobs a page of complete jobs has: an environment may
	// be large.
	fullPage = 500
	// sharedPage is fullPage for a coordinator that sends what jobs share only once.
	sharedPage = 2000
)

// JobPages reads jobs page by page, ordered by id: while one page is used,
// the next is on its way. Jobs may share what they have in common: callers
// must not change it.
func JobPages(ctx context.Context, c *Client, req *apiv1.ListJobsRequest) iter.Seq2[[]*apiv1.Job, error] {
	type page struct {
		resp *apiv1.ListJobsResponse
		err  error
	}
	return func(yield func([]*apiv1.Job, error) bool) {
		ctx, stop := context.WithCancel(ctx)
		pages := make(chan page)
		defer func() {
			stop()
			for range pages { // until its last call has ended
			}
		}()
		go func() {
			defer close(pages)
			req.PageSize, req.PageToken = 20000, ""
			if !req.Brief {
				req.PageSize, req.Shared = fullPage, true
			}
			for more := true; more; more = req.PageToken != "" {
				var p page
				p.resp, p.err = PageOfJobs.Ask(ctx, c, Reads, req)
				if len(p.resp.GetCommon()) > 0 {
					req.PageSize = sharedPage
					apiconv.Join(p.resp)
				}
				select {
				case pages <- p:
				case <-ctx.Done():
					return
				}
				if p.err != nil {
					return
				}
				req.PageToken = p.resp.GetNextPageToken()
			}
		}()
		for p := range pages {
			if !yield(p.resp.GetJobs(), p.err) {
				return
			}
		}
	}
}

// ListJobs reads all pages, ordered by id.
func ListJobs(ctx context.Context, c *Client, req *apiv1.ListJobsRequest) ([]*apiv1.Job, error) {
	var jobs []*apiv1.Job
	for page, err := range JobPages(ctx, c, req) {
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, page...)
	}
	return jobs, nil
}

// GetNodes reads nodes sorted by id, all when ids is empty. Unknown ids give
// an error of CodeNotFound along with the nodes that exist.
func GetNodes(ctx context.Context, c *Client, ids []string) ([]*apiv1.Node, error) {
	for _, id := range ids {
		if err := cluster.CheckName("node", id); err != nil {
			return nil, console.Usagef("%w", err)
		}
	}
	resp, err := ListNodes.Ask(ctx, c, Reads, &apiv1.ListNodesRequest{Ids: ids})
	if err != nil {
		return nil, err
	}
	nodes := resp.GetNodes()
	slices.SortFunc(nodes, func(a, b *apiv1.Node) int { return strings.Compare(a.GetId(), b.GetId()) })
	for _, id := range ids {
		if !slices.ContainsFunc(nodes, func(n *apiv1.Node) bool { return n.GetId() == id }) {
			return nodes, cluster.Errorf(cluster.CodeNotFound, "no such node: %s; see: berth node list", id)
		}
	}
	return nodes, nil
}

// Control requests an action on up to 1,000 jobs.
func Control(ctx context.Context, e *console.Env, c *Client, req *apiv1.ControlJobsRequest) ([]*apiv1.ControlResult, error) {
	req.RequestId = e.RequestID()
	resp, err := ControlJobs.Ask(ctx, c, Changes, req)
	return resp.GetResults(), err
}
