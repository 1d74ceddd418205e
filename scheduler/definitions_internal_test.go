package scheduler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
)

// TestWhenAttemptsEnd: what is expected, at the latest, in the middle and in nine of
// ten cases; one that outlives it all is given a part of its age again.
func TestWhenAttemptsEnd(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	now := cluster.Time(1_700_000_000_000_000)
	for _, c := range []struct {
		name                                   string
		predicted, declared, limit, ago        time.Duration
		confidence                             int64
		expected, latest, middleEnd, tailOfTen time.Duration // from now
	}{
		{"as predicted", h, 0, 0, 0, 1000, h, h, h, 90 * m},
		{"as declared", 0, h, 0, 0, 0, h, h, h, 3 * h},
		{"less what it ran", h, 0, 0, 20 * m, 1000, 40 * m, 40 * m, 40 * m, 70 * m},
		{"at the latest by its limit", h, 0, 2 * h, 0, 0, h, 2 * h, h, 2 * h},
		{"never beyond its limit", 3 * h, 0, 2 * h, 0, 0, 2 * h, 2 * h, 2 * h, 2 * h},
		{"by its limit alone", 0, 0, 2 * h, 30 * m, 0, 90 * m, 90 * m, 90 * m, 90 * m},
		{"half as sure", h, 0, 0, 0, 500, h, h, h, 2*h + 15*m},
		{"a quarter of its age again", h, 0, 0, 2 * h, 1000, 30 * m, 30 * m, 30 * m, h},
		{"a second at least", time.Second, 0, 0, time.Second, 1000, time.Second, time.Second, time.Second, time.Second / 2},
		{"but not beyond its limit", h, 0, 2*h + 10*m, 2 * h, 1000, 10 * m, 10 * m, 10 * m, 10 * m},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pol := Default()
			e := cluster.Estimate{GPUType: "A", Duration: c.predicted, ConfidenceMilli: c.confidence}
			j := &cluster.Job{ID: 1, Spec: &cluster.Spec{GPUs: 1, Duration: c.declared, TimeLimit: c.limit}}
			a := &cluster.Attempt{No: 1, State: cluster.JobRunning, Estimate: e, Placed: now.Add(-c.ago - m), Started: now.Add(-c.ago)}
			expected, latest := endsAt(j, a, int64(now), &pol)
			for _, x := range []struct {
				what      string
				got, want time.Duration
			}{
				{"expected", cluster.Time(expected).Sub(now), c.expected}, {"latest", cluster.Time(latest).Sub(now), c.latest},
				{"middle", cluster.Time(endAt(j, a, middle, int64(now), &pol)).Sub(now), c.middleEnd}, {"nine in ten", cluster.Time(endAt(j, a, tail, int64(now), &pol)).Sub(now), c.tailOfTen},
			} {
				if x.got < x.want-time.Millisecond || x.got > x.want+time.Millisecond {
					t.Errorf("%s in %s, want %s", x.what, x.got, x.want)
				}
			}
		})
	}
}

