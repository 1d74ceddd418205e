package policies

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// Backfill says who may pass the first in the order that does not fit.
type Backfill string

// The rules of backfill.
const (
	// BackfillEASY lets those pass who do not delay it, see pass.hold.
	BackfillEASY Backfill = ""
	// BackfillNone lets nobody pass: the queue of a batch system without
	// backfill, and of the simulator of Lucid (ASPLOS 2023) for fifo, sjf and
	// qssf.
	BackfillNone Backfill = "none"
	// BackfillAny lets everybody pass who fits, and keeps no room: wide jobs
	// starve under load.
	BackfillAny Backfill = "any"
)

// Eviction says how an order that preempts does it.
type Eviction string

// The rules of preemption.
const (
	// EvictRivals ends as few as make room for the first who wait, if the
	// order lets those take the place of these.
	EvictRivals Eviction = ""
	// EvictRanked ranks everybody anew in each pass, who waits and who runs, and
	// counts the cards off in that order; who runs and gets none is ended,
	// and who waits and gets none does not start. It is what the published
	// simulators of Tiresias (NSDI 2019), Muri (SIGCOMM 2022) and Lucid (ASPLOS
	// 2023) do. It counts cards, so that a gang may find them scattered, and then
	// waits with its cards idle.
	EvictRanked Eviction = "ranked"
)

// ranking is one of those among whom the cards are counted off.
type ranking struct {
	ranked
	run   int32 // -1 for one who waits
	stays int8  // 0 for who runs and keeps its place among equals
	id    cluster.JobID
	cards int // of who runs
	spans bool
}

// rerank starts those who wait by rank, ends those who run beyond their rank,
// and leaves the others alone.
func (p *pass) rerank() {
	if rule, ok := p.placer.(teamer); ok {
		p.regroup(rule)
		return
	}
	getting, losing := p.countOff()
	var failed *task
	for _, t := range getting {
		if p.start(t) {
			continue
		}
		if failed = cmpOr(failed, t); len(losing) > 0 {
			break // the room that is made is given away by rank, in the next plan
		}
	}
	if failed == nil {
		return
	}
	for _, ri := range losing {
		if len(p.plan.Preempt) == p.opt.MaxPreempt {
			return
		}
		r := &p.runs[ri]
		p.plan.Preempt = append(p.plan.Preempt, cluster.Preemption{
			Job: r.job.ID, Attempt: r.job.Live().No, For: failed.id, Why: fmt.Sprintf("%s: the cards are counted off before its turn", p.label),
		})
	}
}

func cmpOr(a, b *task) *task {
	if a != nil {
		return a
	}
	return b
}

// countOff returns who waits and gets cards, in the order of rank, and who runs
// and gets none, the last of the order first.
func (p *pass) countOff() (getting []*task, losing []int32) {
	all := p.rankAll()
	left := make([]int64, len(p.f.classes)) // thousandths of cards
	for c := range left {
		left[c] = int64(p.f.classes[c].count) * whole
	}
	p.takePinned(left)
	for i := range all {
		x := &all[i]
		switch {
		case x.run >= 0:
			if c, want := p.heldBy(x.run); left[c] >= want {
				left[c] -= want
			} else {
				losing = append(losing, x.run)
			}
		case x.t.gpus == 0:
			getting = append(getting, x.t)
		default:
			if c, want := p.wants(x.t, left); c >= 0 {
				left[c] -= want
				getting = append(getting, x.t)
			}
		}
	}
	slices.Reverse(losing)
	return getting, losing
}

// rankAll ranks who waits and who runs and may be ended. Among equals in the
// first part of the key who runs goes first, unless Options.LAS says otherwise.
func (p *pass) rankAll() []ranking {
	all := make([]ranking, 0, len(p.tasks)+len(p.runs))
	for _, t := range p.sorted() { // prepares the order
		x := ranking{ranked: ranked{1, p.order.key(p, &t.facts), t}, run: -1, stays: 1, id: t.id, spans: t.spans()}
		if p.aged(t) {
			x.ranked = ranked{0, key{t.since, 0}, t}
		}
		all = append(all, x)
	}
	for ri := range p.runs {
		if r := &p.runs[ri]; r.part == 0 && p.counts(int32(ri)) {
			f := p.factsOfRun(r)
			x := ranking{ranked: ranked{1, p.order.key(p, &f), nil}, run: int32(ri), id: f.id, cards: len(p.gangs.held(int32(ri))), spans: r.parts > 1}
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(x, y ranking) int {
		c := cmp.Or(cmp.Compare(x.aged, y.aged), cmp.Compare(x.a, y.a))
		if c == 0 && !p.opt.LAS.ByArrival {
			c = cmp.Compare(x.stays, y.stays)
		}
		return cmp.Or(c, cmp.Compare(x.b, y.b), cmp.Compare(x.id, y.id))
	})
	return all
}

// counts reports whether a run is among those who are ranked: it may be ended,
// and has cards of nodes in service.
func (p *pass) counts(ri int32) bool {
	c, _ := p.heldBy(ri)
	return c >= 0 && p.mayEnd(&p.runs[ri])
}

// takePinned takes off what those hold who cannot be ended.
func (p *pass) takePinned(left []int64) {
	for ri := range p.runs {
		if c, want := p.heldBy(int32(ri)); c >= 0 && p.runs[ri].part == 0 && !p.mayEnd(&p.runs[ri]) {
			left[c] -= want
		}
	}
}

// heldBy is what the attempt of a run holds on all of its nodes: of which class,
// and how many thousandths of cards.
func (p *pass) heldBy(ri int32) (class int32, milli int64) {
	class = -1
	for _, g := range p.gangs.held(ri) {
		if ci, ok := p.f.cardAt[g.GPU]; ok {
			class = p.f.groups[p.f.cards[ci].group].class
			milli += dominant(g.Share, p.f.classes[class].sellable)
		}
	}
	return class, milli
}

// wants is the class on which t ends soonest of those with enough left, -1
// when there is none, and what it would take of it.
func (p *pass) wants(t *task, left []int64) (class int32, milli int64) {
	class = -1
	for c := range t.needs {
		n := &t.needs[c]
		want := dominant(n.share, p.f.classes[c].sellable) * int64(t.cards())
		if n.ok && left[c] >= want && (class < 0 || n.dur < t.needs[class].dur) {
			class, milli = int32(c), want
		}
	}
	return class, milli
}
