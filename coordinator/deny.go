package coordinator

import (
	"context"
	"regexp"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// roleSerial stands among the denied roles for single certificates.
const roleSerial = "serial"

var serials = regexp.MustCompile(`^[0-9a-f]{1,64}$`)

// Denied reports whether a certificate was revoked, by its holder's role and name
// or by its serial number in lower-case hexadecimal. It is made for handshakes.
func (c *Coordinator) Denied(role, id, serial string) bool {
	return c.fsm.Denied(role, id) || c.fsm.Denied(roleSerial, serial)
}

// undenied returns peer for those who were not denied: every call of a daemon goes
// through it, so that a certificate is worth nothing from the moment its holder is
// removed from the cluster, however long it is valid.
func (c *Coordinator) undenied(peer func(context.Context) (role, id string, err error)) func(context.Context) (role, id string, err error) {
	return func(ctx context.Context) (string, string, error) {
		role, id, err := peer(ctx)
		if err == nil && c.fsm.Denied(role, id) {
			return "", "", cluster.Errorf(cluster.CodeDenied, "%s %s was removed from the cluster", role, id)
		}
		return role, id, err
	}
}

// cutLater has the connections of those who were just denied closed. It does not
// wait.
func (c *Coordinator) cutLater() {
	select {
	case c.denials <- struct{}{}:
	default:
	}
}

func (c *Coordinator) cutDenied(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.denials:
			if c.cfg.CutDenied != nil {
				c.cfg.CutDenied(c.Denied)
			}
		}
	}
}

// SetDenied revokes certificates, or lets their holders in again. Only
// administrators may, and only they may look.
func (s *clusterServer) SetDenied(ctx context.Context, req *apiv1.SetDeniedRequest) (*apiv1.SetDeniedResponse, error) {
	resp, err := s.setDenied(ctx, req)
	if err != nil {
		return nil, toStatus(ctx, s.c.log, err)
	}
	return resp, nil
}

func (s *clusterServer) setDenied(ctx context.Context, req *apiv1.SetDeniedRequest) (*apiv1.SetDeniedResponse, error) {
	who := callerOf(ctx)
	if err := s.c.authorize(who, actAdmin, nil); err != nil {
		return nil, err
	}
	if req.Look {
		if err := s.c.current(ctx); err != nil {
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
		s.c.log.WarnContext(ctx, "certificates denied or allowed", "role", req.Role, "of", req.Id, "allow", req.Allow, "uid", who.uid)
	}
	resp := &apiv1.SetDeniedResponse{}
	for _, d := range s.c.fsm.AllDenied() {
		resp.Denied = append(resp.Denied, &apiv1.Denied{Role: d.Role, Id: d.ID, At: timestamppb.New(d.At.Std())})
	}
	return resp, nil
}

// mayBeDenied keeps typing errors out of the list, and members in the cluster:
// without their votes it might not stand.
func (c *Coordinator) mayBeDenied(req *apiv1.SetDeniedRequest) error {
	switch req.Role {
	case roleAgent, roleGate, roleCoordinator:
		if err := cluster.CheckName("name", req.Id); err != nil {
			return err
		}
	case roleSerial:
		if !serials.MatchString(req.Id) {
			return cluster.Errorf(cluster.CodeInvalid, "serial %.80q: want at most 64 digits of lower-case hexadecimal, as a daemon's log and openssl x509 -serial print them", req.Id)
		}
	default:
		return cluster.Errorf(cluster.CodeInvalid, "role %.40q: want %s, %s, %s or %s", req.Role, roleAgent, roleGate, roleCoordinator, roleSerial)
	}
	if req.Allow || req.Role != roleCoordinator {
		return nil
	}
	for _, m := range c.raft.Members() {
		if m.ID == req.Id {
			return cluster.Errorf(cluster.CodeConflict, "coordinator %s is a member; start the others without it first (berth coordinator recover --peers), or deny the one certificate by its serial number", req.Id)
		}
	}
	return nil
}
