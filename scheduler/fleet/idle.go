package fleet

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/fragment"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// KeepsEnough reports whether a job that takes so many of a node's idle GPUs leaves
// the others enough.
func (h *Host) KeepsEnough(cpu, mem int64, takes int) bool {
	return cpu <= h.mostCPU(int64(takes)) && mem <= h.mostMem(int64(takes))
}

func (h *Host) mostCPU(takes int64) int64 {
	if h.Spare.GPUs == 0 {
		return h.FreeCPU()
	}
	return rules.Most(h.FreeCPU(), h.Spare.PartCPU, h.idleCPU, h.Spare.LeastCPU, takes)
}

func (h *Host) mostMem(takes int64) int64 {
	if h.Spare.GPUs == 0 {
		return h.FreeMem()
	}
	return rules.Most(h.FreeMem(), h.Spare.PartMem, h.idleMem, h.Spare.LeastMem, takes)
}

// Occupy records that a job took idle GPUs of the node, and as much of what they
// kept as it needs. What it leaves stays kept in this pass, so that no place gets
// roomier as the pass proceeds.
func (h *Host) Occupy(cpu, mem int64, takes int) {
	h.idleCPU -= min(cpu, h.idleCPU, h.Spare.LeastCPU*int64(takes))
	h.idleMem -= min(mem, h.idleMem, h.Spare.LeastMem*int64(takes))
}

// KeepIdle counts what the idle GPUs of a node keep.
func (f *Fleet) KeepIdle(h *Host) {
	h.idleCPU, h.idleMem = 0, 0
	for i := h.Lo; i < h.Hi; i++ {
		if f.Cards[i].Use.Idle() {
			h.idleCPU += h.Spare.LeastCPU
			h.idleMem += h.Spare.LeastMem
		}
	}
}

// IdleOf returns the idle capacity of a node's GPUs, in thousandths of one.
func (f *Fleet) IdleOf(h *Host) (idle int64) {
	for i := h.Lo; i < h.Hi; i++ {
		if f.Cards[i].Class >= 0 {
			left := f.LeftOf(&f.Cards[i])
			idle += left.Idle()
		}
	}
	return idle
}

// LeftOf returns what a GPU has left.
func (f *Fleet) LeftOf(c *Card) fragment.CardLeft { return LeftOn(&c.Use, f.Pol) }

// LeftOn returns what a GPU has left by its account.
func LeftOn(u *dispatch.GPUUse, pol *rules.Policy) fragment.CardLeft {
	return fragment.CardLeft{
		Mem: u.FreeMiB() * cluster.WholeGPU / max(1, u.SellableMiB), Milli: u.FreeMilli(),
		Takes: u.FreeShares() > 0 && u.Shares < max(1, pol.MaxShares), Empty: u.Shares == 0,
	}
}

// Idle counts the empty GPUs of a class.
func (k *Class) Idle() (n int64) {
	for i := range k.Groups {
		n += int64(k.Groups[i].Empty)
	}
	return n
}
