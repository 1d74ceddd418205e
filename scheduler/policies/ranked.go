package policies

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies/order"
	"github.com/berth-scheduler/berth/scheduler/policies/place"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
)

// Backfill says which jobs may overtake the first in the order that does not fit.
type Backfill string

// The rules of backfill.
const (
	// BackfillEASY lets jobs overtake that do not delay it, see keeper.hold.
	BackfillEASY Backfill = ""
	// BackfillNone lets none overtake: the queue of a batch system without
	// backfill, and of the simulator of Lucid (ASPLOS 2023) for fifo, sjf and qssf.
	BackfillNone Backfill = "none"
	// BackfillAny lets all overtake that fit, and reserves no room: wide jobs
	// starve under load.
	BackfillAny Backfill = "any"
)

// Eviction says how an order that preempts does it.
type Eviction string

// The rules of preemption.
const (
	// EvictRivals ends as few as make room for the first that wait, if the order
	// lets those take the place of these.
	EvictRivals Eviction = ""
	// EvictRanked ranks all jobs anew in each pass, waiting and running, and counts
	// the GPUs off in that order; a running job that gets none is ended, and a
	// waiting one that gets none does not start. The published simulators of
	// Tiresias (NSDI 2019), Muri (SIGCOMM 2022) and Lucid (ASPLOS 2023) do this. It
	// counts GPUs, so a gang may find them scattered, and then waits with its GPUs
	// idle.
	EvictRanked Eviction = "ranked"
)

// ranking is one of the jobs among which the GPUs are counted off.
type ranking struct {
	order.Ranked
	run   int32 // -1 for a waiting job
	stays int8  // 0 for a running job that keeps its place among equals
	id    cluster.JobID
	cards int // of a running job
	spans bool
}

// ranker ranks waiting and running jobs anew, and counts the GPUs off.
type ranker struct {
	*scene.Scene
	turns   *order.Turns
	starter *starter
	evictor *evictor
}

// rerank starts waiting jobs by rank, ends running ones beyond their rank, and
// leaves the others alone.
func (rk *ranker) rerank() {
	if rule, ok := rk.Rule.(place.Teamer); ok {
		rk.regroup(rule)
		return
	}
	getting, losing := rk.countOff()
	var failed *scene.Task
	for _, t := range getting {
		if rk.starter.start(t) {
			continue
		}
		if failed = cmp.Or(failed, t); len(losing) > 0 {
			break // the next plan gives away the room that is made, by rank
		}
	}
	if failed == nil {
		return
	}
	for _, ri := range losing {
		if !rk.MayAsk() {
			return
		}
		rk.Ask(&rk.Fleet.Runs[ri], failed.ID, "the cards are counted off before its turn")
	}
}

// countOff returns the waiting jobs that get GPUs, in the order of rank, and the
// running ones that get none, the last of the order first.
func (rk *ranker) countOff() (getting []*scene.Task, losing []int32) {
	all := rk.rankAll()
	left := make([]int64, len(rk.Fleet.Classes)) // thousandths of GPUs
	for c := range left {
		left[c] = int64(rk.Fleet.Classes[c].Count) * cluster.WholeGPU
	}
	rk.takePinned(left)
	for i := range all {
		x := &all[i]
		switch {
		case x.run >= 0:
			if c, want := rk.heldBy(x.run); left[c] >= want {
				left[c] -= want
			} else {
				losing = append(losing, x.run)
			}
		case x.Task.GPUs == 0:
			getting = append(getting, x.Task)
		default:
			if c, want := rk.wants(x.Task, left); c >= 0 {
				left[c] -= want
				getting = append(getting, x.Task)
			}
		}
	}
	slices.Reverse(losing)
	return getting, losing
}

// rankAll ranks the waiting jobs and the running ones that may be ended. Among
// equals in the first part of the key running jobs go first, unless Options.LAS
// says otherwise.
func (rk *ranker) rankAll() []ranking {
	all := make([]ranking, 0, len(rk.Tasks)+len(rk.Fleet.Runs))
	for _, t := range rk.turns.Sorted() { // prepares the order
		x := ranking{Ranked: order.Ranked{Aged: 1, Key: rk.turns.Key(&t.Facts), Task: t}, run: -1, stays: 1, id: t.ID, spans: t.Spans()}
		if rk.turns.Aged(t) {
			x.Ranked = order.Ranked{Aged: 0, Key: scene.Key{A: t.Since, B: 0}, Task: t}
		}
		all = append(all, x)
	}
	for ri := range rk.Fleet.Runs {
		if r := &rk.Fleet.Runs[ri]; r.Part == 0 && rk.counts(int32(ri)) {
			f := rk.FactsOfRun(r)
			x := ranking{Ranked: order.Ranked{Aged: 1, Key: rk.turns.Key(&f), Task: nil}, run: int32(ri), id: f.ID, cards: len(rk.Fleet.Held(int32(ri))), spans: r.Parts > 1}
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(x, y ranking) int {
		c := cmp.Or(cmp.Compare(x.Aged, y.Aged), cmp.Compare(x.A, y.A))
		if c == 0 && !rk.turns.LAS.ByArrival {
			c = cmp.Compare(x.stays, y.stays)
		}
		return cmp.Or(c, cmp.Compare(x.B, y.B), cmp.Compare(x.id, y.id))
	})
	return all
}

// counts reports whether a run is ranked: it may be ended, and has GPUs of nodes in
// service.
func (rk *ranker) counts(ri int32) bool {
	c, _ := rk.heldBy(ri)
	return c >= 0 && rk.evictor.mayEnd(&rk.Fleet.Runs[ri])
}

// takePinned subtracts what jobs hold that cannot be ended.
func (rk *ranker) takePinned(left []int64) {
	for ri := range rk.Fleet.Runs {
		if c, want := rk.heldBy(int32(ri)); c >= 0 && rk.Fleet.Runs[ri].Part == 0 && !rk.evictor.mayEnd(&rk.Fleet.Runs[ri]) {
			left[c] -= want
		}
	}
}

// heldBy returns what the attempt of a run holds on all of its nodes: of which
// class, and how many thousandths of GPUs.
func (rk *ranker) heldBy(ri int32) (class int32, milli int64) {
	class = -1
	for _, g := range rk.Fleet.Held(ri) {
		if ci, ok := rk.Fleet.CardAt[g.GPU]; ok {
			class = rk.Fleet.Groups[rk.Fleet.Cards[ci].Group].Class
			milli += scene.Dominant(g.Share, rk.Fleet.Classes[class].Sellable)
		}
	}
	return class, milli
}

// wants returns the class on which t ends soonest of those with enough left, -1 if
// there is none, and what it would take of it.
func (rk *ranker) wants(t *scene.Task, left []int64) (class int32, milli int64) {
	class = -1
	for c := range t.Needs {
		n := &t.Needs[c]
		want := scene.Dominant(n.Share, rk.Fleet.Classes[c].Sellable) * int64(t.Cards())
		if n.OK && left[c] >= want && (class < 0 || n.Dur < t.Needs[class].Dur) {
			class, milli = int32(c), want
		}
	}
	return class, milli
}
