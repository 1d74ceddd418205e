package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestAnAgentDrainsItsNode: in the same breath as it gives a job back, which
// runs elsewhere; and what an administrator said of a node stays.
func TestAnAgentDrainsItsNode(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	bad := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	ids := submitted(t, cc, alice, reqID(1), spec(2000))
	got := next(t, bad)
	fault := func(why string) *nodev1.Report {
		return &nodev1.Report{
			Job: got.Job, Attempt: got.Attempt, Token: got.Token, State: nodev1.AttemptState_ATTEMPT_STATE_LOST,
			Reason: "NodeFault", Detail: "PROLOG: exit code 7", Drain: why,
		}
	}
	bad.SendReport(fault("prolog failed before job 1: exit code 7"))
	nodes := apirpc.NewClusterServiceClient(cc)
	node := func() *apiv1.Node {
		resp, err := nodes.ListNodes(as(t, alice), &apiv1.ListNodesRequest{})
		if err != nil || len(resp.Nodes) == 0 {
			t.Fatalf("%v, %v", resp, err)
		}
		return resp.Nodes[0]
	}
	for deadline := time.Now().Add(2 * time.Minute); !node().Drain; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not drained: %v", node())
		}
	}
	if why := node().DrainReason; why != "prolog failed before job 1: exit code 7" {
		t.Errorf("reason %q", why)
	}
	if e := node().History[len(node().History)-1]; e.Kind != "drained" || e.ByUid != nil {
		t.Errorf("the drain that nobody ordered is the event %v", e)
	}
	j := job(t, cc, alice, ids[0])
	if j.State != "PENDING" && j.State != "QUEUED" || len(j.Attempts) != 1 || !strings.Contains(j.Attempts[0].ReasonDetail, "exit code 7") {
		t.Errorf("the job: %v", j)
	}
	if _, err := nodes.DrainNode(as(t, admin), &apiv1.DrainNodeRequest{Id: "n1", Reason: "new fans"}); err != nil {
		t.Fatal(err)
	}
	bad.SendReport(fault("epilog failed"))
	good := c.Agent(0, "n2", "b2", coordtest.T4("GPU-2"))
	again := next(t, good)
	if again.Job != got.Job || again.Attempt != 2 {
		t.Errorf("assigned %v", again)
	}
	if why := node().DrainReason; why != "new fans" {
		t.Errorf("an administrator's reason became %q", why)
	}
}
