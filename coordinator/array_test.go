package coordinator_test

import (
	"strconv"
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

// array submits one of the tasks given, once all coordinators have said that they
// know arrays.
func array(t *testing.T, cc *grpc.ClientConn, uid uint32, id, tasks string, s *apiv1.JobSpec) uint64 {
	t.Helper()
	s.Array = tasks
	var ids []uint64
	until(t, "the array to be taken", func() (ok bool) {
		var err error
		ids, err = submit(t, cc, uid, id, s)
		return err == nil
	})
	return ids[0]
}

// whole is an array as it is told of.
func whole(t *testing.T, cc *grpc.ClientConn, id uint64) *apiv1.ArrayInfo {
	t.Helper()
	a := job(t, cc, alice, id).GetArray()
	if a == nil {
		t.Fatalf("%d is told of as no array", id)
	}
	return a
}

// TestAnArrayIsToldOf: by its id as a whole, beside its first task that has not
// ended; and a task by itself is not.
func TestAnArrayIsToldOf(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	id := array(t, cc, alice, reqID(1), "0-3%1", spec(2000))
	first := next(t, a)
	a.Report(first, running, 0)
	await(t, cc, id, "RUNNING")
	a.Report(first, failed, 3)
	second := next(t, a)
	a.Report(second, running, 0)
	until(t, "the second task to run", func() bool {
		j := job(t, cc, alice, id)
		return j.GetId() == id+1 && j.State == "RUNNING"
	})
	m := whole(t, cc, id)
	got := map[string]uint32{}
	for _, s := range m.States {
		got[s.State] = s.Count
	}
	if m.Tasks != "0-3" || m.Size != 4 || m.Ended != 1 || m.Completed != 0 || got["FAILED"] != 1 || got["RUNNING"] != 1 || got["PENDING"] != 2 {
		t.Errorf("the array is told of as %v", m)
	}
	why, err := apirpc.NewJobServiceClient(cc).ExplainJob(as(t, alice), &apiv1.ExplainJobRequest{Id: id})
	if err != nil || why.Job.State != "PENDING" || why.Job.GetArray().GetSize() != 4 || len(why.Explanations) == 0 {
		t.Errorf("most of its tasks wait, and it is said of it: %v, %v", why, err)
	}
	zero := uint32(0)
	r, err := apirpc.NewJobServiceClient(cc).GetJob(as(t, alice), &apiv1.GetJobRequest{Id: id, Task: &zero})
	if err != nil || r.Job.Array != nil || r.Job.State != "FAILED" || r.Job.GetExitCode() != 3 {
		t.Errorf("its first task is %v, %v", r.GetJob(), err)
	}
	stream, err := apirpc.NewJobServiceClient(cc).WatchJobs(as(t, alice), &apiv1.WatchJobsRequest{Ids: []uint64{id}, Brief: true})
	if err != nil {
		t.Fatal(err)
	}
	news, err := stream.Recv()
	if err != nil || len(news.Jobs) != 3 || news.Jobs[0].Spec != nil {
		t.Errorf("a brief watch begins with %v, %v; want three entries without specs", news, err)
	}
	a.Report(second, completed, 0)
	for range 2 {
		as := next(t, a)
		a.Report(as, running, 0)
		a.Report(as, completed, 0)
	}
	until(t, "all tasks to end", func() bool { m := whole(t, cc, id); return m.Ended == 4 && m.Completed == 3 })
}

// TestAThrottleOutlivesTheLeader: the next one starts no more tasks beside those that
// run than may, and goes on when one of them ends.
func TestAThrottleOutlivesTheLeader(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true})
	l := c.Leader()
	a := c.Agent(l, "n1", "b1", cards("n1", 4)...)
	id := array(t, c.Dial(l, "gate", "g"), alice, reqID(1), "0-3%2", spec(2000))
	for range 2 {
		a.Report(next(t, a), running, 0)
	}
	await(t, c.Dial(l, "gate", "g"), id+1, "RUNNING")
	c.Kill(l)
	l = c.Leader()
	cc := c.Dial(l, "gate", "g")
	a = c.Agent(l, "n1", "b1", cards("n1", 4)...)
	first := assigned(t, a, id)
	if r := job(t, cc, alice, id+3); r.State != "PENDING" {
		t.Errorf("task 3 is %s beside two that run", r.State)
	}
	a.Report(first, completed, 0)
	third := assigned(t, a, id+2)
	a.Report(third, running, 0)
	until(t, "two to run and one to wait", func() bool {
		got := map[string]uint32{}
		for _, s := range whole(t, cc, id).States {
			got[s.State] = s.Count
		}
		return got["RUNNING"] == 2 && got["COMPLETED"] == 1 && got["PENDING"] == 1
	})
}

