// Package notices is the part of the state machine for pending notices of job
// events: by mail to owners and to webhooks, in the order of events, until one is
// reported sent or given up.
package notices

import (
	"fmt"
	"slices"
	"sort"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// Outbox holds pending notices, their recipients, and counts of sent ones. Its
// parts are replaced and never changed in place, except for the counts per target,
// which are never stored.
type Outbox struct {
	told    telling
	notices []*logv1.Notice     // by seq
	hooks   []*logv1.Webhook    // by id
	dead    []*logv1.DeadNotice // oldest first

	mails   map[uint32]int // pending, by the owner's uid
	posts   map[uint64]int // pending, by webhook
	posted  int            // pending, of all webhooks
	digests digests
}

type digests struct {
	notices, dead, hooks *table.Digests[uint64]
	telling              *table.Digests[table.One]
}

// telling holds counters.
type telling struct{ nextSeq, nextWebhook, mailsSent, mailsDead, lost uint64 }

func (t telling) record() *logv1.Telling {
	return &logv1.Telling{NextSeq: t.nextSeq, NextWebhook: t.nextWebhook, MailsSent: t.mailsSent, MailsDead: t.mailsDead, Lost: t.lost}
}

// New returns an empty outbox.
func New(h *table.Hash) *Outbox {
	o := &Outbox{mails: map[uint32]int{}, posts: map[uint64]int{}}
	o.digests = digests{
		notices: table.NewDigests(h, table.Notice, h.Number, func(seq uint64) proto.Message {
			if n := o.notice(seq); n != nil {
				return n
			}
			return nil
		}),
		dead: table.NewDigests(h, table.Dead, h.Number, func(seq uint64) proto.Message {
			if d := o.deadNotice(seq); d != nil {
				return d
			}
			return nil
		}),
		hooks: table.NewDigests(h, table.Hook, func(id uint64) []byte { return fmt.Append(nil, id) }, func(id uint64) proto.Message {
			if i, ok := o.hook(id); ok {
				return o.hooks[i]
			}
			return nil
		}),
		telling: table.NewOne(h, table.Telling, func() proto.Message {
			if o.told != (telling{}) {
				return o.told.record()
			}
			return nil
		}),
	}
	return o
}

// Apply applies a command about webhooks or the outcome of notices.
func (o *Outbox) Apply(at command.Entry, cmd *logv1.Command) command.Result {
	switch c := cmd.Kind.(type) {
	case *logv1.Command_AddWebhook:
		return o.addWebhook(at, c.AddWebhook)
	case *logv1.Command_RemoveWebhook:
		return o.removeWebhook(c.RemoveWebhook)
	case *logv1.Command_SettleNotices:
		return o.settleNotices(at, c.SettleNotices)
	}
	panic(fmt.Sprintf("notices: %T is not for this machine", cmd.Kind))
}

// View returns a copy for writing a snapshot; it does not change.
func (o *Outbox) View() *Outbox {
	return &Outbox{told: o.told, notices: slices.Clone(o.notices), hooks: o.hooks, dead: o.dead}
}

// Load restores a record that Each sent.
func (o *Outbox) Load(r *logv1.Record) error {
	switch m := r.Kind.(type) {
	case *logv1.Record_Telling:
		o.loadTelling(m.Telling)
	case *logv1.Record_Webhook:
		return o.loadWebhook(m.Webhook)
	case *logv1.Record_Notice:
		return o.loadNotice(m.Notice)
	case *logv1.Record_DeadNotice:
		return o.loadDead(m.DeadNotice)
	}
	return nil
}

// Waiting returns at most limit unsent notices, oldest first, after the one with
// seq after. The caller must not modify them.
func (o *Outbox) Waiting(after uint64, limit int) []*logv1.Notice {
	i := sort.Search(len(o.notices), func(i int) bool { return o.notices[i].Seq > after })
	return slices.Clone(o.notices[i:min(len(o.notices), i+limit)])
}

// Beyond reports whether a notice with a seq beyond after waits.
func (o *Outbox) Beyond(after uint64) bool {
	n := len(o.notices)
	return n > 0 && o.notices[n-1].Seq > after
}

// Webhooks returns the webhooks, by id, and the counts of all notices. The caller
// must not modify them; they hold their secrets.
func (o *Outbox) Webhooks() ([]*logv1.Webhook, *logv1.Telling) { return o.hooks, o.told.record() }

// Dead returns the newest notices that were given up, oldest first.
func (o *Outbox) Dead() []*logv1.DeadNotice { return o.dead }
