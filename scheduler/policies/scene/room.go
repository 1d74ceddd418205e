package scene

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Fuller orders GPUs by what they have left.
func (p *Scene) Fuller(a, b *mirror.Card) int { return cmp.Compare(LeftOf(a), LeftOf(b)) }

// LeftOf returns what a GPU has left: the sum of the fractions of memory and
// compute.
func LeftOf(c *mirror.Card) int64 {
	return c.Use.FreeMilli() + c.Use.FreeMiB()*cluster.WholeGPU/max(1, c.Use.SellableMiB)
}

// LeftOn returns what a node would have left of its GPUs, cores and memory with t
// on it, each as thousandths of the most that any node has, summed.
func (p *Scene) LeftOn(t *Task, h *mirror.Host, cards int64) int64 {
	return cards/max(1, 2*p.Fleet.MostGPUs) + (h.Use.CPUMilli-h.Use.UsedCPU-t.CPU)*cluster.WholeGPU/max(1, p.Fleet.MostCPU) +
		(h.Use.MemMiB-h.Use.UsedMem-t.Mem)*cluster.WholeGPU/max(1, p.Fleet.MostMem)
}

// IdleGPUs returns what the GPUs of a host have left, see LeftOf.
func (p *Scene) IdleGPUs(h *mirror.Host) int64 {
	sum := int64(0)
	for _, gi := range h.Groups {
		for _, ci := range p.Fleet.Groups[gi].Cards {
			sum += LeftOf(&p.Fleet.Cards[ci])
		}
	}
	return sum
}

// RoomOn reports whether t fits in a group as its mirror is.
func (p *Scene) RoomOn(t *Task, gi int32) bool {
	h := &p.Fleet.Hosts[p.Fleet.Groups[gi].Host]
	return h.Use.CPUMilli-h.Use.UsedCPU >= t.CoresOn(h) && h.Use.MemMiB-h.Use.UsedMem >= t.Mem && p.AnyOf(t, gi) != nil && (!t.Whole || p.allOf(t, gi))
}

// allOf reports whether a host is empty except for GPUs of other classes, and t may
// have all GPUs of the group.
func (p *Scene) allOf(t *Task, gi int32) bool {
	g := &p.Fleet.Groups[gi]
	return p.Fleet.Hosts[g.Host].Use.UsedMem == 0 && !slices.ContainsFunc(g.Cards, func(ci int32) bool { return !p.HasRoom(t, ci) })
}

// Clears returns when enough jobs on a group's host have ended for t to fit, by
// their latest ends, and the GPUs it would get. It gives up at limit. It modifies
// the host's mirror on the way and restores it.
func (p *Scene) Clears(t *Task, gi int32, limit int64) (int64, []int32) {
	runs := p.Fleet.ByLatest(&p.Fleet.Hosts[p.Fleet.Groups[gi].Host])
	undo := p.Fleet.Remember(gi)
	defer undo()
	at := p.Now
	for i := 0; ; i++ {
		if p.RoomOn(t, gi) {
			return at, p.AnyOf(t, gi)
		}
		if i == len(runs) || p.Fleet.Runs[runs[i]].Latest >= limit {
			return rules.Forever, nil
		}
		p.Fleet.Lift(gi, runs[i])
		at = max(at, p.Fleet.Runs[runs[i]].Latest)
	}
}

// ClearsPlain returns when a host has the cores and memory for t, by the latest
// ends of the jobs there.
func (p *Scene) ClearsPlain(t *Task, h *mirror.Host) (when int64, ok bool) {
	cpu, mem, when := h.Use.CPUMilli-h.Use.UsedCPU, h.Use.MemMiB-h.Use.UsedMem, p.Now
	want := t.CoresOn(h)
	for _, ri := range p.Fleet.ByLatest(h) {
		if cpu >= want && mem >= t.Mem {
			break
		}
		r := &p.Fleet.Runs[ri]
		cpu, mem, when = cpu+r.Berth.CPUMilli, mem+r.Berth.MemMiB, max(when, r.Latest)
	}
	return when, cpu >= want && mem >= t.Mem
}

