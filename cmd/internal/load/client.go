package load

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/berth-scheduler/berth/cluster/wait"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// callLimit bounds one call.
const callLimit = 2 * time.Minute

func dialSocket(path string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// untilTold is the length of a job that runs until it is told to stop.
const untilTold = -1

// spec returns a job as clients submit it, with the environment of a shell.
func spec(run time.Duration) *apiv1.JobSpec {
	s := &apiv1.JobSpec{
		Name: "load", Command: [][]byte{[]byte("load")}, Dir: []byte("/"), Stdout: []byte("/dev/null"), Stderr: []byte("/dev/null"),
		Gpus: 1, GpuMemMib: 20_000, GpuUtilMilli: utilMilli, CpuMilli: 1000, MemMib: 1024, NoResize: true,
	}
	if run != untilTold {
		s.Command = append(s.Command, []byte(run.String()))
	}
	for i := range 24 {
		s.Env = append(s.Env, fmt.Appendf(nil, "VARIABLE_%d=/a/path/such/as/shells/have/%d", i, i))
	}
	return s
}

// stream submits jobs from several clients at once.
type stream struct {
	socket         string
	spec           *apiv1.JobSpec
	jobs           int
	clients, batch int
	rate           float64 // jobs a second, 0 for as fast as it goes
	sent           []atomic.Int64
	mu             sync.Mutex
	calls          []time.Duration // sorted, once all are done
	ids            []uint64
	next           atomic.Int64
	began          time.Time
	took           time.Duration
}

// run returns when all jobs are acknowledged.
func (s *stream) run(ctx context.Context) error {
	s.began = time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for range min(s.clients, s.jobs) {
		g.Go(func() error { return s.client(ctx) })
	}
	err := g.Wait()
	s.took = time.Since(s.began)
	slices.Sort(s.calls)
	return err
}

func (s *stream) client(ctx context.Context) error {
	conn, err := dialSocket(s.socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	jobs := apirpc.NewJobServiceClient(conn)
	var calls []time.Duration
	var ids []uint64
	for {
		end := s.next.Add(int64(s.batch))
		n := min(s.batch, s.jobs-int(end)+s.batch)
		if n <= 0 {
			break
		}
		if s.rate > 0 {
			due := s.began.Add(time.Duration(float64(end-int64(s.batch)) / s.rate * float64(time.Second)))
			if !wait.Sleep(ctx, time.Until(due)) {
				return ctx.Err()
			}
		}
		at := time.Now()
		req := &apiv1.SubmitJobsRequest{RequestId: rand.Text(), Jobs: slices.Repeat([]*apiv1.JobSpec{s.spec}, n)}
		cctx, cancel := context.WithTimeout(ctx, callLimit)
		resp, err := jobs.SubmitJobs(cctx, req)
		cancel()
		if err != nil {
			return fmt.Errorf("submit: %w", err)
		}
		calls, ids = append(calls, time.Since(at)), append(ids, resp.Ids...)
		for _, id := range resp.Ids {
			if id < uint64(len(s.sent)) {
				s.sent[id].Store(at.UnixMicro())
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.ids = append(s.calls, calls...), append(s.ids, ids...)
	return nil
}

// part returns an element of sorted durations, in milliseconds: 0.5 is the median.
func part(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Microseconds()) / 1000
}

// watch has clients that watch all jobs while others change; it returns how many
// changes were made and how many jobs all watchers were sent.
func watch(ctx context.Context, socket string, watchers int, ids []uint64, rate int, during func() error) (made, seen int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var received atomic.Int64
	var ready sync.WaitGroup
	g, gctx := errgroup.WithContext(ctx)
	for range watchers {
		ready.Add(1)
		g.Go(func() error { return watchOne(gctx, socket, &received, sync.OnceFunc(ready.Done)) })
	}
	ready.Wait()
	if gctx.Err() != nil {
		return 0, 0, g.Wait()
	}
	var changes atomic.Int64
	g.Go(func() error { return change(gctx, socket, ids, rate, &changes) })
	if err := during(); err != nil {
		return 0, 0, err
	}
	made, seen = changes.Load(), received.Load()
	cancel()
	return made, seen, g.Wait()
}

// watchOne watches from now on until ctx ends.
func watchOne(ctx context.Context, socket string, received *atomic.Int64, ready func()) error {
	defer ready()
	conn, err := dialSocket(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	st, err := apirpc.NewClusterServiceClient(conn).GetStatus(ctx, &apiv1.GetStatusRequest{Brief: true})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	w, err := apirpc.NewJobServiceClient(conn).WatchJobs(ctx, &apiv1.WatchJobsRequest{FromIndex: st.Index, Brief: true})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	ready()
	for {
		m, err := w.Recv()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("watch: %w", err)
		}
		received.Add(int64(len(m.Jobs)))
	}
}

// change holds jobs and releases them, in turns, until ctx ends.
func change(ctx context.Context, socket string, ids []uint64, rate int, made *atomic.Int64) error {
	conn, err := dialSocket(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	jobs := apirpc.NewJobServiceClient(conn)
	began := time.Now()
	var next atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	for range changers {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if !wait.Sleep(gctx, time.Until(began.Add(time.Duration(i)*time.Second/time.Duration(rate)))) {
					return nil
				}
				what := apiv1.JobAction_JOB_ACTION_HOLD
				if i/len(ids)%2 == 0 { // they began held
					what = apiv1.JobAction_JOB_ACTION_RELEASE
				}
				_, err := jobs.ControlJobs(gctx, &apiv1.ControlJobsRequest{RequestId: rand.Text(), Ids: ids[i%len(ids) : i%len(ids)+1], Action: what})
				if gctx.Err() != nil {
					return nil
				}
				if err != nil {
					return fmt.Errorf("change a job: %w", err)
				}
				made.Add(1)
			}
		})
	}
	return g.Wait()
}

// changers is how many clients change jobs at once.
const changers = 16
