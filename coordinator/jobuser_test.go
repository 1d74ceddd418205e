package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/coordinator"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// TestANodeSpeaksForItsJobsUsers: for nobody else, never with an
// administrator's rights, and with the group that the job came with, whatever
// the node says.
func TestANodeSpeaksForItsJobsUsers(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Waits: coordinator.Waits{JobUser: 50 * time.Millisecond}})
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"), coordtest.T4("GPU-2"))
	gate := c.Dial(0, "gate", "g")
	_, asg := runningJob(t, gate, a, 1) // alice's
	node, other := c.Dial(0, "agent", "n1"), c.Dial(0, "agent", "n2")

	forged := metadata.AppendToOutgoingContext(t.Context(), "berth-on-behalf-of-uid", "1000", "berth-on-behalf-of-gid", "42")
	resp, err := apirpc.NewJobServiceClient(node).SubmitJobs(forged, &apiv1.SubmitJobsRequest{RequestId: reqID(2), Jobs: []*apiv1.JobSpec{spec(1000)}})
	if err != nil {
		t.Fatal(err)
	}
	for got := range a.Assigned {
		if got.Job == resp.Ids[0] {
			if got.Gid != asg.Gid || got.Uid != alice {
				t.Errorf("the job runs as %d:%d, want %d:%d", got.Uid, got.Gid, alice, asg.Gid)
			}
			break
		}
	}
	if _, err := submit(t, node, bob, reqID(3), spec(0)); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "only for users with jobs there") {
		t.Errorf("for bob: %v", err)
	}
	if _, err := submit(t, other, alice, reqID(4), spec(0)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("by a node without her jobs: %v", err)
	}
	if _, err := apirpc.NewClusterServiceClient(node).GetStatus(as(t, admin), &apiv1.GetStatusRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("for an administrator: %v", err)
	}
}
