package conv

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// NodeToAPI converts n, with its use from the ledger; led may be nil. The caller
// adds what only the coordinator's loops know (last contact, gossip, measured
// values, jobs); until then measured values are -1. GPUs are ordered by index.
func NodeToAPI(n *cluster.Node, led *dispatch.Ledger) *apiv1.Node {
	m := &apiv1.Node{
		Id: string(n.ID), Address: n.Address, State: n.State.String(), Drain: n.Drain, DrainReason: n.DrainReason,
		CpuMilli: n.CPUMilli, MemMib: n.MemMiB, Runtimes: n.Runtimes, Version: n.Version, BootId: n.BootID,
		Registered: apiconv.ToTime(n.Registered), Problem: n.Problem, History: historyToAPI(n), Features: n.Features,
		DrainUntil: apiconv.ToTime(n.DrainUntil),
	}
	if n.Power.State != cluster.PowerUp {
		m.State, m.PowerAsked = n.Power.State.String(), n.Power.Asked
	}
	m.PowerReason, m.PowerSince = n.Power.Why, apiconv.ToTime(n.Power.Since)
	if led != nil {
		if u, ok := led.Node(n.ID); ok {
			m.CpuUsedMilli, m.MemUsedMib = u.UsedCPU, u.UsedMem
		}
	}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		o := &apiv1.GPU{
			Uuid: string(g.ID), Index: uint32(max(0, g.Index)), Type: g.Type,
			MemMib: g.MemMiB, SellableMib: g.SellableMiB, MaxShares: uint32(max(0, g.MaxShares)), CapMode: g.CapMode,
			Scope: g.Scope.String(), CapReason: g.CapReason, SharingOff: g.Unshared,
			MeasuredUsedMib: -1, MeasuredUtilMilli: -1, GossipFreeMib: -1,
		}
		healthToAPI(o, n, g)
		if led != nil {
			if u, ok := led.GPU(g.ID); ok {
				o.LedgerUsedMib, o.LedgerUsedMilli = u.UsedMiB, u.UsedMilli
				o.SellableMib = max(o.SellableMib, u.UsedMiB) // what is allocated is sold
				o.Shares, o.Exclusive = uint32(max(0, u.Shares)), u.Exclusive
			}
		}
		m.Gpus = append(m.Gpus, o)
	}
	// People number GPUs as the driver does.
	slices.SortStableFunc(m.Gpus, func(a, b *apiv1.GPU) int { return cmp.Compare(a.Index, b.Index) })
	return m
}
