package admin

import (
	"context"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// DrainGPU keeps new jobs from one GPU; running ones continue.
func (s *clusterServer) DrainGPU(ctx context.Context, req *apiv1.DrainGPURequest) (*apiv1.DrainGPUResponse, error) {
	n, id, err := s.orderGPU(ctx, gpuName{req.Gpu, req.Node, req.Index}, true, req.Reason)
	if err != nil {
		return nil, err
	}
	return &apiv1.DrainGPUResponse{Node: n, Gpu: string(id)}, nil
}

// ResumeGPU lets jobs start on a GPU again. What its agent held against it is void;
// what it finds from now on is not.
func (s *clusterServer) ResumeGPU(ctx context.Context, req *apiv1.ResumeGPURequest) (*apiv1.ResumeGPUResponse, error) {
	n, id, err := s.orderGPU(ctx, gpuName{req.Gpu, req.Node, req.Index}, false, "")
	if err != nil {
		return nil, err
	}
	return &apiv1.ResumeGPUResponse{Node: n, Gpu: string(id)}, nil
}

// gpuName is how a request names a GPU: by UUID, on whichever node it is, or by
// node and index.
type gpuName struct {
	uuid, node string
	index      *uint32
}

func (c *Admin) findGPU(name gpuName) (cluster.NodeID, cluster.GPUID, error) {
	if name.uuid != "" {
		for _, n := range c.fsm.Nodes() {
			if id := cluster.GPUID(name.uuid); (name.node == "" || name.node == string(n.ID)) && (n.GPU(id) != nil || n.Order(id) != nil) {
				return n.ID, id, nil
			}
		}
		return "", "", cluster.Errorf(cluster.CodeNotFound, "GPU %q is not known; see: berth gpu list", name.uuid)
	}
	if name.index == nil {
		return "", "", cluster.Errorf(cluster.CodeInvalid, "gpu: is missing; name a GPU by its UUID, or by node and index")
	}
	n, ok := c.fsm.Node(cluster.NodeID(name.node))
	if !ok {
		return "", "", noNode(name.node)
	}
	for i := range n.GPUs {
		if uint32(max(0, n.GPUs[i].Index)) == *name.index {
			return n.ID, n.GPUs[i].ID, nil
		}
	}
	return "", "", cluster.Errorf(cluster.CodeNotFound, "node %s has no GPU %d; see: berth node show %s", name.node, *name.index, name.node)
}

func (s *clusterServer) orderGPU(ctx context.Context, name gpuName, drain bool, reason string) (*apiv1.Node, cluster.GPUID, error) {
	who := authorize.CallerOf(ctx)
	if err := s.c.auth.May(who, authorize.Admin, nil); err != nil {
		return nil, "", err
	}
	if len(reason) > nodes.MaxReason {
		return nil, "", cluster.Errorf(cluster.CodeInvalid, "reason: %d bytes, at most %d are allowed", len(reason), nodes.MaxReason)
	}
	node, id, err := s.c.findGPU(name)
	if err != nil {
		return nil, "", err
	}
	_, err = s.c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_DrainGpu{DrainGpu: &logv1.DrainGPU{
		Node: string(node), Gpu: string(id), Drain: drain, Reason: reason, By: uint32(who.UID),
	}}})
	if err != nil {
		return nil, "", err
	}
	s.c.log.InfoContext(ctx, "GPU drain changed", "node", string(node), "gpu", string(id), "drain", drain, "reason", reason, "uid", who.UID)
	n, ok := s.c.fsm.Node(node)
	if !ok {
		return nil, "", noNode(string(node))
	}
	return s.c.nodeView(n), id, nil
}
