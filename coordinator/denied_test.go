package coordinator_test

import (
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
)

// TestARemovedNodesCertificateIsWorthNothing: it is valid for weeks, and neither
// connects, nor asks, nor is renewed.
func TestARemovedNodesCertificateIsWorthNothing(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	c.Agent(0, "n2", "b1", coordtest.T4("GPU-2"))
	renew := func(node string) error {
		_, err := noderpc.NewNodeServiceClient(c.Dial(0, "agent", node)).Renew(t.Context(), &nodev1.RenewRequest{Csr: []byte("csr")})
		return err
	}
	if err := renew("n1"); err != nil {
		t.Fatalf("before: %v", err)
	}
	if _, err := apirpc.NewClusterServiceClient(cc).RemoveNode(as(t, admin), &apiv1.RemoveNodeRequest{Id: "n1"}); err != nil {
		t.Fatal(err)
	}
	if err := renew("n1"); err == nil {
		t.Error("its certificate was renewed")
	}
	if err := renew("n2"); err != nil {
		t.Errorf("another node's: %v", err)
	}
	nodes := noderpc.NewNodeServiceClient(c.Dial(0, "agent", "n1"))
	if _, err := nodes.GetClock(t.Context(), &nodev1.GetClockRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("it asks for the time: %v", err)
	}
	stream, err := nodes.Session(t.Context())
	if err == nil {
		err = stream.Send(&nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Hello{Hello: &nodev1.Hello{Protocol: 1, Node: "n1", BootId: "b2", CpuMilli: 1000, MemMib: 1024, Runtimes: []string{"test"}}}})
	}
	if err == nil || errors.Is(err, io.EOF) { // it may end before the hello is sent
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("it opens a session: %v", err)
	}
	if _, err := apirpc.NewJobServiceClient(c.Dial(0, "agent", "n1")).ListJobs(as(t, alice), &apiv1.ListJobsRequest{}); err == nil {
		t.Error("it speaks for users")
	}
}

// TestDenyAndAllow: administrators say who is let in; typing errors and members
// are refused.
func TestDenyAndAllow(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	s := apirpc.NewClusterServiceClient(c.Dial(0, "gate", "g"))
	clock := func() error {
		_, err := noderpc.NewNodeServiceClient(c.Dial(0, "agent", "n1")).GetClock(t.Context(), &nodev1.GetClockRequest{})
		return err
	}
	if _, err := s.SetDenied(as(t, alice), &apiv1.SetDeniedRequest{Look: true}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a user looks: %v", err)
	}
	if _, err := s.SetDenied(as(t, alice), &apiv1.SetDeniedRequest{Role: "agent", Id: "n1"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a user denies: %v", err)
	}
	for _, bad := range []*apiv1.SetDeniedRequest{
		{}, {Role: "node", Id: "n1"}, {Role: "agent", Id: "n 1"}, {Role: "serial", Id: "xyz"}, {Role: "serial", Id: "AB"}, {Role: "coordinator", Id: c.Peers()[0].ID},
		{Role: "agent", Id: "n1", Allow: true},
	} {
		if _, err := s.SetDenied(as(t, admin), bad); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
	if err := clock(); err != nil {
		t.Fatalf("before: %v", err)
	}
	resp, err := s.SetDenied(as(t, admin), &apiv1.SetDeniedRequest{Role: "agent", Id: "n1"})
	if err != nil || len(resp.GetDenied()) != 1 || resp.Denied[0].Id != "n1" {
		t.Fatalf("%v, %v", resp, err)
	}
	if err := clock(); err == nil {
		t.Error("denied, and it is answered")
	}
	resp, err = s.SetDenied(as(t, admin), &apiv1.SetDeniedRequest{Role: "agent", Id: "n1", Allow: true})
	if err != nil || len(resp.GetDenied()) != 0 {
		t.Fatalf("%v, %v", resp, err)
	}
	if err := clock(); err != nil {
		t.Errorf("allowed again: %v", err)
	}
}
