package notices

import (
	"fmt"
	"slices"
	"sort"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const (
	minSecret = 16
	maxSecret = 128
	maxURL    = 2048
)

func (o *Outbox) hook(id uint64) (int, bool) {
	hs := o.hooks
	i := sort.Search(len(hs), func(i int) bool { return hs[i].Id >= id })
	return i, i < len(hs) && hs[i].Id == id
}

func cloneHook(h *logv1.Webhook) *logv1.Webhook { return proto.CloneOf(h) }

// setHooks replaces the webhooks, one of which changed.
func (o *Outbox) setHooks(hs []*logv1.Webhook, changed uint64) {
	o.hooks = hs
	o.digests.hooks.Touch(changed)
}

// addWebhook adds a webhook under the next id. Whether its address may be called is
// the leader's to check.
func (o *Outbox) addWebhook(at command.Entry, c *logv1.AddWebhook) command.Result {
	w := c.Webhook
	mine := 0
	for _, h := range o.hooks {
		if h.Uid == w.GetUid() {
			mine++
		}
	}
	switch {
	case w.GetUrl() == "" || len(w.Url) > maxURL:
		return command.Refuse(cluster.CodeInvalid, "url: %d bytes, must have 1 to %d", len(w.GetUrl()), maxURL)
	case len(w.Secret) < minSecret || len(w.Secret) > maxSecret:
		return command.Refuse(cluster.CodeInvalid, "secret: %d bytes, must have %d to %d", len(w.Secret), minSecret, maxSecret)
	case w.Events == 0:
		return command.Refuse(cluster.CodeInvalid, "events: there are none")
	case len(o.hooks) >= maxWebhooks:
		return command.Refuse(cluster.CodeExhausted, "there are %d webhooks, at most %d are allowed", len(o.hooks), maxWebhooks)
	case !w.All && mine >= maxHooksOfUser:
		return command.Refuse(cluster.CodeExhausted, "uid %d has %d webhooks, at most %d are allowed; remove one: berth webhook list", w.Uid, mine, maxHooksOfUser)
	}
	h := &logv1.Webhook{
		Id: o.told.nextWebhook + 1, Url: w.Url, Secret: w.Secret, Events: w.Events, User: w.User, Uid: w.Uid, All: w.All, CreatedUs: int64(at.Now),
	}
	o.told.nextWebhook = h.Id
	o.touchTelling()
	o.setHooks(append(slices.Clone(o.hooks), h), h.Id)
	return command.Result{Webhook: h.Id}
}

// removeWebhook removes a webhook and its pending notices.
func (o *Outbox) removeWebhook(c *logv1.RemoveWebhook) command.Result {
	i, ok := o.hook(c.Id)
	if !ok {
		return command.Refuse(cluster.CodeNotFound, "webhook %d is not known; see: berth webhook list", c.Id)
	}
	o.setHooks(slices.Concat(o.hooks[:i], o.hooks[i+1:]), c.Id)
	o.drop(func(n *logv1.Notice) bool { return n.Target == c.Id })
	return command.Result{}
}

func (o *Outbox) loadTelling(m *logv1.Telling) {
	o.told = telling{m.NextSeq, m.NextWebhook, m.MailsSent, m.MailsDead, m.Lost}
	o.touchTelling()
}

func (o *Outbox) loadNotice(n *logv1.Notice) error {
	if k := len(o.notices); k > 0 && o.notices[k-1].Seq >= n.Seq {
		return fmt.Errorf("notice %d is out of order", n.Seq)
	}
	o.putNotice(proto.CloneOf(n))
	return nil
}

func (o *Outbox) loadWebhook(h *logv1.Webhook) error {
	if k := len(o.hooks); k > 0 && o.hooks[k-1].Id >= h.Id {
		return fmt.Errorf("webhook %d is out of order", h.Id)
	}
	o.setHooks(append(o.hooks, cloneHook(h)), h.Id)
	return nil
}

func (o *Outbox) loadDead(d *logv1.DeadNotice) error {
	if d.Notice == nil {
		return fmt.Errorf("a notice that was given up is missing")
	}
	o.dead = append(o.dead, proto.CloneOf(d))
	o.digests.dead.Touch(d.Notice.Seq)
	return nil
}

// Each sends the records of the outbox.
func (o *Outbox) Each(w *table.Writer) {
	if t := o.told; t != (telling{}) {
		w.Send(&logv1.Record{Kind: &logv1.Record_Telling{Telling: t.record()}})
	}
	for _, h := range o.hooks {
		w.Send(&logv1.Record{Kind: &logv1.Record_Webhook{Webhook: h}})
	}
	for _, n := range o.notices {
		w.Send(&logv1.Record{Kind: &logv1.Record_Notice{Notice: n}})
	}
	for _, d := range o.dead {
		w.Send(&logv1.Record{Kind: &logv1.Record_DeadNotice{DeadNotice: d}})
	}
}
