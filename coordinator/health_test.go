package coordinator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

func nodeOf(t *testing.T, cc *grpc.ClientConn, id string) *apiv1.Node {
	t.Helper()
	resp, err := apirpc.NewClusterServiceClient(cc).ListNodes(as(t, alice), &apiv1.ListNodesRequest{Ids: []string{id}})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Nodes[0]
}

func gpuOf(t *testing.T, cc *grpc.ClientConn, node, uuid string) *apiv1.GPU {
	t.Helper()
	n := nodeOf(t, cc, node)
	i := slices.IndexFunc(n.Gpus, func(g *apiv1.GPU) bool { return g.Uuid == uuid })
	if i < 0 {
		t.Fatalf("node %s has no GPU %s", node, uuid)
	}
	return n.Gpus[i]
}

func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// TestADrainedGPUKeepsWhatRuns: through a change of leader a drained card keeps
// its job, takes no other, and the card beside it does.
func TestADrainedGPUKeepsWhatRuns(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true})
	l := c.Leader()
	cc := c.Dial(l, "gate", "g")
	cards := []*nodev1.GPU{coordtest.T4("GPU-1"), coordtest.T4("GPU-2")}
	cards[1].Index = 1
	a := c.Agent(l, "n1", "b1", cards...)
	before := submitted(t, cc, alice, reqID(1), spec(2000))
	going := assigned(t, a, before[0])
	a.Report(going, running, 0)
	await(t, cc, before[0], "RUNNING")
	on := going.Gpus[0].Uuid

	drain := func(uid uint32, uuid string) (*apiv1.DrainGPUResponse, error) {
		return apirpc.NewClusterServiceClient(cc).DrainGPU(as(t, uid), &apiv1.DrainGPURequest{Gpu: uuid, Reason: "new fan"})
	}
	if _, err := drain(alice, on); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a user drains a GPU: %v, want PermissionDenied", err)
	}
	if _, err := drain(admin, "GPU-9"); status.Code(err) != codes.NotFound {
		t.Errorf("drains a GPU that is not there: %v, want NotFound", err)
	}
	within(t, "drained", func() bool { // all members must have said that they know how
		_, err := drain(admin, on)
		if err != nil && status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
		return err == nil
	})

	c.Kill(l)
	l = c.Leader()
	cc = c.Dial(l, "gate", "g")
	a = c.Agent(l, "n1", "b1", cards...)
	if g := gpuOf(t, cc, "n1", on); !g.Drain || g.DrainReason != "new fan" || g.Shares != 1 {
		t.Fatalf("the next leader has it as %+v", g)
	}
	ids := submitted(t, cc, alice, reqID(2), spec(2000), spec(2000), spec(2000), spec(2000))
	started := 0
	within(t, "the other card full", func() bool {
		started = 0
		for _, id := range ids {
			if j := job(t, cc, alice, id); j.State == "STARTING" {
				if j.Gpus[0].Uuid == on {
					t.Fatalf("job %d started on the drained GPU", id)
				}
				started++
			}
		}
		return started == 3
	})
	await(t, cc, before[0], "RUNNING")
	if _, err := apirpc.NewClusterServiceClient(cc).ResumeGPU(as(t, admin), &apiv1.ResumeGPURequest{Node: "n1", Index: &cards[slices.IndexFunc(cards, func(g *nodev1.GPU) bool { return g.Uuid == on })].Index}); err != nil {
		t.Fatal(err)
	}
	await(t, cc, ids[3], "STARTING")
	kinds := []string{}
	for _, e := range nodeOf(t, cc, "n1").History {
		if e.Gpu == on {
			kinds = append(kinds, e.Kind)
			if e.ByUid == nil || *e.ByUid != admin {
				t.Errorf("%s by %v, want by %d", e.Kind, e.ByUid, admin)
			}
		}
	}
	if !slices.Equal(kinds, []string{"drained", "resumed"}) {
		t.Errorf("history %v", kinds)
	}
	_ = a
}

// TestAnUnsoundGPUTakesNoJobs: what an agent says of a card counts at once, and
// what it takes back, too; nobody but a job that fits elsewhere starts.
func TestAnUnsoundGPUTakesNoJobs(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	bad := coordtest.T4("GPU-1")
	bad.State, bad.StateReason = nodev1.GPUState_GPU_STATE_FAILING, "Xid 79"
	a := c.Agent(0, "n1", "b1", bad)
	ids := submitted(t, cc, alice, reqID(1), spec(2000))
	// A node that registers before the members have agreed has the card once
	// they did, at its next heartbeat.
	within(t, "the card is failing", func() bool {
		a.Heartbeat()
		n := nodeOf(t, cc, "n1")
		return len(n.Gpus) == 1 && n.Gpus[0].State == "failing" && n.Gpus[0].StateReason == "Xid 79"
	})
	why, err := apirpc.NewJobServiceClient(cc).ExplainJob(as(t, alice), &apiv1.ExplainJobRequest{Id: ids[0]})
	if err != nil || len(why.Explanations) == 0 || why.Explanations[0].Code != "ReqNodeNotAvail" || !strings.Contains(why.Explanations[0].Detail, "1 GPU out of service: GPU 0 of n1 (T4) is failing: Xid 79") {
		t.Errorf("the job waits for %v, %v", why.GetExplanations(), err)
	}
	a.Hello("n1", "b1", coordtest.T4("GPU-1"))
	asg := assigned(t, a, ids[0])
	a.Report(asg, running, 0)
	await(t, cc, ids[0], "RUNNING")
	a.Hello("n1", "b1", bad)
	within(t, "the card is failing again", func() bool { return gpuOf(t, cc, "n1", "GPU-1").State == "failing" })
	await(t, cc, ids[0], "RUNNING")
}
