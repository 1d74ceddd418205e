package coordinator_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/policies/order"
)

const preempted = nodev1.AttemptState_ATTEMPT_STATE_PREEMPTED

// lasCluster plans by least attained service, with a clock of the test's.
func lasCluster(t *testing.T, o coordtest.Options) (*coordtest.Cluster, *atomic.Int64) {
	t.Helper()
	p, err := policies.New("slot+las", policies.Options{LAS: order.LAS{Promote: order.PromoteAfter}})
	if err != nil {
		t.Fatal(err)
	}
	ahead := &atomic.Int64{}
	o.Planner, o.Lease = p, 1000*time.Hour
	o.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	return coordtest.Start(t, o), ahead
}

func hook(s *apiv1.JobSpec) *apiv1.JobSpec {
	s.CheckpointSignal, s.CheckpointGrace = "USR1", durationpb.New(90*time.Second)
	return s
}

// TestWhoHadMuchMakesRoom: a job that ran for two hours is asked to save its
// state when another one comes, waits again, and goes on under its id.
func TestWhoHadMuchMakesRoom(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	c, ahead := lasCluster(t, coordtest.Options{N: 1, Registry: reg})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"), coordtest.T4("GPU-2"))
	ids := submitted(t, cc, alice, reqID(1), spec(2000), hook(spec(2000)))
	for range ids {
		a.Report(next(t, a), running, 0)
	}
	await(t, cc, ids[0], "RUNNING")
	await(t, cc, ids[1], "RUNNING")
	ahead.Store(int64(2 * time.Hour))
	short := submitted(t, cc, alice, reqID(2), spec(2000))
	asked := next(t, a)
	if asked.Job != ids[1] || asked.Stop || asked.Preempt.GetSignal() != "USR1" || asked.Preempt.GetGrace().AsDuration() != 90*time.Second {
		t.Fatalf("the agent was sent %v, want job %d to save its state", asked, ids[1])
	}
	if j := job(t, cc, alice, ids[1]); j.State != "RUNNING" || j.Reason != string(cluster.ReasonPreempted) {
		t.Errorf("it is %s (%s), want RUNNING until it ended", j.State, j.Reason)
	}
	a.Report(asked, preempted, 0)
	got := next(t, a)
	if got.Job != short[0] {
		t.Fatalf("job %d has the room, want %d", got.Job, short[0])
	}
	j := await(t, cc, ids[1], "PENDING")
	if n := len(j.Attempts); n != 1 || j.Attempts[0].State != "PREEMPTED" || !strings.Contains(j.Attempts[0].ReasonDetail, "for job 3: slot+las: ") {
		t.Errorf("attempts %v", j.Attempts)
	}
	a.Report(got, completed, 0)
	again := next(t, a)
	if again.Job != ids[1] || again.Attempt != 2 || again.Preempt != nil {
		t.Fatalf("then %v, want the second attempt of job %d", again, ids[1])
	}
	a.Report(again, completed, 0)
	await(t, cc, ids[1], "COMPLETED")
	if j := job(t, cc, alice, ids[0]); j.State != "RUNNING" || len(j.Attempts) != 1 {
		t.Errorf("the one without a hook is %s, %d attempts", j.State, len(j.Attempts))
	}
	if order, slow := counted(t, reg, "order"), counted(t, reg, "slowdown"); order != 1 || slow != 0 {
		t.Errorf("counted %v for order and %v for slowdown, want 1 and 0", order, slow)
	}
}

// counted reads berth_preemptions_total, -1 when it is not there.
func counted(t *testing.T, reg *prometheus.Registry, reason string) float64 {
	t.Helper()
	fams, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fams {
		for _, m := range f.Metric {
			if f.GetName() == "berth_preemptions_total" && m.Label[0].GetValue() == reason {
				return m.Counter.GetValue()
			}
		}
	}
	return -1
}

// TestTheNextLeaderGoesOnPreempting: the leader dies while a job saves its
// state; the next one asks the agent again, and nothing runs twice.
func TestTheNextLeaderGoesOnPreempting(t *testing.T) {
	t.Parallel()
	c, ahead := lasCluster(t, coordtest.Options{N: 3, Steady: true})
	l := c.Leader()
	cc := c.Dial(l, "gate", "g")
	a := c.Agent(l, "n1", "b1", coordtest.T4("GPU-1"))
	ids := submitted(t, cc, alice, reqID(1), hook(spec(2000)))
	a.Report(next(t, a), running, 0)
	await(t, cc, ids[0], "RUNNING")
	ahead.Store(int64(2 * time.Hour))
	short := submitted(t, cc, alice, reqID(2), spec(2000))
	if first := next(t, a); first.Preempt == nil {
		t.Fatalf("the agent was sent %v, want that it is to make room", first)
	}
	c.Kill(l)
	l = c.Leader()
	cc = c.Dial(l, "gate", "g")
	a = c.Agent(l, "n1", "b1", coordtest.T4("GPU-1"))
	asked := next(t, a)
	if asked.Job != ids[0] || asked.Attempt != 1 || asked.Preempt == nil {
		t.Fatalf("the next leader sent %v, want that job %d is to make room", asked, ids[0])
	}
	a.Report(asked, preempted, 0)
	if got := next(t, a); got.Job != short[0] {
		t.Fatalf("job %d has the room, want %d", got.Job, short[0])
	}
	await(t, cc, ids[0], "PENDING")
}

