package coordinator_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	"github.com/berth-scheduler/berth/scheduler/policies"
)

// TestDeadlines: what cannot be met is refused in numbers, what can is told
// with its slack, and who still waits when the time has passed ends.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	tight := spec(2000)
	tight.TimeLimit, tight.DeadlineIn = durationpb.New(2*time.Hour), durationpb.New(time.Hour)
	if _, err := submit(t, cc, alice, reqID(1), tight); err == nil || !strings.Contains(err.Error(), "cannot be met: it takes up to ~2 h on T4") {
		t.Errorf("got %v, want a refusal in numbers", err)
	}
	past := spec(2000)
	past.Deadline = timestamppb.New(time.Now().Add(-time.Hour))
	if _, err := submit(t, cc, alice, reqID(2), past); err == nil || !strings.Contains(err.Error(), "has passed") {
		t.Errorf("got %v, want a refusal", err)
	}
	fine := spec(2000)
	fine.TimeLimit, fine.DeadlineIn = durationpb.New(time.Hour), durationpb.New(2*time.Hour)
	ids := submitted(t, cc, alice, reqID(3), fine)
	if j := job(t, cc, alice, ids[0]); j.Slack == nil || j.Slack.AsDuration() > time.Hour || j.Slack.AsDuration() < 55*time.Minute || j.Spec.Deadline == nil || j.Spec.DeadlineIn != nil {
		t.Errorf("slack %v, spec %v", j.Slack, j.Spec)
	}
	late := spec(0)
	late.CpuMilli, late.TimeLimit, late.DeadlineIn = 1000, durationpb.New(time.Second), durationpb.New(3*time.Second)
	late.Node = "n1"
	if _, err := apirpc.NewClusterServiceClient(cc).DrainNode(as(t, admin), &apiv1.DrainNodeRequest{Id: "n1", Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	ids = submitted(t, cc, alice, reqID(4), late)
	if j := await(t, cc, ids[0], "DEADLINE"); j.Reason != "DeadLine" || j.Ended == nil || j.Slack != nil {
		t.Errorf("ended as %v", j)
	}
}

// TestDeadlinesOfArrays: an array is admitted if the last of its tasks can be in time, all of
// them count when another deadline is asked for, and all end when theirs has passed.
func TestDeadlinesOfArrays(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	c := coordtest.Start(t, coordtest.Options{N: 1, Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	cc := c.Dial(0, "gate", "g")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	if _, err := apirpc.NewClusterServiceClient(cc).DrainNode(as(t, admin), &apiv1.DrainNodeRequest{Id: "n1", Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	array := func(tasks uint32, within time.Duration) *apiv1.JobSpec {
		s := spec(2000)
		s.Exclusive, s.TimeLimit, s.DeadlineIn = true, durationpb.New(time.Hour), durationpb.New(within)
		if tasks > 0 {
			s.Array = fmt.Sprintf("1-%d", tasks)
		}
		return s
	}
	if _, err := submit(t, cc, alice, reqID(1), array(30, 40*time.Hour)); err == nil || !strings.Contains(err.Error(), "no node has") {
		t.Errorf("got %v, want a refusal", err)
	}
	if _, err := apirpc.NewClusterServiceClient(cc).ResumeNode(as(t, admin), &apiv1.ResumeNodeRequest{Id: "n1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := submit(t, cc, alice, reqID(2), array(90, 89*time.Hour+30*time.Minute)); err == nil || !strings.Contains(err.Error(), "behind 89 jobs with earlier deadlines") {
		t.Errorf("got %v, want a refusal of the last task", err)
	}
	id := submitted(t, cc, alice, reqID(3), array(90, 90*time.Hour+30*time.Minute))[0]
	if _, err := submit(t, cc, alice, reqID(4), array(0, 20*time.Hour)); err == nil || !strings.Contains(err.Error(), "which was promised its end by") {
		t.Errorf("got %v, want a refusal for the tasks promised", err)
	}
	held, err := apirpc.NewJobServiceClient(cc).ControlJobs(as(t, alice), &apiv1.ControlJobsRequest{RequestId: reqID(5), Action: apiv1.JobAction_JOB_ACTION_HOLD, Ids: []uint64{id}})
	if err != nil || !strings.Contains(held.Results[0].String(), "were promised their deadline") {
		t.Errorf("to hold it: %v, %v", held, err)
	}
	ahead.Store(int64(91 * time.Hour))
	await(t, cc, id+89, "DEADLINE")
}

// TestDeadlinesSizeJobs: a job of one to four GPUs starts with the two that its deadline
// needs, is told so, and is refused a deadline that not even those keep that it may claim.
func TestDeadlinesSizeJobs(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Lease: 1000 * time.Hour})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"), coordtest.T4("GPU-2"), coordtest.T4("GPU-3"), coordtest.T4("GPU-4"))
	ranged := func(by time.Duration) *apiv1.JobSpec {
		s := spec(0)
		s.Gpus, s.LeastGpus, s.MostGpus, s.Exclusive = 1, 1, 4, true
		s.Expected, s.DeadlineIn = durationpb.New(time.Hour), durationpb.New(by) // a guess, which takes three hours at most
		return s
	}
	other := spec(2000)
	other.Exclusive, other.Gpus = true, 2
	submitted(t, cc, alice, reqID(1), other)
	a.Report(next(t, a), running, 0)
	jobs := apirpc.NewJobServiceClient(cc)
	_, err := jobs.SubmitJobs(as(t, alice), &apiv1.SubmitJobsRequest{RequestId: reqID(3), Jobs: []*apiv1.JobSpec{ranged(time.Hour)}})
	if err == nil || !strings.Contains(err.Error(), "it takes up to ~99 min with 2 GPUs on T4, with which it ends first, and would end at") || !strings.Contains(err.Error(), "a range with more GPUs") {
		t.Errorf("got %v, want a refusal in numbers", err)
	}
	said, err := jobs.Predict(as(t, alice), &apiv1.PredictRequest{Spec: ranged(time.Hour)})
	if err != nil || !strings.Contains(said.CannotSay, "cannot be met") {
		t.Errorf("predicted %v, %v, want the same", said, err)
	}
	if said, err = jobs.Predict(as(t, alice), &apiv1.PredictRequest{Spec: ranged(2 * time.Hour)}); err != nil || !strings.HasPrefix(said.Forecast.GetMissing(), "deadline: it needs 2 GPUs") {
		t.Errorf("predicted %v, %v, want what it needs", said, err)
	}
	resp, err := jobs.SubmitJobs(as(t, alice), &apiv1.SubmitJobsRequest{RequestId: reqID(4), Jobs: []*apiv1.JobSpec{ranged(2 * time.Hour)}})
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Warnings) != 0 || len(resp.Promises) != 1 || !strings.HasPrefix(resp.Promises[0], "deadline: it needs 2 GPUs, which it has by ") {
		t.Errorf("told %v, warned of %v", resp.Promises, resp.Warnings)
	}
	if got := next(t, a); got.Job != resp.Ids[0] {
		t.Fatalf("job %d starts, want %d", got.Job, resp.Ids[0])
	}
	j := job(t, cc, alice, resp.Ids[0])
	if n := len(j.Attempts[0].Gpus); n != 2 || !strings.HasSuffix(j.Attempts[0].Why, "its deadline needs 2 GPUs") {
		t.Errorf("it runs on %d GPUs: %s", n, j.Attempts[0].Why)
	}
}

// TestDeadlinesMakeRoom: the GPU is held for days by a job with a checkpoint hook. A
// deadline is promised where the policy ends that job for it, which it does at once, and
// refused where it does not.
func TestDeadlinesMakeRoom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy string
		makes  bool
	}{{"ffd", true}, {"slot+edf", true}, {"slot+fifo", false}} {
		t.Run(c.policy, func(t *testing.T) {
			t.Parallel()
			p, err := policies.New(c.policy, policies.Options{})
			if err != nil {
				t.Fatal(err)
			}
			o := coordtest.Options{N: 1, Lease: 1000 * time.Hour}
			if c.policy != "ffd" {
				o.Planner = p
			}
			cl := coordtest.Start(t, o)
			cc := cl.Dial(0, "gate", "g")
			a := cl.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
			long := hook(spec(2000))
			long.Exclusive, long.TimeLimit = true, durationpb.New(100*time.Hour)
			held := submitted(t, cc, alice, reqID(1), long)
			a.Report(next(t, a), running, 0)
			await(t, cc, held[0], "RUNNING")
			due := spec(2000)
			due.Exclusive, due.TimeLimit, due.DeadlineIn = true, durationpb.New(time.Hour), durationpb.New(2*time.Hour)
			ids, err := submit(t, cc, alice, reqID(2), due)
			if !c.makes {
				if err == nil || !strings.Contains(err.Error(), "cannot make room") {
					t.Errorf("got %v, want a refusal", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			asked := next(t, a)
			if asked.Job != held[0] || asked.Preempt.GetSignal() != "USR1" {
				t.Fatalf("the agent was sent %v, want job %d to save its state", asked, held[0])
			}
			a.Report(asked, preempted, 0)
			if got := next(t, a); got.Job != ids[0] {
				t.Fatalf("job %d has the room, want %d", got.Job, ids[0])
			}
			if j := job(t, cc, alice, held[0]); len(j.Attempts) != 1 || j.Attempts[0].State != "PREEMPTED" {
				t.Errorf("attempts %v", j.Attempts)
			}
		})
	}
}

// TestPromisesAreMadeOneByOne: of many submits at the same instant only those
// are admitted that can all be kept.
func TestPromisesAreMadeOneByOne(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	var admitted, refused atomic.Int32
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			js := spec(2000)
			js.TimeLimit, js.DeadlineIn = durationpb.New(time.Hour), durationpb.New(90*time.Minute)
			switch _, err := submit(t, cc, alice, reqID(100+i), js); {
			case err == nil:
				admitted.Add(1)
			case strings.Contains(err.Error(), "cannot be met"), strings.Contains(err.Error(), "which was promised its end by"):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if admitted.Load() != 1 || refused.Load() != 15 {
		t.Errorf("admitted %d and refused %d of 16, want 1 and 15", admitted.Load(), refused.Load())
	}
}

// TestAChangeKeepsPromises: a waiting job with a deadline is promised it anew when it is
// changed to ask for more: not if another could then not keep its own, or it its own.
func TestAChangeKeepsPromises(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Lease: 1000 * time.Hour})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	full := limited(time.Hour, spec(2000))
	full.Exclusive = true
	if _, err := submit(t, cc, alice, reqID(1), full); err != nil {
		t.Fatal(err)
	}
	a.Report(next(t, a), running, 0)
	due := func(limit, by time.Duration) *apiv1.JobSpec {
		s := limited(limit, spec(2000))
		s.Exclusive, s.DeadlineIn = true, durationpb.New(by)
		return s
	}
	ids, err := submit(t, cc, alice, reqID(2), due(time.Hour, 150*time.Minute), due(time.Hour, 185*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name    string
		req     *apiv1.UpdateJobRequest
		refused string
	}{
		{"longer than the other can wait", &apiv1.UpdateJobRequest{TimeLimit: durationpb.New(80 * time.Minute)}, "which was promised its end by"},
		{"so long that it ends too late", &apiv1.UpdateJobRequest{TimeLimit: durationpb.New(2 * time.Hour)}, "cannot be met"},
		{"for less time", &apiv1.UpdateJobRequest{TimeLimit: durationpb.New(30 * time.Minute)}, ""},
		{"another name", &apiv1.UpdateJobRequest{Name: ptr("other")}, ""},
		{"longer again", &apiv1.UpdateJobRequest{TimeLimit: durationpb.New(55 * time.Minute)}, ""},
	} {
		step.req.Id = ids[0]
		_, err := apirpc.NewJobServiceClient(cc).UpdateJob(as(t, admin), step.req)
		if (err == nil) != (step.refused == "") || err != nil && !strings.Contains(err.Error(), step.refused) {
			t.Errorf("%s: %v, want %q", step.name, err, step.refused)
		}
	}
}
