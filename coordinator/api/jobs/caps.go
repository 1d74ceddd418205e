package jobs

import (
	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// tellCaps sets, for each share of a job, how its memory is capped on its GPU.
func (c *Jobs) tellCaps(m *apiv1.Job) {
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
