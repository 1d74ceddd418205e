package experiment

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// TestServedFollowsTheLoad: what the autoscaler asks for is there in the order in which it
// asks, never more than there are cards, more by day than by night, and the same each time.
func TestServedFollowsTheLoad(t *testing.T) {
	t.Parallel()
	const cards = 64
	jobs := served(cards, 48*time.Hour)
	at := func(d time.Duration) (n int) {
		for i := range jobs {
			if jobs[i].Submit <= d && d < jobs[i].Submit+jobs[i].Duration {
				n++
			}
		}
		return n
	}
	most := 0
	for d := time.Duration(0); d < 48*time.Hour; d += time.Minute {
		most = max(most, at(d))
	}
	if most > cards || most < cards*8/10 {
		t.Errorf("at most %d replicas on %d cards", most, cards)
	}
	if night, noon := at(21*time.Hour), at(9*time.Hour); night*3 > noon*2 {
		t.Errorf("%d replicas by night, %d by day", night, noon)
	}
	if again := served(cards, 48*time.Hour); !slices.EqualFunc(jobs, again, func(a, b workload.Job) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
		t.Error("drawn again it is another load")
	}
}

// TestLoansOfInventedJobs: with loans training waits less, no replica starts late, and what
// is lent is given back.
func TestLoansOfInventedJobs(t *testing.T) {
	t.Parallel()
	w := &workload.Workload{Name: "invented"}
	rng := workload.Chance(1, "invented", "jobs")
	at := time.Duration(0)
	for i := range 160 {
		at += time.Duration(rng.ExpFloat64() * float64(10*time.Minute))
		w.Jobs = append(w.Jobs, workload.Job{
			ID: fmt.Sprintf("t%d", i), Submit: at, Duration: time.Duration((0.2 + rng.ExpFloat64()) * float64(2*time.Hour)), GPUs: []int{1, 1, 2, 4}[rng.IntN(4)],
		})
	}
	loaded(w, 3*loanNode, 0.9)
	rep := loanReport(w, 3)
	rep.Name = "loans-by-hand"
	if err := rep.lendTo(context.Background(), &Config{}, w, 3, ""); err != nil {
		t.Fatal(err)
	}
	rep.claim("")
	for _, c := range rep.Claims {
		if !c.Met {
			t.Errorf("%s: want %g, got %g", c.What, c.Want, c.Got)
		}
	}
	if rep.mean("apart", "preemptions") != 0 || rep.mean("apart", "lent_gpu_h") != 0 || rep.mean("loans", "preemptions") < 1 {
		t.Errorf("%+v", rep.Lines)
	}
	asBefore(t, rep)
}
