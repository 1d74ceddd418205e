package admin

import (
	"context"
	"regexp"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/roles"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

var serials = regexp.MustCompile(`^[0-9a-f]{1,64}$`)

// SetDenied revokes certificates, or readmits their holders. Only administrators
// may do or see that.
func (s *clusterServer) SetDenied(ctx context.Context, req *apiv1.SetDeniedRequest) (*apiv1.SetDeniedResponse, error) {
	who := authorize.CallerOf(ctx)
	if err := s.c.auth.May(who, authorize.Admin, nil); err != nil {
		return nil, err
	}
	if req.Look {
		if err := s.c.office.Verify(ctx); err != nil {
			return nil, err
		}
	} else {
		if err := s.c.mayBeDenied(req); err != nil {
			return nil, err
		}
		d := &logv1.DenyIdentity{Role: req.Role, Id: req.Id, Allow: req.Allow}
		if _, err := s.c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_DenyIdentity{DenyIdentity: d}}); err != nil {
			return nil, err
		}
		s.c.log.WarnContext(ctx, "certificates denied or allowed", "role", req.Role, "of", req.Id, "allow", req.Allow, "uid", who.UID)
	}
	resp := &apiv1.SetDeniedResponse{}
	for _, d := range s.c.fsm.AllDenied() {
		resp.Denied = append(resp.Denied, &apiv1.Denied{Role: d.Role, Id: d.ID, At: timestamppb.New(d.At.Std())})
	}
	return resp, nil
}

// mayBeDenied keeps typing errors out of the list, and members in the cluster:
// without their votes it might lose its quorum.
func (c *Admin) mayBeDenied(req *apiv1.SetDeniedRequest) error {
	switch req.Role {
	case roles.Agent, roles.Gate, roles.Coordinator:
		if err := cluster.CheckName("name", req.Id); err != nil {
			return err
		}
	case roles.Serial:
		if !serials.MatchString(req.Id) {
			return cluster.Errorf(cluster.CodeInvalid, "serial %.80q: want at most 64 digits of lower-case hexadecimal, as a daemon's log and openssl x509 -serial print them", req.Id)
		}
	default:
		return cluster.Errorf(cluster.CodeInvalid, "role %.40q: want %s, %s, %s or %s", req.Role, roles.Agent, roles.Gate, roles.Coordinator, roles.Serial)
	}
	if req.Allow || req.Role != roles.Coordinator {
		return nil
	}
	for _, m := range c.raft.Members() {
		if m.ID == req.Id {
			return cluster.Errorf(cluster.CodeConflict, "coordinator %s is a member; start the others without it first (berth coordinator recover --peers), or deny the one certificate by its serial number", req.Id)
		}
	}
	return nil
}
