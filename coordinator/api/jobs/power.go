package jobs

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// powering says which nodes are being, or will be, powered up for a waiting job.
func (c *Jobs) powering(id cluster.JobID) []*apiv1.Explanation {
	nodes := c.lead.WaitsFor(id)
	switch len(nodes) {
	case 0:
		return nil
	case 1:
		return []*apiv1.Explanation{{Code: string(cluster.ReasonPower), Detail: fmt.Sprintf("waits for node %s to be powered up", nodes[0]), Count: 1}}
	}
	return []*apiv1.Explanation{{
		Code: string(cluster.ReasonPower), Detail: fmt.Sprintf("waits for nodes %s to be powered up", hostnames.Fold(nodes)), Count: uint32(len(nodes)),
	}}
}
