// Package accounts serves accounts, qualities of service, quotas and fair shares.
package accounts

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/lead"
	"github.com/berth-scheduler/berth/coordinator/office"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Needs is what the service depends on. All fields are required.
type Needs struct {
	FSM      *fsm.FSM
	Proposer *proposer.Proposer
	Auth     *authorize.Authorizer
	Office   *office.Office
	Leader   *lead.Leader
	Clock    func() time.Time
	Log      *slog.Logger
}

// Service serves accounts, QOS and quotas.
type Service struct {
	apirpc.UnimplementedAccountServiceServer
	fsm    *fsm.FSM
	prop   *proposer.Proposer
	auth   *authorize.Authorizer
	office *office.Office
	lead   *lead.Leader
	clock  func() time.Time
	log    *slog.Logger
}

// New creates the service.
func New(d Needs) *Service {
	return &Service{fsm: d.FSM, prop: d.Proposer, auth: d.Auth, office: d.Office, lead: d.Leader, clock: d.Clock, log: d.Log}
}

// SetStanding replaces the rule that a change was made from, or deletes it.
// Administrators may; coordinators of an account may set quotas of its users.
func (s *Service) SetStanding(ctx context.Context, req *apiv1.SetStandingRequest) (*apiv1.SetStandingResponse, error) {
	who := authorize.CallerOf(ctx)
	r, err := conv.RulingFromAPI(req.Standing)
	if err == nil {
		err = s.mayRule(who, r)
	}
	if err != nil {
		return nil, err
	}
	cmd := &logv1.SetStanding{Standing: conv.RulingToLog(r), Remove: req.Remove, Base: req.Standing.Revision, By: uint32(who.UID)}
	if _, err := s.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_SetStanding{SetStanding: cmd}}); err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "accounts changed", "what", cmd.Standing.String(), "removed", req.Remove, "uid", who.UID)
	return &apiv1.SetStandingResponse{}, nil
}

func (s *Service) mayRule(who authorize.Caller, r conv.Ruling) error {
	err := s.auth.May(who, authorize.Admin, nil)
	q, ok := r.(*accounting.Quota)
	if err == nil || !ok || q.Subject.Account == "" || !q.Subject.User && !q.Subject.Each {
		return err
	}
	if s.fsm.Coordinates(who.UID, q.Subject.Account) {
		return authorize.Beyond(who)
	}
	return err
}

// ListStanding returns accounts, their users, QOS and quotas.
func (s *Service) ListStanding(ctx context.Context, req *apiv1.ListStandingRequest) (*apiv1.ListStandingResponse, error) {
	if err := s.office.Verify(ctx); err != nil {
		return nil, err
	}
	d := s.fsm.Standing(cluster.TimeOf(s.clock()))
	v := &standingView{d: d, req: req, resp: &apiv1.ListStandingResponse{Policy: conv.RulingToAPI(&d.Policy).GetPolicy(), At: timestamppb.New(d.Now.Std())}}
	for _, name := range req.Accounts {
		if d.Accounts[name] == nil {
			return nil, cluster.Errorf(cluster.CodeNotFound, "account %q is not known; see: berth account list", name)
		}
	}
	v.rules()
	if req.Usage {
		v.use()
	}
	return v.resp, nil
}

// FairShareOf returns where a job stands by fair shares, nil without accounts.
func (s *Service) FairShareOf(j *cluster.Job) *apiv1.FairShare {
	if has, _ := s.fsm.HasAccounts(); !has {
		return nil
	}
	d, account, uid := s.fsm.Standing(cluster.TimeOf(s.clock())), j.Spec.Account, j.Owner.UID
	v := &standingView{d: d, req: &apiv1.ListStandingRequest{Uids: []uint32{uint32(uid)}}, resp: &apiv1.ListStandingResponse{}}
	if account != "" {
		v.req.Accounts = []string{account}
	}
	v.rules()
	fair := v.use()
	out := &apiv1.FairShare{
		Account: account, Rank: uint32(fair.Place(accounting.Assoc{Account: account, UID: uid})), Of: uint32(fair.Of),
		WeightMilli: uint32(max(0, min(cluster.WholeGPU, s.lead.PolicyOf(j).FairMilli))),
	}
	if out.Of > 0 {
		out.Factor = float64(out.Of-out.Rank+1) / float64(out.Of)
	}
	for _, a := range v.resp.Accounts {
		if a.Name == account {
			out.AccountShares, out.AccountUse = a.Use.SharesPart, a.Use.UsePart
		}
	}
	for _, m := range v.resp.Members {
		if m.Account == account {
			out.UserShares, out.UserUse = m.Use.SharesPart, m.Use.UsePart
		}
	}
	return out
}
