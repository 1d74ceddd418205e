package scene

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// EverFits reports whether some node that takes jobs could hold t if it were empty;
// for a task over several nodes, whether enough could.
func (p *Scene) EverFits(t *Task) bool {
	if t.Spans() {
		_, ok := p.EverSpans(t)
		return ok
	}
	if t.GPUs == 0 {
		return slices.ContainsFunc(p.Fleet.Hosts, func(h mirror.Host) bool { return t.CouldBeOn(&h) })
	}
	for gi := range p.Fleet.Groups {
		if p.CouldHold(t, int32(gi)) {
			return true
		}
	}
	return false
}

// CouldHold is EverFits for one group.
func (p *Scene) CouldHold(t *Task, gi int32) bool {
	g := &p.Fleet.Groups[gi]
	return t.Needs[g.Class].OK && len(g.Cards) >= t.GPUs && t.CouldBeOn(&p.Fleet.Hosts[g.Host]) && (!t.Whole || len(g.Cards) <= cluster.MaxGPUsPerJob)
}

// Placed is an option for a task over several nodes: the best parts of GPUs that
// are alike, and the groups that they are of.
type Placed struct {
	Parts  []rules.Part
	Groups map[int32]int32 // by host; none for a task without GPUs
}

// EachFamily computes what t would take of each host that could hold it, a group of
// GPUs of one family at a time or, for a task that needs no GPUs, the hosts
// themselves; part may reject. It yields for each family the parts that best
// (rules.SoonestParts or one like it) chooses, if they suffice.
func (p *Scene) EachFamily(t *Task, part func(at int32) (rules.Part, bool), best func(*cluster.Job, []rules.Part, cluster.Time) ([]rules.Part, bool), yield func(Placed)) {
	take := func(x Placed) {
		for i := range x.Parts {
			x.Parts[i] = rules.NewPart(t.Job, p.Fleet.Hosts[x.Parts[i].Host].Node, x.Parts[i])
		}
		if parts, ok := best(t.Job, x.Parts, cluster.Time(p.Now)); ok {
			yield(Placed{parts, x.Groups})
		}
	}
	if t.GPUs == 0 {
		x := Placed{}
		for hi := range p.Fleet.Hosts {
			if part, ok := part(int32(hi)); ok && t.CouldBeOn(&p.Fleet.Hosts[hi]) {
				part.Host = int32(hi)
				x.Parts = append(x.Parts, part)
			}
		}
		take(x)
		return
	}
	for c := range p.Fleet.Classes {
		if p.Fleet.Classes[c].Family == int32(c) {
			take(p.OfFamily(t, int32(c), part))
		}
	}
}

// OfFamily returns the parts of t on all groups of a family, the better of a host
// that has two.
func (p *Scene) OfFamily(t *Task, family int32, part func(gi int32) (rules.Part, bool)) Placed {
	x := Placed{Groups: map[int32]int32{}}
	for gi := range p.Fleet.Groups {
		g := &p.Fleet.Groups[gi]
		if p.Fleet.Classes[g.Class].Family != family || !p.CouldHold(t, int32(gi)) {
			continue
		}
		one, ok := part(int32(gi))
		if !ok {
			continue
		}
		one.Host = g.Host
		if n := len(x.Parts); n == 0 || x.Parts[n-1].Host != g.Host {
			x.Parts = append(x.Parts, one)
		} else if one.Order < x.Parts[n-1].Order {
			x.Parts[n-1] = one
		} else {
			continue
		}
		x.Groups[g.Host] = int32(gi)
	}
	return x
}

// EverSpans reports whether as many nodes in service as t needs could hold it if
// they were empty, and which: the first of the first family of GPUs.
func (p *Scene) EverSpans(t *Task) (first Placed, ok bool) {
	any := func(int32) (rules.Part, bool) { return rules.Part{}, true }
	p.EachFamily(t, any, rules.SoonestParts, func(x Placed) {
		if !ok {
			first, ok = x, true
		}
	})
	return first, ok
}
