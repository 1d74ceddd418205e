package order

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
)

// contend is a job of Gavel's with so much speed on each type.
func contend(id cluster.JobID, gpus, weight int64, equal int64, speed ...int64) *contender {
	return &contender{id: id, gpus: gpus, weight: weight, speed: speed, equal: equal, got: make([]int64, len(speed))}
}

// TestGavelGivesAllTimeAway: nobody has more than all of its time, no card is given
// twice, and no time is left that somebody could use.
func TestGavelGivesAllTimeAway(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := &Rounds{Types: []string{"A", "B"}, capacity: []int64{rapid.Int64Range(1, 4).Draw(t, "As"), rapid.Int64Range(0, 3).Draw(t, "Bs")}}
		var all []*contender
		for id := range cluster.JobID(rapid.IntRange(1, 6).Draw(t, "jobs")) {
			speed := []int64{rapid.SampledFrom([]int64{0, 500, 1000}).Draw(t, "on A"), 1000}
			all = append(all, contend(id+1, rapid.Int64Range(1, 3).Draw(t, "gpus"), rapid.SampledFrom([]int64{500, 1000, 3000}).Draw(t, "weight"), 1000, speed...))
		}
		r.fill(all)
		for k := range r.Types {
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
		r := &Rounds{Types: []string{"A"}, capacity: []int64{1}, share: map[cluster.JobID][]int64{1: {c.share}}, Priority: map[cluster.JobID][]int64{}}
		j := &cluster.Job{ID: 1, Spec: &cluster.Spec{GPUs: 1}}
		if c.ran > 0 {
			j.Attempts = []cluster.Attempt{{Started: 1, Ended: 1 + cluster.Time(c.ran.Microseconds()), Estimate: cluster.Estimate{GPUType: "A"}}}
		}
		r.prioritise(j, now)
		if got := r.of(1); got < c.want-c.want/100 || got > c.want+c.want/100 {
			t.Errorf("a part of %d and %s of 100 minutes: priority %d, want %d", c.share, c.ran, got, c.want)
		}
	}
	if got := (&Rounds{Priority: map[cluster.JobID][]int64{}}).of(7); got != 0 {
		t.Errorf("nobody has priority %d", got)
	}
}

// TestFillIsFair: on one type the allocation is max-min fair by weight.
func TestFillIsFair(t *testing.T) {
	t.Parallel()
	r := &Rounds{Types: []string{"A"}, capacity: []int64{3}}
	job := func(id cluster.JobID, gpus, weight int64) *contender {
		return &contender{id: id, gpus: gpus, weight: weight, speed: []int64{1000}, equal: 1000, got: []int64{0}}
	}
	// Three cards have 60 slices: 1 and 2 want 20 at most each, 3 takes two
	// cards at once: equal parts are 15 slices each.
	all := []*contender{job(1, 1, 1000), job(2, 1, 1000), job(3, 2, 1000)}
	r.fill(all)
	for _, c := range all {
		if c.got[0] != 15 {
			t.Errorf("job %d gets %d slices, want 15", c.id, c.got[0])
		}
	}
	// One card: who weighs three times as much gets three times as much.
	r.capacity[0] = 1
	all = []*contender{job(1, 1, 3000), job(2, 1, 1000)}
	r.fill(all)
	if all[0].got[0] != 15 || all[1].got[0] != 5 {
		t.Errorf("%d and %d slices, want 15 and 5", all[0].got[0], all[1].got[0])
	}
}
