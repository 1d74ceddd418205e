package coordinator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/coordinator/lead"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/cells"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// onTwo is a job on two nodes.
func onTwo() *apiv1.JobSpec {
	s := spec(2000)
	s.Nodes = 2
	return s
}

// TestGangsMeetApart: gangs whose first processes are on one host have a port
// each, of those that the site allows, whether one plan starts them or several;
// and every node is told the same.
func TestGangsMeetApart(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, GangPorts: [2]uint16{31_000, 31_005}})
	cc := c.Dial(0, "gate", "g")
	agents := []*coordtest.Agent{c.Agent(0, "n1", "b1", cards("a", 6)...), c.Agent(0, "n2", "b1", cards("b", 6)...)}
	seen := map[uint32]uint64{}
	for request, n := range []int{3, 1, 2} {
		var specs []*apiv1.JobSpec
		for range n {
			s := onTwo()
			s.Exclusive = true
			specs = append(specs, s)
		}
		ids := submitted(t, cc, alice, reqID(request), specs...)
		told := map[uint64]uint32{}
		for rank, a := range agents {
			for range ids {
				as := next(t, a)
				r := as.Ranks
				if r == nil || int(r.NodeRank) != rank || r.Go || strings.Join(r.Nodes, ",") != "n1,n2" {
					t.Fatalf("node %d was told %v", rank+1, r)
				}
				if rank == 0 {
					told[as.Job] = r.MasterPort
					continue
				}
				if told[as.Job] != r.MasterPort {
					t.Errorf("job %d meets at %d and at %d", as.Job, told[as.Job], r.MasterPort)
				}
			}
		}
		for id, port := range told {
			if other, taken := seen[port]; taken || port < 31_000 || port > 31_005 {
				t.Errorf("job %d meets at %d, job %d does, too; want 31000 to 31005", id, port, other)
			}
			seen[port] = id
		}
	}
}

func cards(name string, n int) []*nodev1.GPU {
	var out []*nodev1.GPU
	for i := range n {
		out = append(out, coordtest.T4(fmt.Sprintf("GPU-%s%d", name, i)))
	}
	return out
}

// TestLateNodeIsPassedOver: what a node held up is given up when the time is
// over, and tried again without that node where there are others.
func TestLateNodeIsPassedOver(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, GangTimeout: 3 * time.Second}) // the others must be ready within it
	cc := c.Dial(0, "gate", "g")
	agents := map[string]*coordtest.Agent{}
	for _, n := range []string{"n1", "n2", "n3"} {
		agents[n] = c.Agent(0, n, "b1", cards(n, 1)...)
	}
	ids := submitted(t, cc, alice, reqID(1), onTwo())
	ready := func(as *nodev1.Assignment, a *coordtest.Agent) {
		a.SendReport(&nodev1.Report{Job: as.Job, Attempt: as.Attempt, Token: as.Token, State: nodev1.AttemptState_ATTEMPT_STATE_STARTING, Ready: true})
	}
	first := next(t, agents["n1"])
	late := next(t, agents["n2"])
	ready(first, agents["n1"])
	for _, a := range []*coordtest.Agent{agents["n1"], agents["n2"]} {
		as := next(t, a)
		if !as.Stop || as.Attempt != 1 || as.Token != late.Token {
			t.Fatalf("told %v, want a stop", as)
		}
		a.Report(as, nodev1.AttemptState_ATTEMPT_STATE_CANCELLED, 0)
	}
	for _, n := range []string{"n1", "n3"} {
		as := next(t, agents[n])
		if as.Attempt != 2 || strings.Join(as.Ranks.GetNodes(), ",") != "n1,n3" {
			t.Fatalf("%s was told %v, want attempt 2 on n1 and n3", n, as)
		}
		ready(as, agents[n])
	}
	for _, n := range []string{"n1", "n3"} {
		if as := next(t, agents[n]); !as.Ranks.GetGo() || as.Stop {
			t.Fatalf("%s was told %v, want the word to go", n, as)
		}
	}
	if j := job(t, cc, alice, ids[0]); len(j.Attempts) != 2 || !strings.Contains(j.Attempts[0].ReasonDetail, "node n2 was not ready") {
		t.Errorf("attempts %v", j.Attempts)
	}
}

