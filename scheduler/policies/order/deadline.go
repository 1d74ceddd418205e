package order

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// byDeadline takes the jobs whose deadline is admitted first, the nearest deadline
// first (Liu and Layland, JACM 1973), then all others in order of arrival. Source:
// Gao et al., "Chronus: A Novel Deadline-aware Scheduler for Deep Learning Training
// Jobs" (SoCC 2021), section 4. Where Chronus solves an integer program over
// leases, we admit by demand; see admitDeadlines.
func byDeadline(ts *Turns, f *scene.Facts) scene.Key {
	if _, ok := ts.admitted[f.ID]; ok {
		return scene.Key{A: 0, B: f.Deadline}
	}
	return scene.Key{A: 1, B: f.Since}
}

// promised lets an admitted deadline take the place of best effort.
func promised(ts *Turns, waits, runs *scene.Facts) bool {
	_, ok := ts.admitted[waits.ID]
	return ok && runs.Deadline == 0
}

// due is a demand for GPU time by a deadline, or the room for it.
type due struct {
	at    int64
	slack int64 // GPU microseconds of all GPUs until then, less what is spoken for
}

// admitDeadlines goes through the jobs with deadlines in order of submission, so
// that later jobs do not displace earlier ones, and admits each that can end in
// time if it starts now and with which, for no deadline, what is due by then
// exceeds the GPU time until then: the demand criterion of EDF (Baruah, Mok and
// Rosier, RTSS 1990). Running jobs with a deadline are admitted; best effort that
// cannot be preempted counts as long as it is expected to run. The criterion is
// necessary, and sufficient only if work could be divided at will: a gang may still
// miss.
func admitDeadlines(ts *Turns) {
	ts.admitted = map[cluster.JobID]struct{}{}
	var asks []*scene.Task
	for _, t := range ts.Tasks {
		if t.Deadline > 0 && t.GPUs > 0 && ts.Now+t.Left <= t.Deadline && ts.EverFits(t) {
			asks = append(asks, t)
		}
	}
	if len(asks) == 0 {
		return
	}
	slices.SortFunc(asks, func(a, b *scene.Task) int {
		return cmp.Or(cmp.Compare(a.Submitted, b.Submitted), cmp.Compare(a.ID, b.ID))
	})
	ds := ts.slacks(asks)
	tree := newSlackTree(ds)
	for _, t := range asks {
		i, _ := slices.BinarySearchFunc(ds, t.Deadline, func(d due, at int64) int { return cmp.Compare(d.at, at) })
		work := t.Left / cluster.WholeGPU * t.Size * int64(t.Cards())
		if tree.least(i) < work {
			continue
		}
		tree.take(i, work)
		ts.admitted[t.ID] = struct{}{}
	}
}

// slacks returns, for each requested deadline, the GPU time until then that running
// jobs leave.
func (ts *Turns) slacks(asks []*scene.Task) []due {
	ds := make([]due, 0, len(asks))
	for _, t := range asks {
		ds = append(ds, due{at: t.Deadline})
	}
	slices.SortFunc(ds, func(a, b due) int { return cmp.Compare(a.at, b.at) })
	ds = slices.CompactFunc(ds, func(a, b due) bool { return a.at == b.at })
	cards := int64(len(ts.Fleet.Cards))
	for i := range ds {
		ds[i].slack = cards * min(ds[i].at-ts.Now, rules.Forever/4/max(1, cards)) // a deadline may be any number
	}
	for k := range ts.Fleet.Runs {
		if ts.Fleet.Runs[k].Part > 0 {
			continue // counted with the first
		}
		f := ts.FactsOfRun(&ts.Fleet.Runs[k])
		rate := f.Size * int64(max(0, f.Cards())) // thousandths of GPUs
		switch {
		case f.Deadline > 0:
			for i := range ds {
				if ds[i].at >= f.Deadline {
					ds[i].slack -= f.Left / cluster.WholeGPU * rate
				}
			}
		case !f.Preemptible:
			for i := range ds {
				ds[i].slack -= min(f.Left, ds[i].at-ts.Now) / cluster.WholeGPU * rate
			}
		}
	}
	return ds
}

// slackTree holds the slack at each deadline: it finds the least from one deadline
// on, and lowers it from one on, both in logarithmic time.
type slackTree struct {
	leaves int
	low    []int64 // least below, without what is owed above
	owed   []int64 // to be subtracted from all below
}

func newSlackTree(ds []due) *slackTree {
	t := &slackTree{leaves: 1}
	for t.leaves < len(ds) {
		t.leaves *= 2
	}
	t.low, t.owed = make([]int64, 2*t.leaves), make([]int64, 2*t.leaves)
	for i := range t.low {
		t.low[i] = rules.Forever
	}
	for i := range ds {
		t.low[t.leaves+i] = ds[i].slack
	}
	for i := t.leaves - 1; i >= 1; i-- {
		t.low[i] = min(t.low[2*i], t.low[2*i+1])
	}
	return t
}

// least returns the least slack at or after deadline i.
func (t *slackTree) least(i int) int64 { return t.leastIn(1, 0, t.leaves, i) }
func (t *slackTree) leastIn(n, lo, width, from int) int64 {
	switch {
	case lo+width <= from:
		return rules.Forever
	case lo >= from:
		return t.low[n]
	}
	v := min(t.leastIn(2*n, lo, width/2, from), t.leastIn(2*n+1, lo+width/2, width/2, from))
	if v == rules.Forever {
		return v
	}
	return v - t.owed[n]
}

// take lowers the slack at and after deadline i.
func (t *slackTree) take(i int, work int64) { t.takeIn(1, 0, t.leaves, i, work) }
func (t *slackTree) takeIn(n, lo, width, from int, work int64) {
	switch {
	case lo+width <= from || t.low[n] == rules.Forever:
		return
	case lo >= from:
		t.low[n] -= work
		t.owed[n] += work
		return
	}
	t.takeIn(2*n, lo, width/2, from, work)
	t.takeIn(2*n+1, lo+width/2, width/2, from, work)
	t.low[n] = min(t.low[2*n], t.low[2*n+1])
	if t.low[n] != rules.Forever {
		t.low[n] -= t.owed[n]
	}
}
