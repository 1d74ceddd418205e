package policies_test

import (
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// bully slows whoever is beside it down by 1.8; nobody slows it down.
func bully() *dispatch.Interference {
	const half = 4.0 / 7 // bends 1 to 1.8
	return &dispatch.Interference{
		MaxBend: 1.6, Jobs: map[string]dispatch.Temper{"bully": {Self: 7}, "meek": {Self: 8}},
		Cards: []dispatch.Sharing{{GPUType: a100, Effects: map[uint64]dispatch.Effect{7: {Aggression: half}}}},
	}
}

// TestPoliciesKeepApart: what was learned of sharing binds every placement that
// shares, and only as far as a limit is set.
func TestPoliciesKeepApart(t *testing.T) {
	t.Parallel()
	loose := scheduler.Default()
	loose.MaxSlowdownMilli = 1900
	off := scheduler.Default()
	off.MaxSlowdownMilli = 0
	for _, name := range policies.Names() {
		if name == "slot" || name == "reactive" || name == "muri" {
			continue // one to a card; nobody before a profile; by what both get done
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range []struct {
				what, sig string
				base      scheduler.Policy
				want      bool
			}{
				{"a bully", "bully", scheduler.Default(), false}, {"a meek one", "meek", scheduler.Default(), true}, {"one of whom nothing is known", "", scheduler.Default(), true},
				{"a bully, a higher limit", "bully", loose, true}, {"a bully, no limit", "bully", off, true},
			} {
				s := newScene(Node("n1", 1, a100)).runs(1, 1000, 100, time.Hour, time.Minute, "n1-00")
				for _, j := range s.w.Jobs {
					j.Spec.Signature = "meek"
				}
				s.waits(Job(2, Mem(1000), Util(100), Lasts(time.Hour), Signed(c.sig), Predict(a100, 1000, 100, time.Hour)))
				snap := s.snap(t)
				snap.Interference = bully()
				plan := must(t, name, policies.Options{Base: c.base}).Plan(snap)
				if got := len(plan.Starts) == 1; got != c.want {
					t.Errorf("%s beside a meek one starts: %t, want %t; unplaced %+v", c.what, got, c.want, plan.Unplaced)
				}
			}
		})
	}
}
