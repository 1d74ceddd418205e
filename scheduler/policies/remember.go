package policies

import "github.com/berth-scheduler/berth/cluster/dispatch"

// session is an engine with memory. It is not safe for concurrent use.
type session struct {
	*engine
	mem memory
}

// Remember returns a policy with the same plans, which keeps what it computed
// between calls. It relies on a job with an unchanged Revision being unchanged,
// allocates in the snapshot's ledger while it plans and frees everything again, and
// is for one caller at a time. Under tenants' cells nothing is kept.
func (e *engine) Remember() interface {
	Name() string
	Plan(snap *dispatch.Snapshot) dispatch.Plan
} {
	if e.opt.Tenants != nil {
		return e
	}
	return &session{engine: e, mem: memory{failed: map[shape]int64{}}}
}

func (s *session) Plan(snap *dispatch.Snapshot) dispatch.Plan {
	p := newPassWith(snap, s.engine, snap.Ledger, &s.mem)
	plan := s.engine.run(p)
	for i := range plan.Starts {
		for _, b := range plan.Starts[i].Berths() {
			snap.Ledger.Release(b)
		}
	}
	s.mem.scene.Keep(p.Scene)
	return plan
}
