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
	ids := submitted(t, cc, alice, reqID(1), spec(12000))
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

// TestPullsOfImages: what a node fetches for a job is the job's reason until it runs, in
// words for its owner and without them for others.
func TestPullsOfImages(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Steady: true})
	lead := c.Leader()
	cc := c.Dial(lead, "gate", "g")
	agent := c.Agent(lead, "n1", "boot1", coordtest.T4("GPU-1"))
	s := spec(12000)
	s.Image = "lab.example/torch:2"
	ids := submitted(t, cc, alice, reqID(1), s)
	as := assigned(t, agent, ids[0])
	for _, x := range []struct {
		pull *nodev1.Pull
		want string
	}{
		{&nodev1.Pull{}, "its image is not here, and is being asked for"},
		{&nodev1.Pull{Layers: 3, LayersDone: 1, Bytes: 5 << 30, BytesDone: 1 << 30}, "its image is being fetched: 1 of 3 layers, 1024 of 5120 MiB (20 %)"},
		{&nodev1.Pull{Layers: 3, LayersDone: 9, Bytes: 1, BytesDone: 5 << 40}, "all 1 MiB of its image are here, and are being unpacked"},
	} {
		agent.Heartbeat(&nodev1.AttemptUse{Job: ids[0], Attempt: 1, Pull: x.pull})
		eventually(t, x.want, func() bool {
			j := job(t, cc, alice, ids[0])
			return j.GetState() == "STARTING" && j.GetReason() == "PullingImage" && j.GetReasonDetail() == x.want
		})
	}
	if j := job(t, cc, bob, ids[0]); j.GetReason() != "PullingImage" || j.GetReasonDetail() != "" {
		t.Errorf("another user reads %q, %q", j.GetReason(), j.GetReasonDetail())
	}
	agent.Report(as, running, 0)
	await(t, cc, ids[0], "RUNNING")
	if j := job(t, cc, alice, ids[0]); j.GetReason() != "" {
		t.Errorf("it runs, and its reason is %q: %s", j.GetReason(), j.GetReasonDetail())
	}
}
