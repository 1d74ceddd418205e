package order

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// attempt makes an attempt of so many minutes after the start of the world.
func attempt(placed, ended time.Duration, state cluster.JobState) cluster.Attempt {
	zero := Now.Add(-100 * time.Hour)
	a := cluster.Attempt{State: state, Placed: zero.Add(placed), Started: zero.Add(placed)}
	if state.Terminal() {
		a.Ended = zero.Add(ended)
	}
	return a
}

// TestPromotion: what a job had is forgotten once it waited eight times as
// long as it ran since it was promoted last.
func TestPromotion(t *testing.T) {
	t.Parallel()
	const h, gone = time.Hour, cluster.JobPreempted
	for name, c := range map[string]struct {
		attempts []cluster.Attempt
		at       time.Duration // after the submit
		want     time.Duration
	}{
		"never ran":                     {nil, 50 * h, 0},
		"runs":                          {[]cluster.Attempt{attempt(5*h, 0, cluster.JobRunning)}, 7 * h, 2 * h},
		"its first wait does not count": {[]cluster.Attempt{attempt(50*h, 51*h, gone)}, 52 * h, h},
		"waits not long enough":         {[]cluster.Attempt{attempt(0, h, gone)}, 9*h - 1, h},
		"waits long enough":             {[]cluster.Attempt{attempt(0, h, gone)}, 9 * h, 0},
		"all that it ran counts":        {[]cluster.Attempt{attempt(0, h, gone), attempt(2*h, 3*h, gone)}, 18 * h, 2 * h},
		"and its waits do not add up":   {[]cluster.Attempt{attempt(0, h, gone), attempt(8*h, 9*h, gone)}, 16 * h, 2 * h},
		"was promoted and runs":         {[]cluster.Attempt{attempt(0, h, gone), attempt(9*h, 0, cluster.JobRunning)}, 10 * h, h},
		"was promoted and sank again":   {[]cluster.Attempt{attempt(0, 4*h, gone), attempt(40*h, 41*h, gone)}, 42 * h, h},
		"twice":                         {[]cluster.Attempt{attempt(0, 4*h, gone), attempt(40*h, 41*h, gone)}, 49 * h, 0},
		"what never began is no run":    {[]cluster.Attempt{attempt(0, h, gone), {State: cluster.JobFailed, Placed: Now}}, 9 * h, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := scene.Facts{Submitted: int64(Now.Add(-100 * h)), Attempts: c.attempts}
			got := time.Duration(sincePromoted(&f, f.Submitted+c.at.Microseconds(), 8)) * time.Microsecond
			if got.Round(time.Second) != c.want {
				t.Errorf("ran %s since it was promoted, want %s", got, c.want)
			}
		})
	}
}

// TestPromotedGoesFirst: in the order, where sites promote and where nobody does.
func TestPromotedGoesFirst(t *testing.T) {
	t.Parallel()
	sank := Job(1, Exclusive, Lasts(50*time.Hour), Waited(100*time.Hour))
	sank.Attempts = []cluster.Attempt{attempt(0, 3*time.Hour, cluster.JobPreempted)}
	fresh := Job(2, Exclusive, Lasts(time.Hour))
	for _, c := range []struct {
		promote int64
		want    []cluster.JobID
	}{{0, []cluster.JobID{2, 1}}, {PromoteAfter, []cluster.JobID{1, 2}}} {
		got := tried("las", NewWorld([]*cluster.Node{Node("n1", 2, bigCard)}, sank, fresh).Snapshot(), 0, LAS{Promote: c.promote})
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("promote %d: order (-want +got):\n%s", c.promote, d)
		}
	}
}

// TestQueuesOfService: a job sinks with the microsecond at which it has had as much
// as the limit of its queue.
func TestQueuesOfService(t *testing.T) {
	t.Parallel()
	ts := &Turns{}
	const s = int64(1_000_000)
	for had, want := range map[int64]int64{0: 0, 3250*s - 1: 0, 3250 * s: 1, 7200*s - 1: 1, 7200 * s: 2, 18000*s - 1: 2, 18000 * s: 3, 1 << 60: 3} {
		if got := ts.serviceQueue(&scene.Facts{Attained: had}); got != want {
			t.Errorf("with %d µs it is in queue %d, want %d", had, got, want)
		}
	}
	ts.LAS.Limits = []time.Duration{time.Minute}
	if got := ts.serviceQueue(&scene.Facts{Attained: 60 * s}); got != 1 {
		t.Errorf("with limits of its own it is in queue %d, want 1", got)
	}
}

// TestRatiosByHand: finish-time fairness, and what a preemption costs.
func TestRatiosByHand(t *testing.T) {
	t.Parallel()
	ts := &Turns{Scene: &scene.Scene{Now: 100}}
	for _, c := range []struct {
		f    scene.Facts
		want int64
	}{
		{scene.Facts{Submitted: 100, Dur: 50, Left: 50}, 1_000_000}, {scene.Facts{Submitted: 50, Dur: 50, Left: 50}, 2_000_000},
		{scene.Facts{Submitted: 0, Dur: 50, Left: 25}, 2_500_000}, {scene.Facts{Submitted: 200, Dur: 50, Left: 50}, 1_000_000}, {scene.Facts{Submitted: 0, Dur: 0, Left: 1}, 101_000_000},
	} {
		if got := unfairness(ts, &c.f); got != c.want {
			t.Errorf("%+v: %d millionths, want %d", c.f, got, c.want)
		}
	}
	for gpus, want := range map[int]time.Duration{1: 40 * time.Second, 8: 40 * time.Second, 9: time.Minute} {
		if got := PreemptCost(gpus); got != want.Microseconds() {
			t.Errorf("to preempt %d cards costs %d µs, want %s", gpus, got, fmt.Sprint(want))
		}
	}
	waits, runs := scene.Facts{Left: 60_000_000, GPUs: 1}, scene.Facts{Left: 100_000_000, GPUs: 1}
	if muchShorter(ts, &waits, &runs) {
		t.Error("a preemption that makes them equal is made")
	}
	if runs.Left++; !muchShorter(ts, &waits, &runs) {
		t.Error("one that gains is not")
	}
}

// TestHowLongCardsAreKept: a round of Gavel, and a lease of Themis.
func TestHowLongCardsAreKept(t *testing.T) {
	t.Parallel()
	now := int64(time.Hour / time.Microsecond)
	ago := func(d time.Duration) scene.Facts {
		return scene.Facts{ID: 2, Since: now - d.Microseconds(), Submitted: now, Dur: 100, Left: 100}
	}
	ts := &Turns{Scene: &scene.Scene{Now: now}, Rounds: &Rounds{Priority: map[cluster.JobID][]int64{1: {900}, 2: {800}}}}
	waits := scene.Facts{ID: 1, Submitted: now - 1000, Dur: 100, Left: 100}
	for _, c := range []struct {
		name string
		got  bool
		want bool
	}{
		{"a round is not over", roundEnded(ts, &waits, new(ago(roundTime-time.Microsecond))), false}, {"a round is over", roundEnded(ts, &waits, new(ago(roundTime))), true},
		{"a lease is not over", leaseEnded(ts, &waits, new(ago(lease-time.Microsecond))), false}, {"a lease is over", leaseEnded(ts, &waits, new(ago(lease))), true},
	} {
		if c.got != c.want {
			t.Errorf("%s: the other may have its place: %t", c.name, c.got)
		}
	}
	ts.Rounds.Priority[1] = []int64{800}
	if roundEnded(ts, &waits, new(ago(time.Hour))) {
		t.Error("one no further behind takes its place")
	}
}
