package coordinator_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/berth-scheduler/berth/coordinator"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/coordinator/limit"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// few are limits that a test reaches.
func few() *limit.Config {
	l := limit.Unlimited()
	l.Streams, l.Arriving = 3, 4
	return &l
}

// TestAFloodIsTurnedAwayUnread: of one user's requests that begin and do not go
// on, as many are kept as may arrive at once; the rest are refused by their
// headers, and another user is answered meanwhile.
func TestAFloodIsTurnedAwayUnread(t *testing.T) {
	c := coordtest.Start(t, coordtest.Options{N: 1, Limits: few()})
	cc := c.Dial(0, "gate", "g")
	ctx, cancel := context.WithCancel(coordtest.As(t.Context(), alice))
	defer cancel()
	desc := grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	refusals := make(chan error)
	for range 40 {
		s, err := cc.NewStream(ctx, &desc, apirpc.JobService_SubmitJobs_FullMethodName) // and send nothing
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			err := s.RecvMsg(&apiv1.SubmitJobsResponse{})
			select {
			case refusals <- err:
			case <-ctx.Done():
			}
		}()
	}
	for range 36 {
		err := <-refusals
		if _, again := apiconv.RetryAfter(err); status.Code(err) != codes.ResourceExhausted || !again {
			t.Fatalf("got %v, want ResourceExhausted with a time to ask again", err)
		}
	}
	if _, err := apirpc.NewJobServiceClient(cc).SubmitJobs(coordtest.As(t.Context(), bob),
		&apiv1.SubmitJobsRequest{RequestId: rand.Text(), Jobs: []*apiv1.JobSpec{spec(0)}}); err != nil {
		t.Errorf("another user: %v", err)
	}
	select {
	case err := <-refusals:
		t.Errorf("a 37th was ended too: %v", err)
	default:
	}
}

// TestCallsOfNobodyAreRefusedUnread: who has a certificate and does not say for
// whom a call is, has it refused before a message is read.
func TestCallsOfNobodyAreRefusedUnread(t *testing.T) {
	c := coordtest.Start(t, coordtest.Options{N: 1})
	desc := grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	s, err := c.Dial(0, "gate", "g").NewStream(t.Context(), &desc, apirpc.JobService_SubmitJobs_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(&apiv1.SubmitJobsResponse{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("got %v, want Unauthenticated", err)
	}
}

// TestWatchesAreCounted: and room is made by one that ends.
func TestWatchesAreCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := coordtest.Start(t, coordtest.Options{N: 1, Limits: few(), Registry: reg})
	jobs := apirpc.NewJobServiceClient(c.Dial(0, "gate", "g"))
	watch := func() (func(), error) {
		ctx, cancel := context.WithCancel(coordtest.As(t.Context(), alice))
		t.Cleanup(cancel)
		s, err := jobs.WatchJobs(ctx, &apiv1.WatchJobsRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		return cancel, err
	}
	var end func()
	for range 3 {
		var err error
		if end, err = watch(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := watch(); status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("a fourth: %v, want ResourceExhausted", err)
	}
	end()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if _, err := watch(); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("after one ended: %v", err)
		}
	}
	got, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range got {
		if f.GetName() == "berth_api_refused_total" {
			for _, m := range f.Metric {
				if m.GetLabel()[0].GetValue() == "streams" && m.GetCounter().GetValue() >= 1 {
					return
				}
			}
		}
	}
	t.Error("berth_api_refused_total{limit=\"streams\"} counts nothing")
}

// TestWhatReadsMuchIsCharged: who has lists, reports, predictions or watches made
// in a loop is told to wait, whoever leads; what changes something is let in.
func TestWhatReadsMuchIsCharged(t *testing.T) {
	l := limit.Unlimited()
	l.WorkMilli = 1
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true, Limits: &l})
	follower := (c.Leader() + 1) % 3
	cc := c.Dial(follower, "gate", "g")
	jobs, history := apirpc.NewJobServiceClient(cc), apirpc.NewHistoryServiceClient(cc)
	submit := func(ctx context.Context) (uint64, error) {
		r, err := jobs.SubmitJobs(ctx, &apiv1.SubmitJobsRequest{RequestId: rand.Text(), Jobs: []*apiv1.JobSpec{spec(0)}})
		if err != nil {
			return 0, err
		}
		return r.Ids[0], nil
	}
	uid := uint32(4000)
	for name, call := range map[string]func(ctx context.Context, id uint64) error{
		"list": func(ctx context.Context, id uint64) error {
			r, err := jobs.ListJobs(ctx, &apiv1.ListJobsRequest{})
			if err == nil && len(r.Jobs) == 0 {
				t.Error("nothing is listed")
			}
			return err
		},
		"predict": func(ctx context.Context, id uint64) error {
			_, err := jobs.Predict(ctx, &apiv1.PredictRequest{Spec: spec(1000)})
			return err
		},
		"why": func(ctx context.Context, id uint64) error {
			_, err := jobs.ExplainJob(ctx, &apiv1.ExplainJobRequest{Id: id})
			return err
		},
		"forecasts": func(ctx context.Context, id uint64) error {
			_, err := jobs.ListForecasts(ctx, &apiv1.ListForecastsRequest{Ids: []uint64{id}})
			return err
		},
		"report": func(ctx context.Context, id uint64) error {
			_, err := history.GetReport(ctx, &apiv1.GetReportRequest{})
			return err
		},
		"history": func(ctx context.Context, id uint64) error {
			s, err := history.ListHistory(ctx, &apiv1.ListHistoryRequest{})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
		"watch": func(ctx context.Context, id uint64) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			s, err := jobs.WatchJobs(ctx, &apiv1.WatchJobsRequest{})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
	} {
		uid++
		ctx := coordtest.As(t.Context(), uid)
		id, err := submit(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; ; n++ {
			err := call(ctx, id)
			if _, again := apiconv.RetryAfter(err); err != nil && (!again || !strings.Contains(err.Error(), "read_ms_per_second")) {
				t.Errorf("%s: %v, want a refusal that names the limit", name, err)
			}
			if err != nil {
				break
			}
			if n > 100_000 {
				t.Fatalf("%s: never refused", name)
			}
		}
		if _, err := submit(ctx); err != nil {
			t.Errorf("%s: a submit afterwards: %v", name, err)
		}
	}
}

// TestSilentStreamsEnd: of every call that begins and sends nothing, by whoever it
// is, nothing is left after a while.
func TestSilentStreamsEnd(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Waits: coordinator.Waits{First: 100 * time.Millisecond}})
	conns := map[string]*grpc.ClientConn{"api": c.Dial(0, "gate", "g"), "node": c.Dial(0, "agent", "n1"), "peer": c.Dial(0, "coordinator", "c2")}
	for call := range everyCall(t) {
		_, name, _ := strings.Cut(call, ".")
		kind, _, _ := strings.Cut(name, ".")
		ctx, cancel := context.WithTimeout(as(t, alice), 2*time.Minute)
		s, err := conns[kind].NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, call)
		if err == nil {
			err = s.RecvMsg(&emptypb.Empty{})
		}
		if err == nil || ctx.Err() != nil {
			t.Errorf("%s: %v", call, err)
		}
		cancel()
	}
}
