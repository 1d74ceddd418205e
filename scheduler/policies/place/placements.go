// Package place holds the placement rules: on which GPUs of which node a task
// starts, and next to which jobs. Each is a pure function of the scene, after the
// paper that it names.
package place

import (
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/policies/order"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Placement is a placement rule. Own is the order that its source gives it; one
// without is the scheduler's own pass unless an order is named.
type Placement struct {
	Name string
	Mode rules.Mode
	Own  string
	Make func(*scene.Scene, *order.Turns) scene.Rule
	// MarginMilli is added to predicted memory, in thousandths of it.
	MarginMilli int64
	// Queues means that a placement keeps queues of GPUs itself, Last that it
	// decides last about preemptions, see finisher.
	Queues, Last bool
	// Lone means that a placement places a lone arrival by what is free and nothing
	// else.
	Lone bool
}

// All returns the table of all rules. It is a function, so that nothing can modify
// it.
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

// always returns a rule that needs no knowledge of a pass.
func always(r scene.Rule) func(*scene.Scene, *order.Turns) scene.Rule {
	return func(*scene.Scene, *order.Turns) scene.Rule { return r }
}

// open is a placer that lets any jobs share.
type open struct{}

func (open) Admits(*scene.Scene, *scene.Task, *mirror.Card) bool { return true }
func (open) Tag(*scene.Task) int64                               { return 0 }
