package agent_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/gpu/sim"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestACutShareMakesRoom: when the share of a running attempt is cut, the cards
// follow, and another one starts beside it; after a restart of the agent, too.
func TestACutShareMakesRoom(t *testing.T) {
	dir, err := os.MkdirTemp("", "cut") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p, err := sim.New(sim.Config{Node: "n1", Specs: []sim.Spec{{Type: "T4", Count: 1}}, Socket: filepath.Join(dir, "s"), Unenforced: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	r := newRigWith(t, func(c *agent.Config) { c.GPUs, c.CapMode = p, "watch" })
	with := func(job uint64, share *nodev1.Share) *nodev1.Assignment {
		as := assignment(job)
		share.Uuid = sim.UUID("n1", 0)
		as.Gpus = []*nodev1.Share{share}
		return as
	}
	r.leader.Assign(with(1, &nodev1.Share{MemMib: 15000, Milli: 1000, Exclusive: true}))
	r.reported(1, running)
	r.leader.Assign(with(1, &nodev1.Share{MemMib: 2048, Milli: 10}))
	r.leader.Assign(with(2, &nodev1.Share{MemMib: 8192, Milli: 600}))
	r.reported(2, running)

	r.stop()
	r.start()
	r.leader.Assign(with(1, &nodev1.Share{MemMib: 1024, Milli: 10}))
	r.leader.Assign(with(3, &nodev1.Share{MemMib: 4096, Milli: 100}))
	r.reported(3, running)
}
