package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/coordinator"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// TestNewCommandsWaitForEveryCoordinator: one that was never heard may run a
// version that would stop at them. Once they are in the log they stay.
func TestNewCommandsWaitForEveryCoordinator(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true, Absent: 1, Waits: coordinator.Waits{Agree: 20 * time.Millisecond}})
	pin := func() error {
		_, err := apirpc.NewModelServiceClient(c.Dial(c.Leader(), "gate", "g")).PinModel(as(t, admin), &apiv1.PinModelRequest{Pinned: true})
		return err
	}
	if err := pin(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "upgrade") {
		t.Fatalf("with a coordinator that was never heard: %v, want Unavailable that says why", err)
	}
	w := &taught{t: t, c: c}
	w.until("the silent one to be named", func() bool {
		err := pin()
		return err != nil && strings.Contains(err.Error(), "pin_weights needs coordinators that read log entries of version 2, and coordinator "+c.Peers()[2].ID+" does not answer")
	})
	if _, err := submit(t, c.Dial(c.Leader(), "gate", "g"), alice, reqID(1), spec(0)); err != nil {
		t.Fatalf("all else must go on: %v", err)
	}
	c.Restart(2)
	w.until("the command to be understood", func() bool { return pin() == nil })
	lead := c.Leader()
	c.Kill((lead + 1) % 3)
	c.Kill(lead)
	c.Restart(lead) // and leads again, with one that it cannot ask
	if err := pin(); err != nil {
		t.Errorf("what every coordinator had read before: %v", err)
	}
}

// submit asks again while a new leader does not know yet that all coordinators read
// what the jobs need.
func submit(t *testing.T, cc *grpc.ClientConn, uid uint32, id string, specs ...*apiv1.JobSpec) ([]uint64, error) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		resp, err := apirpc.NewJobServiceClient(cc).SubmitJobs(as(t, uid), &apiv1.SubmitJobsRequest{RequestId: id, Jobs: specs})
		young := status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "needs coordinators that read log entries")
		if !young || time.Now().After(deadline) {
			return resp.GetIds(), err
		}
	}
}

// submitted is submit for jobs that must be taken.
func submitted(t *testing.T, cc *grpc.ClientConn, uid uint32, id string, specs ...*apiv1.JobSpec) []uint64 {
	t.Helper()
	ids, err := submit(t, cc, uid, id, specs...)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}
