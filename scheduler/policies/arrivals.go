package policies

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
)

// Arrivals begins to decide about jobs that come one by one onto nodes on which
// nothing runs and from which nothing leaves, about each as Plan would if it
// waited alone. It reports false when only Plan can. Neither argument is
// changed.
func (n native) Arrivals(nodes []*cluster.Node, led *cluster.Ledger) (scheduler.Offers, bool) {
	return scheduler.NewArrivals(nodes, led, n.pol), n.pol.PatienceMilli <= 0
}

// Arrivals is that of the scheduler's own pass.
func (e *engine) Arrivals(nodes []*cluster.Node, led *cluster.Ledger) (scheduler.Offers, bool) {
	if !e.place.lone || e.opt.Tenants != nil {
		return nil, false
	}
	a := &arrivals{e: e, p: newPass(&cluster.Snapshot{Nodes: nodes, Ledger: led}, e)}
	a.p.placer = e.place.make(a.p)
	return a, true
}

// arrivals is a pass that goes on. It is not safe for concurrent use.
type arrivals struct {
	e *engine
	p *pass
}

// Offer implements scheduler.Offers. The id of j must be higher than all
// before it.
func (a *arrivals) Offer(now cluster.Time, index uint64, j *cluster.Job) (cluster.Start, bool) {
	p := a.p
	p.now, p.plan = int64(now), cluster.Plan{BaseIndex: index}
	p.snap.Now, p.snap.Index = now, index
	if !j.State.Waiting() || j.Cancel != nil {
		return cluster.Start{}, false
	}
	t := p.newTask(j)
	p.tasks = append(p.tasks[:0], t)
	f, fragments := p.placer.(*fgd)
	if fragments {
		f.arrives(p, t)
	} else {
		p.placer = a.e.place.make(p)
	}
	ok := p.start(t)
	if fragments {
		f.decided(p, t, ok)
	}
	if !ok {
		return cluster.Start{}, false
	}
	for i := range p.plan.Starts[0].Berths() {
		p.runs[len(p.runs)-1-i].fresh = false
	}
	return p.plan.Starts[0], true
}

// arrives brings the target workload up to those that run and t.
func (f *fgd) arrives(p *pass, t *task) {
	n := len(p.runs) + 1
	n -= newest(n)
	if n == f.counted && !f.stale {
		return
	}
	f.stale = false
	for f.counted > n { // the step has grown
		f.count(p, p.newTask(p.runs[f.counted-1].job), -1)
	}
	for f.counted < min(n, len(p.runs)) {
		f.count(p, p.newTask(p.runs[f.counted].job), 1)
	}
	if f.counted < n {
		f.count(p, t, 1)
	}
	f.aim()
}

// decided takes t back if it does not run and was counted.
func (f *fgd) decided(p *pass, t *task, ok bool) {
	if !ok && f.counted > len(p.runs) {
		f.count(p, t, -1)
		f.stale = true
	}
}
