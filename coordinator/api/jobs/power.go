package jobs

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// preparing says which nodes are being, or will be, powered up so that a waiting job
// can start, and which GPU is cut for it.
func (c *Jobs) preparing(id cluster.JobID) (out []*apiv1.Explanation) {
	if nodes := c.lead.WaitsFor(id); len(nodes) > 0 {
		what := "node "
		if len(nodes) > 1 {
			what = "nodes "
		}
		out = append(out, &apiv1.Explanation{
			Code: string(cluster.ReasonPower), Detail: "waits for " + what + hostnames.Fold(nodes) + " to be powered up", Count: uint32(len(nodes)),
		})
	}
	if r := c.cuts(id); r.Code != "" {
		out = append(out, &apiv1.Explanation{Code: string(r.Code), Detail: r.Detail, Count: 1})
	}
	return out
}
