package coordinator

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// untilAgreed keeps cards that are shared among some users only from being
// shared at all while a coordinator does not know of that: it would lay
// strangers on them. The node says it again when it next registers.
func (c *Coordinator) untilAgreed(n *cluster.Node) {
	if fsm.NeedsVersion(&logv1.Command{Kind: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: conv.NodeToLog(n)}}}) <= c.prop.Version() {
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

// tellCaps says of each share of a job how its memory is held on its card.
func (c *Coordinator) tellCaps(m *apiv1.Job) {
	tell := func(node string, shares []*apiv1.GPUShare) {
		n, ok := c.fsm.Node(cluster.NodeID(node))
		if !ok {
			return
		}
		for _, s := range shares {
			if g := n.GPU(cluster.GPUID(s.Uuid)); g != nil {
				s.CapMode = g.CapMode
			}
		}
	}
	tell(m.Node, m.Gpus)
	for _, a := range m.Attempts {
		tell(a.Node, a.Gpus)
	}
}
