package policies

import (
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies/order"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
)

// pass is one run of a policy over a snapshot: it takes the tasks in turn, starts
// those that fit, and reserves room for those that do not.
type pass struct {
	*scene.Scene
	opt     *Options
	turns   *order.Turns
	starter *starter
	keeper  *keeper
	evictor *evictor
	// guard keeps tenants to their cells, nil without tenants.
	guard *guard
}

// memory is what one plan leaves for the next. All of it is a function of the
// snapshot, so a plan with memory equals one without; TestMemoryChangesNothing
// compares them.
type memory struct {
	scene  scene.Memory
	list   order.List
	failed map[shape]int64
}

// finisher is a placer that decides last about queues and preemptions; without one
// all waiting jobs are removed from the queues of GPUs.
type finisher interface{ Finish(p *scene.Scene) }

func newPass(snap *dispatch.Snapshot, e *engine) *pass {
	return newPassWith(snap, e, snap.Ledger.Clone(), &memory{failed: map[shape]int64{}})
}

// newPassWith is newPass on a ledger that the pass may allocate in, with what an
// earlier one left.
func newPassWith(snap *dispatch.Snapshot, e *engine, led *dispatch.Ledger, m *memory) *pass {
	s := scene.New(snap, led, &e.set, &m.scene)
	p := &pass{Scene: s, opt: &e.opt, turns: order.New(s, &e.order, e.opt.Age, e.opt.LAS, &m.list)}
	clear(m.failed)
	p.starter = &starter{Scene: s, failed: m.failed, plainly: !e.place.Queues && !e.place.Last}
	p.keeper = &keeper{Scene: s, holdAge: e.opt.HoldAge}
	p.evictor = &evictor{Scene: s, turns: p.turns, minRun: e.opt.MinRun}
	return p
}

func (e *engine) run(p *pass) dispatch.Plan {
	p.Rule = e.place.Make(p.Scene, p.turns)
	ranked := e.opt.Evict == EvictRanked && e.order.Over != nil && e.opt.Tenants == nil
	switch {
	case e.opt.Tenants != nil:
		p.guard = newGuard(p)
		p.guard.run(e.place.Queues)
	case ranked:
		r := ranker{p.Scene, p.turns, p.starter, p.evictor}
		r.rerank()
	default:
		p.inOrder(e.place.Queues)
	}
	if f, ok := p.Rule.(finisher); ok {
		f.Finish(p.Scene)
	} else {
		p.LeaveQueues()
	}
	tl := teller{p.Scene, p.keeper, p.guard}
	tl.tell()
	if !ranked && p.guard == nil {
		p.evictor.preempt()
	}
	return p.Plan
}

// inOrder starts waiting tasks by the order, with the rule of backfill. queues
// means that a GPU task that does not fit is in the queue of a GPU, so that no room
// need be reserved except for jobs over several nodes.
func (p *pass) inOrder(queues bool) {
	for _, t := range p.turns.Sorted() {
		switch {
		case p.starter.start(t) || p.opt.Backfill == BackfillAny || t.GPUs > 0 && queues && !t.Spans():
		case p.opt.Backfill == BackfillEASY:
			p.keeper.hold(t)
		case p.EverFits(t):
			p.keeper.head = t
			return
		}
	}
}
