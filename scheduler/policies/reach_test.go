package policies_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/scheduler/policies"
)

// TestLawsReach shows that the worlds of TestLaws make every policy start
// jobs, leave others waiting, share cards and place gangs, on one node, on
// several and on nodes of their own, and those that can preempt, move or
// overtake do so too, gangs over nodes being ended and having others ended for
// them: else the laws would hold of nothing. None of these has a deadline.
func TestLawsReach(t *testing.T) {
	t.Parallel()
	type tally struct{ starts, gangs, spans, whole, spansFor, spansEnd, beside, unplaced, preempts, moves, overtakes int }
	preempts := map[string]bool{"srtf": true, "srsf": true, "las": true, "elas": true, "themis": true, "edf": true, "rounds": true}
	for _, name := range policies.Names() {
		for _, order := range policies.Orders() {
			t.Run(name+"+"+order, func(t *testing.T) {
				t.Parallel()
				p := must(t, name, policies.Options{Order: order})
				var n tally
				worlds := rapid.Custom(func(t *rapid.T) struct{} {
					w := drawWorld(t, p)
					s := withTerms(t, w.Snapshot())
					plan := p.Plan(s)
					n.starts += len(plan.Starts)
					n.unplaced += len(plan.Unplaced)
					n.preempts += len(plan.Preempt)
					n.moves += len(plan.Moves)
					for _, x := range plan.Preempt {
						if f, ok := w.Job(x.For); ok && f.Spec.NodeCount() > 1 {
							n.spansFor++
						}
						if j, _ := w.Job(x.Job); j.Spec.NodeCount() > 1 {
							n.spansEnd++
						}
					}
					for _, st := range plan.Starts {
						j, _ := w.Job(st.Job)
						switch {
						case j.Spec.WholeNodes():
							n.whole++
						case len(st.Rest) > 0:
							n.spans++
						case len(st.Berth.GPUs) > 1:
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
					return n.starts == 0 || n.gangs == 0 || n.spans == 0 || n.whole == 0 || preempts[order] && (n.spansEnd == 0 || n.spansFor == 0 && order != "edf") || n.unplaced == 0 || n.moves == 0 || n.overtakes == 0 ||
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
