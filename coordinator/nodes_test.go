package coordinator_test

import (
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
)

// node describes one node.
func node(t *testing.T, cc *grpc.ClientConn, id string) *apiv1.Node {
	t.Helper()
	resp, err := apirpc.NewClusterServiceClient(cc).ListNodes(as(t, alice), &apiv1.ListNodesRequest{Ids: []string{id}})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Nodes[0]
}

func awaitNode(t *testing.T, cc *grpc.ClientConn, id, state string) *apiv1.Node {
	t.Helper()
	var n *apiv1.Node
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if n = node(t, cc, id); n.State == state {
			return n
		}
	}
	t.Fatalf("node %s is %s, want %s", id, n.State, state)
	return nil
}

func TestASilentNodeKeepsItsShares(t *testing.T) {
	t.Parallel()
	var leases leaseClock
	c := coordtest.Start(t, coordtest.Options{N: 1, Clock: leases.now, Lease: aLease})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	silence := alive(a)
	ids := submitted(t, cc, alice, reqID(1), spec(9000))
	a.Report(next(t, a), running, 0)
	await(t, cc, ids[0], "RUNNING")
	silence()
	a.Silence()
	n := leases.lapse(t, cc, "n1")
	await(t, cc, ids[0], "UNREACHABLE")
	if g := n.Gpus[0]; g.LedgerUsedMib != 9000 || g.Shares != 1 {
		t.Errorf("of the silent node's card %d MiB in %d shares are held, want the job's 9000 in one", g.LedgerUsedMib, g.Shares)
	}
	second := submitted(t, cc, alice, reqID(2), spec(2000))
	a = c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	defer alive(a)()
	// What came meanwhile starts only now.
	a.Report(assigned(t, a, second[0]), running, 0)
	await(t, cc, second[0], "RUNNING")
}

func TestAJobIsRequeuedWhenItsNodeBoots(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	again, once := spec(2000), spec(2000)
	again.RequeueOnLoss = true
	ids := submitted(t, cc, alice, reqID(1), again, once)
	first := assigned(t, a, ids[0])
	a.Report(first, running, 0)
	await(t, cc, ids[0], "RUNNING")
	a.Silence()
	a = c.Agent(0, "n1", "b2", coordtest.T4("GPU-1"))
	await(t, cc, ids[1], "NODE_FAIL")
	retry := assigned(t, a, ids[0])
	if retry.Attempt == first.Attempt || retry.Token <= first.Token {
		t.Errorf("attempt %d with token %d after attempt %d with token %d; want a new one with a higher token", retry.Attempt, retry.Token, first.Attempt, first.Token)
	}
	// News of the attempt that was given up change nothing.
	a.Report(first, failed, 1)
	a.Report(retry, running, 0)
	await(t, cc, ids[0], "RUNNING")
	a.Report(retry, completed, 0)
	if j := await(t, cc, ids[0], "COMPLETED"); len(j.Attempts) != 2 || j.Attempts[0].State != "NODE_FAIL" {
		t.Errorf("attempts %v, want a lost one and one that completed", j.Attempts)
	}
	a.Report(retry, failed, 1)
	last := submitted(t, cc, alice, reqID(2), spec(2000))
	a.Report(assigned(t, a, last[0]), completed, 0) // by now the late report was looked at
	await(t, cc, last[0], "COMPLETED")
	await(t, cc, ids[0], "COMPLETED")
}

