package admin

import (
	"context"
	"crypto/rand"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/notify"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// noticePage is how many notices are read at once.
const noticePage = 20_000

// notifyServer serves requests about webhooks.
type notifyServer struct {
	apirpc.UnimplementedNotifyServiceServer
	c *Admin
}

// ListWebhooks returns the caller's webhooks, all for an administrator.
func (s *notifyServer) ListWebhooks(ctx context.Context, _ *apiv1.ListWebhooksRequest) (*apiv1.ListWebhooksResponse, error) {
	if err := s.c.office.Verify(ctx); err != nil {
		return nil, err
	}
	who := authorize.CallerOf(ctx)
	waiting := map[uint64]uint64{}
	for after := uint64(0); ; {
		ns := s.c.fsm.Notices(after, noticePage)
		for _, n := range ns {
			waiting[n.Target]++
			after = n.Seq
		}
		if len(ns) < noticePage {
			break
		}
	}
	hooks, counts := s.c.fsm.Webhooks()
	resp := &apiv1.ListWebhooksResponse{Mail: s.c.cfg.Mails}
	if who.Admin {
		resp.MailsSent, resp.MailsDead, resp.MailsWaiting, resp.Lost = counts.MailsSent, counts.MailsDead, waiting[0], counts.Lost
	}
	for _, h := range hooks {
		if who.Admin || h.Uid == uint32(who.UID) && !who.Bare {
			resp.Webhooks = append(resp.Webhooks, webhookView(h, waiting[h.Id]))
		}
	}
	return resp, nil
}

// webhookView returns a webhook for users, without its secret.
func webhookView(h *logv1.Webhook, waiting uint64) *apiv1.Webhook {
	m := &apiv1.Webhook{
		Id: h.Id, Url: h.Url, Events: cluster.MailEvents(h.Events).String(), User: h.User, Uid: h.Uid, All: h.All,
		Created: timestamppb.New(cluster.Time(h.CreatedUs).Std()), Sent: h.Sent, Dead: h.Dead, Waiting: waiting,
	}
	if h.LastSentUs != 0 {
		m.LastSent = timestamppb.New(cluster.Time(h.LastSentUs).Std())
	}
	return m
}

// AddWebhook adds a webhook.
func (s *notifyServer) AddWebhook(ctx context.Context, req *apiv1.AddWebhookRequest) (*apiv1.AddWebhookResponse, error) {
	who := authorize.CallerOf(ctx)
	if err := s.mayAdd(who, req.All); err != nil {
		return nil, err
	}
	events, err := cluster.ParseMailEvents(req.Events)
	switch {
	case err != nil:
		return nil, cluster.Errorf(cluster.CodeInvalid, "events: %v", err)
	case events == 0:
		return nil, cluster.Errorf(cluster.CodeInvalid, "events: none given; want ALL or some of the names of --mail-type")
	}
	if err := notify.CheckURL(req.Url); err != nil {
		return nil, cluster.Errorf(cluster.CodeInvalid, "url %v", err)
	}
	key := req.Secret
	if len(key) == 0 {
		key = secret()
	}
	h := &logv1.Webhook{Url: req.Url, Secret: key, Events: uint32(events), User: who.Name, Uid: uint32(who.UID), All: req.All}
	r, err := s.c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_AddWebhook{AddWebhook: &logv1.AddWebhook{Webhook: h}}})
	if err != nil {
		return nil, err
	}
	s.c.log.InfoContext(ctx, "webhook added", "webhook", r.Webhook, "uid", who.UID, "all", req.All)
	h.Id, h.CreatedUs = r.Webhook, int64(s.c.fsm.Now())
	return &apiv1.AddWebhookResponse{Webhook: webhookView(h, 0), Secret: key}, nil
}

func (s *notifyServer) mayAdd(who authorize.Caller, all bool) error {
	switch users := s.c.cfg.Webhooks; {
	case users == notify.WebhooksOff:
		return cluster.Errorf(cluster.CodeDenied, "webhooks are off here; notify.webhooks of the coordinators turns them on")
	case users == notify.WebhooksAdmins || all:
		return s.c.auth.May(who, authorize.Admin, nil)
	}
	return s.c.auth.May(who, authorize.Submit, nil)
}

// RemoveWebhook forgets a webhook of the caller, or any for an administrator.
func (s *notifyServer) RemoveWebhook(ctx context.Context, req *apiv1.RemoveWebhookRequest) (*apiv1.RemoveWebhookResponse, error) {
	who := authorize.CallerOf(ctx)
	if err := authorize.Beyond(who); err != nil {
		return nil, err
	}
	hooks, _ := s.c.fsm.Webhooks()
	for _, h := range hooks {
		if h.Id == req.Id && !who.Admin && h.Uid != uint32(who.UID) {
			return nil, cluster.Errorf(cluster.CodeNotFound, "webhook %d is not known; see: berth webhook list", req.Id)
		}
	}
	if _, err := s.c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_RemoveWebhook{RemoveWebhook: &logv1.RemoveWebhook{Id: req.Id}}}); err != nil {
		return nil, err
	}
	s.c.log.InfoContext(ctx, "webhook removed", "webhook", req.Id, "uid", who.UID)
	return &apiv1.RemoveWebhookResponse{}, nil
}

// ListDeadNotices returns what could not be delivered, of the caller's jobs and
// webhooks, or all for an administrator.
func (s *notifyServer) ListDeadNotices(ctx context.Context, _ *apiv1.ListDeadNoticesRequest) (*apiv1.ListDeadNoticesResponse, error) {
	if err := s.c.office.Verify(ctx); err != nil {
		return nil, err
	}
	who := authorize.CallerOf(ctx)
	owner := map[uint64]uint32{}
	hooks, _ := s.c.fsm.Webhooks()
	for _, h := range hooks {
		owner[h.Id] = h.Uid
	}
	resp := &apiv1.ListDeadNoticesResponse{}
	dead := s.c.fsm.DeadNotices()
	for i := len(dead) - 1; i >= 0; i-- {
		d, n := dead[i], dead[i].Notice
		uid, known := owner[n.Target]
		mine := n.Target == 0 && n.Uid == uint32(who.UID) || known && uid == uint32(who.UID)
		if !who.Admin && !mine || who.Bare {
			continue
		}
		resp.Notices = append(resp.Notices, &apiv1.DeadNotice{
			Job: n.Job, Name: n.Name, User: n.User, Event: cluster.MailEvents(n.Event).String(), At: timestamppb.New(cluster.Time(n.AtUs).Std()),
			Webhook: n.Target, To: n.To, Error: d.Error, GivenUp: timestamppb.New(cluster.Time(d.AtUs).Std()),
		})
	}
	return resp, nil
}

// secret creates the key that signs a webhook's requests.
func secret() []byte {
	return []byte("whsec_" + rand.Text())
}
