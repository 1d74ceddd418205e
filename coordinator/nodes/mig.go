package nodes

import (
	"cmp"
	"context"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/scheduler/mig"
)

// Bounds on what an agent says of its GPUs in MIG mode. No GPU has more than 8 memory slices,
// nor more than 10 profiles.
const (
	maxMIGCards = 64
	maxMIGParts = 32
	maxMIGSlice = 64
	maxMIGName  = 64 // bytes
)

// migCards returns the GPUs of a hello whose instances may be replaced, with the memory that
// jobs can have of each profile. Errors are of CodeInvalid.
func migCards(h *nodev1.Hello, headroomMiB int64) ([]mig.Card, error) {
	if len(h.MigCards) > maxMIGCards {
		return nil, cluster.Errorf(cluster.CodeInvalid, "node %s: %d GPUs in MIG mode, at most %d", h.Node, len(h.MigCards), maxMIGCards)
	}
	var out []mig.Card
	for _, m := range h.MigCards {
		c := mig.Card{Node: cluster.NodeID(h.Node), UUID: m.Uuid, Type: m.Type}
		ok := m.Uuid != "" && len(m.Uuid) <= maxMIGName && len(m.Type) <= maxMIGName && len(m.Profiles) <= maxMIGParts && len(m.Instances) <= maxMIGParts
		for _, p := range m.Profiles {
			ok = ok && p.Name != "" && len(p.Name) <= maxMIGName && len(p.Starts) <= maxMIGParts && p.Size > 0 && p.Size <= maxMIGSlice && p.Compute <= maxMIGSlice && p.MemMib > 0
			next := mig.Profile{Name: p.Name, MemMiB: cluster.Sellable(p.MemMib, 0, headroomMiB), Compute: int(p.Compute), Size: int(p.Size)}
			for _, s := range p.Starts {
				ok = ok && s <= maxMIGSlice
				next.Starts = append(next.Starts, int(s))
			}
			c.Profiles = append(c.Profiles, next)
		}
		for _, in := range m.Instances {
			ok = ok && in.Size > 0 && in.Size <= maxMIGSlice && in.Start <= maxMIGSlice && len(in.Uuid) <= maxMIGName && len(in.Profile) <= maxMIGName
			c.Instances = append(c.Instances, mig.Instance{ID: cluster.GPUID(in.Uuid), Profile: in.Profile, Start: int(in.Start), Size: int(in.Size)})
		}
		if !ok {
			return nil, cluster.Errorf(cluster.CodeInvalid, "node %s: GPU %.80q: what it says of MIG is out of bounds", h.Node, m.Uuid)
		}
		slices.SortStableFunc(c.Profiles, func(a, b mig.Profile) int {
			return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Compute, b.Compute))
		})
		out = append(out, c)
	}
	return out, nil
}

// MIGCards returns the GPUs in MIG mode whose agents, heard in this term, replace their
// instances; by node.
func (n *Nodes) MIGCards() []mig.Card {
	n.live.mu.Lock()
	defer n.live.mu.Unlock()
	var out []mig.Card
	for _, c := range n.live.cut {
		out = append(out, c...)
	}
	slices.SortFunc(out, func(a, b mig.Card) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.UUID, b.UUID)) })
	return out
}

// MIGCard returns the GPU whose instance gpu is, false if its agent does not replace
// instances.
func (n *Nodes) MIGCard(node cluster.NodeID, gpu cluster.GPUID) (mig.Card, bool) {
	n.live.mu.Lock()
	defer n.live.mu.Unlock()
	for _, c := range n.live.cut[node] {
		if slices.ContainsFunc(c.Instances, func(in mig.Instance) bool { return in.ID == gpu }) {
			return c, true
		}
	}
	return mig.Card{}, false
}

// Cut asks a node's agent for a cut, and reports whether it has a session. The node's next
// registration shows the outcome.
func (n *Nodes) Cut(ctx context.Context, c *mig.Cut) bool {
	ss := n.relays.session(c.Card.Node)
	if ss == nil {
		return false
	}
	ask := &nodev1.CutGPU{Uuid: c.Card.UUID}
	for _, id := range c.Drop {
		ask.Drop = append(ask.Drop, string(id))
	}
	for _, in := range c.Make {
		ask.Make = append(ask.Make, &nodev1.MIGInstance{Profile: in.Profile, Start: uint32(in.Start), Size: uint32(in.Size)})
	}
	ss.queue(ctx, &nodev1.SessionResponse{Kind: &nodev1.SessionResponse_Cut{Cut: ask}})
	return true
}

// uncut returns nodes with all that their GPUs in MIG mode could be cut into besides what they
// are cut into. Nodes are immutable; those that differ are copies.
func (l *liveness) uncut(nodes []*cluster.Node) []*cluster.Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.cut) == 0 {
		return nodes
	}
	out := slices.Clone(nodes)
	for i, n := range out {
		if cards := l.cut[n.ID]; len(cards) > 0 {
			with := *n
			with.GPUs = slices.Clip(n.GPUs)
			for k := range cards {
				with.GPUs = append(with.GPUs, cards[k].Potential()...)
			}
			out[i] = &with
		}
	}
	return out
}
