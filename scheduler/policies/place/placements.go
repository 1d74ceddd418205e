// Package place holds the rules of placement: on which cards of which node a task starts,
// beside whom. Each is a pure function of the scene, after the paper that it names.
package place

import (
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/policies/order"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Placement is a rule where a job goes. Own is the order that its source
// gives it; one without is the scheduler's own pass unless an order is named.
type Placement struct {
	Name string
	Mode rules.Mode
	Own  string
	Make func(*scene.Scene, *order.Turns) scene.Rule
	// MarginMilli is added to predicted memory, in thousandths of it.
	MarginMilli int64
	// Queues is a placement that keeps queues of cards itself, last one that
	// has the last word about preemptions, see finisher.
	Queues, Last bool
	// Lone is a placement that places who comes alone by what is free and
	// nothing else.
	Lone bool
}

// All is the table of all rules. It is a function, so that nobody can
// change it.
func All() []Placement {
	return []Placement{
		{Name: "ffd", Make: always(firstFit{})},
		{Name: "slot", Mode: rules.ModeSlot, Make: always(firstFit{})},
		{Name: "firstfit", Own: "fifo", Lone: true, Make: always(firstFit{})},
		{Name: "consolidate", Own: "fifo", Make: always(consolidate{})},
		{Name: "bestfit", Own: "fifo", Lone: true, Make: always(bestFit{})},
		{Name: "random", Own: "fifo", Lone: true, Make: func(p *scene.Scene, _ *order.Turns) scene.Rule { return byChance{p.Seed ^ p.Snap.Index} }},
		{Name: "fgd", Own: "fifo", Lone: true, Make: newFGD},
		{Name: "reactive", Own: "fifo", Make: newReactive, Last: true},
		{Name: "schedtune", Own: "fifo", Make: newSchedTune, MarginMilli: schedTuneError, Queues: true},
		{Name: "lucid", Own: "qssf", Make: always(lucid{})},
		{Name: "horus", Own: "fifo", Make: func(p *scene.Scene, _ *order.Turns) scene.Rule { return horus{p.Now} }},
		{Name: "muri", Own: "srsf", Make: newMuri},
		{Name: "gavel", Own: "rounds", Make: newGavel},
	}
}

// always is a rule that needs to know nothing of a pass.
func always(r scene.Rule) func(*scene.Scene, *order.Turns) scene.Rule {
	return func(*scene.Scene, *order.Turns) scene.Rule { return r }
}

// open is a placer that lets everybody lie beside everybody.
type open struct{}

func (open) Admits(*scene.Scene, *scene.Task, *mirror.Card) bool { return true }
func (open) Tag(*scene.Task) int64                               { return 0 }
