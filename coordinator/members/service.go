package members

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/coordinator/roles"
	peerv1 "github.com/berth-scheduler/berth/proto/berth/peer/v1"
)

// service serves other coordinators.
type service struct {
	peerv1.UnimplementedPeerServiceServer
	m *Members
}

// GetMember describes this coordinator.
func (s *service) GetMember(ctx context.Context, _ *peerv1.GetMemberRequest) (*peerv1.GetMemberResponse, error) {
	if role, _, err := s.m.peer(ctx); err != nil || role != roles.Coordinator {
		return nil, status.Error(codes.PermissionDenied, "this is for coordinators")
	}
	return s.m.self(), nil
}

// ConfirmIndex returns how far this coordinator is, if it leads: everything it has
// answered is in its state, and the others confirm that no other has answered
// since.
func (s *service) ConfirmIndex(ctx context.Context, _ *peerv1.ConfirmIndexRequest) (*peerv1.ConfirmIndexResponse, error) {
	if role, _, err := s.m.peer(ctx); err != nil || role != roles.Coordinator {
		return nil, status.Error(codes.PermissionDenied, "this is for coordinators")
	}
	if s.m.office.Term() == nil {
		return nil, status.Error(codes.FailedPrecondition, "this coordinator does not lead now")
	}
	index := s.m.fsm.Index()
	if err := s.m.raft.VerifyLeader(ctx); err != nil {
		return nil, status.Error(codes.FailedPrecondition, "this coordinator may lead no longer: "+err.Error())
	}
	return &peerv1.ConfirmIndexResponse{Index: index}, nil
}

// FetchHistory streams what this coordinator's store has of a part of the log.
func (s *service) FetchHistory(req *peerv1.FetchHistoryRequest, stream grpc.ServerStreamingServer[peerv1.FetchHistoryResponse]) error {
	if role, _, err := s.m.peer(stream.Context()); err != nil || role != roles.Coordinator {
		return status.Error(codes.PermissionDenied, "this is for coordinators")
	}
	return s.m.archive.Send(req, stream)
}
