package coordinator

import (
	"context"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// asAllRead takes from n what not every coordinator stores yet. A card that is
// not sound is not offered then: what runs on it goes on all the same. It
// reports whether nothing had to go.
func (c *Coordinator) asAllRead(n *cluster.Node) bool {
	cmd := &logv1.Command{Kind: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: conv.NodeToLog(n)}}}
	if fsm.NeedsVersion(cmd) <= c.prop.Version() {
		return true
	}
	n.Problem = ""
	n.GPUs = slices.DeleteFunc(n.GPUs, func(g cluster.GPU) bool { return g.State != cluster.GPUOK })
	for i := range n.GPUs {
		n.GPUs[i].StateReason = ""
	}
	return false
}

// logCards tells operators of cards that are in another state than before; old
// is nil for a node that is new.
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

// resumes adds to d which cards administrators resumed. It reports whether
// that is news to the agent.
func (ss *session) resumes(d *nodev1.Desired) bool {
	n, ok := ss.c.fsm.Node(ss.node)
	if !ok {
		return false
	}
	newest := ss.resumed
	for _, o := range n.Orders {
		if o.Resumed != 0 {
			d.Resumes = append(d.Resumes, &nodev1.GPUResume{Uuid: string(o.GPU), Index: o.Resumed, At: timestamppb.New(o.At.Std())})
			newest = max(newest, o.Resumed)
		}
	}
	news := newest > ss.resumed
	ss.resumed = newest
	return news
}

// DrainGPU keeps new jobs from one GPU; those that run on it go on.
func (s *clusterServer) DrainGPU(ctx context.Context, req *apiv1.DrainGPURequest) (*apiv1.DrainGPUResponse, error) {
	n, id, err := s.orderGPU(ctx, gpuName{req.Gpu, req.Node, req.Index}, true, req.Reason)
	if err != nil {
		return nil, toStatus(ctx, s.c.log, err)
	}
	return &apiv1.DrainGPUResponse{Node: n, Gpu: string(id)}, nil
}

// ResumeGPU lets jobs start on a GPU again. What its agent held against it is
// void; what it finds from now on is not.
func (s *clusterServer) ResumeGPU(ctx context.Context, req *apiv1.ResumeGPURequest) (*apiv1.ResumeGPUResponse, error) {
	n, id, err := s.orderGPU(ctx, gpuName{req.Gpu, req.Node, req.Index}, false, "")
	if err != nil {
		return nil, toStatus(ctx, s.c.log, err)
	}
	return &apiv1.ResumeGPUResponse{Node: n, Gpu: string(id)}, nil
}

// gpuName is how a request names a card: by UUID, on whichever node it is, or
// by node and index.
type gpuName struct {
	uuid, node string
	index      *uint32
}

func (c *Coordinator) findGPU(name gpuName) (cluster.NodeID, cluster.GPUID, error) {
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
	who := callerOf(ctx)
	if err := s.c.authorize(who, actAdmin, nil); err != nil {
		return nil, "", err
	}
	if len(reason) > maxReason {
		return nil, "", cluster.Errorf(cluster.CodeInvalid, "reason: %d bytes, at most %d are allowed", len(reason), maxReason)
	}
	node, id, err := s.c.findGPU(name)
	if err != nil {
		return nil, "", err
	}
	_, err = s.c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_DrainGpu{DrainGpu: &logv1.DrainGPU{
		Node: string(node), Gpu: string(id), Drain: drain, Reason: reason, By: uint32(who.uid),
	}}})
	if err != nil {
		return nil, "", err
	}
	s.c.log.InfoContext(ctx, "GPU drain changed", "node", string(node), "gpu", string(id), "drain", drain, "reason", reason, "uid", who.uid)
	n, ok := s.c.fsm.Node(node)
	if !ok {
		return nil, "", noNode(string(node))
	}
	return s.c.nodeView(n), id, nil
}
