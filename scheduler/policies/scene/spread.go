package scene

import (
	"slices"

	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Spread restricts a placer's choice to the node that a task over several may take
// next.
type Spread struct {
	Family int32    // of the GPUs that it has so far, -1 for none
	Failed []bool   // families of which too few nodes have room
	Named  int      // nodes that the job asks for by name and has not got yet
	Late   bool     // nodes that delayed an earlier attempt may be taken, too
	Within string   // the switch below which all nodes must be, "" for any
	On     []string // the switches on which they must be, none for any
	Parts  []rules.Part
}

// Takes reports whether a task may take GPUs of a class on a host next; the class
// is -1 if it needs no GPUs.
func (p *Scene) Takes(t *Task, hi, class int32) bool {
	s, h, family := p.Spread, &p.Fleet.Hosts[hi], int32(-1)
	if class >= 0 {
		family = p.Fleet.Classes[class].Family
	}
	if family >= 0 && (s.Failed[family] || s.Family >= 0 && s.Family != family) ||
		slices.ContainsFunc(s.Parts, func(o rules.Part) bool { return o.Host == hi }) || t.Whole && !p.isEmpty(t, hi, class) {
		return false
	}
	if s.Within != "" && !rules.IsBelow(h.Node.SwitchPath(), s.Within) {
		return false
	}
	if len(s.On) > 0 && !slices.Contains(s.On, h.Node.SwitchPath()) {
		return false
	}
	asked := t.Job.Spec.Where.Named() && t.Job.Spec.Where.Nodes.Holds(h.Node.ID)
	return asked || s.Named == 0 && (s.Late || !t.Job.HeldUpBy(h.Node.ID))
}

// isEmpty reports whether a host has no jobs and no reservation, so that t can have
// it with all GPUs of a class.
func (p *Scene) isEmpty(t *Task, hi, class int32) bool {
	h := &p.Fleet.Hosts[hi]
	if h.Use.UsedCPU > 0 || h.Use.UsedMem > 0 || h.KeptCPU > 0 {
		return false
	}
	for _, gi := range h.Groups {
		for _, ci := range p.Fleet.Groups[gi].Cards {
			if p.Fleet.Cards[ci].Use.Shares > 0 || p.Fleet.Groups[gi].Class == class && !p.HasRoom(t, ci) {
				return false
			}
		}
	}
	return true
}
