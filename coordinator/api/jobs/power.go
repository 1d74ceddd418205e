package jobs

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// powering says for which nodes a job waits that are powered up for it, or will be.
func (c *Jobs) powering(id cluster.JobID) []*apiv1.Explanation {
	nodes := c.lead.WaitsFor(id)
	switch len(nodes) {
	case 0:
		return nil
	case 1:
		state := cluster.PoweredDown.String()
		if n, ok := c.fsm.Node(nodes[0]); ok {
			state = n.Power.State.String()
		}
		return []*apiv1.Explanation{{Code: string(cluster.ReasonPower), Detail: fmt.Sprintf("waits for node %s to be powered up, which is %s", nodes[0], state), Count: 1}}
	}
	return []*apiv1.Explanation{{
		Code: string(cluster.ReasonPower), Detail: fmt.Sprintf("waits for nodes %s to be powered up", hostnames.Fold(nodes)), Count: uint32(len(nodes)),
	}}
}
