package client_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// hasty is a coordinator whose timer for a call's deadline fires before the
// caller's, as on a busy machine.
type hasty struct{ *clitest.Fake }

// WatchJobs tells of the last job what is new since the index, and ends as gRPC's
// server ends a stream at its deadline.
func (h hasty) WatchJobs(r *apiv1.WatchJobsRequest, s grpc.ServerStreamingServer[apiv1.WatchJobsResponse]) error {
	ctx := s.Context()
	if at, ok := ctx.Deadline(); ok {
		early, cancel := context.WithDeadline(ctx, at.Add(-time.Millisecond))
		defer cancel()
		ctx = early
	}
	seen := ""
	if r.GetFromIndex() > 0 {
		seen = "PENDING"
	}
	for ctx.Err() == nil {
		h.Mu.Lock()
		j := proto.CloneOf(h.Jobs[len(h.Jobs)-1])
		h.Mu.Unlock()
		if j.GetState() != seen {
			seen = j.GetState()
			if err := s.Send(&apiv1.WatchJobsResponse{Jobs: []*apiv1.Job{j}, Index: r.GetFromIndex() + 1}); err != nil {
				return err
			}
		}
		wait.Sleep(ctx, time.Second)
	}
	return status.Error(codes.Canceled, "stream terminated by RST_STREAM with error code: CANCEL")
}

func serveHasty(w *clitest.World, socket string, f *clitest.Fake) {
	w.ServeGRPC(socket, func(s *grpc.Server) {
		apirpc.RegisterJobServiceServer(s, hasty{f})
		apirpc.RegisterClusterServiceServer(s, f)
		apirpc.RegisterModelServiceServer(s, f)
	})
}

// TestLongQuietWait: a job that waits for long is waited for, and not given up,
// though each stream that tells of it ends as if its coordinator had failed.
func TestLongQuietWait(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		code int
	}{
		"srun":          {[]string{"srun", "-n1", "true"}, 1},
		"salloc":        {[]string{"salloc", "true"}, 1},
		"sbatch --wait": {[]string{"sbatch", "--wait", "--wrap", "true"}, 3},
		"berth wait":    {[]string{"wait", "101"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, f := clitest.NewWorld(t), clitest.NewFake()
				f.Jobs = append(f.Jobs, &apiv1.Job{Id: 101, State: "PENDING", Name: "waits", User: "ann", Spec: &apiv1.JobSpec{}})
				serveHasty(w, "/a", f)
				start := time.Now()
				var wg sync.WaitGroup
				wg.Go(func() {
					wait.Sleep(t.Context(), 30*time.Minute)
					three := int32(3)
					f.Change(func() { f.Jobs[len(f.Jobs)-1] = &apiv1.Job{Id: 101, State: "FAILED", ExitCode: &three, User: "ann"} })
				})
				if code, d := w.Run(tc.args...), time.Since(start); code != tc.code || d < 30*time.Minute {
					t.Errorf("exit code %d after %s, want %d after 30 minutes: %s", code, d, tc.code, w.Errs.String())
				}
				if len(f.Cancelled) > 0 {
					t.Error("the job is cancelled")
				}
				wg.Wait()
			})
		})
	}
}

// TestWaitCountsFailuresOnly: how long nothing happened before a coordinator failed
// is not held against it, and one that fails for the whole of the time-out is given up.
func TestWaitCountsFailuresOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		w.Serve("/a", f)
		var mu sync.Mutex
		broken := false
		f.Hook = func(context.Context, string) error {
			mu.Lock()
			defer mu.Unlock()
			if broken {
				return cluster.Errorf(cluster.CodeUnavailable, "no leader now")
			}
			return nil
		}
		set := func(v bool) {
			mu.Lock()
			broken = v
			mu.Unlock()
			f.Change(func() {}) // streams notice
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 3 {
				wait.Sleep(t.Context(), 59*time.Second) // within the life of one stream
				set(true)
				wait.Sleep(t.Context(), 50*time.Second) // less than the time-out
				set(false)
			}
			wait.Sleep(t.Context(), time.Minute)
			f.Change(func() { f.Jobs[2] = &apiv1.Job{Id: 14, State: "COMPLETED"} })
		})
		if code := w.Run("wait", "14"); code != 0 {
			t.Errorf("exit code %d: %s", code, w.Errs.String())
		}
		wg.Wait()
		wg.Go(func() {
			wait.Sleep(t.Context(), 10*time.Minute)
			set(true)
		})
		start := time.Now()
		code := w.Run("wait", "12")
		if d := time.Since(start); code != console.ExitUnavailable || d < 11*time.Minute || d > 12*time.Minute+5*time.Second {
			t.Errorf("exit code %d after %s, want 4 a minute or two after the tenth", code, d)
		}
		wg.Wait()
	})
}
