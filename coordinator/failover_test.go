package coordinator_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// everyJob lists all jobs by id.
func everyJob(t *testing.T, cc *grpc.ClientConn) map[uint64]*apiv1.Job {
	t.Helper()
	resp, err := apirpc.NewJobServiceClient(cc).ListJobs(as(t, alice), &apiv1.ListJobsRequest{Finished: true, PageSize: 20_000, Brief: true})
	if err != nil {
		t.Fatal(err)
	}
	out := map[uint64]*apiv1.Job{}
	for _, j := range resp.Jobs {
		out[j.Id] = j
	}
	return out
}

// persist submits until an answer comes, as a client with one request id does.
func persist(t *testing.T, conns []*grpc.ClientConn, id string, specs ...*apiv1.JobSpec) []uint64 {
	t.Helper()
	var err error
	for try, deadline := 0, time.Now().Add(2*time.Minute); time.Now().Before(deadline); try++ {
		ctx, cancel := context.WithTimeout(coordtest.As(context.Background(), alice), 10*time.Second)
		var resp *apiv1.SubmitJobsResponse
		resp, err = apirpc.NewJobServiceClient(conns[try%len(conns)]).SubmitJobs(ctx, &apiv1.SubmitJobsRequest{RequestId: id, Jobs: specs})
		cancel()
		if err == nil {
			return resp.Ids
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("no answer within two minutes: %v", err)
	return nil
}

func TestEachRequestIsOneJobThoughTheLeaderDies(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3})
	l := c.Leader()
	conns := []*grpc.ClientConn{c.Dial(l, "gate", "g"), c.Dial((l+1)%3, "gate", "g"), c.Dial((l+2)%3, "gate", "g")}
	const clients, each = 8, 25
	got := make([][]uint64, clients*each)
	half := make(chan struct{}, clients)
	var wg sync.WaitGroup
	for k := range clients {
		wg.Go(func() {
			for i := range each {
				if i == each/2 {
					half <- struct{}{}
				}
				n := k*each + i
				got[n] = persist(t, conns, reqID(n), spec(0))
			}
		})
	}
	<-half // submits of the others are in flight
	c.Kill(l)
	wg.Wait()
	live := c.Dial(c.Leader(), "gate", "g")
	jobs := everyJob(t, live)
	if len(jobs) != clients*each {
		t.Errorf("%d jobs for %d requests", len(jobs), clients*each)
	}
	for n, ids := range got {
		if len(ids) != 1 || jobs[ids[0]] == nil {
			t.Errorf("request %d was answered %v, which is not known", n, ids)
		}
		if n%20 == 0 {
			if again := persist(t, conns[1:], reqID(n), spec(0)); fmt.Sprint(again) != fmt.Sprint(ids) {
				t.Errorf("request %d again: %v, want %v", n, again, ids)
			}
		}
	}
}

func TestALeaderCutOffDoesNotKnowTheOutcome(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Waits: coordinator.Waits{Leader: time.Second}})
	l := c.Leader()
	old := c.Dial(l, "gate", "g")
	c.Cut(l)
	_, err := submit(t, old, alice, reqID(1), spec(0))
	if code := apiconv.FromStatus(err).Code; code != cluster.CodeUnknown && code != cluster.CodeUnavailable {
		t.Errorf("submit to a leader that reaches nobody: %v; want that the outcome is unknown, or that nothing was done", err)
	}
	if _, err := apirpc.NewJobServiceClient(old).GetJob(as(t, alice), &apiv1.GetJobRequest{Id: 1}); status.Code(err) != codes.Unavailable {
		t.Errorf("a read there: %v, want Unavailable", err)
	}
	others := []*grpc.ClientConn{c.Dial((l+1)%3, "gate", "g"), c.Dial((l+2)%3, "gate", "g")}
	ids := persist(t, others, reqID(1), spec(0))
	c.Mend(l)
	if again := persist(t, []*grpc.ClientConn{old}, reqID(1), spec(0)); fmt.Sprint(again) != fmt.Sprint(ids) {
		t.Errorf("back in the cluster it answers %v, want %v", again, ids)
	}
	if jobs := everyJob(t, old); len(jobs) != 1 {
		t.Errorf("%d jobs for one request", len(jobs))
	}
}

