package coordinator_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// BenchmarkSubmitLarge submits jobs whose environments have 800 KiB, and cancels
// them.
func BenchmarkSubmitLarge(b *testing.B) {
	c := coordtest.Start(b, coordtest.Options{N: 3})
	cc := c.Dial(c.Leader(), "gate", "g")
	s := apirpc.NewJobServiceClient(cc)
	ctx := coordtest.As(b.Context(), alice)
	i := 0
	for b.Loop() {
		i++
		spec := spec(2000)
		spec.Hold = true
		for k := range 200 {
			spec.Env = append(spec.Env, fmt.Appendf(nil, "A%d=%d%s", k, i, strings.Repeat("x", 4000)))
		}
		r, err := s.SubmitJobs(ctx, &apiv1.SubmitJobsRequest{RequestId: rand.Text(), Jobs: []*apiv1.JobSpec{spec}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.CancelJobs(ctx, &apiv1.CancelJobsRequest{Ids: r.Ids}); err != nil {
			b.Fatal(err)
		}
	}
}
