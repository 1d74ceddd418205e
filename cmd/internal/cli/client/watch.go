package client

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// streamFor bounds one watch stream. A stream without events looks like a
// stream to a hung process, so each is left after this time and another
// coordinator continues from the same index.
//
// The bound is not a deadline of the call: gRPC tells the server of a
// deadline, and when the server's timer fires first its end of the stream
// looks like a failure.
const streamFor = time.Minute

// WatchJobs calls see with jobs as they are now and on each change, until see
// returns true. It survives coordinators: it continues with the next one from
// the last index, and gives up when none has answered for the client's
// timeout, counted from the first failure.
func (c *Client) WatchJobs(ctx context.Context, ids []uint64, see func([]*apiv1.Job) bool) error {
	return c.watchJobs(ctx, &watcher{ids: ids, see: see})
}

// WatchBrief is WatchJobs for jobs as listings have them, which makes the
// changes of large arrays cheap.
func (c *Client) WatchBrief(ctx context.Context, ids []uint64, see func([]*apiv1.Job) bool) error {
	return c.watchJobs(ctx, &watcher{ids: ids, see: see, brief: true})
}

func (c *Client) watchJobs(ctx context.Context, w *watcher) error {
	if err := c.connect(); err != nil {
		return err
	}
	pause := FirstWait
	for k := c.best; ; k++ {
		cn := c.conns[k%len(c.conns)]
		err := w.stream(ctx, cn)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err.Code == cluster.CodeOutOfRange:
			w.index = 0
			continue
		case !Indefinite(err):
			return err
		case errors.Is(err, errQuietStream), !w.progress && time.Since(w.opened) > firstTry: // longer than it takes to find that nothing listens
			done, lerr := c.look(ctx, w)
			if done || lerr != nil {
				return lerr
			}
			w.failing = time.Time{}
			continue
		case w.progress:
			w.failing, pause = time.Time{}, FirstWait
		case w.failing.IsZero():
			w.failing = time.Now()
		case time.Since(w.failing) > c.Timeout:
			return c.giveUp(Reads, false, []outcome{{cn.socket, err}}, ctx)
		}
		if !wait.Sleep(ctx, pause) {
			return context.Cause(ctx)
		}
		pause = min(2*pause, mostWait)
	}
}

// errQuietStream marks a stream that lived for streamFor.
var errQuietStream = errors.New("no news for the whole life of a stream")

// look asks for the jobs with an ordinary call after a stream that was quiet
// for long, which shows whether any coordinator is alive.
func (c *Client) look(ctx context.Context, w *watcher) (done bool, err error) {
	jobs, err := ListJobs(ctx, c, &apiv1.ListJobsRequest{Ids: w.ids, Finished: true, Brief: true})
	if err != nil {
		return false, err
	}
	return w.see(jobs), nil
}

// watcher is the state of a watch.
type watcher struct {
	ids      []uint64
	brief    bool
	see      func([]*apiv1.Job) bool
	index    uint64
	opened   time.Time // when the last stream was opened
	progress bool      // whether the last stream was useful
	// failing is when the current run of failures began, zero if there is none.
	failing time.Time
}

// stream reads one stream to its end; nil when see has seen enough.
func (w *watcher) stream(ctx context.Context, cn *conn) *cluster.Error {
	w.opened, w.progress = time.Now(), false
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(streamFor, func() { cancel(errQuietStream) })
	defer quiet.Stop()
	s, err := follow[*apiv1.WatchJobsResponse](ctx, cn.wire, "JobService/WatchJobs", &apiv1.WatchJobsRequest{Ids: w.ids, FromIndex: w.index, Brief: w.brief})
	for err == nil {
		var m *apiv1.WatchJobsResponse
		if m, err = s.Recv(); err == nil {
			w.index, w.progress = max(w.index, m.GetIndex()), true
			if w.see(m.GetJobs()) {
				return nil
			}
		}
	}
	if errors.Is(err, io.EOF) { // an orderly end, for example when a server stops
		return &cluster.Error{Code: cluster.CodeUnavailable, Msg: "the coordinator ended the stream"}
	}
	if errors.Is(context.Cause(ctx), errQuietStream) {
		return &cluster.Error{Code: cluster.CodeUnavailable, Msg: "no change", Err: errQuietStream}
	}
	return fromStatus(err)
}
