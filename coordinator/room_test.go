package coordinator_test

import (
	"crypto/rand"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/coordinator/space"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// room is how much each coordinator's disk has free, of 100 GiB.
type room [3]atomic.Uint64

func (r *room) statfs(i int) (space.Free, error) {
	return space.Free{Bytes: r[i].Load(), Size: 100 << 30}, nil
}

// show waits until the status of the cluster shows what is wanted of it.
func show(t *testing.T, cc apirpc.ClusterServiceClient, want func(*apiv1.GetStatusResponse) bool) *apiv1.GetStatusResponse {
	t.Helper()
	var st *apiv1.GetStatusResponse
	var err error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if st, err = cc.GetStatus(as(t, alice), &apiv1.GetStatusRequest{}); err == nil && want(st) {
			return st
		}
	}
	t.Fatalf("not within two minutes: %v, %v", st, err)
	return nil
}

// TestRoom: with little room left, what users send and the log keeps is refused
// with the reason and work can still be ended; with none, nothing is written to the
// log. It goes on by itself.
func TestRoom(t *testing.T) {
	t.Parallel()
	var r room
	r[0].Store(50 << 30)
	c := coordtest.Start(t, coordtest.Options{N: 1, Statfs: r.statfs, Waits: coordinator.Waits{Leader: time.Millisecond}})
	cc := c.Dial(0, "gate", "g")
	jobs, st := apirpc.NewJobServiceClient(cc), apirpc.NewClusterServiceClient(cc)
	submit := func() (*apiv1.SubmitJobsResponse, error) {
		return jobs.SubmitJobs(as(t, alice), &apiv1.SubmitJobsRequest{RequestId: rand.Text(), Jobs: []*apiv1.JobSpec{spec(0), spec(0)}})
	}
	first, err := submit()
	if err != nil {
		t.Fatal(err)
	}
	ids := first.Ids
	cancel := func(id uint64) error {
		_, err := jobs.CancelJobs(as(t, alice), &apiv1.CancelJobsRequest{Ids: []uint64{id}})
		return err
	}

	r[0].Store(900 << 20)
	show(t, st, func(s *apiv1.GetStatusResponse) bool {
		m := s.Members[0]
		return strings.Contains(m.DiskProblem, "900 MiB") && m.DiskFree == 900<<20 && m.DiskSize == 100<<30
	})
	update := func() error {
		_, err := jobs.UpdateJob(as(t, alice), &apiv1.UpdateJobRequest{Id: ids[0]})
		return err
	}
	_, err = submit()
	for what, err := range map[string]error{"submit": err, "update": update()} {
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "900 MiB of 102400 MiB are free") || !strings.Contains(err.Error(), "make room") {
			t.Errorf("%s with little room: %v", what, err)
		}
	}
	if err := cancel(ids[0]); err != nil {
		t.Errorf("cancel with little room: %v", err)
	}

	r[0].Store(100 << 20)
	show(t, st, func(s *apiv1.GetStatusResponse) bool {
		return strings.Contains(s.Members[0].DiskProblem, "nothing is written")
	})
	_ = cancel(ids[1]) // what was on its way before it is in the log then
	full := show(t, st, func(*apiv1.GetStatusResponse) bool { return true })
	_, err = submit()
	for what, err := range map[string]error{"submit": err, "cancel": cancel(ids[1])} {
		if e := apiconv.FromStatus(err); e == nil || e.Code != cluster.CodeUnavailable || !strings.Contains(e.Msg, "100 MiB of 102400 MiB are free") {
			t.Errorf("%s with no room: %v", what, err)
		}
	}
	if now := show(t, st, func(*apiv1.GetStatusResponse) bool { return true }); now.Members[0].LastIndex != full.Members[0].LastIndex {
		t.Errorf("the log grew from %d to %d with no room", full.Members[0].LastIndex, now.Members[0].LastIndex)
	}

	r[0].Store(2 << 30)
	show(t, st, func(s *apiv1.GetStatusResponse) bool { return s.Members[0].DiskProblem == "" })
	if _, err := submit(); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := cancel(ids[1]); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// TestAFullLeaderYields: a leader without room hands leadership to the coordinator
// that has the most, and nothing that was acknowledged is lost.
func TestAFullLeaderYields(t *testing.T) {
	t.Parallel()
	var r room
	for i := range r {
		r[i].Store(50 << 30)
	}
	c := coordtest.Start(t, coordtest.Options{N: 3, Statfs: r.statfs})
	old := c.Leader()
	roomy, full := (old+1)%3, (old+2)%3
	id := submitOne(t, c, old)
	r[roomy].Store(40 << 30)
	r[full].Store(10 << 20)
	st := apirpc.NewClusterServiceClient(c.Dial(full, "gate", "g"))
	show(t, st, func(s *apiv1.GetStatusResponse) bool { return s.Members[full].DiskProblem != "" })
	r[old].Store(10 << 20)
	show(t, st, func(s *apiv1.GetStatusResponse) bool { return s.Members[roomy].Leader })
	jobs := apirpc.NewJobServiceClient(c.Dial(old, "gate", "g"))
	if _, err := jobs.GetJob(as(t, alice), &apiv1.GetJobRequest{Id: id}); err != nil {
		t.Errorf("the job of before: %v", err)
	}
	if _, err := jobs.SubmitJobs(as(t, alice), &apiv1.SubmitJobsRequest{RequestId: rand.Text(), Jobs: []*apiv1.JobSpec{spec(0)}}); err != nil {
		t.Errorf("with a leader that has room: %v", err)
	}
}

func submitOne(t *testing.T, c *coordtest.Cluster, i int) uint64 {
	t.Helper()
	resp, err := apirpc.NewJobServiceClient(c.Dial(i, "gate", "g")).SubmitJobs(as(t, alice),
		&apiv1.SubmitJobsRequest{RequestId: rand.Text(), Jobs: []*apiv1.JobSpec{spec(0)}})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Ids[0]
}
