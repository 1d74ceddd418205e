package coordinator_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// TestDrainEnds: a drain with an end ends by itself, and says so.
func TestDrainEnds(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	nodes := apirpc.NewClusterServiceClient(cc)
	in := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(d)) }
	until(t, "the node is there", func() bool { return len(theNodes(t, nodes)) == 1 })
	for name, req := range map[string]*apiv1.DrainNodeRequest{
		"until: is missing; a drain that begins later": {Id: "n1", Reason: "x", From: in(time.Hour)},
		"has passed":             {Id: "n1", Reason: "x", Until: in(-time.Hour)},
		"is not after the start": {Id: "n1", Reason: "x", From: in(2 * time.Hour), Until: in(time.Hour)},
	} {
		if _, err := nodes.DrainNode(as(t, admin), req); err == nil || apiconv.FromStatus(err).Code != cluster.CodeInvalid || !strings.Contains(apiconv.FromStatus(err).Msg, name) {
			t.Errorf("want %q: %v", name, err)
		}
	}
	c.Agent(0, "n2", "b1", coordtest.T4("GPU-2"))
	until(t, "both nodes are there", func() bool { return len(theNodes(t, nodes)) == 2 })
	hour, second := in(time.Hour), in(time.Second)
	for id, end := range map[string]*timestamppb.Timestamp{"n1": second, "n2": hour} {
		if _, err := nodes.DrainNode(as(t, admin), &apiv1.DrainNodeRequest{Id: id, Reason: "new fans", Until: end}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the drain is over", func() bool {
		n := theNodes(t, nodes)[0]
		last := n.History[len(n.History)-1]
		return !n.Drain && n.DrainUntil == nil && last.Kind == cluster.EventResumed && last.ByUid == nil && last.Detail == "the time of its drain was over"
	})
	both := theNodes(t, nodes)
	if at := both[0].History[len(both[0].History)-1].At.AsTime(); at.Before(second.AsTime().Truncate(time.Microsecond)) {
		t.Errorf("the drain was over at %s, before its time, %s", at, second.AsTime())
	}
	// Whoever ended the one looked at the other, too.
	if n := both[1]; !n.Drain || !n.DrainUntil.AsTime().Equal(hour.AsTime().Truncate(time.Microsecond)) {
		t.Errorf("the drain for an hour is over: %v", n)
	}
}

// TestDrainLater: until a drain that was ordered for later begins, those jobs
// start on the node that will have ended by then, and it can be taken back.
func TestDrainLater(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"), coordtest.T4("GPU-2"))
	nodes := apirpc.NewClusterServiceClient(cc)
	until(t, "the node is there", func() bool { return len(theNodes(t, nodes)) == 1 })
	from, end := time.Now().Add(2*time.Hour).Truncate(time.Second), time.Now().Add(3*time.Hour).Truncate(time.Second)
	resp, err := nodes.DrainNode(as(t, admin), &apiv1.DrainNodeRequest{Id: "n1", Reason: "new driver", From: timestamppb.New(from), Until: timestamppb.New(end)})
	if err != nil || resp.Reservation != "drain-n1" {
		t.Fatalf("%v, %v", resp, err)
	}
	if n := theNodes(t, nodes)[0]; n.Drain || !n.DrainFrom.AsTime().Equal(from) || !n.DrainUntil.AsTime().Equal(end) || n.DrainReason != "new driver" {
		t.Errorf("node %v", n)
	}
	ids := submitted(t, cc, alice, reqID(1), limited(time.Hour, spec(2000)), limited(4*time.Hour, spec(2000)))
	a.Report(assigned(t, a, ids[0]), running, 0)
	until(t, "the longer one waits for the drain", func() bool { return job(t, cc, alice, ids[1]).Reason == string(cluster.ReasonReservation) })
	if _, err := nodes.ResumeNode(as(t, admin), &apiv1.ResumeNodeRequest{Id: "n1"}); err != nil {
		t.Fatal(err)
	}
	a.Report(assigned(t, a, ids[1]), running, 0)
	if n := theNodes(t, nodes)[0]; n.DrainFrom != nil || n.DrainUntil != nil {
		t.Errorf("node %v", n)
	}
}

func theNodes(t *testing.T, s apirpc.ClusterServiceClient) []*apiv1.Node {
	t.Helper()
	resp, err := s.ListNodes(as(t, alice), &apiv1.ListNodesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Nodes
}

// TestWhyBeforeItsReservation: a job inside a reservation that has yet to begin is told
// when that is, and not that there is room and the next pass decides.
func TestWhyBeforeItsReservation(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"), coordtest.T4("GPU-2"))
	nodes := apirpc.NewClusterServiceClient(cc)
	until(t, "the node is there", func() bool { return len(theNodes(t, nodes)) == 1 })
	begins := time.Now().Add(2 * time.Hour).Truncate(time.Second)
	if _, err := nodes.SetReservation(as(t, admin), &apiv1.SetReservationRequest{Name: "course", OnlyNew: true, Nodes: ptr("n1"),
		Start: timestamppb.New(begins), Duration: durationpb.New(time.Hour), SetUsers: true, Users: []string{strconv.Itoa(alice)}}); err != nil {
		t.Fatal(err)
	}
	inside := spec(2000)
	inside.Where = &apiv1.Where{Reservation: "course"}
	ids, err := submit(t, cc, alice, reqID(1), inside)
	if err != nil {
		t.Fatal(err)
	}
	why, err := apirpc.NewJobServiceClient(cc).ExplainJob(as(t, alice), &apiv1.ExplainJobRequest{Id: ids[0]})
	if err != nil || len(why.Explanations) != 1 || !strings.HasPrefix(why.Explanations[0].Detail, "reservation course begins at") {
		t.Errorf("why: %v, %v", why, err)
	}
	if f := why.GetForecast(); !f.GetStartP50().AsTime().Equal(begins) || !strings.Contains(f.GetMissing(), "reservation course begins at") {
		t.Errorf("forecast: %v, want %s", f, begins)
	}
	c.Agent(0, "n2", "b2", &nodev1.GPU{Uuid: "GPU-3", Type: "A100", MemMib: 81920, CapMode: "sim"})
	until(t, "the other node is there", func() bool { return len(theNodes(t, nodes)) == 2 })
	inside.GpuType = "A100"
	if _, err := submit(t, cc, alice, reqID(2), inside); err == nil || !strings.Contains(err.Error(), "inside reservation course: never satisfiable: no GPU of type A100; the types are T4; ask for what it has") {
		t.Errorf("what the reservation does not have is asked for: %v", err)
	}
}
