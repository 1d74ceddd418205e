package policies

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// ordering decides who is tried first.
type ordering struct {
	name string
	// key makes what facts are compared by: less goes first, then the id.
	key func(p *pass, f *facts) key
	// over reports whether a waiting job may take the place of a running one,
	// nil in orders that do not preempt.
	over func(p *pass, waits, runs *facts) bool
	// fixed tells that the key of a waiting job stays the same while the job
	// does.
	fixed bool
	// atOnce tells that over does not wait for Options.MinRun: what was promised
	// does not depend on when somebody else began.
	atOnce bool
	// prepare works out what keys need to know of all jobs, nil for nothing.
	prepare func(p *pass)
}

type key struct{ a, b int64 }

// orders is the table of all orders.
func orders() []ordering {
	return []ordering{
		{name: "fifo", key: byArrival, fixed: true},
		{name: "size", key: bySize, fixed: true},
		{name: "sjf", key: byDuration, fixed: true},
		{name: "qssf", key: byGPUTime, fixed: true},
		{name: "srsf", key: byServiceLeft, over: muchLessService},
		{name: "srtf", key: byTimeLeft, over: muchShorter},
		{name: "las", key: byService, over: lowerQueue},
		{name: "fairshare", key: byUse, prepare: countUse},
		{name: "themis", key: byUnfairness, over: leaseEnded},
		{name: "rounds", key: byPriority, over: roundEnded, prepare: allocate},
		{name: "edf", key: byDeadline, over: promised, atOnce: true, prepare: admitDeadlines},
	}
}

// byArrival is first come, first served.
func byArrival(_ *pass, f *facts) key { return key{f.since, 0} }

// bySize takes whole GPUs and several first, then shares, both by decreasing
// dominant fraction: the "decreasing" of Yeung et al. (HotCloud 2020), section
// 6, on the larger of memory and compute. Jobs without GPUs come last.
func bySize(_ *pass, f *facts) key {
	n := int64(f.cards())
	switch {
	case n == 0:
		return key{2, 0}
	case n > 1 || f.size >= whole:
		return key{0, -f.size * n}
	}
	return key{1, -f.size}
}

// byDuration takes the shortest first, by predicted duration.
func byDuration(_ *pass, f *facts) key { return key{f.dur, f.since} }

// byGPUTime takes the least predicted GPU time first: QSSF of Hu et al.,
// "Characterization and Prediction of Deep Learning Workloads in Large-Scale
// GPU Datacenters" (SC 2021), section 4.2. Its predictor is whoever made the
// snapshot's estimates.
func byGPUTime(_ *pass, f *facts) key { return key{f.dur * int64(f.width()), f.since} }

// ranked is a task in its place in the order.
type ranked struct {
	aged int8 // 0 when it waited too long
	key
	t *task
}

// sorted returns the tasks in the order in which the pass tries them: who
// waited longer than Options.Age first, first come, first served, then by key.
func (p *pass) sorted() []*task {
	if p.byOrder != nil {
		return p.byOrder
	}
	if p.order.fixed && p.opt.Age <= 0 {
		p.byOrder = p.mem.merge(p)
		return p.byOrder
	}
	if p.order.prepare != nil {
		p.order.prepare(p)
	}
	rs := make([]ranked, len(p.tasks))
	for i, t := range p.tasks {
		rs[i] = ranked{1, p.order.key(p, &t.facts), t}
		if p.aged(t) {
			rs[i] = ranked{0, key{t.since, 0}, t}
		}
	}
	slices.SortFunc(rs, func(x, y ranked) int {
		return cmp.Or(cmp.Compare(x.aged, y.aged), cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b), cmp.Compare(x.t.id, y.t.id))
	})
	p.byOrder = make([]*task, len(rs))
	for i := range rs {
		p.byOrder[i] = rs[i].t
	}
	return p.byOrder
}

func (p *pass) aged(t *task) bool {
	return p.opt.Age > 0 && cluster.Time(p.now).Sub(cluster.Time(t.since)) >= p.opt.Age
}
