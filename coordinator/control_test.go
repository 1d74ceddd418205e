package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// controlled asks for an action as a user and returns the fault, "" for none.
func controlled(t *testing.T, cc grpc.ClientConnInterface, uid uint32, action apiv1.JobAction, id uint64) string {
	t.Helper()
	resp, err := apirpc.NewJobServiceClient(cc).ControlJobs(as(t, uid), &apiv1.ControlJobsRequest{Ids: []uint64{id}, Action: action})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Results[0].Fault
}

const (
	hold    = apiv1.JobAction_JOB_ACTION_HOLD
	release = apiv1.JobAction_JOB_ACTION_RELEASE
	requeue = apiv1.JobAction_JOB_ACTION_REQUEUE
)

// TestWhoHoldsAndReleases: users their own jobs, administrators all; and only
// they what one of them holds.
func TestWhoHoldsAndReleases(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	ids := submitted(t, cc, alice, reqID(1), &apiv1.JobSpec{Name: "j", Command: [][]byte{[]byte("true")}, Dir: []byte("/"), Hold: true})
	id := ids[0]
	for _, step := range []struct {
		by     uint32
		action apiv1.JobAction
		fault  string
		reason string
	}{
		{bob, release, "DENIED", "JobHeldUser"},
		{alice, hold, "", "JobHeldUser"},
		{admin, hold, "", "JobHeldAdmin"},
		{alice, release, "DENIED", "JobHeldAdmin"},
		{alice, requeue, "CONFLICT", "JobHeldAdmin"},
		{admin, release, "", "Planning"},
		{alice, hold, "", "JobHeldUser"},
		{admin, release, "", "Planning"},
	} {
		if got := controlled(t, cc, step.by, step.action, id); got != step.fault {
			t.Errorf("uid %d, %s: fault %q, want %q", step.by, step.action, got, step.fault)
		}
		if j := job(t, cc, alice, id); j.Reason != step.reason {
			t.Errorf("after uid %d, %s: %s, want %s", step.by, step.action, j.Reason, step.reason)
		}
	}
	if got := controlled(t, cc, alice, hold, 99); got != "NOT_FOUND" {
		t.Errorf("of an unknown job: %q", got)
	}
	if _, err := apirpc.NewJobServiceClient(cc).ControlJobs(as(t, alice), &apiv1.ControlJobsRequest{Ids: []uint64{id}}); err == nil {
		t.Error("no action was taken")
	}
}

// TestHeldJobsWaitAndOthersPass: a held job is not planned until it is
// released, and one that depends on it not until it ended.
func TestHeldJobsWaitAndOthersPass(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	held := spec(2000)
	held.Hold = true
	first := submitted(t, cc, alice, reqID(1), held)
	after := spec(2000)
	after.Depends = []*apiv1.Dependency{{Kind: "afterok", Job: first[0]}}
	ids := submitted(t, cc, alice, reqID(2), after, spec(2000))
	passed := next(t, a)
	if passed.Job != ids[1] {
		t.Fatalf("job %d started, want %d", passed.Job, ids[1])
	}
	why, err := apirpc.NewJobServiceClient(cc).ExplainJob(as(t, alice), &apiv1.ExplainJobRequest{Id: first[0]})
	if err != nil || len(why.Explanations) != 1 || !strings.Contains(why.Explanations[0].Detail, "berth release 1 lets it start") {
		t.Errorf("why it is held: %v, %v", why, err)
	}
	if j := job(t, cc, alice, ids[0]); j.Reason != "Dependency" || j.Dependency != "afterok:1(unfulfilled)" {
		t.Errorf("the dependent waits for %s, %s", j.Reason, j.Dependency)
	}
	controlled(t, cc, alice, release, first[0])
	got := next(t, a)
	if got.Job != first[0] {
		t.Fatalf("job %d started, want %d", got.Job, first[0])
	}
	a.Report(got, running, 0)
	await(t, cc, first[0], "RUNNING")
	if fault := controlled(t, cc, alice, requeue, first[0]); fault != "" {
		t.Fatalf("requeue: %s", fault)
	}
	asked := next(t, a)
	if asked.Job != first[0] || asked.Preempt.GetSignal() != "TERM" || asked.Preempt.GetGrace().AsDuration() != 0 || asked.Stop {
		t.Fatalf("the agent was sent %v, want TERM for job %d", asked, first[0])
	}
	a.Report(asked, preempted, 143)
	again := next(t, a)
	if again.Job != first[0] || again.Attempt != 2 || again.Preempt != nil {
		t.Fatalf("then %v, want attempt 2 of job %d", again, first[0])
	}
	a.Report(again, completed, 0)
	if got := next(t, a); got.Job != ids[0] {
		t.Fatalf("job %d started, want the dependent %d", got.Job, ids[0])
	}
	if _, err := submit(t, cc, alice, reqID(3), &apiv1.JobSpec{Name: "j", Command: [][]byte{[]byte("true")}, Dir: []byte("/"), Depends: []*apiv1.Dependency{{Kind: "afterany", Job: 99}}}); err == nil || !strings.Contains(err.Error(), "dependency afterany:99: job 99 is not known") {
		t.Errorf("a dependency on an unknown job: %v", err)
	}
}

// TestThePlannerWakesAtBegin: nothing else happens meanwhile.
func TestThePlannerWakesAtBegin(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	later := spec(2000)
	begin := time.Now().Add(1500 * time.Millisecond)
	later.Begin = timestamppb.New(begin)
	ids := submitted(t, cc, alice, reqID(1), later)
	if j := job(t, cc, alice, ids[0]); j.Reason != "BeginTime" && time.Now().Before(begin) {
		t.Errorf("it waits for %s", j.Reason)
	}
	if got := next(t, a); got.Job != ids[0] || time.Now().Before(begin.Truncate(time.Microsecond)) {
		t.Fatalf("job %d started %s before its time", got.Job, time.Until(begin))
	}
}

// TestPromisedJobsRunOn: a running job that was promised its deadline is not requeued,
// by whomever: it would start over, and those promised theirs behind it would be late.
func TestPromisedJobsRunOn(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	promised := limited(time.Hour, spec(2000))
	promised.DeadlineIn = durationpb.New(2 * time.Hour)
	ids, err := submit(t, cc, alice, reqID(1), promised, limited(time.Hour, spec(2000)))
	if err != nil {
		t.Fatal(err)
	}
	for range ids {
		a.Report(next(t, a), running, 0)
	}
	for i, want := range []string{"CONFLICT", ""} {
		await(t, cc, ids[i], "RUNNING")
		for _, by := range []uint32{alice, admin} {
			if got := controlled(t, cc, by, requeue, ids[i]); got != want {
				t.Errorf("job %d by uid %d: fault %q, want %q", ids[i], by, got, want)
			}
			if want == "" {
				break
			}
		}
	}
}
