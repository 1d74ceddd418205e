package coordinator_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

func TestFencing(t *testing.T) {
	t.Parallel()
	var leases leaseClock
	c := coordtest.Start(t, coordtest.Options{N: 1, Clock: leases.now, Lease: aLease})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	silence := alive(a)
	nodes := apirpc.NewClusterServiceClient(cc)
	again, once := spec(2000), spec(2000)
	again.RequeueOnLoss = true
	ids := submitted(t, cc, alice, reqID(1), again, once)
	old := assigned(t, a, ids[0])
	a.Report(old, running, 0)
	a.Report(assigned(t, a, ids[1]), running, 0)
	await(t, cc, ids[1], "RUNNING")
	fence := func(uid uint32, id string) (*apiv1.FenceNodeResponse, error) {
		return nodes.FenceNode(as(t, uid), &apiv1.FenceNodeRequest{Id: id})
	}
	if _, err := fence(alice, "n1"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a user fences: %v", err)
	}
	if _, err := fence(admin, "n9"); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown node: %v", err)
	}
	if _, err := fence(admin, "n1"); err == nil || !strings.Contains(err.Error(), "drain") {
		t.Errorf("a node that answers: %v", err)
	}
	if _, err := nodes.RemoveNode(as(t, admin), &apiv1.RemoveNodeRequest{Id: "n1"}); err == nil {
		t.Error("a node with jobs is removed")
	}
	silence()
	leases.lapse(t, cc, "n1")
	resp, err := fence(admin, "n1")
	if err != nil || fmt.Sprint(resp.Requeued, resp.Lost) != fmt.Sprint(ids[:1], ids[1:]) {
		t.Fatalf("%v, %v", resp, err)
	}
	await(t, cc, ids[1], "NODE_FAIL")
	// The session is of before the fence: it ends with the next heartbeat.
	a.Heartbeat()
	select {
	case <-a.Ended:
	case <-time.After(2 * time.Minute):
		t.Fatal("a fenced node's session goes on")
	}
	a = c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	defer alive(a)()
	next := assigned(t, a, ids[0])
	if next.Token <= old.Token || next.Attempt != 2 {
		t.Errorf("attempt %d with token %d after token %d", next.Attempt, next.Token, old.Token)
	}
	a.Report(old, completed, 0) // counts for nothing
	a.Report(next, running, 0)
	await(t, cc, ids[0], "RUNNING")
	a.Report(next, completed, 0)
	await(t, cc, ids[0], "COMPLETED")
	if _, err := nodes.RemoveNode(as(t, alice), &apiv1.RemoveNodeRequest{Id: "n1"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a user removes a node: %v", err)
	}
	if _, err := nodes.RemoveNode(as(t, admin), &apiv1.RemoveNodeRequest{Id: "n1"}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-a.Ended:
	case <-time.After(2 * time.Minute):
		t.Fatal("a removed node's session goes on")
	}
	if _, err := nodes.ListNodes(as(t, alice), &apiv1.ListNodesRequest{Ids: []string{"n1"}}); status.Code(err) != codes.NotFound {
		t.Errorf("the removed node: %v", err)
	}
}

// alive keeps a node's lease until silence is called.
func alive(a *coordtest.Agent) (silence func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-a.Ended:
				return
			case <-tick.C:
				a.Heartbeat()
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

const aLease = 10 * time.Minute

// leaseClock is a clock of coordinators whose nodes never lose their lease of
// ten minutes to a busy machine, but only to lapse.
type leaseClock struct{ ahead atomic.Int64 }

func (l *leaseClock) now() time.Time { return time.Now().Add(time.Duration(l.ahead.Load())) }

// lapse lets time pass until a silent node is unreachable, in steps that no
// coordinator takes for a time in which it stood still itself.
func (l *leaseClock) lapse(t *testing.T, cc *grpc.ClientConn, id string) *apiv1.Node {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		if n := node(t, cc, id); n.State == "unreachable" {
			return n
		}
		l.ahead.Add(int64(aLease / 5))
	}
	t.Fatalf("node %s keeps its lease", id)
	return nil
}
