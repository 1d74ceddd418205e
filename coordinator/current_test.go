package coordinator_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// answerOf returns all that one coordinator says of jobs, and of how current it
// is.
func answerOf(t *testing.T, c *coordtest.Cluster, at int, req *apiv1.ListHistoryRequest) (jobs []*apiv1.Job, last *apiv1.ListHistoryResponse) {
	t.Helper()
	ctx, cancel := context.WithTimeout(coordtest.As(t.Context(), 1000), 2*time.Minute)
	defer cancel()
	stream, err := apirpc.NewHistoryServiceClient(c.Dial(at, "gate", "g")).ListHistory(ctx, req)
	for err == nil {
		var r *apiv1.ListHistoryResponse
		if r, err = stream.Recv(); err == nil {
			jobs, last = append(jobs, r.Jobs...), r
		}
	}
	if last == nil {
		t.Fatalf("history of %d: %v", at, err)
	}
	return jobs, last
}

// TestHistoryIsCurrentEverywhere: who was told that a job is cancelled finds it
// cancelled at every coordinator, at once.
func TestHistoryIsCurrentEverywhere(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, KeepFinished: 5, CatchUp: time.Minute})
	lead := c.Leader()
	ids := []uint64{}
	for round := range 30 {
		ids = append(ids, cancelled(t, c, lead, 1)...)
		at := (lead + round) % 3
		jobs, last := answerOf(t, c, at, &apiv1.ListHistoryRequest{Unfinished: true, OldestFirst: true})
		if last.Behind || len(jobs) != len(ids) || jobs[len(jobs)-1].State != "CANCELLED" {
			t.Fatalf("round %d: coordinator %d of leader %d has %d jobs of %d (behind: %t)", round, at, lead, len(jobs), len(ids), last.Behind)
		}
		ctx, cancel := context.WithTimeout(coordtest.As(t.Context(), 1000), 2*time.Minute)
		r, err := apirpc.NewHistoryServiceClient(c.Dial(at, "gate", "g")).GetReport(ctx, &apiv1.GetReportRequest{})
		cancel()
		if err != nil || r.Behind || r.Total.GetCancelled() != uint64(len(ids)) {
			t.Fatalf("round %d: report of %d: %v %v", round, at, r, err)
		}
	}

	// Across an election: whoever leads now says how far everybody must be.
	c.Kill(lead)
	at := (lead + 1) % 3
	jobs, last := answerOf(t, c, at, &apiv1.ListHistoryRequest{OldestFirst: true})
	if last.Behind || len(jobs) != len(ids) {
		t.Fatalf("after the leader was killed: %d jobs of %d, %v", len(jobs), len(ids), last.Behind)
	}
}

// TestHistorySaysThatItIsBehind: a coordinator that cannot hear the others
// answers with what it has, and says that it may lack something; once it hears
// them it does not.
func TestHistorySaysThatItIsBehind(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true, CatchUp: 500 * time.Millisecond})
	lead := c.Leader()
	follower := (lead + 1) % 3
	ids := cancelled(t, c, lead, 2)
	eventuallyAll(t, c, follower, ids)
	c.Cut(follower)
	more := cancelled(t, c, lead, 2)
	jobs, last := answerOf(t, c, follower, &apiv1.ListHistoryRequest{OldestFirst: true})
	if !last.Behind || fmt.Sprint(idsOf(jobs)) != fmt.Sprint(ids) {
		t.Fatalf("cut off: jobs %v, want %v; behind: %t", idsOf(jobs), ids, last.Behind)
	}
	// What it has is known to be all until its own index.
	if jobs, last = answerOf(t, c, follower, &apiv1.ListHistoryRequest{OldestFirst: true, MinIndex: last.Index}); last.Behind || len(jobs) != len(ids) {
		t.Fatalf("of what it has: %d jobs, behind: %t", len(jobs), last.Behind)
	}
	c.Mend(follower)
	ids = append(ids, more...)
	for deadline := time.Now().Add(2 * time.Minute); ; {
		jobs, last = answerOf(t, c, follower, &apiv1.ListHistoryRequest{OldestFirst: true})
		if !last.Behind {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("mended, and still behind")
		}
	}
	if fmt.Sprint(idsOf(jobs)) != fmt.Sprint(ids) {
		t.Fatalf("mended: jobs %v, want %v", idsOf(jobs), ids)
	}
}

func idsOf(jobs []*apiv1.Job) (ids []uint64) {
	for _, j := range jobs {
		ids = append(ids, j.Id)
	}
	return ids
}
