package coordinator_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	peerv1 "github.com/berth-scheduler/berth/proto/berth/peer/v1"
)

// slowTiming lets a leader that is cut off believe for seconds that it leads.
func slowTiming() raftnode.Timing {
	const s = 3 * time.Second
	return raftnode.Timing{HeartbeatTimeout: s, ElectionTimeout: s, LeaderLeaseTimeout: s, CommitTimeout: 20 * time.Millisecond}
}

// TestALeaderThatIsCutOffAnswersNothing: while it still believes that it leads,
// another one may have been chosen and have answered. What must be current asks
// the others first, and here they are not reached.
func TestALeaderThatIsCutOffAnswersNothing(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Timing: slowTiming()})
	l := c.Leader()
	cc, peer := c.Dial(l, "gate", "g"), c.Dial(l, "coordinator", "c9")
	ids := submitted(t, cc, alice, reqID(1), spec(0))
	if _, err := peerv1.NewPeerServiceClient(peer).ConfirmIndex(t.Context(), &peerv1.ConfirmIndexRequest{}); err != nil {
		t.Fatalf("ConfirmIndex of a leader: %v", err)
	}
	jobs := apirpc.NewJobServiceClient(cc)
	calls := map[string]func(context.Context) error{
		"GetJob": func(ctx context.Context) error {
			_, err := jobs.GetJob(ctx, &apiv1.GetJobRequest{Id: ids[0]})
			return err
		},
		"ListJobs": func(ctx context.Context) error {
			_, err := jobs.ListJobs(ctx, &apiv1.ListJobsRequest{})
			return err
		},
		"ExplainJob": func(ctx context.Context) error {
			_, err := jobs.ExplainJob(ctx, &apiv1.ExplainJobRequest{Id: ids[0]})
			return err
		},
		"ListReservations": func(ctx context.Context) error {
			_, err := apirpc.NewClusterServiceClient(cc).ListReservations(ctx, &apiv1.ListReservationsRequest{})
			return err
		},
		"ConfirmIndex": func(ctx context.Context) error {
			_, err := peerv1.NewPeerServiceClient(peer).ConfirmIndex(ctx, &peerv1.ConfirmIndexRequest{})
			return err
		},
	}
	for name, call := range calls {
		if err := call(as(t, alice)); err != nil {
			t.Fatalf("%s of a leader: %v", name, err)
		}
	}
	c.Cut(l)
	// What was on its way when it was cut off, an answer of each other one, may
	// confirm once more that it leads. Nobody waits until it steps down by itself.
	for tries, confirmed := 0, true; confirmed && tries < 10; tries++ {
		ctx, cancel := context.WithTimeout(as(t, alice), 300*time.Millisecond)
		confirmed = calls["ConfirmIndex"](ctx) == nil
		cancel()
	}
	type answer struct {
		name string
		err  error
	}
	answers := make(chan answer, len(calls))
	for name, call := range calls {
		go func() { answers <- answer{name, call(as(t, alice))} }()
	}
	for range calls {
		if a := <-answers; status.Code(a.err) != codes.Unavailable && status.Code(a.err) != codes.FailedPrecondition && status.Code(a.err) != codes.DeadlineExceeded {
			t.Errorf("%s of a leader that reaches nobody: %v; another leader may have answered otherwise", a.name, a.err)
		}
	}
}

// TestOnlyCoordinatorsAskForTheIndex: whoever else has a certificate does not.
func TestOnlyCoordinatorsAskForTheIndex(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	for _, role := range []string{"agent", "gate", ""} {
		_, err := peerv1.NewPeerServiceClient(c.Dial(0, role, "n1")).ConfirmIndex(t.Context(), &peerv1.ConfirmIndexRequest{})
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("role %q: %v, want that it is denied", role, err)
		}
	}
}

// TestANewLeaderKnowsWhatWasAcknowledged: a leader that has entries of before in
// its log and not yet in its state answers nothing until it has.
func TestANewLeaderKnowsWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3})
	l := c.Leader()
	others := []int{(l + 1) % 3, (l + 2) % 3}
	conns := []*grpc.ClientConn{c.Dial(others[0], "gate", "g"), c.Dial(others[1], "gate", "g")}
	submitted(t, conns[0], alice, reqID(1), spec(0))
	release := []func(){c.HoldApply(others[0]), c.HoldApply(others[1])}
	ids, err := submit(t, c.Dial(l, "gate", "g"), alice, reqID(2), spec(0))
	if err != nil {
		t.Fatal(err) // it is in the logs of a majority, and in the leader's state
	}
	c.Kill(l)
	answered := func() (known, missing bool) {
		for _, cc := range conns {
			ctx, cancel := context.WithTimeout(as(t, alice), time.Second)
			_, err := apirpc.NewJobServiceClient(cc).GetJob(ctx, &apiv1.GetJobRequest{Id: ids[0]})
			cancel()
			known = known || err == nil
			missing = missing || status.Code(err) == codes.NotFound
		}
		return known, missing
	}
	for range 4 { // an election takes one second or two
		if _, missing := answered(); missing {
			t.Fatal("a new leader says that an acknowledged job is not there")
		}
	}
	for _, r := range release {
		r()
	}
	for deadline := time.Now().Add(2 * time.Minute); ; {
		known, missing := answered()
		if missing {
			t.Fatal("a new leader says that an acknowledged job is not there")
		}
		if known {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody answers")
		}
	}
}

// TestOneSessionANode: of two that say to be one node the older ends, when the
// node was given up and came back between them.
func TestOneSessionANode(t *testing.T) {
	t.Parallel()
	var leases leaseClock
	c := coordtest.Start(t, coordtest.Options{N: 1, Clock: leases.now, Lease: aLease})
	cc := c.Dial(0, "gate", "g")
	old := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	leases.lapse(t, cc, "n1") // it sends no heartbeats
	if _, err := apirpc.NewClusterServiceClient(cc).FenceNode(as(t, admin), &apiv1.FenceNodeRequest{Id: "n1"}); err != nil {
		t.Fatal(err)
	}
	now := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	defer alive(now)()
	awaitNode(t, cc, "n1", "ready")
	old.Heartbeat() // as if a network had held it back
	select {
	case <-old.Ended:
	case <-now.Ended:
		t.Fatal("the newer session ended")
	case <-time.After(2 * time.Minute):
		t.Fatal("a session of before the fence goes on")
	}
}

// TestASessionEndsWithTheTermOfOffice: a coordinator that leads no more lets go of the
// agents that call it, which then look for the one that does, though they say nothing that
// it would have to refuse.
func TestASessionEndsWithTheTermOfOffice(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true})
	l := c.Leader()
	a := c.Agent(l, "n1", "b1", coordtest.T4("GPU-1"))
	awaitNode(t, c.Dial(l, "gate", "g"), "n1", "ready")
	for range 12 { // another one may not be voted for at once
		c.Elect(l)
		select {
		case <-a.Ended:
			return
		case <-time.After(5 * time.Second):
		}
	}
	t.Fatal("the session goes on with who leads no more")
}