func TestALeaderThatStopsHandsOver(t *testing.T) {
	t.Parallel()
	// Nobody misses a leader sooner than that.
	const election = 3 * time.Second
	c := coordtest.Start(t, coordtest.Options{N: 3, Timing: raftnode.Timing{
		HeartbeatTimeout: election, ElectionTimeout: election, LeaderLeaseTimeout: election, CommitTimeout: 20 * time.Millisecond,
	}})
	for try := range 5 { // on a busy machine even a hand-over may take as long
		l := c.Leader()
		follower := c.Dial((l+1)%3, "gate", "g")
		submitted(t, follower, alice, reqID(2*try), spec(0))
		began := time.Now()
		stopped := make(chan struct{})
		go func() { c.Stop(l); close(stopped) }()
		ids := persist(t, []*grpc.ClientConn{follower}, reqID(2*try+1), spec(0))
		took := time.Since(began)
		<-stopped
		if len(everyJob(t, follower)) != 2*try+2 || len(ids) != 1 {
			t.Errorf("jobs %v, want %d", everyJob(t, follower), 2*try+2)
		}
		if took < election {
			return
		}
		t.Logf("the next submit took %v", took)
		c.Restart(l)
	}
	t.Error("no leader that stopped handed over")
}

func TestEverythingAcknowledgedIsKnownAfterAllDied(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3})
	cc := c.Dial(c.Leader(), "gate", "g")
	var mu sync.Mutex
	var acked []uint64
	enough, dying := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	for k := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				ids, err := submit(t, cc, alice, reqID(k*1_000_000+i), spec(0))
				if err != nil {
					select {
					case <-dying:
						return
					default: // on a busy machine leaders are lost unbidden
						continue
					}
				}
				mu.Lock()
				if acked = append(acked, ids...); len(acked) == 200 {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	close(dying)
	for i := range 3 {
		c.Kill(i)
	}
	wg.Wait()
	for i := range 3 {
		c.Restart(i)
	}
	jobs := everyJob(t, c.Dial(c.Leader(), "gate", "g"))
	for _, id := range acked {
		if jobs[id] == nil {
			t.Errorf("job %d was acknowledged and is gone", id)
		}
	}
}

func TestFollowersPassCallsOn(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true})
	l := c.Leader()
	for k := 1; k < 3; k++ {
		cc := c.Dial((l+k)%3, "gate", "g")
		ids := submitted(t, cc, alice, reqID(k), spec(0))
		if j := job(t, cc, alice, ids[0]); j.Uid != alice {
			t.Errorf("job of uid %d, want the one that submitted it", j.Uid)
		}
		cancel := func(uid uint32) apiv1.CancelOutcome {
			resp, err := apirpc.NewJobServiceClient(cc).CancelJobs(as(t, uid), &apiv1.CancelJobsRequest{RequestId: reqID(9), Ids: ids})
			if err != nil {
				t.Fatal(err)
			}
			return resp.Results[0].Outcome
		}
		for _, tc := range []struct {
			uid  uint32
			want apiv1.CancelOutcome
		}{
			{bob, apiv1.CancelOutcome_CANCEL_OUTCOME_DENIED},
			{alice, apiv1.CancelOutcome_CANCEL_OUTCOME_CANCELLED},
			{alice, apiv1.CancelOutcome_CANCEL_OUTCOME_ALREADY_FINISHED},
		} {
			if got := cancel(tc.uid); got != tc.want {
				t.Errorf("cancel by %d at a follower: %v, want %v", tc.uid, got, tc.want)
			}
		}
	}
}

func TestWithoutAMajorityCallsEnd(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3})
	l := c.Leader()
	c.Kill((l + 1) % 3)
	c.Kill((l + 2) % 3)
	_, err := submit(t, c.Dial(l, "gate", "g"), alice, reqID(1), spec(0))
	if err == nil || status.Code(err) == codes.DeadlineExceeded {
		t.Errorf("%v; want an error from the coordinator within its wait for a leader", err)
	}
}
