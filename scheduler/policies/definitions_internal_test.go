package policies

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
)

// TestPeriodAsDefined: the iteration of a group that takes turns on three resources
// lasts Σ_j max_i of the stages that meet (Zhao et al., SIGCOMM 2022, section 4.1),
// with the best of all offsets, no two of which are the same.
func TestPeriodAsDefined(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var group []stages
		for range rapid.IntRange(1, 5).Draw(t, "jobs") {
			gpu := rapid.Int64Range(0, 1000).Draw(t, "gpu")
			cpu := rapid.Int64Range(0, 1000-gpu).Draw(t, "cpu")
			group = append(group, stages{gpu, cpu, 1000 - gpu - cpu})
		}
		want := int64(len(group)) * 1000 // one after the other
		if len(group) <= 3 {
			var offsets [3]int
			var try func(i int)
			try = func(i int) {
				if i < len(group) {
					for offsets[i] = range 3 {
						if !slices.Contains(offsets[:i], offsets[i]) {
							try(i + 1)
						}
					}
					return
				}
				sum := int64(0)
				for slot := range 3 {
					longest := int64(0)
					for k := range group {
						longest = max(longest, group[k][(slot+offsets[k])%3])
					}
					sum += longest
				}
				want = min(want, sum)
			}
			if len(group) > 1 {
				try(0)
			}
		}
		if got := period(group); got != want {
			t.Fatalf("%v takes %d, want %d", group, got, want)
		}
		// A group is worth it if a tenth more gets done than one after the other.
		if got, want := gains(group), len(group) < 2 || 11*period(group) <= 10*1000*int64(len(group)); got != want {
			t.Fatalf("%v is made: %t, want %t", group, got, want)
		}
	})
}

// TestStagesOfByHand: what of an iteration is on the GPU, on cores, and elsewhere.
func TestStagesOfByHand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		milli, cpu, perCard int64
		want                stages
	}{
		{450, 1000, 32_000, stages{450, 31, 519}}, {300, 22_000, 32_000, stages{300, 687, 13}}, {900, 32_000, 32_000, stages{900, 100, 0}},
		{1200, 0, 32_000, stages{1000, 0, 0}}, {-5, 0, 32_000, stages{0, 0, 1000}}, {500, 1000, 0, stages{500, 500, 0}},
	} {
		if got := stagesOf(c.milli, c.cpu, c.perCard); got != c.want {
			t.Errorf("stages of %d with %d of %d cores: %v, want %v", c.milli, c.cpu, c.perCard, got, c.want)
		}
	}
	for jobs, want := range map[int]int64{0: 1000, 1: 1000, 2: 1310, 3: 1478, 4: 1350} {
		if got := Contention(jobs); got != want {
			t.Errorf("contention of %d is %d, want %d", jobs, got, want)
		}
	}
}

// TestLucidClasses: tiny, medium and jumbo, to the thousandth.
func TestLucidClasses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		milli, mem int64
		want       int
	}{{0, 0, 0}, {249, 499, 0}, {250, 499, 1}, {659, 499, 1}, {660, 0, 2}, {0, 500, 2}, {249, 500, 2}, {1000, 1000, 2}} {
		if got := lucidClass(c.milli, c.mem, 1000); got != c.want {
			t.Errorf("%d of compute and %d of memory is %d, want %d", c.milli, c.mem, got, c.want)
		}
	}
}

// contend is a job of Gavel's with so much speed on each type.
func contend(id cluster.JobID, gpus, weight int64, equal int64, speed ...int64) *contender {
	return &contender{id: id, gpus: gpus, weight: weight, speed: speed, equal: equal, got: make([]int64, len(speed))}
}

