package admin

import (
	"context"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// PowerNode powers down a node that holds no job, until it is powered up on
// request, or powers one up. The leader runs the site's programs for it.
func (s *clusterServer) PowerNode(ctx context.Context, req *apiv1.PowerNodeRequest) (*apiv1.PowerNodeResponse, error) {
	if err := s.c.auth.May(authorize.CallerOf(ctx), authorize.Admin, nil); err != nil {
		return nil, err
	}
	if err := checkDrainReason(req.Reason); err != nil {
		return nil, err
	}
	if !s.c.lead.SavesPower() {
		return nil, cluster.Errorf(cluster.CodeInvalid, "the coordinators have no programs to power nodes down and up; set power_saving.suspend_program and power_saving.resume_program, see docs/power.md")
	}
	cmd := &logv1.PowerNode{Node: req.Id, To: uint32(cluster.PoweringDown), Asked: true, By: uint32(authorize.CallerOf(ctx).UID), Why: req.Reason}
	if req.Up {
		cmd.To = uint32(cluster.PoweringUp)
	}
	who, _, err := s.c.order(ctx, &logv1.Command{Kind: &logv1.Command_PowerNode{PowerNode: cmd}})
	if err != nil {
		return nil, err
	}
	s.c.log.InfoContext(ctx, "power of a node is ordered", "node", req.Id, "up", req.Up, "uid", who.UID)
	n, ok := s.c.fsm.Node(cluster.NodeID(req.Id))
	if !ok {
		return nil, noNode(req.Id)
	}
	return &apiv1.PowerNodeResponse{Node: s.c.nodeView(n)}, nil
}
