package coordinator_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/coordinator/lead"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// serve runs whatever a node is assigned, at once and well, until the session
// or the test ends.
func serve(t *testing.T, a *coordtest.Agent) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		seen := map[string]struct{}{}
		for {
			select {
			case as := <-a.Assigned:
				key := fmt.Sprintf("%d-%d", as.Job, as.Attempt)
				if _, again := seen[key]; again || as.Stop {
					continue
				}
				seen[key] = struct{}{}
				a.Report(as, running, 0)
				a.Report(as, completed, 0)
			case <-a.Ended:
				return
			case <-done:
				return
			}
		}
	})
	t.Cleanup(func() { close(done); wg.Wait() })
}

// ended waits until jobs have completed, each in its first attempt.
func ended(t *testing.T, cc *grpc.ClientConn, ids []uint64) {
	t.Helper()
	jobs := apirpc.NewJobServiceClient(cc)
	var left []*apiv1.Job
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		resp, err := jobs.ListJobs(as(t, alice), &apiv1.ListJobsRequest{Ids: ids, Finished: true, PageSize: 20_000})
		if err != nil {
			t.Fatal(err)
		}
		left = left[:0]
		for _, j := range resp.Jobs {
			switch {
			case j.State != "COMPLETED":
				left = append(left, j)
			case len(j.Attempts) != 1:
				t.Fatalf("job %d ran %d times", j.Id, len(j.Attempts))
			}
		}
		if len(left) == 0 && len(resp.Jobs) == len(ids) {
			return
		}
	}
	t.Fatalf("%d jobs did not run: %v", len(left), left)
}

// handful is one job of each kind.
func handful() []*apiv1.JobSpec {
	whole, pair, plain, sure := spec(1000), spec(2000), spec(0), spec(3000)
	whole.Exclusive, pair.Gpus, sure.Expected = true, 2, durationpb.New(time.Minute)
	return []*apiv1.JobSpec{spec(4000), spec(14_000), whole, pair, plain, sure}
}

// TestEveryPolicyRunsJobs: each placement, alone and with each order, takes
// over in one running cluster and runs a handful of jobs to their end.
func TestEveryPolicyRunsJobs(t *testing.T) { // not beside tests that wait for elections
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	serve(t, c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"), coordtest.T4("GPU-2")))
	serve(t, c.Agent(0, "n2", "b1", &nodev1.GPU{Uuid: "GPU-3", Type: "A100-SXM4-80GB", MemMib: 81_920, CapMode: "sim"}))
	request := 0
	for _, place := range policies.Names() {
		names := []string{place}
		for _, order := range policies.Orders() {
			names = append(names, place+"+"+order)
		}
		for _, name := range names {
			t.Run(name, func(t *testing.T) {
				c.Coordinator(0).SetScheduling(lead.Scheduling{Site: site.Site{Chosen: chosen(t, name)}, Interval: 10 * time.Millisecond})
				request++
				ids := submitted(t, cc, alice, reqID(request), handful()...)
				ended(t, cc, ids)
			})
		}
	}
}

// TestReloadUnderLoad: policies of the cluster and of partitions that share
// nodes change all the time while jobs come and end; every job runs, once, and
// leadership stays where it is.
func TestReloadUnderLoad(t *testing.T) { // not beside tests that wait for elections
	c := coordtest.Start(t, coordtest.Options{N: 1})
	l := c.Leader()
	cc := c.Dial(l, "gate", "g")
	for i := range 4 {
		serve(t, c.Agent(l, fmt.Sprintf("n%d", i+1), "b1", coordtest.T4(fmt.Sprintf("GPU-%d-a", i)), coordtest.T4(fmt.Sprintf("GPU-%d-b", i))))
	}
	setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "a", Nodes: proto.String("n[1-2]"), Default: proto.Bool(true)})
	setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "b", Nodes: proto.String("n[2-4]")})
	setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "c", Nodes: proto.String("ALL")})
	term := func() uint64 {
		st, err := apirpc.NewClusterServiceClient(cc).GetStatus(as(t, alice), &apiv1.GetStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return st.Members[l].Term
	}
	before := term()
	var all []lead.Scheduling
	for i, name := range []string{"ffd", "slot", "fgd+sjf", "slot+fifo", "lucid", "firstfit"} {
		all = append(all, lead.Scheduling{
			Site: site.Site{
				Chosen: chosen(t, name), Partitions: map[string]site.Chosen{"b": chosen(t, []string{"ffd", "slot+fifo", "horus"}[i%3])},
			},
			Interval: time.Duration(10+i) * time.Millisecond,
		})
	}
	stop := make(chan struct{})
	var reloads sync.WaitGroup
	reloads.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				c.Coordinator(l).SetScheduling(all[i%len(all)])
			}
		}
	})
	var mu sync.Mutex
	var ids []uint64
	var submits sync.WaitGroup
	for w := range 3 {
		submits.Go(func() {
			for i := range 15 {
				specs := handful()
				for k := range specs {
					specs[k].Partition = []string{"", "b", "c"}[(w+i+k)%3]
				}
				got, err := submit(t, cc, alice, reqID(1000*w+i), specs...)
				if err != nil {
					t.Errorf("submit %d of %d: %v", i, w, err)
					return
				}
				mu.Lock()
				ids = append(ids, got...)
				mu.Unlock()
			}
		})
	}
	submits.Wait()
	ended(t, cc, ids)
	close(stop)
	reloads.Wait()
	if after := term(); after != before || c.Leader() != l {
		t.Errorf("term %d became %d", before, after)
	}
}
