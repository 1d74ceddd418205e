package notices

import (
	"slices"
	"sort"

	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// Bounds of pending notices. Beyond them a notice is dropped and counted as lost.
// A webhook of one user's jobs keeps an eighth of maxHookNotices, and all webhooks
// no more than maxPosts, so that there is room for mail.
const (
	maxMailsOfUser  = 2_000
	maxHookNotices  = 20_000
	maxNotices      = 100_000
	maxPosts        = maxNotices / 2
	maxWebhooks     = 256
	maxHooksOfUser  = 8
	maxDeadNotices  = 1_000
	maxDeadReason   = 300
	maxNoticeNodes  = 512
	maxNoticeDetail = 512
)

func (o *Outbox) putNotice(n *logv1.Notice) {
	o.notices = append(o.notices, n)
	if n.Target == 0 {
		o.mails[n.Uid]++
	} else {
		o.posts[n.Target]++
		o.posted++
	}
	o.digests.notices.Touch(n.Seq)
}

func (o *Outbox) touchTelling() { o.digests.telling.Touch(table.One{}) }

func (o *Outbox) notice(seq uint64) *logv1.Notice {
	i := sort.Search(len(o.notices), func(i int) bool { return o.notices[i].Seq >= seq })
	if i < len(o.notices) && o.notices[i].Seq == seq {
		return o.notices[i]
	}
	return nil
}

// drop removes the notices for which gone is true, and returns them.
func (o *Outbox) drop(gone func(*logv1.Notice) bool) (out []*logv1.Notice) {
	kept := make([]*logv1.Notice, 0, len(o.notices)) // a snapshot may hold the old slice
	for _, n := range o.notices {
		if !gone(n) {
			kept = append(kept, n)
			continue
		}
		out = append(out, n)
		o.digests.notices.Touch(n.Seq)
		if n.Target != 0 {
			less(o.posts, n.Target)
			o.posted--
		} else {
			less(o.mails, n.Uid)
		}
	}
	o.notices = kept
	return out
}

func less[K comparable](m map[K]int, k K) {
	if m[k]--; m[k] <= 0 {
		delete(m, k)
	}
}

// settleNotices records the outcome of notices.
func (o *Outbox) settleNotices(at command.Entry, c *logv1.SettleNotices) command.Result {
	why := map[uint64]string{}
	sent := map[uint64]struct{}{}
	for _, seq := range c.Sent {
		sent[seq] = struct{}{}
	}
	for _, d := range c.Dead {
		why[d.Seq] = d.Error
	}
	out := o.drop(func(n *logv1.Notice) bool {
		_, dead := why[n.Seq]
		_, ok := sent[n.Seq]
		return dead || ok
	})
	for _, n := range out {
		reason, dead := why[n.Seq]
		_, arrived := sent[n.Seq]
		o.countSent(at, n.Target, arrived)
		if dead && !arrived {
			o.bury(at, n, reason)
		}
	}
	o.touchTelling()
	return command.Result{}
}

func (o *Outbox) countSent(at command.Entry, target uint64, arrived bool) {
	if target == 0 {
		if arrived {
			o.told.mailsSent++
		} else {
			o.told.mailsDead++
		}
		return
	}
	i, ok := o.hook(target)
	if !ok {
		return
	}
	h := cloneHook(o.hooks[i])
	if arrived {
		h.Sent, h.LastSentUs = h.Sent+1, int64(at.Now)
	} else {
		h.Dead++
	}
	o.setHooks(slices.Concat(o.hooks[:i], []*logv1.Webhook{h}, o.hooks[i+1:]), h.Id)
}

// bury keeps the newest notices that were given up.
func (o *Outbox) bury(at command.Entry, n *logv1.Notice, reason string) {
	d := &logv1.DeadNotice{Notice: n, Error: Clip(reason, maxDeadReason), AtUs: int64(at.Now)}
	from := 0
	if len(o.dead) >= maxDeadNotices {
		from = len(o.dead) - maxDeadNotices + 1
	}
	for _, old := range o.dead[:from] {
		o.digests.dead.Touch(old.Notice.Seq)
	}
	o.dead = append(slices.Clone(o.dead[from:]), d)
	o.digests.dead.Touch(n.Seq)
}

func (o *Outbox) deadNotice(seq uint64) *logv1.DeadNotice {
	i := slices.IndexFunc(o.dead, func(d *logv1.DeadNotice) bool { return d.Notice.Seq == seq })
	if i < 0 {
		return nil
	}
	return o.dead[i]
}