// TestGavelGivesAllTimeAway: nobody has more than all of its time, no card is given
// twice, and no time is left that somebody could use.
func TestGavelGivesAllTimeAway(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := &rounds{types: []string{"A", "B"}, capacity: []int64{rapid.Int64Range(1, 4).Draw(t, "As"), rapid.Int64Range(0, 3).Draw(t, "Bs")}}
		var all []*contender
		for id := range cluster.JobID(rapid.IntRange(1, 6).Draw(t, "jobs")) {
			speed := []int64{rapid.SampledFrom([]int64{0, 500, 1000}).Draw(t, "on A"), 1000}
			all = append(all, contend(id+1, rapid.Int64Range(1, 3).Draw(t, "gpus"), rapid.SampledFrom([]int64{500, 1000, 3000}).Draw(t, "weight"), 1000, speed...))
		}
		r.fill(all)
		for k := range r.types {
			left := r.capacity[k] * roundSlices
			for _, c := range all {
				if left -= c.got[k] * c.gpus; c.got[k] > 0 && c.speed[k] == 0 {
					t.Fatalf("job %d has time of a type that cannot run it", c.id)
				}
			}
			if left < 0 {
				t.Fatalf("type %d is given away %d slices too often", k, -left)
			}
			for _, c := range all {
				if sum := c.got[0] + c.got[1]; sum > roundSlices || sum < roundSlices && c.speed[k] > 0 && left >= c.gpus {
					t.Fatalf("job %d has %d of %d slices, and %d of type %d are left for its %d cards", c.id, sum, roundSlices, left, k, c.gpus)
				}
			}
		}
	})
}

// TestGavelPriorities: what a job should have over what it had since it came.
func TestGavelPriorities(t *testing.T) {
	t.Parallel()
	now := int64(100 * time.Minute / time.Microsecond)
	for _, c := range []struct {
		share int64
		ran   time.Duration // of 100 minutes
		want  int64
	}{{500, 0, 500_000}, {500, 50 * time.Minute, 1000}, {500, 25 * time.Minute, 2000}, {250, 50 * time.Minute, 500}, {0, 50 * time.Minute, 0}} {
		r := &rounds{types: []string{"A"}, capacity: []int64{1}, share: map[cluster.JobID][]int64{1: {c.share}}, priority: map[cluster.JobID][]int64{}}
		j := &cluster.Job{ID: 1, Spec: &cluster.Spec{GPUs: 1}}
		if c.ran > 0 {
			j.Attempts = []cluster.Attempt{{Started: 1, Ended: 1 + cluster.Time(c.ran.Microseconds()), Estimate: cluster.Estimate{GPUType: "A"}}}
		}
		r.prioritise(j, now)
		if got := r.of(1); got < c.want-c.want/100 || got > c.want+c.want/100 {
			t.Errorf("a part of %d and %s of 100 minutes: priority %d, want %d", c.share, c.ran, got, c.want)
		}
	}
	if got := (&rounds{priority: map[cluster.JobID][]int64{}}).of(7); got != 0 {
		t.Errorf("nobody has priority %d", got)
	}
}

// TestRatiosByHand: finish-time fairness, and what a preemption costs.
func TestRatiosByHand(t *testing.T) {
	t.Parallel()
	p := &pass{now: 100}
	for _, c := range []struct {
		f    facts
		want int64
	}{
		{facts{submitted: 100, dur: 50, left: 50}, 1_000_000}, {facts{submitted: 50, dur: 50, left: 50}, 2_000_000},
		{facts{submitted: 0, dur: 50, left: 25}, 2_500_000}, {facts{submitted: 200, dur: 50, left: 50}, 1_000_000}, {facts{submitted: 0, dur: 0, left: 1}, 101_000_000},
	} {
		if got := unfairness(p, &c.f); got != c.want {
			t.Errorf("%+v: %d millionths, want %d", c.f, got, c.want)
		}
	}
	for gpus, want := range map[int]time.Duration{1: 40 * time.Second, 8: 40 * time.Second, 9: time.Minute} {
		if got := preemptCost(gpus); got != want.Microseconds() {
			t.Errorf("to preempt %d cards costs %d µs, want %s", gpus, got, fmt.Sprint(want))
		}
	}
	waits, runs := facts{left: 60_000_000, gpus: 1}, facts{left: 100_000_000, gpus: 1}
	if muchShorter(p, &waits, &runs) {
		t.Error("a preemption that makes them equal is made")
	}
	if runs.left++; !muchShorter(p, &waits, &runs) {
		t.Error("one that gains is not")
	}
}

