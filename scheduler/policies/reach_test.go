package policies_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/scheduler/policies"
)

// TestLawsReach shows that the worlds of TestLaws make every policy start
// jobs, leave others waiting, share cards and place gangs, and those that can
// preempt, move or overtake do so too: else the laws would hold of nothing.
func TestLawsReach(t *testing.T) {
	t.Parallel()
	type tally struct{ starts, gangs, beside, unplaced, preempts, moves, overtakes int }
	preempts := map[string]bool{"srtf": true, "srsf": true, "las": true, "themis": true, "edf": true, "rounds": true}
	for _, name := range policies.Names() {
		for _, order := range policies.Orders() {
			t.Run(name+"+"+order, func(t *testing.T) {
				t.Parallel()
				p := must(t, name, policies.Options{Order: order})
				var n tally
				worlds := rapid.Custom(func(t *rapid.T) struct{} {
					s := withTerms(t, drawWorld(t, p).Snapshot())
					plan := p.Plan(s)
					n.starts += len(plan.Starts)
					n.unplaced += len(plan.Unplaced)
					n.preempts += len(plan.Preempt)
					n.moves += len(plan.Moves)
					for _, st := range plan.Starts {
						if len(st.Berth.GPUs) > 1 {
							n.gangs++
						}
						if st.Overtook != "" {
							n.overtakes++
						}
						for _, g := range st.Berth.GPUs {
							if u, _ := s.Ledger.GPU(g.GPU); u.Shares > 0 {
								n.beside++
							}
						}
					}
					return struct{}{}
				})
				missing := func() bool {
					return n.starts == 0 || n.gangs == 0 || n.unplaced == 0 || n.moves == 0 || n.overtakes == 0 ||
						n.beside == 0 && name != "slot" || n.preempts == 0 && (preempts[order] || name == "reactive")
				}
				for seed := 0; seed < 2000 && missing(); seed++ {
					worlds.Example(seed)
				}
				if missing() || n.beside > 0 && name == "slot" || n.preempts > 0 && !preempts[order] && name != "reactive" {
					t.Errorf("%+v", n)
				}
			})
		}
	}
}
