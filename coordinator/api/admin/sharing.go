package admin

import (
	"context"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/sharing"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// SetSharing switches sharing of GPUs off somewhere, or on again; co-located jobs
// continue. Only administrators may; anyone may look.
func (s *clusterServer) SetSharing(ctx context.Context, req *apiv1.SetSharingRequest) (*apiv1.SetSharingResponse, error) {
	if req.Look {
		if err := s.c.office.Verify(ctx); err != nil {
			return nil, err
		}
	} else if err := s.switchSharing(ctx, req); err != nil {
		return nil, err
	}
	resp := &apiv1.SetSharingResponse{}
	for _, o := range s.c.fsm.SharingOff() {
		resp.Off = append(resp.Off, conv.SharingOffToAPI(o))
	}
	return resp, nil
}

func (s *clusterServer) switchSharing(ctx context.Context, req *apiv1.SetSharingRequest) error {
	who := authorize.CallerOf(ctx)
	if err := s.c.auth.May(who, authorize.Admin, nil); err != nil {
		return err
	}
	if len(req.Reason) > nodes.MaxReason {
		return cluster.Errorf(cluster.CodeInvalid, "reason: %d bytes, at most %d are allowed", len(req.Reason), nodes.MaxReason)
	}
	o, err := s.sharingPlace(req)
	if err != nil {
		return err
	}
	o.Reason, o.By = req.Reason, cluster.UID(who.UID)
	_, err = s.c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_SetSharing{SetSharing: &logv1.SetSharing{Place: conv.SharingOffToLog(o), Off: req.Off}}})
	if err != nil {
		return err
	}
	s.c.log.InfoContext(ctx, "sharing switched", "place", o.Key(), "off", req.Off, "reason", req.Reason, "uid", who.UID)
	return nil
}

// sharingPlace returns the one place that a request names. To be switched on it
// need not exist any more.
func (s *clusterServer) sharingPlace(req *apiv1.SetSharingRequest) (*sharing.Off, error) {
	gpu, places := req.Gpu != "" || req.Index != nil, 0
	for _, named := range []bool{gpu, req.Node != "" && !gpu, req.Partition != "", req.Cluster} {
		if named {
			places++
		}
	}
	if places != 1 {
		return nil, cluster.Errorf(cluster.CodeInvalid, "sharing: name only one of a GPU, a node, a partition and the cluster")
	}
	if !gpu {
		return &sharing.Off{Node: cluster.NodeID(req.Node), Partition: req.Partition}, nil
	}
	if req.Gpu != "" && !req.Off {
		return &sharing.Off{GPU: cluster.GPUID(req.Gpu)}, nil
	}
	_, id, err := s.c.findGPU(gpuName{req.Gpu, req.Node, req.Index})
	return &sharing.Off{GPU: id}, err
}
