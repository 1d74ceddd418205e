package place

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/scheduler/policies/order"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
)

// gavel places each job on the type where it is furthest behind its allocation, and
// there by first fit. Types of which it has no part come last, the fastest first,
// so that no GPU stays idle.
type gavel struct {
	open
	rounds *order.Rounds
}

func newGavel(_ *scene.Scene, ts *order.Turns) scene.Rule {
	order.Allocate(ts)
	return gavel{rounds: ts.Rounds}
}

func (v gavel) Choose(p *scene.Scene, t *scene.Task) []int32 {
	classes := make([]int32, 0, len(t.Needs))
	prio := make([]int64, len(t.Needs))
	for c := range t.Needs {
		if t.Needs[c].OK {
			classes = append(classes, int32(c))
			if ps := v.rounds.Priority[t.ID]; len(ps) > 0 {
				prio[c] = ps[slices.Index(v.rounds.Types, p.Fleet.Classes[c].GPUType)]
			}
		}
	}
	slices.SortFunc(classes, func(a, b int32) int {
		return cmp.Or(-cmp.Compare(prio[a], prio[b]), cmp.Compare(t.Needs[a].Dur, t.Needs[b].Dur), cmp.Compare(a, b))
	})
	for _, c := range classes {
		for gi := range p.Fleet.Groups {
			if p.Fleet.Groups[gi].Class == c && p.MayHold(t, int32(gi)) {
				if cards := p.Pick(t, int32(gi), nil); cards != nil {
					return cards
				}
			}
		}
	}
	return nil
}