// TestFactsByHand: what was done before counts for who goes on from there, and as
// time of all of its cards.
func TestFactsByHand(t *testing.T) {
	t.Parallel()
	const m = cluster.Time(60_000_000)
	now := int64(100 * m)
	attempt := func(from, to cluster.Time, live bool) cluster.Attempt {
		a := cluster.Attempt{State: cluster.JobPreempted, Started: from, Ended: to}
		if live {
			a.State, a.Ended = cluster.JobRunning, 0
		}
		return a
	}
	for _, c := range []struct {
		name           string
		attempts       []cluster.Attempt
		may            bool
		ran, left, had cluster.Time
	}{
		{"new", nil, true, 0, 60 * m, 0},
		{"was ended and goes on", []cluster.Attempt{attempt(10*m, 30*m, false)}, true, 20 * m, 40 * m, 40 * m},
		{"was ended and begins anew", []cluster.Attempt{attempt(10*m, 30*m, false)}, false, 20 * m, 60 * m, 40 * m},
		{"runs", []cluster.Attempt{attempt(80*m, 0, true)}, false, 20 * m, 40 * m, 40 * m},
		{"runs again", []cluster.Attempt{attempt(10*m, 30*m, false), attempt(90*m, 0, true)}, true, 30 * m, 30 * m, 60 * m},
		{"runs longer than it should", []cluster.Attempt{attempt(10*m, 0, true)}, true, 90 * m, 1, 180 * m},
		{"was placed and never ran", []cluster.Attempt{{State: cluster.JobPreempted}}, true, 0, 60 * m, 0},
	} {
		j := &cluster.Job{ID: 1, Spec: &cluster.Spec{GPUs: 2}, Attempts: c.attempts}
		f := factsOf(j, cluster.Terms{Preemptible: c.may}, int64(60*m), now)
		if f.ran != int64(c.ran) || f.left != int64(c.left) || f.attained != int64(c.had) || f.gpuTime() != 2*int64(c.left) || f.weight != 1000 {
			t.Errorf("%s: ran %d, left %d, had %d, want %d, %d, %d", c.name, f.ran, f.left, f.attained, c.ran, c.left, c.had)
		}
	}
}

// TestQueuesOfService: a job sinks with the microsecond at which it has had as much
// as the limit of its queue.
func TestQueuesOfService(t *testing.T) {
	t.Parallel()
	p := &pass{opt: &Options{}}
	const s = int64(1_000_000)
	for had, want := range map[int64]int64{0: 0, 3250*s - 1: 0, 3250 * s: 1, 7200*s - 1: 1, 7200 * s: 2, 18000*s - 1: 2, 18000 * s: 3, 1 << 60: 3} {
		if got := p.serviceQueue(&facts{attained: had}); got != want {
			t.Errorf("with %d µs it is in queue %d, want %d", had, got, want)
		}
	}
	p.opt.LAS.Limits = []time.Duration{time.Minute}
	if got := p.serviceQueue(&facts{attained: 60 * s}); got != 1 {
		t.Errorf("with limits of its own it is in queue %d, want 1", got)
	}
}

// TestThreeInterleaved: while one is on the network another computes; each of three
// that do nothing else has its own two of the four slots.
func TestThreeInterleaved(t *testing.T) {
	t.Parallel()
	x := Stages{time.Second, 0, time.Second}
	if got := Period([]Stages{x, x, x}); got != 4*time.Second {
		t.Errorf("three take %s, want 4 s", got)
	}
	x = Stages{time.Second, 0, 0}
	if got := Period([]Stages{x, x, x}); got != 3*time.Second {
		t.Errorf("three that only compute take %s, want 3 s", got)
	}
}

// TestHowLongCardsAreKept: a round of Gavel, and a lease of Themis.
func TestHowLongCardsAreKept(t *testing.T) {
	t.Parallel()
	now := int64(time.Hour / time.Microsecond)
	ago := func(d time.Duration) facts {
		return facts{id: 2, since: now - d.Microseconds(), submitted: now, dur: 100, left: 100}
	}
	p := &pass{now: now, rounds: &rounds{priority: map[cluster.JobID][]int64{1: {900}, 2: {800}}}}
	waits := facts{id: 1, submitted: now - 1000, dur: 100, left: 100}
	for _, c := range []struct {
		name string
		got  bool
		want bool
	}{
		{"a round is not over", roundEnded(p, &waits, ptr(ago(roundTime-time.Microsecond))), false}, {"a round is over", roundEnded(p, &waits, ptr(ago(roundTime))), true},
		{"a lease is not over", leaseEnded(p, &waits, ptr(ago(lease-time.Microsecond))), false}, {"a lease is over", leaseEnded(p, &waits, ptr(ago(lease))), true},
	} {
		if c.got != c.want {
			t.Errorf("%s: the other may have its place: %t", c.name, c.got)
		}
	}
	p.rounds.priority[1] = []int64{800}
	if roundEnded(p, &waits, ptr(ago(time.Hour))) {
		t.Error("one no further behind takes its place")
	}
}

func ptr[T any](v T) *T { return &v }