// tenanted is a policy that guarantees a GPU to a team.
func tenanted(t *testing.T) policies.Policy {
	t.Helper()
	p, err := policies.New("slot+sjf", policies.Options{Tenants: &policies.Tenancy{
		Tenants: []cells.Tenant{{Name: "x", Cells: []cells.Cell{{GPUType: "T4", GPUs: 1, Count: 1}}}}, Users: map[string]string{"7": "x"}}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ownNodes is a job that wants two nodes for itself.
func ownNodes() *apiv1.JobSpec {
	s := onTwo()
	s.Where = &apiv1.Where{Whole: true}
	return s
}

// TestGuaranteesAreRefusedWhereNodesAreAskedFor: guarantees to tenants do not suit while
// somebody waits for nodes of its own, held or not; where they were given all the same,
// that job is told that it never starts, and not that it does at any moment.
func TestGuaranteesAreRefusedWhereNodesAreAskedFor(t *testing.T) {
	t.Parallel()
	other := lead.Scheduling{Site: site.Site{Chosen: site.Chosen{Policy: scheduler.Default(), Planner: tenanted(t)}}}
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	c.Agent(0, "n2", "b1", coordtest.T4("GPU-2"))
	if err := c.Coordinator(0).Suits(&other); err != nil {
		t.Fatalf("nobody waits: %v", err)
	}
	gang, own := onTwo(), ownNodes()
	gang.Hold, own.Hold = true, true
	submitted(t, cc, alice, reqID(1), gang)
	if err := c.Coordinator(0).Suits(&other); err != nil {
		t.Fatalf("a gang waits: %v", err)
	}
	ids := submitted(t, cc, alice, reqID(2), own)
	const want = "policy slot+sjf guarantees cells to tenants, and job 2 waits for nodes of its own; let them start or cancel them first"
	if err := c.Coordinator(0).Suits(&other); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	c.Coordinator(0).SetScheduling(other)
	controlled(t, cc, alice, apiv1.JobAction_JOB_ACTION_RELEASE, ids[0])
	why, err := apirpc.NewJobServiceClient(cc).ExplainJob(as(t, alice), &apiv1.ExplainJobRequest{Id: ids[0]})
	if err != nil {
		t.Fatal(err)
	}
	if es := why.Explanations; len(es) != 1 || !strings.Contains(es[0].Detail, "nodes are nobody's alone") || why.Forecast != nil {
		t.Errorf("explained by %v, forecast %v", es, why.Forecast)
	}
	when, err := apirpc.NewJobServiceClient(cc).ListForecasts(as(t, alice), &apiv1.ListForecastsRequest{Ids: ids})
	if err != nil {
		t.Fatal(err)
	}
	if fs := when.Forecasts; len(fs) != 1 || fs[0].Forecast != nil || !strings.Contains(fs[0].CannotSay, "nodes are nobody's alone") {
		t.Errorf("forecasts %v", fs)
	}
}

// TestGuaranteesRefuseWholeNodes: a submit says that nodes are nobody's where GPUs are
// guaranteed; a gang is told what its team's cells are.
func TestGuaranteesRefuseWholeNodes(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Planner: tenanted(t)})
	cc := c.Dial(0, "gate", "g")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	c.Agent(0, "n2", "b1", coordtest.T4("GPU-2"))
	const want = "nodes: GPUs are guaranteed to tenants here (policy slot+sjf), and nodes are nobody's alone"
	if _, err := submit(t, cc, alice, reqID(1), ownNodes()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if _, err := submit(t, cc, alice, reqID(2), spec(2000)); err != nil {
		t.Errorf("on one node: %v", err)
	}
	ids := submitted(t, cc, alice, reqID(3), onTwo())
	const told = "its user is of no team with a guarantee; it may borrow when preemptible"
	why, err := apirpc.NewJobServiceClient(cc).ExplainJob(as(t, alice), &apiv1.ExplainJobRequest{Id: ids[0]})
	if err != nil {
		t.Fatal(err)
	}
	if es := why.Explanations; len(es) == 0 || !strings.Contains(es[0].Detail, told) || why.Forecast != nil {
		t.Errorf("explained by %v, forecast %v", es, why.Forecast)
	}
}

// TestGangsUnderOtherPolicies: under a policy beside the scheduler's own a gang takes
// its nodes, another waits for them and is told how many have room, and who
// comes after it on a GPU that is kept for it is told for whom.
func TestGangsUnderOtherPolicies(t *testing.T) {
	t.Parallel()
	p, err := policies.New("bestfit+sjf", policies.Options{Age: time.Hour, HoldAge: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c := coordtest.Start(t, coordtest.Options{N: 1, Planner: p})
	cc := c.Dial(0, "gate", "g")
	agents := []*coordtest.Agent{c.Agent(0, "n1", "b1", coordtest.T4("GPU-1")), c.Agent(0, "n2", "b1", coordtest.T4("GPU-2"))}
	c.Agent(0, "n3", "b1", coordtest.T4("GPU-3"))
	gang := func(nodes uint32, limit time.Duration) *apiv1.JobSpec {
		s := onTwo()
		s.Nodes, s.Exclusive, s.TimeLimit = nodes, true, durationpb.New(limit)
		return s
	}
	submitted(t, cc, alice, reqID(1), gang(2, time.Hour))
	for rank, a := range agents {
		if as := next(t, a); as.Ranks == nil || int(as.Ranks.NodeRank) != rank || strings.Join(as.Ranks.Nodes, ",") != "n1,n2" {
			t.Fatalf("node %d was told %v", rank+1, as.Ranks)
		}
	}
	ids := submitted(t, cc, alice, reqID(2), gang(3, time.Hour))
	late := submitted(t, cc, alice, reqID(3), gang(1, 100*time.Hour))
	for id, want := range map[uint64]string{ids[0]: "1 node with room for 1 of T4, needs 3 at once", late[0]: "job 2 is before it and waits for room"} {
		why, err := apirpc.NewJobServiceClient(cc).ExplainJob(as(t, alice), &apiv1.ExplainJobRequest{Id: id})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(why.Explanations, func(e *apiv1.Explanation) bool { return e.Detail == want }) {
			t.Errorf("job %d is explained by %v, want %q", id, why.Explanations, want)
		}
		if id == late[0] && why.Forecast != nil {
			t.Errorf("it is said to start at %v", why.Forecast)
		}
	}
}
