package nodes

import (
	"context"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// register records the node as hello describes it, if that is news. It is the node
// of this session.
func (ss *session) register(ctx context.Context, h *nodev1.Hello) error {
	if h.GetNode() != string(ss.node) {
		return cluster.Errorf(cluster.CodeDenied, "the session is of node %s, its agent says %q", ss.node, h.GetNode())
	}
	n, err := conv.NodeFromHello(h, ss.n.cfg.HeadroomMiB, ss.n.cfg.MaxShares)
	if err != nil {
		return err
	}
	cards, err := migCards(h, ss.n.cfg.HeadroomMiB)
	if err != nil {
		return err
	}
	ss.late = nil
	late := n.Credentials && ss.n.prop.Version() < fsm.CredentialVersion
	n.Credentials = n.Credentials && !late
	if !asAllRead(n, ss.n.prop.Version()) || late {
		ss.late = h
	}
	if n.Address == "" {
		n.Address = peerHost(ss.stream.Context())
	}
	untilAgreed(n, ss.n.prop.Version())
	if old, ok := ss.n.fsm.Node(n.ID); !ok || old.State != cluster.NodeReady || !sameInventory(old, n) {
		if ok && old.State != cluster.NodeReady {
			// Heard before it is ready: otherwise a reader in between finds a ready
			// node that was silent for as long as it was away.
			ss.n.live.heard(n.ID, nil)
		}
		_, err := ss.n.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: conv.NodeToLog(n)}}})
		if err != nil {
			return err
		}
		ss.logCards(ctx, old, n)
		ss.log.InfoContext(ctx, "node registered", "gpus", len(n.GPUs), "boot", n.BootID)
	}
	ss.gangs = h.Gangs
	ss.n.live.described(n.ID, h.Gpus, cards, h.GossipKey)
	if now, ok := ss.n.fsm.Node(n.ID); ok {
		ss.fence = now.Fence
	}
	return nil
}

// valid returns why the session must end: the node was declared silent, or given
// up, since it registered. Only registering makes it ready again.
func (ss *session) valid() error {
	n, ok := ss.n.fsm.Node(ss.node)
	switch {
	case !ok:
		return cluster.Errorf(cluster.CodeDenied, "node %s was removed from the cluster", ss.node)
	case n.Fence != ss.fence || n.State != cluster.NodeReady:
		return cluster.Errorf(cluster.CodeUnavailable, "node %s was taken to be lost; it must register anew", ss.node)
	}
	return nil
}

// asAllRead removes from n what not every coordinator stores yet. An unhealthy GPU
// is then not offered; jobs on it continue all the same. It reports whether nothing
// had to go.
func asAllRead(n *cluster.Node, version uint32) bool {
	cmd := &logv1.Command{Kind: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: conv.NodeToLog(n)}}}
	if fsm.NeedsVersion(cmd) <= version {
		return true
	}
	n.Problem, n.Driver = "", ""
	n.GPUs = slices.DeleteFunc(n.GPUs, func(g cluster.GPU) bool { return g.State != cluster.GPUOK })
	for i := range n.GPUs {
		n.GPUs[i].StateReason = ""
	}
	return false
}

// untilAgreed keeps GPUs that are shared among some users only from being shared at
// all while some coordinator does not know that restriction: it would place
// strangers on them. The node says it again when it next registers.
func untilAgreed(n *cluster.Node, version uint32) {
	if fsm.NeedsVersion(&logv1.Command{Kind: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: conv.NodeToLog(n)}}}) <= version {
		return
	}
	n.Features = nil
	for i := range n.GPUs {
		n.GPUs[i].CapReason = ""
		if n.GPUs[i].Scope != cluster.ScopeAnyone {
			n.GPUs[i].Scope, n.GPUs[i].MaxShares = cluster.ScopeAnyone, 1
		}
	}
}

func sameInventory(a, b *cluster.Node) bool {
	if a.Address != b.Address || a.BootID != b.BootID || a.CPUMilli != b.CPUMilli || a.MemMiB != b.MemMiB ||
		a.Version != b.Version || a.Problem != b.Problem || a.Driver != b.Driver || a.Credentials != b.Credentials || len(a.GPUs) != len(b.GPUs) || len(a.Runtimes) != len(b.Runtimes) || !slices.Equal(a.Features, b.Features) {
		return false
	}
	for i := range a.GPUs {
		if a.GPUs[i] != b.GPUs[i] {
			return false
		}
	}
	for i := range a.Runtimes {
		if a.Runtimes[i] != b.Runtimes[i] {
			return false
		}
	}
	return true
}

// logCards logs GPUs whose state changed; old is nil for a new node.
func (ss *session) logCards(ctx context.Context, old, n *cluster.Node) {
	for i := range n.GPUs {
		g, was := &n.GPUs[i], cluster.GPUOK
		if old != nil {
			if o := old.GPU(g.ID); o != nil {
				was = o.State
			}
		}
		switch {
		case g.State == was:
		case g.State == cluster.GPUOK:
			ss.log.InfoContext(ctx, "GPU is sound again", "gpu", string(g.ID), "was", was.String())
		default:
			ss.log.WarnContext(ctx, "GPU takes no jobs", "gpu", string(g.ID), "state", g.State.String(), "why", g.StateReason)
		}
	}
	if n.Problem != "" && (old == nil || old.Problem != n.Problem) {
		ss.log.WarnContext(ctx, "node has a problem", "problem", n.Problem)
	}
}