// MayHold is a cheap check of a group: false means certainly not.
func (p *Scene) MayHold(t *Task, gi int32) bool {
	g := &p.Fleet.Groups[gi]
	n := &t.Needs[g.Class]
	if !n.OK || len(g.Cards) < t.GPUs || !g.Free {
		return false
	}
	if n.Share.Exclusive {
		if g.Empty < t.GPUs {
			return false
		}
	} else if n.Share.MemMiB > g.Mem || n.Share.Milli > g.Milli {
		return false
	}
	h := &p.Fleet.Hosts[g.Host]
	end := p.Now + n.Dur
	return t.CPU <= h.FreeCPU(end) && t.Mem <= h.FreeMem(end) && (t.Job.Spec.Node == "" || t.Job.Spec.Node == h.Node.ID) &&
		(p.Spread == nil || p.Takes(t, g.Host, g.Class)) && p.amongst(h.Node.ID)
}

// amongst reports whether a node is among those that a task may go to.
func (p *Scene) amongst(id cluster.NodeID) bool {
	if p.Among == nil {
		return true
	}
	_, ok := slices.BinarySearch(p.Among, id)
	return ok
}

// Breaks returns how much a start on GPUs of one node breaks into: idle GPUs and,
// unless two nodes of the class with as many as any are idle anyway, nodes with many
// of them, which wide jobs need.
func (p *Scene) Breaks(cards []int32) int {
	n := 0
	for _, ci := range cards {
		if p.Fleet.Cards[ci].Use.Shares == 0 {
			n += 1 << 16
		}
	}
	if n == 0 {
		return 0
	}
	g := &p.Fleet.Groups[p.Fleet.Cards[cards[0]].Group]
	widest, idle := 0, 0
	for i := range p.Fleet.Groups {
		o := &p.Fleet.Groups[i]
		switch wide := len(o.Cards); {
		case o.Class != g.Class || wide < widest:
			continue
		case wide > widest:
			widest, idle = wide, 0
		}
		if o.Empty == widest {
			idle++
		}
	}
	if idle < 2 {
		n += g.Empty
	}
	return n
}

// Fits reports whether one GPU of a group that MayHold t takes it.
func (p *Scene) Fits(t *Task, ci int32) bool {
	c := &p.Fleet.Cards[ci]
	return p.HasRoom(t, ci) && (len(c.On) == 0 || p.Rule.Admits(p, t, c) && p.bears(t, c))
}

// HasRoom is Fits, whatever runs there.
func (p *Scene) HasRoom(t *Task, ci int32) bool {
	c := &p.Fleet.Cards[ci]
	n := &t.Needs[p.Fleet.Groups[c.Group].Class]
	return (!n.Share.Exclusive || c.Use.Shares == 0) && c.Use.FreeShares() > 0 && c.Use.Shares < p.Fleet.MaxShares &&
		n.Share.MemMiB <= c.Use.FreeMiB() && n.Share.Milli <= c.Use.FreeMilli() && p.Now+n.Dur <= c.Until && (p.Fence == nil || p.Fence.Allows(t, ci))
}

// Pick returns the GPUs of a group that take t, sorted by before or, if that is
// nil, in the order of ids; none if they are too few. The result is valid until the
// next call.
func (p *Scene) Pick(t *Task, gi int32, before func(a, b *mirror.Card) int) []int32 {
	out := p.pool.cards[:0]
	for _, ci := range p.Fleet.Groups[gi].Cards {
		if !p.Fits(t, ci) {
			continue
		}
		if out = append(out, ci); before == nil && len(out) == t.GPUs {
			break
		}
	}
	p.pool.cards = out
	if len(out) < t.GPUs {
		return nil
	}
	if before != nil {
		slices.SortStableFunc(out, func(a, b int32) int { return before(&p.Fleet.Cards[a], &p.Fleet.Cards[b]) })
	}
	return out[:t.GPUs]
}

// Grouper is a placer with its own rule for which GPUs of one group a task gets, if
// any.
type Grouper interface {
	Within(p *Scene, t *Task, gi int32) []int32
}

// AnyOf returns GPUs of a group that take t, at least as the placer would have
// them; none if there is no room.
func (p *Scene) AnyOf(t *Task, gi int32) []int32 {
	if g, ok := p.Rule.(Grouper); ok {
		return g.Within(p, t, gi)
	}
	return p.Pick(t, gi, nil)
}

// pool is reusable memory.
type pool struct {
	cards, best []int32
}

// Keep copies GPUs that Pick returned, to last until the task is placed.
func (p *Scene) Keep(cards []int32) []int32 {
	p.pool.best = append(p.pool.best[:0], cards...)
	return p.pool.best
}