// TestTasksAreNamedAgainAndAgain: lists as long and as far beyond an array as a
// request holds cost a moment, and each gets its own answer though they are one
// command for the array.
func TestTasksAreNamedAgainAndAgain(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	jobs := apirpc.NewJobServiceClient(cc)
	two, five := array(t, cc, alice, reqID(1), "0-1", spec(2000)), array(t, cc, alice, reqID(2), "0-8:2", spec(2000))
	var far []*apiv1.ArrayTasks
	for range 999 {
		far = append(far, &apiv1.ArrayTasks{Array: two, Tasks: "2-4194303,3-4194303:2,1000-4194302:3"})
	}
	began := time.Now()
	resp, err := jobs.CancelJobs(as(t, alice), &apiv1.CancelJobsRequest{Tasks: far})
	if err != nil || len(resp.Results) != len(far) || resp.Results[998].Outcome != apiv1.CancelOutcome_CANCEL_OUTCOME_NOT_FOUND {
		t.Fatalf("cancelled tasks that are none: %v, %v", resp.GetResults(), err)
	}
	if d := time.Since(began); d > 30*time.Second {
		t.Errorf("took %s", d)
	}
	ask := func(array uint64, tasks ...string) (out []*apiv1.ArrayTasks) {
		for _, t := range tasks {
			out = append(out, &apiv1.ArrayTasks{Array: array, Tasks: t})
		}
		return out
	}
	held, err := jobs.ControlJobs(as(t, alice), &apiv1.ControlJobsRequest{Action: apiv1.JobAction_JOB_ACTION_HOLD, Tasks: ask(five, "0-2", "2-4194303:2", "7", "8,6,8")})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint32{2, 4, 0, 2} {
		if r := held.Results[i]; r.Count != want || (r.Fault == "") != (want > 0) {
			t.Errorf("hold %s: %d tasks, %q %s; want %d", r.Tasks, r.Count, r.Fault, r.Message, want)
		}
	}
	resp, err = jobs.CancelJobs(as(t, alice), &apiv1.CancelJobsRequest{Ids: []uint64{two}, Tasks: ask(five, "0", "0-4,0-4194303:4", "8", "1-7:2")})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint32{2, 1, 4, 1, 0} {
		if r := resp.Results[i]; r.Count != want || (r.Outcome == apiv1.CancelOutcome_CANCEL_OUTCOME_CANCELLED) != (want > 0) {
			t.Errorf("cancel %s: %d tasks, %s; want %d", r.Tasks, r.Count, r.Outcome, want)
		}
	}
	if m := whole(t, cc, five); m.Ended != 4 {
		t.Errorf("%d of the tasks ended, want 0, 2, 4 and 8", m.Ended)
	}
}

// TestHeldTasksAreCalledByTheirTask: who asks why one waits is told what to release by the
// name that the queue shows.
func TestHeldTasksAreCalledByTheirTask(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	s := spec(2000)
	s.Hold = true
	id := array(t, cc, alice, reqID(1), "4-5", s)
	why, err := apirpc.NewJobServiceClient(cc).ExplainJob(as(t, alice), &apiv1.ExplainJobRequest{Id: id + 1})
	if err != nil || len(why.Explanations) != 1 || !strings.Contains(why.Explanations[0].Detail, "berth release 1_5 lets it start") {
		t.Errorf("why it is held: %v, %v", why, err)
	}
}

// TestTasksThatWaitAreCounted: a partition and a reservation tell how many tasks wait,
// held ones too, but no replicas that stand by.
func TestTasksThatWaitAreCounted(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	c.Agent(0, "n2", "b2", coordtest.T4("GPU-2"))
	site := apirpc.NewClusterServiceClient(cc)
	setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "batch", Nodes: ptr("n1,n2"), Default: ptr(true)})
	if _, err := site.SetReservation(as(t, admin), &apiv1.SetReservationRequest{Name: "course", OnlyNew: true, Nodes: ptr("n2"),
		Start: timestamppb.New(time.Now().Add(time.Hour)), Duration: durationpb.New(time.Hour), SetUsers: true, Users: []string{strconv.Itoa(alice)}}); err != nil {
		t.Fatal(err)
	}
	s := spec(2000)
	s.Where, s.Hold = &apiv1.Where{Reservation: "course"}, true
	array(t, cc, alice, reqID(1), "0-9", s)
	s = spec(2000)
	s.Service = &apiv1.Service{Name: "web", Replicas: 1, Most: 5}
	web := array(t, cc, alice, reqID(2), "0-4%1", s)
	a.Report(next(t, a), running, 0)
	await(t, cc, web, "RUNNING")
	p, err := site.ListPartitions(as(t, alice), &apiv1.ListPartitionsRequest{})
	if err != nil || p.Partitions[0].JobsWaiting != 10 || p.Partitions[0].JobsRunning != 1 {
		t.Errorf("ten tasks wait and a replica runs: %v, %v", p, err)
	}
	r, err := site.ListReservations(as(t, admin), &apiv1.ListReservationsRequest{})
	if err != nil || r.Reservations[0].JobsWaiting != 10 {
		t.Errorf("ten tasks wait: %v, %v", r, err)
	}
}
