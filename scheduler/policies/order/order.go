// Package order holds the orders in which a pass of a policy tries waiting jobs,
// and what each needs to compute beforehand: deadlines that can be met, rounds,
// usage.
package order

import (
	"cmp"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
)

// Order decides which job is tried first.
type Order struct {
	Name string
	// key returns what facts are compared by: lower goes first, then the id.
	key func(ts *Turns, f *scene.Facts) scene.Key
	// Over reports whether a waiting job may take the place of a running one, nil
	// in orders that do not preempt.
	Over func(ts *Turns, waits, runs *scene.Facts) bool
	// fixed means that the key of a waiting job stays the same while the job does.
	fixed bool
	// AtOnce means that Over does not wait for the minimum run: what was promised
	// does not depend on when another job began.
	AtOnce bool
	// prepare computes what keys need to know of all jobs, nil for nothing.
	prepare func(ts *Turns)
}

// All returns the table of all orders.
func All() []Order {
	return []Order{
		{Name: "fifo", key: byArrival, fixed: true},
		{Name: "size", key: bySize, fixed: true},
		{Name: "sjf", key: byDuration, fixed: true},
		{Name: "qssf", key: byGPUTime, fixed: true},
		{Name: "srsf", key: byServiceLeft, Over: muchLessService},
		{Name: "srtf", key: byTimeLeft, Over: muchShorter},
		{Name: "las", key: byService, Over: lowerQueue},
		{Name: "elas", key: byWeighedService, Over: lowerWeighedQueue},
		{Name: "fairshare", key: byUse, prepare: countUse},
		{Name: "themis", key: byUnfairness, Over: leaseEnded},
		{Name: "rounds", key: byPriority, Over: roundEnded, prepare: Allocate},
		{Name: "edf", key: byDeadline, Over: promised, AtOnce: true, prepare: admitDeadlines},
	}
}

// byArrival is first come, first served.
func byArrival(_ *Turns, f *scene.Facts) scene.Key { return scene.Key{A: f.Since, B: 0} }

// bySize takes whole GPUs and several first, then shares, both by decreasing
// dominant fraction: the "decreasing" of Yeung et al. (HotCloud 2020), section
// 6, on the larger of memory and compute. Jobs without GPUs come last.
func bySize(_ *Turns, f *scene.Facts) scene.Key {
	n := int64(f.Cards())
	switch {
	case n == 0:
		return scene.Key{A: 2, B: 0}
	case n > 1 || f.Size >= cluster.WholeGPU:
		return scene.Key{A: 0, B: -f.Size * n}
	}
	return scene.Key{A: 1, B: -f.Size}
}

// byDuration takes the shortest first, by predicted duration.
func byDuration(_ *Turns, f *scene.Facts) scene.Key { return scene.Key{A: f.Dur, B: f.Since} }

// byGPUTime takes the least predicted GPU time first: QSSF of Hu et al.,
// "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU
// Datacenters" (SC 2021), section 4.2. The snapshot's estimates stand in for its
// predictor.
func byGPUTime(_ *Turns, f *scene.Facts) scene.Key {
	return scene.Key{A: f.Dur * int64(f.Width()), B: f.Since}
}

// Ranked is a task in its place in the order.
type Ranked struct {
	Aged int8 // 0 if it waited too long
	scene.Key
	Task *scene.Task
}

// Turns orders the tasks.
type Turns struct {
	*scene.Scene
	Order *Order
	age   time.Duration // from which on jobs go before all others, 0 for never
	LAS   LAS
	list  *List
	// byOrder is nil until first needed.
	byOrder []*scene.Task
	// What orders compute beforehand.
	use      map[cluster.JobID]int64
	admitted map[cluster.JobID]struct{}
	Rounds   *Rounds
}

// New returns the turns of a pass, with the list that an earlier one left.
func New(p *scene.Scene, o *Order, age time.Duration, las LAS, list *List) *Turns {
	return &Turns{Scene: p, Order: o, age: age, LAS: las, list: list}
}

// Key returns the sort key of a turn: lower comes first.
func (ts *Turns) Key(f *scene.Facts) scene.Key { return ts.Order.key(ts, f) }

// Over reports whether a waiting job may take the place of a running one.
func (ts *Turns) Over(waits, runs *scene.Facts) bool { return ts.Order.Over(ts, waits, runs) }

// Sorted returns the tasks in the order in which the pass tries them: those that
// waited longer than the age first, first come, first served, then by key.
func (ts *Turns) Sorted() []*scene.Task {
	if ts.byOrder != nil {
		return ts.byOrder
	}
	if ts.Order.fixed && ts.age <= 0 {
		ts.byOrder = ts.list.merge(ts)
		return ts.byOrder
	}
	if ts.Order.prepare != nil {
		ts.Order.prepare(ts)
	}
	rs := make([]Ranked, len(ts.Tasks))
	for i, t := range ts.Tasks {
		rs[i] = Ranked{1, ts.Key(&t.Facts), t}
		if ts.Aged(t) {
			rs[i] = Ranked{0, scene.Key{A: t.Since, B: 0}, t}
		}
	}
	slices.SortFunc(rs, func(x, y Ranked) int {
		return cmp.Or(cmp.Compare(x.Aged, y.Aged), cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B), cmp.Compare(x.Task.ID, y.Task.ID))
	})
	ts.byOrder = make([]*scene.Task, len(rs))
	for i := range rs {
		ts.byOrder[i] = rs[i].Task
	}
	return ts.byOrder
}

// Aged reports whether a task waited longer than the age.
func (ts *Turns) Aged(t *scene.Task) bool {
	return ts.age > 0 && cluster.Time(ts.Now).Sub(cluster.Time(t.Since)) >= ts.age
}

// List is the tasks in a fixed order, as one plan leaves them for the next.
type List struct {
	plans  uint64
	sorted []*scene.Task
}

// merge returns the tasks of a pass by a fixed order: those of the last plan that
// still wait, and new ones.
func (m *List) merge(ts *Turns) []*scene.Task {
	m.plans++
	var fresh []*scene.Task
	for _, t := range ts.Tasks {
		if t.Listed == 0 || t.Listed != m.plans-1 {
			t.At = ts.Key(&t.Facts)
			fresh = append(fresh, t)
		}
		t.Listed = m.plans
	}
	before := func(x, y *scene.Task) int {
		return cmp.Or(cmp.Compare(x.At.A, y.At.A), cmp.Compare(x.At.B, y.At.B), cmp.Compare(x.ID, y.ID))
	}
	slices.SortFunc(fresh, before)
	out := make([]*scene.Task, 0, len(ts.Tasks))
	for _, t := range m.sorted {
		if t.Listed != m.plans {
			continue
		}
		for len(fresh) > 0 && before(fresh[0], t) < 0 {
			out, fresh = append(out, fresh[0]), fresh[1:]
		}
		out = append(out, t)
	}
	m.sorted = append(out, fresh...)
	return m.sorted
}
