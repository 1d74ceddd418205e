package nodes

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/roles"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// Join exchanges a token for a certificate.
func (s *nodeServer) Join(ctx context.Context, req *nodev1.JoinRequest) (*nodev1.JoinResponse, error) {
	return s.n.join(ctx, req)
}

// node returns which node calls. Daemons of other roles are refused.
func (s *nodeServer) node(ctx context.Context) (id string, err error) {
	role, id, err := s.n.peer(ctx)
	switch {
	case err != nil, role == "":
		return "", status.Error(codes.Unauthenticated, "a certificate of a node is needed")
	case role != roles.Agent:
		return "", status.Errorf(codes.PermissionDenied, "role %q may not call this: it is for nodes", role)
	}
	return id, nil
}

// GetClock returns the time to a node.
func (s *nodeServer) GetClock(ctx context.Context, _ *nodev1.GetClockRequest) (*nodev1.GetClockResponse, error) {
	if _, err := s.node(ctx); err != nil {
		return nil, err
	}
	return &nodev1.GetClockResponse{Now: timestamppb.New(s.n.clock())}, nil
}

// Renew issues a new certificate for the node that asks.
func (s *nodeServer) Renew(ctx context.Context, req *nodev1.RenewRequest) (*nodev1.RenewResponse, error) {
	id, err := s.node(ctx)
	if err != nil {
		return nil, err
	}
	if s.n.cfg.Certs == nil {
		return nil, status.Error(codes.FailedPrecondition, "this coordinator has no CA key; ask another one")
	}
	cert, ca, err := s.n.cfg.Certs.Issue(req.Csr, roles.Agent, id)
	if err != nil {
		return nil, cluster.Errorf(cluster.CodeInvalid, "certificate request: %v", err)
	}
	return &nodev1.RenewResponse{Certificate: cert, Ca: ca}, nil
}

// joinOnly keeps only the join method of a service's methods.
func joinOnly(all []grpc.MethodDesc) []grpc.MethodDesc {
	return slices.DeleteFunc(slices.Clone(all), func(m grpc.MethodDesc) bool { return m.MethodName != "Join" })
}
