package coordinator_test

import (
	"testing"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestStraysAreNotSold: memory that strangers hold is sold to nobody and comes
// back when they are gone; what is given already stays given, and is not sold
// again when its job ends.
func TestStraysAreNotSold(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	clean := coordtest.T4("GPU-1")
	a := c.Agent(0, "n1", "b1", clean)
	sells := func() int64 { return gpuOf(t, cc, "n1", "GPU-1").SellableMib }
	all := sells()

	ids := submitted(t, cc, alice, reqID(1), spec(8000))
	asg := assigned(t, a, ids[0])
	a.Report(asg, running, 0)
	await(t, cc, ids[0], "RUNNING")
	given := gpuOf(t, cc, "n1", "GPU-1").LedgerUsedMib

	strayed := func(mib int64) *nodev1.GPU {
		g := coordtest.T4("GPU-1")
		g.StrayMib = mib
		g.Detail = &apiv1.GPUDetail{Driver: "580.1", Strays: []*apiv1.StrayProcess{{Pid: 42, User: "anna", Command: "python3", MemMib: mib}}}
		return g
	}
	a.Hello("n1", "b1", strayed(2000))
	within(t, "it sells less", func() bool { return sells() == all-2000 })
	within(t, "who holds it is shown", func() bool {
		d := gpuOf(t, cc, "n1", "GPU-1").Detail
		return d.GetStrayMib() == 2000 && len(d.Strays) == 1 && d.Strays[0].User == "anna" && d.Driver == "580.1"
	})
	a.Hello("n1", "b1", strayed(12_000))
	within(t, "it sells what is given and no more", func() bool { return sells() == given })
	await(t, cc, ids[0], "RUNNING")
	waits := submitted(t, cc, alice, reqID(2), spec(4000))
	a.Report(asg, completed, 0)
	await(t, cc, ids[0], "COMPLETED")
	within(t, "it sells what strangers leave", func() bool { return sells() == all-12_000 })
	await(t, cc, waits[0], "PENDING")

	a.Hello("n1", "b1", clean)
	within(t, "it sells everything again", func() bool { return sells() == all })
	assigned(t, a, waits[0])
	// An agent that claims more than there is sells nothing, and no less.
	a.Hello("n1", "b1", strayed(1<<40))
	within(t, "only what is given", func() bool { return sells() == gpuOf(t, cc, "n1", "GPU-1").LedgerUsedMib })
}
