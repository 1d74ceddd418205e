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
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// setLimit gives a job, or tasks of an array, another time limit, and returns what is
// said against it, "" for nothing.
func setLimit(t *testing.T, cc *grpc.ClientConn, uid uint32, id uint64, tasks string, d time.Duration) string {
	t.Helper()
	_, err := apirpc.NewJobServiceClient(cc).UpdateJob(as(t, uid), &apiv1.UpdateJobRequest{Id: id, Tasks: tasks, TimeLimit: durationpb.New(d)})
	if err != nil {
		return err.Error()
	}
	return ""
}

// told waits until the agent is told of a job with a time limit.
func told(t *testing.T, a *coordtest.Agent, id uint64, d time.Duration) *nodev1.Assignment {
	t.Helper()
	for {
		if as := assigned(t, a, id); as.GetTimeLimit().AsDuration() == d {
			return as
		}
	}
}

// TestARunningJobsTimeLimit: its owner lowers it and administrators raise it, but not
// into a reservation of others; the agent is told each time.
func TestARunningJobsTimeLimit(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	ids, err := submit(t, cc, alice, reqID(1), limited(3*time.Hour, spec(2000)))
	if err != nil {
		t.Fatal(err)
	}
	id := ids[0]
	a.Report(next(t, a), running, 0)
	await(t, cc, id, "RUNNING")
	for _, step := range []struct {
		by      uint32
		limit   time.Duration
		refused string
	}{
		{bob, time.Hour, "another user"},
		{alice, 4 * time.Hour, "only administrators may raise"},
		{alice, 0, "only administrators may raise"},
		{alice, 2 * time.Hour, ""},
		{alice, 3 * time.Hour, "only administrators may raise"},
		{admin, 5 * time.Hour, ""},
		{alice, time.Millisecond, "below the minimum"},
	} {
		got := setLimit(t, cc, step.by, id, "", step.limit)
		if (got == "") != (step.refused == "") || !strings.Contains(got, step.refused) {
			t.Errorf("uid %d, %s: %q, want %q in it", step.by, step.limit, got, step.refused)
		}
		if got == "" {
			told(t, a, id, step.limit)
		}
	}
	// From in eight hours on the machine is promised to others.
	_, err = apirpc.NewClusterServiceClient(cc).SetReservation(as(t, admin), &apiv1.SetReservationRequest{Name: "service", OnlyNew: true, Maint: ptr(true),
		Nodes: ptr("n1"), Start: timestamppb.New(time.Now().Add(8 * time.Hour)), Duration: durationpb.New(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if got := setLimit(t, cc, admin, id, "", 9*time.Hour); !strings.Contains(got, "reservation service") {
		t.Errorf("into a reservation: %q", got)
	}
	if got := setLimit(t, cc, admin, id, "", 6*time.Hour); got != "" {
		t.Errorf("short of a reservation: %q", got)
	}
	told(t, a, id, 6*time.Hour)
}

// TestTimeLimitsOfTasks: of one that runs, and of the whole array.
func TestTimeLimitsOfTasks(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	id := array(t, cc, alice, reqID(1), "0-3%1", limited(3*time.Hour, spec(2000)))
	a.Report(next(t, a), running, 0)
	await(t, cc, id, "RUNNING")
	if got := setLimit(t, cc, alice, id, "0", 2*time.Hour); got != "" {
		t.Fatal(got)
	}
	as0 := told(t, a, id, 2*time.Hour)
	if got := setLimit(t, cc, alice, id, "0", 3*time.Hour); !strings.Contains(got, "only administrators may raise") {
		t.Errorf("raised by the owner: %q", got)
	}
	if got := setLimit(t, cc, admin, id, "", 4*time.Hour); got != "" {
		t.Fatal(got)
	}
	told(t, a, id, 4*time.Hour)
	if j := job(t, cc, alice, id+2); j.Spec.TimeLimit.AsDuration() != 4*time.Hour || j.State != "PENDING" {
		t.Errorf("a task that waits is %s with %s", j.State, j.Spec.TimeLimit.AsDuration())
	}
	if got := setLimit(t, cc, alice, id+3, "", time.Hour); got != "" { // by its own id
		t.Fatal(got)
	}
	if got := setLimit(t, cc, alice, id, "77", time.Hour); !strings.Contains(got, "none of the tasks") {
		t.Errorf("no such task: %q", got)
	}
	_, err := apirpc.NewJobServiceClient(cc).UpdateJob(as(t, alice), &apiv1.UpdateJobRequest{Id: id, Name: ptr("other")})
	if err == nil || !strings.Contains(err.Error(), "is an array") {
		t.Errorf("another name: %v", err)
	}
	a.Report(as0, completed, 0)
	for k, want := range []time.Duration{4 * time.Hour, 4 * time.Hour, time.Hour} {
		if as := next(t, a); as.Job != id+1+uint64(k) || as.GetTimeLimit().AsDuration() != want {
			t.Errorf("then job %d with %s, want %d with %s", as.Job, as.GetTimeLimit().AsDuration(), id+1+uint64(k), want)
		} else {
			a.Report(as, running, 0)
			a.Report(as, completed, 0)
		}
	}
}

func ptr[T any](v T) *T { return &v }

// TestRetriesOfAJobThatRuns: its owner says how often it is tried after this run, within
// what there may be, and takes it back.
func TestRetriesOfAJobThatRuns(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	ids := submitted(t, cc, alice, reqID(1), spec(2000))
	id := ids[0]
	as1 := next(t, a)
	a.Report(as1, running, 0)
	await(t, cc, id, "RUNNING")
	for _, step := range []struct {
		req     *apiv1.UpdateJobRequest
		refused string
	}{
		{&apiv1.UpdateJobRequest{RetryOn: ptr("75")}, "say how often"},
		{&apiv1.UpdateJobRequest{Retries: ptr(uint32(11))}, "outside 0 to 10"},
		{&apiv1.UpdateJobRequest{Retries: ptr(uint32(1)), RetryOn: ptr("COMPLETED")}, "neither an exit code"},
		{&apiv1.UpdateJobRequest{Retries: ptr(uint32(3)), RetryOn: ptr("75")}, ""},
		{&apiv1.UpdateJobRequest{Retries: ptr(uint32(0))}, ""},
		{&apiv1.UpdateJobRequest{Retries: ptr(uint32(1))}, ""},
	} {
		step.req.Id = id
		_, err := apirpc.NewJobServiceClient(cc).UpdateJob(as(t, alice), step.req)
		if (err == nil) != (step.refused == "") || err != nil && !strings.Contains(err.Error(), step.refused) {
			t.Errorf("%v: %v, want %q", step.req, err, step.refused)
		}
	}
	if s := job(t, cc, alice, id).Spec; s.Retries != 1 || s.RetryOn != "" {
		t.Errorf("it is tried %d times after %q", s.Retries, s.RetryOn)
	}
	a.Report(as1, failed, 3)
	if again := next(t, a); again.Job != id || again.Attempt != 2 {
		t.Errorf("then job %d, attempt %d", again.Job, again.Attempt)
	}
}
