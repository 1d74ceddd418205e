package coordinator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// TestWorkOfHeartbeats: heartbeats that change nothing leave nothing in the log.
func TestWorkOfHeartbeats(t *testing.T) {
	const nodes, beats = 40, 10
	c := coordtest.Start(t, coordtest.Options{N: 1, Lease: time.Hour})
	status := apirpc.NewClusterServiceClient(c.Dial(0, "gate", "g"))
	index := func() uint64 {
		r, err := status.GetStatus(as(t, alice), &apiv1.GetStatusRequest{Brief: true})
		if err != nil {
			t.Fatal(err)
		}
		return r.Index
	}
	var agents []*coordtest.Agent
	for i := range nodes {
		agents = append(agents, c.Agent(0, fmt.Sprint("n", i), "b", coordtest.T4(fmt.Sprint("GPU-", i))))
	}
	before := index()
	for range beats {
		for _, a := range agents {
			a.Heartbeat()
		}
	}
	for _, a := range agents {
		for deadline := time.Now().Add(10 * time.Minute); a.Granted.Load() < beats; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d heartbeats were answered", a.Granted.Load(), beats)
			}
		}
	}
	if n := index() - before; n != 0 {
		t.Errorf("%d heartbeats left %d entries in the log, want none", beats*nodes, n)
	}
}
