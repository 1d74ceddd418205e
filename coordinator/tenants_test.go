package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	"github.com/berth-scheduler/berth/scheduler/cells"
	"github.com/berth-scheduler/berth/scheduler/policies"
)

func alone() *apiv1.JobSpec {
	s := spec(0)
	s.Gpus, s.Exclusive = 1, true
	return s
}

// TestTenantTakesItsCardBack: two tenants are guaranteed a card each. One runs
// on both; when the other one comes, the job that borrowed saves its state and
// makes room, and a further one is told that its tenant's cells are in use.
func TestTenantTakesItsCardBack(t *testing.T) {
	t.Parallel()
	one := []cells.Cell{{GPUType: coordtest.T4("x").Type, GPUs: 1, Count: 1}}
	p, err := policies.New("ffd", policies.Options{Tenants: &policies.Tenancy{
		Tenants: []cells.Tenant{{Name: "vision", Cells: one}, {Name: "speech", Cells: one}},
		Users:   map[string]string{"1001": "vision", "1002": "speech"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := coordtest.Start(t, coordtest.Options{N: 1, Planner: p, Lease: 1000 * time.Hour})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"), coordtest.T4("GPU-2"))
	ids := submitted(t, cc, 1001, reqID(1), hook(alone()), hook(alone()))
	for range ids {
		a.Report(next(t, a), running, 0)
	}
	await(t, cc, ids[1], "RUNNING")
	more := submitted(t, cc, 1001, reqID(2), alone())
	await(t, cc, more[0], "PENDING")
	why, err := apirpc.NewJobServiceClient(cc).ExplainJob(as(t, 1001), &apiv1.ExplainJobRequest{Id: more[0]})
	if err != nil {
		t.Fatal(err)
	}
	want := "team vision has 1 of 1 GPUs of its cells in use; it may borrow when preemptible: submit with a checkpoint hook"
	if es := why.Explanations; len(es) == 0 || es[0].Code != string(cluster.ReasonTenantCells) || es[0].Detail != want {
		t.Errorf("explained by %v", why.Explanations)
	}
	theirs := submitted(t, cc, 1002, reqID(3), alone())
	asked := next(t, a)
	if asked.Job != ids[1] || asked.Preempt == nil {
		t.Fatalf("the agent was sent %v, want job %d to save its state", asked, ids[1])
	}
	a.Report(asked, preempted, 0)
	if got := next(t, a); got.Job != theirs[0] {
		t.Fatalf("job %d has the card, want %d", got.Job, theirs[0])
	}
	await(t, cc, ids[1], "PENDING")
	got, err := apirpc.NewJobServiceClient(cc).GetJob(as(t, 1001), &apiv1.GetJobRequest{Id: ids[1]}) // others do not see why
	if err != nil {
		t.Fatal(err)
	}
	j := got.Job
	if why, err = apirpc.NewJobServiceClient(cc).ExplainJob(as(t, 1001), &apiv1.ExplainJobRequest{Id: ids[1]}); err != nil {
		t.Fatal(err)
	}
	if es := why.Explanations; len(es) == 0 || !strings.Contains(es[0].Detail, "it was preempted shortly ago and borrows again in ") || why.Forecast != nil {
		t.Errorf("who was sent home is explained by %v, forecast %v", es, why.Forecast)
	}
	if n := len(j.Attempts); n != 1 || !strings.Contains(j.Attempts[0].ReasonDetail, "tenant speech is guaranteed the 1 GPUs that it borrowed a part of") {
		t.Errorf("attempts %v", j.Attempts)
	}
}
