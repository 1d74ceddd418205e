package coordinator_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// TestSharingOffHoldsAtOnce: only administrators switch; from then on nobody is
// laid beside another, by any leader, and who shares goes on; on again, they are.
func TestSharingOffHoldsAtOnce(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true})
	l := c.Leader()
	cc := c.Dial(l, "gate", "g")
	a := c.Agent(l, "n1", "b1", coordtest.T4("GPU-1"))
	ids := submitted(t, cc, alice, reqID(1), spec(2000), spec(2000))
	for _, id := range ids {
		a.Report(assigned(t, a, id), running, 0)
		await(t, cc, id, "RUNNING")
	}
	set := func(uid uint32, req *apiv1.SetSharingRequest) (*apiv1.SetSharingResponse, error) {
		return apirpc.NewClusterServiceClient(cc).SetSharing(as(t, uid), req)
	}
	off := &apiv1.SetSharingRequest{Node: "n1", Off: true, Reason: "caps do not hold"}
	if _, err := set(alice, off); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a user switches sharing off: %v, want PermissionDenied", err)
	}
	if _, err := set(admin, &apiv1.SetSharingRequest{Node: "n1", Cluster: true, Off: true}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("two places: %v, want InvalidArgument", err)
	}
	within(t, "switched off", func() bool { // all members must have said that they know how
		_, err := set(admin, off)
		if err != nil && status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
		return err == nil
	})
	c.Kill(l)
	l = c.Leader()
	cc = c.Dial(l, "gate", "g")
	c.Agent(l, "n1", "b1", coordtest.T4("GPU-1"))
	if g := gpuOf(t, cc, "n1", "GPU-1"); g.SharingOff != "sharing is off on node n1: caps do not hold" || g.Shares != 2 {
		t.Fatalf("the next leader has it as %+v", g)
	}
	if resp, err := set(alice, &apiv1.SetSharingRequest{Look: true}); err != nil || len(resp.Off) != 1 || resp.Off[0].Node != "n1" {
		t.Errorf("a user looks, and sees %v (%v)", resp, err)
	}
	later := submitted(t, cc, alice, reqID(2), spec(2000))
	if j := await(t, cc, later[0], "QUEUED"); len(j.Gpus) > 0 {
		t.Fatalf("a third job lies on the card: %+v", j)
	}
	for _, id := range ids {
		await(t, cc, id, "RUNNING")
	}
	if _, err := set(admin, &apiv1.SetSharingRequest{Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	await(t, cc, later[0], "STARTING")
}
