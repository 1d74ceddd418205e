package jobs

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/api/calls"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

const (
	watchPage   = 500
	maxWatchIDs = 1000
	// watchMessage is how many jobs go into one message: a slow reader holds one,
	// and there may be many such.
	watchMessage = 50
)

// WatchJobs sends the present state of the requested jobs and then each change. Any
// coordinator answers, from what it has applied: the index in each response is
// Raft's, so a client may continue at another one.
func (s *jobServer) WatchJobs(req *apiv1.WatchJobsRequest, stream grpc.ServerStreamingServer[apiv1.WatchJobsResponse]) error {
	ctx := stream.Context()
	if len(req.Ids) > maxWatchIDs {
		return cluster.Errorf(cluster.CodeInvalid, "ids: %d, at most %d can be watched at once; watch all instead", len(req.Ids), maxWatchIDs)
	}
	w := &watch{c: s.c, who: authorize.CallerOf(ctx), stream: stream, ids: map[cluster.JobID]struct{}{}, detail: full}
	if req.Brief {
		w.detail = brief
	}
	for _, id := range req.Ids {
		w.ids[cluster.JobID(id)] = struct{}{}
	}
	after := req.FromIndex
	if index := s.c.fsm.Index(); after > index {
		// The other coordinator was ahead of this one; catch up first.
		if err := s.c.catchUp(ctx, after); err != nil {
			return err
		}
	}
	if after == 0 {
		var err error
		if after, err = w.present(); err != nil {
			return err
		}
	}
	for {
		if err := s.c.fsm.WaitChange(ctx, after); err != nil {
			return err
		}
		cs, upTo, ok := s.c.fsm.Changes(after)
		if !ok {
			return cluster.Errorf(cluster.CodeOutOfRange, "changes after index %d are no longer held; watch again from index 0", after)
		}
		if err := w.changes(cs, after, upTo); err != nil {
			return err
		}
		after = upTo
	}
}

// catchUp waits until index is applied here. No coordinator was ever at an index
// that does not arrive.
func (c *Jobs) catchUp(ctx context.Context, index uint64) error {
	wctx, cancel := context.WithTimeout(ctx, c.cfg.IndexWait)
	defer cancel()
	err := c.fsm.WaitChange(wctx, index-1)
	if err != nil && ctx.Err() == nil {
		return cluster.Errorf(cluster.CodeOutOfRange, "from_index %d has not been reached: index %d is the last one known here; watch again from index 0", index, c.fsm.Index())
	}
	return err
}

type watch struct {
	c      *Jobs
	who    authorize.Caller
	stream grpc.ServerStreamingServer[apiv1.WatchJobsResponse]
	ids    map[cluster.JobID]struct{} // empty means all
	detail detail
}

func (w *watch) wanted(j *cluster.Job) bool { return len(w.ids) == 0 || among(w.ids, j) }

// present sends the current jobs, in pages, and returns the index from which
// changes continue. A change during the paging is sent again later.
func (w *watch) present() (uint64, error) {
	index := w.c.fsm.Index()
	q := fsm.Query{Limit: watchPage}
	if len(w.ids) > 0 {
		q.Keep = func(j *cluster.Job) bool { return w.wanted(j) }
	}
	for {
		jobs, _ := w.c.fsm.Jobs(q)
		if err := w.send(jobs, index, index, true); err != nil {
			return 0, err
		}
		if len(jobs) < q.Limit {
			return index, nil
		}
		q.After = jobs[len(jobs)-1].ID
	}
}

func (w *watch) changes(cs []fsm.Change, after, upTo uint64) error {
	ids := make([]cluster.JobID, 0, len(cs))
	for _, c := range cs {
		if c.Job != 0 {
			ids = append(ids, c.Job)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	jobs := make([]*cluster.Job, 0, len(ids))
	for _, id := range ids {
		if j, ok := w.c.fsm.Entry(id); ok && w.wanted(j) {
			jobs = append(jobs, j)
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	return w.send(jobs, after, upTo, false)
}

// send sends jobs; the watcher has all of them once it knows of index, and until
// then what came after before.
func (w *watch) send(jobs []*cluster.Job, before, index uint64, snapshot bool) error {
	for done := false; !done; {
		n := min(len(jobs), watchMessage)
		resp := &apiv1.WatchJobsResponse{Index: before, Snapshot: snapshot}
		if done = n == len(jobs); done {
			resp.Index = index
		}
		data, err := w.encode(resp, jobs[:n])
		if err != nil {
			return err
		}
		if err := w.stream.SendMsg(data); err != nil {
			return err
		}
		jobs = jobs[n:]
	}
	return nil
}

// encode encodes a message of jobs, in a turn, once the user may have one.
func (w *watch) encode(resp *apiv1.WatchJobsResponse, jobs []*cluster.Job) (*calls.Encoded, error) {
	ctx := w.stream.Context()
	for {
		rest := calls.Rest(ctx)
		if rest == 0 {
			break
		}
		if !wait.Sleep(ctx, min(rest, time.Second)) {
			return nil, ctx.Err()
		}
	}
	turn, err := w.c.calls.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer turn.End()
	for _, j := range jobs {
		resp.Jobs = append(resp.Jobs, w.c.view(j, w.who, w.detail))
	}
	return calls.Encode(resp)
}