func TestADrainedNodeStartsNothingNew(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	nodes := apirpc.NewClusterServiceClient(cc)
	before := submitted(t, cc, alice, reqID(1), spec(2000))
	going := assigned(t, a, before[0])
	a.Report(going, running, 0)
	await(t, cc, before[0], "RUNNING")
	if resp, err := nodes.DrainNode(as(t, admin), &apiv1.DrainNodeRequest{Id: "n1", Reason: "new fan"}); err != nil || !resp.Node.Drain || resp.Node.DrainReason != "new fan" {
		t.Fatalf("drain: %v, %v", resp, err)
	}
	ids := submitted(t, cc, alice, reqID(2), spec(2000))
	// A report that is committed after the submit: the planner had its chance.
	a.Report(going, completed, 0)
	await(t, cc, before[0], "COMPLETED")
	if j := job(t, cc, alice, ids[0]); j.State != "PENDING" && j.State != "QUEUED" {
		t.Errorf("a drained node got the job: %s on %s", j.State, j.Node)
	}
	if _, err := nodes.ResumeNode(as(t, admin), &apiv1.ResumeNodeRequest{Id: "n1"}); err != nil {
		t.Fatal(err)
	}
	a.Report(assigned(t, a, ids[0]), running, 0)
	await(t, cc, ids[0], "RUNNING")
	_, err := nodes.DrainNode(as(t, admin), &apiv1.DrainNodeRequest{Id: "n9"})
	if status.Code(err) != codes.NotFound {
		t.Errorf("draining an unknown node: %v, want NotFound", err)
	}
}

func TestACancelledJobIsStopped(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	ids := submitted(t, cc, alice, reqID(1), spec(2000))
	as1 := assigned(t, a, ids[0])
	a.Report(as1, running, 0)
	await(t, cc, ids[0], "RUNNING")
	if _, err := apirpc.NewJobServiceClient(cc).CancelJobs(as(t, alice), &apiv1.CancelJobsRequest{RequestId: reqID(2), Ids: ids}); err != nil {
		t.Fatal(err)
	}
	stop := assigned(t, a, ids[0])
	if !stop.Stop {
		t.Fatalf("assignment %v, want a stop", stop)
	}
	a.Report(as1, nodev1.AttemptState_ATTEMPT_STATE_CANCELLED, 0)
	await(t, cc, ids[0], "CANCELLED")
}

func TestAgentsFindTheNextLeader(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true})
	l := c.Leader()
	a := c.Agent(l, "n1", "b1", coordtest.T4("GPU-1"))
	ids := submitted(t, c.Dial(l, "gate", "g"), alice, reqID(1), spec(2000))
	asg := assigned(t, a, ids[0])
	a.Report(asg, running, 0)
	await(t, c.Dial(l, "gate", "g"), ids[0], "RUNNING")
	// A follower says who leads.
	s, err := noderpc.NewNodeServiceClient(c.Dial((l+1)%3, "agent", "n1")).Session(as(t, alice))
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.Recv()
	if err != nil || m.GetRedirect().GetLeaderId() == "" {
		t.Fatalf("a follower answers %v, %v; want a redirect to the leader", m, err)
	}
	c.Kill(l)
	l = c.Leader()
	a = c.Agent(l, "n1", "b1", coordtest.T4("GPU-1"))
	same := assigned(t, a, ids[0])
	if same.Token != asg.Token || same.Attempt != asg.Attempt {
		t.Errorf("the next leader wants attempt %d with token %d, want %d with %d as before", same.Attempt, same.Token, asg.Attempt, asg.Token)
	}
	a.Report(same, completed, 0)
	await(t, c.Dial(l, "gate", "g"), ids[0], "COMPLETED")
}

func TestTokensExpire(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	create := func(uid uint32, ttl time.Duration) (*apiv1.CreateTokenResponse, error) {
		return apirpc.NewClusterServiceClient(cc).CreateToken(as(t, uid), &apiv1.CreateTokenRequest{Id: "n7", Ttl: durationpb.New(ttl)})
	}
	if _, err := create(alice, time.Minute); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a user makes a token: %v, want PermissionDenied", err)
	}
	for _, ttl := range []time.Duration{-time.Second, time.Millisecond, 31 * 24 * time.Hour} {
		if _, err := create(admin, ttl); status.Code(err) != codes.InvalidArgument {
			t.Errorf("ttl %v: %v, want InvalidArgument", ttl, err)
		}
	}
	tok, err := create(admin, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	join := func() error {
		_, err := noderpc.NewNodeServiceClient(cc).Join(as(t, alice), &nodev1.JoinRequest{Node: "n7", TokenSecret: tok.Token, Csr: []byte("csr")})
		return err
	}
	for time.Now().Before(tok.Expires.AsTime().Add(10 * time.Millisecond)) {
		time.Sleep(10 * time.Millisecond)
	}
	if err := join(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("an expired token: %v, want Unauthenticated", err)
	}
}
