package policies

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
)

// Arrivals starts deciding about jobs that arrive one at a time on nodes where
// nothing runs and from which nothing leaves, about each as Plan would if it waited
// alone. It reports false if only Plan can. It modifies neither argument.
func (n native) Arrivals(nodes []*cluster.Node, led *dispatch.Ledger) (scheduler.Offers, bool) {
	return scheduler.NewArrivals(nodes, led, n.pol), n.pol.PatienceMilli <= 0
}

// Arrivals is that of the scheduler's own pass.
func (e *engine) Arrivals(nodes []*cluster.Node, led *dispatch.Ledger) (scheduler.Offers, bool) {
	if !e.place.Lone || e.opt.Tenants != nil {
		return nil, false
	}
	a := &arrivals{e: e, p: newPass(&dispatch.Snapshot{Nodes: nodes, Ledger: led}, e)}
	a.p.Rule = e.place.Make(a.p.Scene, a.p.turns)
	return a, true
}

// arrivals is a continuing pass. It is not safe for concurrent use.
type arrivals struct {
	e *engine
	p *pass
}

// counter is a placer that learns of arrivals one at a time, instead of being
// rebuilt.
type counter interface {
	Arrives(p *scene.Scene, t *scene.Task)
	Decided(p *scene.Scene, t *scene.Task, ok bool)
}

// Offer implements scheduler.Offers. The id of j must be higher than all earlier
// ones.
func (a *arrivals) Offer(now cluster.Time, index uint64, j *cluster.Job) (dispatch.Start, bool) {
	p := a.p
	p.Now, p.Plan = int64(now), dispatch.Plan{BaseIndex: index}
	p.Snap.Now, p.Snap.Index = now, index
	if !j.State.Waiting() || j.Cancel != nil {
		return dispatch.Start{}, false
	}
	t := p.NewTask(j)
	p.Tasks = append(p.Tasks[:0], t)
	c, counts := p.Rule.(counter)
	if counts {
		c.Arrives(p.Scene, t)
	} else {
		p.Rule = a.e.place.Make(p.Scene, p.turns)
	}
	ok := p.starter.start(t)
	if counts {
		c.Decided(p.Scene, t, ok)
	}
	if !ok {
		return dispatch.Start{}, false
	}
	for i := range p.Plan.Starts[0].Berths() {
		p.Fleet.Runs[len(p.Fleet.Runs)-1-i].Fresh = false
	}
	return p.Plan.Starts[0], true
}
