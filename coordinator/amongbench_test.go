package coordinator_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// BenchmarkSubmitAmong submits held jobs to a leader with few nodes of eight GPUs, and
// with many.
func BenchmarkSubmitAmong(b *testing.B) {
	for _, nodes := range []int{100, 3000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			c := coordtest.Start(b, coordtest.Options{N: 1, Lease: time.Hour, MaxQueued: 10_000_000})
			for n := range nodes {
				var cards []*nodev1.GPU
				for g := range 8 {
					cards = append(cards, coordtest.T4(fmt.Sprintf("GPU-%d-%d", n, g)))
				}
				c.Agent(0, fmt.Sprintf("n%d", n), "b", cards...).Silence()
			}
			jobs := apirpc.NewJobServiceClient(c.Dial(0, "gate", "g"))
			ctx := coordtest.As(context.Background(), alice)
			s := spec(0)
			s.Hold = true
			for b.Loop() {
				if _, err := jobs.SubmitJobs(ctx, &apiv1.SubmitJobsRequest{RequestId: rand.Text(), Jobs: []*apiv1.JobSpec{s}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
