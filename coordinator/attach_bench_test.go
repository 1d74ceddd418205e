package coordinator_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

const frameSize = apiconv.FrameData

func logFrame(offset int64) *nodev1.RelayRequest {
	return &nodev1.RelayRequest{Kind: &nodev1.RelayRequest_Frame{Frame: &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Log{
		Log: &apiv1.LogChunk{Offset: offset, Data: make([]byte, frameSize)},
	}}}}
}

// flood sends as much as the stream takes, and counts it, until ctx ends.
func flood(ctx context.Context, end noderpc.RelayService_RelayClient, sent *atomic.Int64) {
	for ctx.Err() == nil {
		if end.Send(logFrame(sent.Load())) != nil {
			return
		}
		sent.Add(frameSize)
	}
}

// still waits until a number stands still.
func still(tb testing.TB, n *atomic.Int64) int64 {
	tb.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for last, since := int64(-1), time.Now(); ; time.Sleep(10 * time.Millisecond) {
		switch now := n.Load(); {
		case now != last:
			last, since = now, time.Now()
		case time.Since(since) > time.Second && now > 0:
			return now
		}
		if time.Now().After(deadline) {
			tb.Fatalf("the agent goes on sending: %d bytes so far", n.Load())
		}
	}
}

// TestAttachSlowUser has a user who reads nothing: the agent has to wait after
// a bounded number of bytes, whichever way the stream takes, and when the user
// reads again every byte is there.
func TestAttachSlowUser(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true})
	lead := c.Leader()
	a := c.Agent(lead, "n1", "b1", coordtest.T4("GPU-1"))
	id, _ := runningJob(t, c.Dial(lead, "gate", "g"), a, 1)
	for name, over := range map[string]int{"the leader": lead, "another": (lead + 1) % 3} {
		t.Run("over "+name, func(t *testing.T) {
			user := attach(t, c.Dial(over, "gate", "g"), alice, logsOf(id))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			end := a.Answer(ctx, visited(t, a).Id)
			var sent atomic.Int64
			go flood(ctx, end, &sent)
			held := still(t, &sent)
			if held > 4<<20 {
				t.Errorf("%d bytes are on the way to a user who reads nothing", held)
			}
			for at := int64(0); at < 16<<20; at += frameSize {
				m, err := user.Recv()
				if err != nil || m.GetLog().GetOffset() != at || len(m.GetLog().GetData()) != frameSize {
					t.Fatalf("at %d: got %d bytes at %d, %v", at, len(m.GetLog().GetData()), m.GetLog().GetOffset(), err)
				}
			}
		})
	}
}

// pairedFor is a benchmark's stream with both its ends.
func pairedFor(b *testing.B, cc *grpc.ClientConn, a *coordtest.Agent, job uint64, uid uint32) (userEnd, noderpc.RelayService_RelayClient) {
	b.Helper()
	user, err := apirpc.NewAttachServiceClient(cc).Attach(coordtest.As(b.Context(), uid))
	if err == nil {
		err = user.Send(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Open{Open: logsOf(job)}})
	}
	if err != nil {
		b.Fatal(err)
	}
	return user, a.Answer(b.Context(), (<-a.Visits).Id)
}

// benchJob is a cluster with a job that runs.
func benchJob(b *testing.B) (*coordtest.Cluster, *grpc.ClientConn, *coordtest.Agent, uint64) {
	b.Helper()
	c := coordtest.Start(b, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	resp, err := apirpc.NewJobServiceClient(cc).SubmitJobs(coordtest.As(b.Context(), alice), &apiv1.SubmitJobsRequest{
		RequestId: reqID(1), Jobs: []*apiv1.JobSpec{spec(2000)},
	})
	if err != nil {
		b.Fatal(err)
	}
	a.Report(<-a.Assigned, running, 0)
	return c, cc, a, resp.Ids[0]
}

// BenchmarkAttachThroughput carries whole frames from an agent to a user, over
// loopback without TLS.
func BenchmarkAttachThroughput(b *testing.B) {
	_, cc, a, job := benchJob(b)
	user, end := pairedFor(b, cc, a, job, alice)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var sent atomic.Int64
	go flood(ctx, end, &sent)
	b.SetBytes(frameSize)
	for b.Loop() {
		if _, err := user.Recv(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAttachEcho carries a key from the user to the agent and back.
func BenchmarkAttachEcho(b *testing.B) {
	_, cc, a, job := benchJob(b)
	user, end := pairedFor(b, cc, a, job, alice)
	go func() {
		for {
			m, err := end.Recv()
			if err != nil || end.Send(frame(string(m.GetFrame().GetStdin()))) != nil {
				return
			}
		}
	}()
	for b.Loop() {
		if err := user.Send(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Stdin{Stdin: []byte("x")}}); err != nil {
			b.Fatal(err)
		}
		if _, err := user.Recv(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAttachStalled is the memory of this process, which is the
// coordinator and both ends of each stream, with 64 streams whose users read
// nothing while their agents send what they can.
func BenchmarkAttachStalled(b *testing.B) {
	const streams = 64
	_, cc, a, job := benchJob(b)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var sent atomic.Int64
	for i := range streams {
		uid := uint32(alice)
		if i >= streams/2 {
			uid = admin // a user may have 32
		}
		_, end := pairedFor(b, cc, a, job, uid)
		go flood(ctx, end, &sent)
	}
	held := still(b, &sent)
	b.ReportMetric(float64(heap()-before)/streams/1024, "heap-KiB/stream")
	b.ReportMetric(float64(held)/streams/1024, "on-way-KiB/stream")
}
