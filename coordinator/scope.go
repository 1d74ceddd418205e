package coordinator

import (
	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"

	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/proto/conv"
)

// untilAgreed keeps cards that are shared among some users only from being
// shared at all while a coordinator does not know of that: it would lay
// strangers on them. The node says it again when it next registers.
func (c *Coordinator) untilAgreed(n *cluster.Node) {
	if fsm.NeedsVersion(&logv1.Command{Kind: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: conv.NodeToLog(n)}}}) <= c.prop.version.Load() {
		return
	}
	for i := range n.GPUs {
		if n.GPUs[i].Scope != cluster.ScopeAnyone {
			n.GPUs[i].Scope, n.GPUs[i].MaxShares = cluster.ScopeAnyone, 1
		}
	}
}