// TestPromisedJobsStay: who was promised to end in time is not preempted.
func TestPromisedJobsStay(t *testing.T) {
	t.Parallel()
	c, ahead := lasCluster(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"), coordtest.T4("GPU-2"))
	due := hook(spec(2000))
	due.TimeLimit, due.DeadlineIn = durationpb.New(3*time.Hour), durationpb.New(30*time.Hour)
	ids, err := submit(t, cc, alice, reqID(1), due, hook(spec(2000)))
	if err != nil {
		t.Fatal(err)
	}
	for range ids {
		a.Report(next(t, a), running, 0)
	}
	await(t, cc, ids[0], "RUNNING")
	await(t, cc, ids[1], "RUNNING")
	ahead.Store(int64(2 * time.Hour))
	if _, err = submit(t, cc, alice, reqID(2), spec(2000), spec(2000)); err != nil {
		t.Fatal(err)
	}
	asked := next(t, a)
	if asked.Job != ids[1] || asked.Preempt == nil {
		t.Fatalf("the agent was sent %v, want job %d to make room", asked, ids[1])
	}
	a.Report(asked, preempted, 0)
	a.Report(next(t, a), completed, 0)
	a.Report(next(t, a), completed, 0)
	if j := job(t, cc, alice, ids[0]); j.State != "RUNNING" || j.Reason != "" {
		t.Errorf("the one with a deadline is %s (%s)", j.State, j.Reason)
	}
}

// TestWhoIsSlowedDownIsLeftAlone: without another policy the newest who may be
// preempted leaves a card on which somebody runs for longer than it should.
func TestWhoIsSlowedDownIsLeftAlone(t *testing.T) {
	t.Parallel()
	reg, ahead := prometheus.NewRegistry(), &atomic.Int64{}
	c := coordtest.Start(t, coordtest.Options{
		N: 1, Registry: reg, Lease: 1000 * time.Hour, Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	slow := spec(2000)
	slow.Expected = durationpb.New(time.Hour)
	ids := submitted(t, cc, alice, reqID(1), slow, hook(spec(2000)))
	for range ids {
		a.Report(next(t, a), running, 0)
	}
	await(t, cc, ids[0], "RUNNING")
	await(t, cc, ids[1], "RUNNING")
	ahead.Store(int64(5 * time.Hour))
	if _, err := submit(t, cc, alice, reqID(2), spec(14000)); err != nil { // it waits, so that there are passes
		t.Fatal(err)
	}
	asked := next(t, a)
	if asked.Job != ids[1] || asked.Preempt == nil {
		t.Fatalf("the agent was sent %v, want job %d to make room", asked, ids[1])
	}
	a.Report(asked, preempted, 0)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		j := job(t, cc, alice, ids[1]) // it may wait in a queue, or run on another card
		if len(j.Attempts) > 0 && j.Attempts[0].State == "PREEMPTED" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("job %d is %s (%s), want that its first attempt was preempted", j.Id, j.State, j.Reason)
		}
	}
	if order, slowdown := counted(t, reg, "order"), counted(t, reg, "slowdown"); order != 0 || slowdown != 1 {
		t.Errorf("counted %v for order and %v for slowdown, want 0 and 1", order, slowdown)
	}
}

// TestFairshareCountsWhatEnded: of two who wait, who had hours on the card yesterday
// comes after who had none, though nobody's job runs any more and it came first.
func TestFairshareCountsWhatEnded(t *testing.T) {
	t.Parallel()
	p, err := policies.New("slot+fairshare", policies.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ahead := &atomic.Int64{}
	c := coordtest.Start(t, coordtest.Options{
		N: 1, Planner: p, Lease: 1000 * time.Hour, Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	submitted(t, cc, alice, reqID(1), alone())
	had := next(t, a)
	a.Report(had, running, 0)
	await(t, cc, had.Job, "RUNNING")
	ahead.Store(int64(3 * time.Hour))
	a.Report(had, completed, 0)
	await(t, cc, had.Job, "COMPLETED")
	submitted(t, cc, admin, reqID(2), alone())
	now := next(t, a)
	a.Report(now, running, 0)
	first := submitted(t, cc, alice, reqID(3), alone())
	second := submitted(t, cc, bob, reqID(4), alone())
	ahead.Add(int64(2 * time.Second)) // what was counted is older than a second
	a.Report(now, completed, 0)
	if got := next(t, a); got.Job != second[0] {
		t.Errorf("job %d is next, want %d of who had nothing before %d", got.Job, second[0], first[0])
	}
}