// TestRanksInQueues: a deadline before the old, the old by when they came, then the
// short, the long and the others; a priority before all, whatever the place in it.
func TestRanksInQueues(t *testing.T) {
	t.Parallel()
	now := int64(1_700_000_000_000_000)
	const h = int64(3_600_000_000)
	p := &pass{pol: Default(), now: now}
	p.f = &fleet{classes: []class{{classKey: classKey{gpuType: "A", sellable: 1000}, drain: 1000 * h}}}
	at := func(id cluster.JobID, dur int64, edit func(*item)) *item {
		j := &cluster.Job{ID: id, Eligible: cluster.Time(now), Spec: &cluster.Spec{GPUs: 1}}
		it := &item{job: j, gpus: 1, fast: 0, needs: []need{{mem: 1000, milli: 1000, dur: dur, way: wayWhole}}}
		if edit != nil {
			edit(it)
		}
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
	for class := int8(1); class <= cluster.MaxPriority && class > 0; class++ { // the ends of each stretch
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

// TestMostOfANode: a job may take its part for each GPU that it gets, or whatever
// leaves the idle ones what they keep, counting what the GPUs kept that it takes.
func TestMostOfANode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                             string
		free, part, kept, least, takes   int64
		want                             int64
		cores, idle                      int // the same by hand: cores of a node, idle GPUs
		strands, gets, askCores, leftOne int64
	}{
		{name: "an empty node of four GPUs and 16 cores: all but six", free: 16, part: 4, kept: 8, least: 2, takes: 1, want: 10},
		{name: "two GPUs: all but four", free: 16, part: 4, kept: 8, least: 2, takes: 2, want: 12},
		{name: "all GPUs: all", free: 16, part: 4, kept: 8, least: 2, takes: 4, want: 16},
		{name: "beside others on a card: all but eight", free: 16, part: 4, kept: 8, least: 2, takes: 0, want: 8},
		{name: "its part, though that strands others", free: 5, part: 4, kept: 8, least: 2, takes: 1, want: 4},
		{name: "but no more than there is", free: 3, part: 4, kept: 8, least: 2, takes: 1, want: 3},
		{name: "its part of two", free: 9, part: 4, kept: 8, least: 2, takes: 2, want: 8},
	} {
		if got := most(c.free, c.part, c.kept, c.least, c.takes); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
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

// TestBitsetAtEdges: members beside and at the ends of words.
func TestBitsetAtEdges(t *testing.T) {
	t.Parallel()
	for _, members := range [][]int{{0}, {63}, {64}, {127}, {0, 63, 64, 127}, {62, 63}, {64, 65}, {1, 126}, {}} {
		b := make(bitset, 2)
		for _, m := range members {
			b.add(m)
		}
		for from := range 130 {
			want := -1
			for _, m := range members {
				if m >= from {
					want = m
					break
				}
			}
			if got := b.next(from); got != want {
				t.Errorf("%v: next from %d is %d, want %d", members, from, got, want)
			}
		}
		for _, m := range members {
			b.remove(m)
		}
		if got := b.next(0); got != -1 {
			t.Errorf("%v: %d is left", members, got)
		}
	}
}

// TestTreeAtEdges: first fit over each number of places up to five, for each of them
// and from each.
func TestTreeAtEdges(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 5; n++ {
		for full := range 1 << n { // bit i: place i holds it
			tree := newTree(n)
			for i := range n {
				r := nowhere()
				if full>>i&1 == 1 {
					r = room{mem: 5, milli: 5, slots: 1, cpu: 5, host: 5, until: forever}
				}
				tree.put(i, r)
			}
			tree.build()
			want := room{mem: 5, milli: 1, slots: 1}
			for from := range n + 2 {
				first := -1
				for i := from; i < n; i++ {
					if full>>i&1 == 1 {
						first = i
						break
					}
				}
				if got := tree.first(from, &want); got != first {
					t.Fatalf("%d places, %b hold it: first from %d is %d, want %d", n, full, from, got, first)
				}
			}
		}
	}
}

// TestVerdictOfThree: with three on a card the limit is held against each of them, and
// the one that it hits worst is named.
func TestVerdictOfThree(t *testing.T) {
	t.Parallel()
	know := &cluster.Interference{MaxBend: 1.6, BandwidthPerUtil: 1}
	for _, c := range []struct {
		name     string
		s        cluster.Sharing
		on       []float64 // utilizations of jobs 1, 2 …
		newcomer float64
		against  bool
		of       cluster.JobID
		slowdown float64
	}{
		{"two within it", cluster.Sharing{Bandwidth: 3}, []float64{0.5}, 0.5, false, 0, 0},
		{"three beyond: 1 + 3·0.2", cluster.Sharing{Bandwidth: 3}, []float64{0.4, 0.4}, 0.4, true, 1, 1.6},
		{"the newcomer itself is hit worst", cluster.Sharing{Compute: 2}, []float64{0.5, 0.5}, 1, true, 0, 3},
		{"one of those there is", cluster.Sharing{Compute: 2}, []float64{0.2, 1}, 0.5, true, 2, 1 + 2*0.2 + 2*0.5},
	} {
		var on []mate
		for i, u := range c.on {
			on = append(on, mate{job: cluster.JobID(i + 1), util: u})
		}
		v := judge(know, &c.s, on, mate{util: c.newcomer}, 1500)
		if v.against() != c.against || v.of != c.of || math.Abs(v.slowdown-c.slowdown) > 1e-9 {
			t.Errorf("%s: %+v, want job %d by %g", c.name, v, c.of, c.slowdown)
		}
	}
}

// TestWhoIsLate: who shared its card and has outrun a confident prediction by the
// limit and by more than nine in ten err.
func TestWhoIsLate(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	now := cluster.Time(1_700_000_000_000_000)
	for _, c := range []struct {
		name       string
		ran        time.Duration
		confidence int64
		shares     int
		neighbours []cluster.JobID
		limit      int64
		want       bool
	}{
		{"beyond both", 91 * m, 1000, 2, nil, 1500, true},
		{"just at them", 90 * m, 1000, 2, nil, 1500, false},
		{"beyond the limit, within the error", 100 * m, 500, 2, nil, 1500, false},
		{"beyond the error of a less sure one", 136 * m, 500, 2, nil, 1500, true},
		{"within a wide limit", 3*h - m, 1000, 2, nil, 3000, false},
		{"beyond a wide one", 3*h + m, 1000, 2, nil, 3000, true},
		{"alone", 9 * h, 1000, 1, nil, 1500, false},
		{"alone by now", 91 * m, 1000, 1, []cluster.JobID{7}, 1500, true},
		{"a guess", 9 * h, 100, 2, nil, 1500, false},
		{"no limit", 9 * h, 1000, 2, nil, 0, false},
	} {
		pol := Default()
		pol.MaxSlowdownMilli = c.limit
		j := &cluster.Job{ID: 1, State: cluster.JobRunning, Spec: &cluster.Spec{GPUs: 1}, Attempts: []cluster.Attempt{{
			No: 1, State: cluster.JobRunning, Started: now.Add(-c.ran), Placed: now.Add(-c.ran), Neighbours: c.neighbours,
			Estimate: cluster.Estimate{GPUType: "A", Duration: h, ConfidenceMilli: c.confidence},
		}}}
		if got := overran(j, int64(now), c.shares, &pol); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}

// TestCoresThatMayBeChosen: when an objective may speak for cores at all.
func TestCoresThatMayBeChosen(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	now := cluster.Time(1_700_000_000_000_000)
	for _, c := range []struct {
		name  string
		edit  func(*cluster.Spec)
		lasts time.Duration
		watts int64
		may   bool
		mem   int64
	}{
		{"for an objective", func(*cluster.Spec) {}, h, 0, true, 8192},
		{"without one", func(s *cluster.Spec) { s.Objective = "" }, h, 0, false, 8192},
		{"nobody knows how long", func(*cluster.Spec) {}, 0, 0, false, 8192},
		{"within its time limit", func(s *cluster.Spec) { s.TimeLimit = h }, h, 0, true, 8192},
		{"beyond its time limit", func(s *cluster.Spec) { s.TimeLimit = h - 1000 }, h, 0, false, 8192},
		{"by its deadline", func(s *cluster.Spec) { s.Deadline = now.Add(h) }, h, 0, true, 8192},
		{"later", func(s *cluster.Spec) { s.Deadline = now.Add(h - time.Second) }, h, 0, false, 8192},
		{"as much power as it may", func(s *cluster.Spec) { s.MaxPowerW = 48 }, h, 48, true, 8192},
		{"more", func(s *cluster.Spec) { s.MaxPowerW = 47 }, h, 48, false, 8192},
		{"more memory than is predicted", func(s *cluster.Spec) { s.MemMiB = 10_000 }, h, 0, true, 10_000},
	} {
		s := &cluster.Spec{GPUs: 1, OrCPU: true, CPUMilli: 8000, MemMiB: 1024, Objective: cluster.ObjectiveEnergy}
		c.edit(s)
		j := &cluster.Job{ID: 1, Spec: s, Estimates: []cluster.Estimate{{GPUType: cluster.CPUType, Duration: c.lasts, HostMemMiB: 8192, PowerW: c.watts}}}
		pol := Default()
		n := coresOf(j, &pol)
		if why := n.choosable(j, int64(now)); (why == "") != c.may {
			t.Errorf("%s: %q", c.name, why)
		}
		if n.mem != c.mem {
			t.Errorf("%s: %d MiB of host memory, want %d", c.name, n.mem, c.mem)
		}
		on := n.plain(j)
		if on.Spec.GPUs != 0 || on.Spec.MemMiB != c.mem || on.Spec.CPUMilli != 8000 || s.GPUs != 1 {
			t.Errorf("%s: as a job without GPUs %+v", c.name, on.Spec)
		}
	}
}

// TestLoadsAsSorted: the n-th least of some loads, and the order of severity, by the
// library's sort.
func TestLoadsAsSorted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		xs := rapid.SliceOfN(rapid.Int64Range(0, 9), 1, 12).Draw(t, "loads")
		n := rapid.IntRange(0, len(xs)-1).Draw(t, "n")
		want := slices.Sorted(slices.Values(xs))[n]
		if got := nth(slices.Clone(xs), n); got != want {
			t.Fatalf("%d-th of %v is %d, want %d", n, xs, got, want)
		}
	})
}

// TestGoalsAsDefined: what a run takes in each of the measures, worked out by hand,
// and which of several is the best by each objective.
func TestGoalsAsDefined(t *testing.T) {
	t.Parallel()
	pol := Default()
	pol.Prices = &Prices{PerHourMilli: map[string]int64{"A": 4000}}
	const h = int64(3_600_000_000)
	j := &cluster.Job{Spec: &cluster.Spec{GPUs: 2, Nodes: 3}}
	g := pol.goal(j, "A", &cluster.Estimate{PowerW: 100}, &need{dur: 2 * h, milli: 500, mem: 100, way: wayShare}, 1000)
	// Six cards, half of each, for two hours: 6 GPU-hours at 4.00; 600 W for 7200 s.
	if want := (goalOf{us: 2 * h, work: 6 * h, joules: 600 * 7200, milli: 24_000}); g != want {
		t.Errorf("%+v, want %+v", g, want)
	}
	goals := []goalOf{
		{us: 10, work: 40, joules: 900, milli: 500},
		{us: 20, work: 20, joules: 400, milli: 800},
		{us: 30, work: 30, joules: 0, milli: 300}, // nobody knows what it draws: as the worst
	}
	for o, want := range map[cluster.Objective]int{
		cluster.ObjectiveLatency: 0, cluster.ObjectiveThroughput: 1, cluster.ObjectiveEnergy: 1, cluster.ObjectiveCost: 2,
		// 1 + 2.25 + 1.67 = 4.92; 2 + 1 + 2.67 = 5.67; 3 + 2.25 + 1 = 6.25.
		cluster.ObjectiveBalanced: 0,
	} {
		if got := rate(o, slices.Clone(goals)); got != want {
			t.Errorf("%s: number %d, want %d", o, got, want)
		}
	}
}

// TestSeverityIsAnOrder: reasons from what never passes to what passes by itself.
func TestSeverityIsAnOrder(t *testing.T) {
	t.Parallel()
	order := []cluster.ReasonCode{
		cluster.ReasonNeverFits, cluster.ReasonNoNodes, cluster.ReasonReservation, cluster.ReasonNodeDown, cluster.ReasonGPUType, cluster.ReasonGPUs,
		cluster.ReasonGPUMem, cluster.ReasonCPU, cluster.ReasonSharing, cluster.ReasonQueueOrder, cluster.ReasonUnconfirmed, "SomethingElse",
	}
	if !slices.IsSortedFunc(order, func(a, b cluster.ReasonCode) int { return cmp.Compare(severity(a), severity(b)) }) {
		t.Errorf("severities %v", fmt.Sprint(order))
	}
}
