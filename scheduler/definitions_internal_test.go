package scheduler

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/fleet"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// TestRanksInQueues: a deadline before the old, the old by when they came, then the
// short, the long and the others; a priority before all, whatever the place in it.
func TestRanksInQueues(t *testing.T) {
	t.Parallel()
	now := int64(1_700_000_000_000_000)
	const h = int64(3_600_000_000)
	p := &turns{scene: &scene{pol: Default(), now: now}}
	p.f = &fleet.Fleet{Classes: []fleet.Class{{ClassKey: rules.ClassKey{GPUType: "A", Sellable: 1000}, Drain: 1000 * h}}}
	at := func(id cluster.JobID, dur int64, edit func(*item)) *item {
		j := &cluster.Job{ID: id, Eligible: cluster.Time(now), Spec: &cluster.Spec{GPUs: 1}}
		it := &item{job: j, gpus: 1, fast: 0, needs: []rules.Need{{Mem: 1000, Milli: 1000, Dur: dur, Way: rules.WayWhole}}}
		if edit != nil {
			edit(it)
		}
		it.eligible, it.due = int64(j.Eligible), j.Spec.Deadline > 0
		return it
	}
	old := func(ago int64) func(*item) {
		return func(it *item) { it.old, it.job.Eligible = true, cluster.Time(now-ago) }
	}
	due := func(in int64) func(*item) { return func(it *item) { it.job.Spec.Deadline = cluster.Time(now + in) } }
	urgent := func(it *item) { it.class = 3 }
	order := []struct {
		what string
		it   *item
	}{
		{"old, of a high priority", at(1, h, func(it *item) { old(h)(it); urgent(it) })},
		{"short, of a high priority", at(2, h, urgent)},
		{"long, of a high priority", at(3, 200*h, urgent)},
		{"a deadline tomorrow", at(4, h, due(24*h))},
		{"a deadline in a year", at(5, h, due(365*24*h))},
		{"old for a month", at(6, h, old(30*24*h))},
		{"old for a day", at(7, h, old(24*h))},
		{"short", at(8, h, nil)},
		{"four times as long and still short", at(9, 4*h, nil)},
		{"the longest", at(10, 260*h, nil)},
		{"long", at(11, 200*h, nil)},
		{"neither", at(12, 100*h, nil)},
	}
	for i := 1; i < len(order); i++ {
		a, b := p.queueRank(order[i-1].it), p.queueRank(order[i].it)
		if i == 3 { // deadlines know no class; they go by the pass's own promises
			continue
		}
		if a >= b {
			t.Errorf("%s has rank %d, %s %d", order[i-1].what, a, order[i].what, b)
		}
	}
	for _, x := range order {
		rank := p.queueRank(x.it)
		if want := first(x.it); RankIsOld(rank) != want {
			t.Errorf("%s: nobody passes it %t, want %t", x.what, RankIsOld(rank), want)
		}
		if want := x.it.class; x.it.job.Spec.Deadline == 0 && priorityOf(rank) != want {
			t.Errorf("%s: priority %d, want %d", x.what, priorityOf(rank), want)
		}
	}
	for class := int8(1); class <= accounting.MaxPriority && class > 0; class++ { // the ends of each stretch
		for _, rank := range []int64{0, 1 << rankShift, math.MaxInt64} {
			if got := priorityOf(inClass(rank, class)); got != class {
				t.Fatalf("rank %d of class %d is of class %d", rank, class, got)
			}
		}
		if class == math.MaxInt8 {
			break
		}
	}
}

// TestNeitherMayBePassed: of two whom nobody may pass the nearer deadline goes first,
// a deadline before age, then who came first.
func TestNeitherMayBePassed(t *testing.T) {
	t.Parallel()
	job := func(id cluster.JobID, deadline, eligible int64) *cluster.Job {
		return &cluster.Job{ID: id, Eligible: cluster.Time(eligible), Spec: &cluster.Spec{Deadline: cluster.Time(deadline)}}
	}
	order := []*cluster.Job{job(9, 100, 50), job(8, 200, 10), job(3, 200, 40), job(7, 0, 5), job(1, 0, 30), job(2, 0, 30)}
	for i, a := range order {
		for k, b := range order {
			if i != k && comesBefore(a, b) != (i < k) {
				t.Errorf("job %d before job %d: %t", a.ID, b.ID, i > k)
			}
		}
	}
}

// TestUsableBeside: idle GPUs are of use as far as cores and memory go that typical
// jobs take beside them.
func TestUsableBeside(t *testing.T) {
	t.Parallel()
	b := beside{cpu: 4000, host: 8192, milli: 1000} // four cores and 8 GiB with each GPU
	for _, c := range []struct{ idle, cpu, host, want int64 }{
		{2000, 64_000, 64 << 10, 2000}, {2000, 4000, 64 << 10, 1000}, {2000, 64_000, 4 << 10, 500}, {2000, 0, 64 << 10, 0}, {2000, -5, 64 << 10, 0}, {0, 64_000, 64 << 10, 0},
	} {
		if got := b.usable(c.idle, c.cpu, c.host); got != c.want {
			t.Errorf("%d thousandths beside %d cores and %d MiB: %d of use, want %d", c.idle, c.cpu, c.host, got, c.want)
		}
	}
	if got := (&beside{}).usable(2000, 64_000, 1); got != 0 {
		t.Errorf("%d of use where nobody knows what is typical", got)
	}
}

// TestPassesForget: a pass that works on the memory of passes over other worlds and
// other nodes plans what one with fresh memory does.
func TestPassesForget(t *testing.T) {
	t.Parallel()
	m, rnd := &memory{}, rand.New(rand.NewPCG(11, 11))
	same := func(snap *dispatch.Snapshot) dispatch.Plan {
		want := schedule(snap, Default()).plan
		if diff := cmp.Diff(want, planOn(m, snap, Default())); diff != "" {
			t.Fatalf("at %v with %d nodes, on fresh and on used memory:\n%s", snap.Now, len(snap.Nodes), diff)
		}
		return want
	}
	starts := 0
	for range 60 {
		w, more := lived(rnd)
		for range 5 {
			more()
			fewer := w.Snapshot()
			out := rnd.IntN(len(fewer.Nodes))
			fewer.Nodes = slices.Delete(slices.Clone(fewer.Nodes), out, out+1)
			same(fewer)
			plan := same(w.Snapshot())
			starts += len(plan.Starts)
			w.Apply(&plan)
			w.Advance(time.Duration(1+rnd.IntN(3600)) * time.Second)
		}
	}
	if starts < 100 {
		t.Fatalf("%d jobs started in all, which shows nothing", starts)
	}
}
