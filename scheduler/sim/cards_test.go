package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// TestNobodyFitsChangesNothing holds the schedule that comes of leaving out
// passes in which no card has room for anybody, and of planners that remember,
// against that of all passes without memory, for every placement with every
// order.
func TestNobodyFitsChangesNothing(t *testing.T) {
	t.Parallel()
	left := 0
	rapid.Check(t, func(t *rapid.T) {
		w, opt := genWorkload(t), genOptions(t)
		for i := range w.Jobs { // more than there are cards, at most times
			w.Jobs[i].Submit /= 4
		}
		name := rapid.SampledFrom(policies.Names()).Draw(t, "placement") + "+" + rapid.SampledFrom(policies.Orders()).Draw(t, "order")
		p, err := policies.New(name, policies.Options{Age: rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "age")})
		if err != nil {
			t.Fatal(err)
		}
		opt.Planner = p
		opt.Errors.Duration = rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "duration error")
		if rapid.Bool().Draw(t, "preempt") {
			opt.Preemptible, opt.Tick = true, 10*time.Minute
		}
		f := workload.Homogeneous(2, 4, "T4", 16000)
		var got [2]string
		var passes [2]int
		for i, all := range []bool{false, true} {
			opt.NoZoom = all
			r, err := sim.Run(context.Background(), w, &f, opt)
			if err != nil {
				t.Fatal(err)
			}
			passes[i], r.Passes = r.Passes, 0
			got[i] = asJSON(t, r)
		}
		left += passes[1] - passes[0]
		if d := cmp.Diff(got[0], got[1]); d != "" {
			t.Fatalf("leaving out passes of %s changed the schedule (-some +all):\n%s", name, d)
		}
	})
	if left <= 0 {
		t.Errorf("no pass was left out")
	}
}
