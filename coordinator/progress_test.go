package coordinator_test

import (
	"testing"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestProgressOfJobs: how far a job says that it is comes with its node's heartbeats
// and with its end, and from no other node.
func TestProgressOfJobs(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Steady: true})
	lead := c.Leader()
	cc := c.Dial(lead, "gate", "g")
	agent := c.Agent(lead, "n1", "boot1", coordtest.T4("GPU-1"))
	ids, err := submit(t, cc, alice, reqID(1), spec(12000))
	if err != nil {
		t.Fatal(err)
	}
	as := assigned(t, agent, ids[0])
	agent.Report(as, running, 0)
	await(t, cc, ids[0], "RUNNING")

	agent.Heartbeat(&nodev1.AttemptUse{Job: ids[0], Attempt: 1, Steps: &nodev1.Steps{Step: 120, Total: 1000, StepUs: 50_000, AgoMs: 1000}})
	eventually(t, "the job is at step 120", func() bool {
		p := job(t, cc, alice, ids[0]).Attempts[0].GetProgress()
		return p.GetStep() == 120 && p.GetTotal() == 1000 && p.GetEnds().AsTime().Sub(p.GetAt().AsTime()).Seconds() == 44
	})

	// What a node says of another's job, and what cannot be, changes nothing.
	other := c.Agent(lead, "n2", "boot2", coordtest.T4("GPU-2"))
	other.SendReport(&nodev1.Report{Job: as.Job, Attempt: as.Attempt, Token: as.Token, State: completed, Steps: &nodev1.Steps{Step: 999, Total: 1000}, Drain: "heard"})
	other.Heartbeat(&nodev1.AttemptUse{Job: ids[0], Attempt: 1, Steps: &nodev1.Steps{Step: 998, Total: 1000}})
	eventually(t, "the other node was heard", func() bool { return node(t, cc, "n2").Drain })
	agent.SendReport(&nodev1.Report{
		Job: as.Job, Attempt: as.Attempt, Token: as.Token, State: completed, Exit: &nodev1.Exit{}, Steps: &nodev1.Steps{Step: 990, Total: 5, StepUs: -7, AgoMs: -1 << 62},
	})
	await(t, cc, ids[0], "COMPLETED")
	if p := job(t, cc, alice, ids[0]).Attempts[0].GetProgress(); p.GetStep() != 990 || p.GetTotal() != 0 || p.GetStepTime() != nil {
		t.Errorf("after its end: %v", p)
	}
}
