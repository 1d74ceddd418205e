package coordinator_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// BenchmarkFsync is the disk's own rate, to read the others beside.
func BenchmarkFsync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "f"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	buf := make([]byte, 4096)
	for b.Loop() {
		if _, err := f.Write(buf); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSubmit submits one job a call, over gRPC, to three coordinators
// that share this process and fsync to disk.
func BenchmarkSubmit(b *testing.B) {
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			c := coordtest.Start(b, coordtest.Options{N: 3, MaxQueued: 10_000_000})
			l := c.Leader()
			var conns []*grpc.ClientConn
			for range min(clients, 8) {
				conns = append(conns, c.Dial(l, "gate", "g"))
			}
			var mu sync.Mutex
			var took []time.Duration
			work := make(chan struct{})
			var wg sync.WaitGroup
			for i := range clients {
				wg.Go(func() {
					jobs := apirpc.NewJobServiceClient(conns[i%len(conns)])
					ctx := coordtest.As(context.Background(), alice)
					var mine []time.Duration
					for range work {
						began := time.Now()
						if _, err := jobs.SubmitJobs(ctx, &apiv1.SubmitJobsRequest{RequestId: rand.Text(), Jobs: []*apiv1.JobSpec{spec(0)}}); err != nil {
							b.Errorf("submit: %v", err)
						}
						mine = append(mine, time.Since(began))
					}
					mu.Lock()
					took = append(took, mine...)
					mu.Unlock()
				})
			}
			n := 0
			began := time.Now()
			for b.Loop() {
				work <- struct{}{}
				n++
			}
			close(work)
			wg.Wait()
			b.ReportMetric(float64(n)/time.Since(began).Seconds(), "submits/s")
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// BenchmarkPlace is 8,000 one-GPU tasks on 1,000 nodes with 8 GPUs each: the
// time from the submit until every start is committed through Raft.
func BenchmarkPlace(b *testing.B) {
	const nodes, gpus = 1000, 8
	for b.Loop() {
		b.StopTimer()
		c := coordtest.Start(b, coordtest.Options{N: 3, Lease: time.Hour})
		l := c.Leader()
		for n := range nodes {
			var cards []*nodev1.GPU
			for g := range gpus {
				cards = append(cards, coordtest.T4(fmt.Sprintf("GPU-%d-%d", n, g)))
			}
			c.Agent(l, fmt.Sprintf("n%d", n), "b", cards...).Silence()
		}
		jobs := apirpc.NewJobServiceClient(c.Dial(l, "gate", "g"))
		status := apirpc.NewClusterServiceClient(c.Dial(l, "gate", "g"))
		ctx := coordtest.As(context.Background(), alice)
		specs := make([]*apiv1.JobSpec, 1000)
		for i := range specs {
			specs[i] = spec(15000)
			specs[i].Exclusive, specs[i].GpuMemMib, specs[i].GpuUtilMilli = true, 0, 0
		}
		b.StartTimer()
		for range nodes * gpus / len(specs) {
			if _, err := jobs.SubmitJobs(ctx, &apiv1.SubmitJobsRequest{RequestId: rand.Text(), Jobs: specs}); err != nil {
				b.Fatal(err)
			}
		}
		for {
			st, err := status.GetStatus(ctx, &apiv1.GetStatusRequest{})
			if err != nil {
				b.Fatal(err)
			}
			if len(st.Jobs) == 1 && st.Jobs[0].State == "STARTING" && st.Jobs[0].Count == nodes*gpus {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}
