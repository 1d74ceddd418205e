package rules

import (
	"slices"
	"testing"
	"time"

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
		{"a second at least", time.Second, 0, 0, time.Second, 1000, time.Second, time.Second, time.Second, time.Second},
		{"but not beyond its limit", h, 0, 2*h + 10*m, 2 * h, 1000, 10 * m, 10 * m, 10 * m, 10 * m},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pol := Default()
			e := cluster.Estimate{GPUType: "A", Duration: c.predicted, ConfidenceMilli: c.confidence}
			j := &cluster.Job{ID: 1, Spec: &cluster.Spec{GPUs: 1, Duration: c.declared, TimeLimit: c.limit}}
			a := &cluster.Attempt{No: 1, State: cluster.JobRunning, Estimate: e, Placed: now.Add(-c.ago - m), Started: now.Add(-c.ago)}
			expected, latest := EndsAt(j, a, int64(now), &pol)
			for _, x := range []struct {
				what      string
				got, want time.Duration
			}{
				{"expected", cluster.Time(expected).Sub(now), c.expected}, {"latest", cluster.Time(latest).Sub(now), c.latest},
				{"middle", cluster.Time(EndAt(j, a, Middle, int64(now), &pol)).Sub(now), c.middleEnd}, {"nine in ten", cluster.Time(EndAt(j, a, Tail, int64(now), &pol)).Sub(now), c.tailOfTen},
			} {
				if x.got < x.want-time.Millisecond || x.got > x.want+time.Millisecond {
					t.Errorf("%s in %s, want %s", x.what, x.got, x.want)
				}
			}
		})
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
		n := CoresOf(j, &pol)
		if why := n.Choosable(j, int64(now)); (why == "") != c.may {
			t.Errorf("%s: %q", c.name, why)
		}
		if n.Mem != c.mem {
			t.Errorf("%s: %d MiB of host memory, want %d", c.name, n.Mem, c.mem)
		}
		on := n.Plain(j)
		if on.Spec.GPUs != 0 || on.Spec.MemMiB != c.mem || on.Spec.CPUMilli != 8000 || s.GPUs != 1 {
			t.Errorf("%s: as a job without GPUs %+v", c.name, on.Spec)
		}
	}
}

// TestGoalsAsDefined: what a run takes in each of the measures, worked out by hand,
// and which of several is the best by each objective.
func TestGoalsAsDefined(t *testing.T) {
	t.Parallel()
	pol := Default()
	pol.Prices = &Prices{PerHourMilli: map[string]int64{"A": 4000}}
	const h = int64(3_600_000_000)
	j := &cluster.Job{Spec: &cluster.Spec{GPUs: 2, Nodes: 3}}
	g := pol.Goal(j, "A", &cluster.Estimate{PowerW: 100}, &Need{Dur: 2 * h, Milli: 500, Mem: 100, Way: WayShare}, 1000)
	// Six cards, half of each, for two hours: 6 GPU-hours at 4.00; 600 W for 7200 s.
	if want := (GoalOf{Us: 2 * h, work: 6 * h, joules: 600 * 7200, milli: 24_000}); g != want {
		t.Errorf("%+v, want %+v", g, want)
	}
	goals := []GoalOf{
		{Us: 10, work: 40, joules: 900, milli: 500},
		{Us: 20, work: 20, joules: 400, milli: 800},
		{Us: 30, work: 30, joules: 0, milli: 300}, // nobody knows what it draws: as the worst
	}
	for o, want := range map[cluster.Objective]int{
		cluster.ObjectiveLatency: 0, cluster.ObjectiveThroughput: 1, cluster.ObjectiveEnergy: 1, cluster.ObjectiveCost: 2,
		// 1 + 2.25 + 1.67 = 4.92; 2 + 1 + 2.67 = 5.67; 3 + 2.25 + 1 = 6.25.
		cluster.ObjectiveBalanced: 0,
	} {
		if got := Rate(o, slices.Clone(goals)); got != want {
			t.Errorf("%s: number %d, want %d", o, got, want)
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
		if got := Most(c.free, c.part, c.kept, c.least, c.takes); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
