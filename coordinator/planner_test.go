package coordinator_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/scheduler/policies"
)

// TestAnotherPolicyPlans: jobs start in the order of the policy, also when
// room comes from an end, and never stand in a queue.
func TestAnotherPolicyPlans(t *testing.T) {
	t.Parallel()
	p, err := policies.New("slot+sjf", policies.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := coordtest.Start(t, coordtest.Options{N: 1, Planner: p})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	first, long, short := spec(2000), spec(2000), spec(2000)
	long.Expected, short.Expected = durationpb.New(2*time.Hour), durationpb.New(time.Minute)
	ids, err := submit(t, cc, alice, reqID(1), first)
	if err != nil {
		t.Fatal(err)
	}
	one := next(t, a)
	a.Report(one, running, 0)
	await(t, cc, ids[0], "RUNNING")
	ids = submitted(t, cc, alice, reqID(2), long, short)
	a.Report(one, completed, 0)
	two := next(t, a)
	if two.Job != ids[1] {
		t.Errorf("job %d starts, want the shorter one, %d", two.Job, ids[1])
	}
	if j := job(t, cc, alice, ids[0]); j.State != "PENDING" {
		t.Errorf("the longer one is %s, want PENDING: this policy has no queues", j.State)
	}
}
