package admin

import (
	"cmp"
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/coordinator/api/admission"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// drainPrefix begins the names of reservations that hold future drains.
const drainPrefix = "drain-"

func drainName(node string) string { return drainPrefix + node }

// DrainNode stops new jobs from starting on a node, from now or a given time, until
// it is resumed or until a given time; running ones continue.
func (s *clusterServer) DrainNode(ctx context.Context, req *apiv1.DrainNodeRequest) (*apiv1.DrainNodeResponse, error) {
	until, from, now := cluster.Time(0), cluster.Time(0), s.c.nowTime()
	if req.Until != nil {
		until = cluster.TimeOf(req.Until.AsTime())
	}
	if req.From != nil {
		from = cluster.TimeOf(req.From.AsTime())
	}
	switch {
	case req.Until != nil && until <= now:
		return nil, cluster.Errorf(cluster.CodeInvalid, "until: %s has passed; give a later time", admission.ClockText(until))
	case from > now && req.Until == nil:
		return nil, cluster.Errorf(cluster.CodeInvalid, "until: is missing; a drain that begins later needs an end, so that jobs can be scheduled around it")
	case from > now && until <= from:
		return nil, cluster.Errorf(cluster.CodeInvalid, "until: %s is not after the start, %s", admission.ClockText(until), admission.ClockText(from))
	case from > now:
		return s.drainLater(ctx, req)
	}
	n, err := s.setDrain(ctx, &logv1.DrainNode{Node: req.Id, Drain: true, Reason: req.Reason, UntilUs: int64(until)})
	if err != nil {
		return nil, err
	}
	return &apiv1.DrainNodeResponse{Node: n}, nil
}

// drainLater stores a future drain as a reservation for maintenance: jobs that may
// last beyond its beginning do not start on the node, and it gives the node back by
// itself.
func (s *clusterServer) drainLater(ctx context.Context, req *apiv1.DrainNodeRequest) (*apiv1.DrainNodeResponse, error) {
	if err := checkDrainReason(req.Reason); err != nil {
		return nil, err
	}
	n, ok := s.c.fsm.Node(cluster.NodeID(req.Id))
	if !ok {
		return nil, noNode(req.Id)
	}
	maint := true
	resp, err := s.SetReservation(ctx, &apiv1.SetReservationRequest{
		Name: drainName(req.Id), Nodes: &req.Id, Start: req.From, End: req.Until, Maint: &maint, Comment: &req.Reason, IgnoreJobs: true,
	})
	if err != nil {
		return nil, err
	}
	return &apiv1.DrainNodeResponse{Node: s.c.nodeView(n), Reservation: drainName(req.Id), Warnings: resp.Warnings}, nil
}

// ResumeNode lets jobs start on a node again, and cancels its future drain.
func (s *clusterServer) ResumeNode(ctx context.Context, req *apiv1.ResumeNodeRequest) (*apiv1.ResumeNodeResponse, error) {
	n, err := s.setDrain(ctx, &logv1.DrainNode{Node: req.Id})
	if err == nil && s.c.fsm.Reservations().Get(drainName(req.Id)) != nil {
		_, err = s.c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_RemoveReservation{RemoveReservation: &logv1.RemoveReservation{Name: drainName(req.Id)}}})
		if e, ok := errors.AsType[*cluster.Error](err); ok && e.Code == cluster.CodeNotFound {
			err = nil // another request was faster
		}
	}
	if err != nil {
		return nil, err
	}
	return &apiv1.ResumeNodeResponse{Node: n}, nil
}

func checkDrainReason(reason string) error {
	if len(reason) > nodes.MaxReason {
		return cluster.Errorf(cluster.CodeInvalid, "reason: %d bytes, at most %d are allowed", len(reason), nodes.MaxReason)
	}
	return nil
}

func (s *clusterServer) setDrain(ctx context.Context, cmd *logv1.DrainNode) (*apiv1.Node, error) {
	who := authorize.CallerOf(ctx)
	if err := s.c.auth.May(who, authorize.Admin, nil); err != nil {
		return nil, err
	}
	if err := checkDrainReason(cmd.Reason); err != nil {
		return nil, err
	}
	if _, ok := s.c.fsm.Node(cluster.NodeID(cmd.Node)); !ok {
		return nil, noNode(cmd.Node)
	}
	cmd.By = uint32(who.UID)
	if _, err := s.c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_DrainNode{DrainNode: cmd}}); err != nil {
		return nil, err
	}
	s.c.log.InfoContext(ctx, "node drain changed", "node", cmd.Node, "drain", cmd.Drain, "until", cmd.UntilUs, "uid", who.UID)
	n, ok := s.c.fsm.Node(cluster.NodeID(cmd.Node))
	if !ok {
		return nil, noNode(cmd.Node)
	}
	return s.c.nodeView(n), nil
}

// tellDrainLater sets when an ordered drain of a node begins.
func tellDrainLater(m *apiv1.Node, rs dispatch.Reservations, now cluster.Time) {
	r := rs.Get(drainName(m.Id))
	if r == nil {
		return
	}
	if start, end, ok := r.Window(now); ok {
		m.DrainFrom, m.DrainUntil = timestamppb.New(start.Std()), timestamppb.New(end.Std())
		m.DrainReason = cmp.Or(m.DrainReason, r.Comment)
	}
}
