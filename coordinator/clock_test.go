package coordinator_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
)

// TestCoordinatorsTellTheTime: to nodes and to users, and not to those without
// a certificate.
func TestCoordinatorsTellTheTime(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "agent", "n1")
	before := time.Now()
	resp, err := noderpc.NewNodeServiceClient(cc).GetClock(t.Context(), &nodev1.GetClockRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if now := resp.Now.AsTime(); now.Before(before) || now.After(time.Now()) {
		t.Errorf("told %v, between %v and %v", now, before, time.Now())
	}
	gate := c.Dial(0, "gate", "g")
	st, err := apirpc.NewClusterServiceClient(gate).GetStatus(as(t, alice), &apiv1.GetStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if now := st.Now.AsTime(); now.Before(before) || now.After(time.Now()) {
		t.Errorf("status told %v", now)
	}
	if _, err := noderpc.NewNodeServiceClient(c.Dial(0, "", "")).GetClock(t.Context(), &nodev1.GetClockRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a certificate: %v", err)
	}
}
