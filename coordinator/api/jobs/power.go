package jobs

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// waking says that a waiting job needs nodes that are being, or will be, powered up; it is
// zero if there are none.
func waking(nodes []cluster.NodeID) cluster.Reason {
	switch len(nodes) {
	case 0:
		return cluster.Reason{}
	case 1:
		return cluster.Reason{Code: cluster.ReasonPower, Detail: "waits for node " + string(nodes[0]) + " to be powered up"}
	default:
		return cluster.Reason{Code: cluster.ReasonPower, Detail: "waits for nodes " + hostnames.Fold(nodes) + " to be powered up"}
	}
}

// preparing says which nodes are being powered up for a waiting job, and which GPU is cut for
// it.
func (c *Jobs) preparing(id cluster.JobID) (out []*apiv1.Explanation) {
	nodes := c.lead.WaitsFor(id)
	if r := waking(nodes); r.Code != "" {
		out = append(out, &apiv1.Explanation{Code: string(r.Code), Detail: r.Detail, Count: uint32(len(nodes))})
	}
	if r := c.cuts(id); r.Code != "" {
		out = append(out, &apiv1.Explanation{Code: string(r.Code), Detail: r.Detail, Count: 1})
	}
	return out
}
