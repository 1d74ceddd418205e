package cards

import (
	"context"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// choose returns how the shares of a GPU are enforced.
func (nc *Cards) choose(c gpu.Card) caps.Choice {
	if ch := nc.cfg.Choose; ch != nil {
		return ch(c)
	}
	return caps.Choice{Mode: caps.Mode(nc.cfg.CapMode)}
}

// sell returns the GPUs that the node offers in wire form, and records how each one's shares
// are enforced.
func (nc *Cards) sell(ctx context.Context, cards []gpu.Card) []*nodev1.GPU {
	usable, modes := make(map[string]int64, len(cards)), make(map[string]caps.Mode, len(cards))
	var out []*nodev1.GPU
	for _, c := range cards {
		ch := nc.choose(c)
		if caps.IsInstance(c.UUID) && ch.Mode != caps.MIG {
			nc.log.WarnContext(ctx, "a MIG instance is not offered", "gpu", c.UUID, "err", ch.String())
			continue
		}
		nc.log.DebugContext(ctx, "how shares of a GPU are enforced", "gpu", c.UUID, "mode", string(ch.Mode), "scope", ch.Scope.String(), "lacks", ch.String())
		usable[c.UUID], modes[c.UUID] = c.MemMiB-c.ReservedMiB, ch.Mode
		out = append(out, &nodev1.GPU{
			Uuid: c.UUID, Index: uint32(c.Index), Type: c.Type, MemMib: c.MemMiB, ReservedMib: c.ReservedMiB,
			Numa: int32(c.NUMA), Pci: c.PCI, CapMode: string(ch.Mode), Scope: string(ch.Scope), CapReason: ch.String(),
		})
		nc.strays.detailCard(out[len(out)-1], &c)
	}
	nc.mu.Lock()
	nc.usable, nc.modes = usable, modes
	nc.mu.Unlock()
	nc.Mem.setUsable(usable)
	return out
}

// HeldBy returns the smallest share of an attempt on a GPU with a mode, or nil.
func (nc *Cards) HeldBy(as *nodev1.Assignment, m caps.Mode) *nodev1.Share {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	var least *nodev1.Share
	for _, s := range as.GetGpus() {
		if !s.Exclusive && nc.modes[s.Uuid] == m && (least == nil || s.MemMib < least.MemMib) {
			least = s
		}
	}
	return least
}
