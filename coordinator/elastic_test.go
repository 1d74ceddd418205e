package coordinator_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/scheduler/policies"
)

// TestAGangOfARangeShrinksAndGrows: a job of one to two nodes starts on both, begins again
// on one when another job has waited for a minute, and on both when that ended.
func TestAGangOfARangeShrinksAndGrows(t *testing.T) {
	t.Parallel()
	ahead := &atomic.Int64{}
	p, err := policies.New("firstfit", policies.Options{}) // which looks at the time each second
	if err != nil {
		t.Fatal(err)
	}
	c := coordtest.Start(t, coordtest.Options{N: 1, Planner: p, Lease: 1000 * time.Hour, Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	cc := c.Dial(0, "gate", "g")
	agents := map[string]*coordtest.Agent{"n1": c.Agent(0, "n1", "b1", cards("a", 1)...), "n2": c.Agent(0, "n2", "b1", cards("b", 1)...)}
	of := func(s *apiv1.JobSpec) *apiv1.JobSpec { s.Exclusive = true; return s }
	wide := of(hook(spec(2000)))
	wide.Nodes, wide.LeastNodes, wide.MostNodes = 1, 1, 2
	ids := submitted(t, cc, alice, reqID(1), wide)
	startsOnBoth := func(attempt uint32) {
		t.Helper()
		for name, a := range agents {
			as := next(t, a)
			if as.Job != ids[0] || as.Attempt != attempt || len(as.Ranks.GetNodes()) != 2 {
				t.Fatalf("%s was told %v, want attempt %d on both nodes", name, as, attempt)
			}
			a.SendReport(&nodev1.Report{Job: as.Job, Attempt: as.Attempt, Token: as.Token, State: nodev1.AttemptState_ATTEMPT_STATE_STARTING, Ready: true})
		}
		for _, a := range agents {
			as := next(t, a)
			if !as.Ranks.GetGo() {
				t.Fatalf("told %v, want it to begin", as)
			}
			a.Report(as, running, 0)
		}
		await(t, cc, ids[0], "RUNNING")
	}
	startsOnBoth(1)
	ahead.Store(int64(11 * time.Minute))
	other := submitted(t, cc, alice, reqID(2), of(spec(2000)))
	ahead.Store(int64(13 * time.Minute))
	for _, a := range agents {
		as := next(t, a)
		if as.Job != ids[0] || as.Preempt == nil {
			t.Fatalf("told %v, want that job %d saves its state", as, ids[0])
		}
		a.Report(as, preempted, 0)
	}
	var its, others *coordtest.Agent
	var small, short *nodev1.Assignment
	for _, a := range agents {
		if as := next(t, a); as.Job == other[0] {
			others, short = a, as
		} else {
			its, small = a, as
		}
	}
	if small == nil || short == nil || small.Attempt != 2 || len(small.Ranks.GetNodes()) != 1 || small.Ranks.MasterAddr == "" {
		t.Fatalf("then %v and %v, want the second attempt on one node, which is told of its rank", small, short)
	}
	its.Report(small, running, 0)
	others.Report(short, running, 0)
	await(t, cc, ids[0], "RUNNING")
	j := job(t, cc, alice, ids[0])
	if a := j.Attempts[0]; a.State != "PREEMPTED" || !strings.Contains(a.ReasonDetail, "begins again with fewer nodes than 2: job 2 waits for some") || j.Spec.Nodes != 1 || j.Spec.MostNodes != 2 {
		t.Errorf("attempt %v of a job on %d to %d nodes", a, j.Spec.Nodes, j.Spec.MostNodes)
	}
	others.Report(short, completed, 0)
	await(t, cc, other[0], "COMPLETED")
	ahead.Store(int64(25 * time.Minute))
	as := next(t, its)
	if as.Job != ids[0] || as.Preempt == nil {
		t.Fatalf("told %v, want that it saves its state again", as)
	}
	its.Report(as, preempted, 0)
	startsOnBoth(3)
	if a := job(t, cc, alice, ids[0]).Attempts[1]; !strings.Contains(a.ReasonDetail, "begins again with 2 nodes instead of 1: they are idle, and nobody waits") {
		t.Errorf("attempt %v", a)
	}
}
