package coordinator

import (
	"context"
	"crypto/rand"
	"net/netip"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/notify"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// Notices says how users are told of jobs. The zero value sends no mail and lets
// nobody add webhooks.
type Notices struct {
	Mail notify.Mailer // Cluster and ClusterID are filled in
	// Webhooks says who may add some.
	Webhooks WebhookUsers
	// Allow are networks that webhooks may be at although they belong to this
	// machine, to its link, to a cloud's metadata, or with WebhooksUsers to the site.
	Allow []netip.Prefix
	// Tries is how often a notice is sent at most, 0 for 15; FirstPause is that
	// after the first, 0 for a second. Each is twice the one before.
	Tries      int
	FirstPause time.Duration
}

// WebhookUsers is who may add webhooks.
type WebhookUsers uint8

// Nobody, administrators, or everybody.
const (
	WebhooksOff WebhookUsers = iota
	WebhooksAdmins
	WebhooksUsers
)

const (
	settlePause = 200 * time.Millisecond
	markEvery   = 2 * time.Second
)

// sendNotices sends what waits in the state until ctx ends.
func (c *Coordinator) sendNotices(ctx context.Context) error {
	mail := c.cfg.Notices.Mail
	mail.Cluster, mail.ClusterID = c.cfg.ClusterName, c.cfg.ClusterID
	poster := notify.NewPoster(c.cfg.ClusterName, c.cfg.ClusterID, &notify.Guard{Allow: c.cfg.Notices.Allow, PublicOnly: c.cfg.Notices.Webhooks == WebhooksUsers})
	defer poster.Close()
	return notify.New(notify.Config{
		Source: c.fsm, Settle: c.settleNotices, Mailer: &mail, Poster: poster, Tries: c.cfg.Notices.Tries, FirstPause: c.cfg.Notices.FirstPause,
		Clock: c.cfg.Clock, Log: c.cfg.Log, Metrics: c.metrics.notices,
	}).Run(ctx)
}

// settleNotices commits what became of notices. It goes on trying: what arrived
// must not be sent again.
func (c *Coordinator) settleNotices(ctx context.Context, m *logv1.SettleNotices) error {
	for {
		_, err := c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_SettleNotices{SettleNotices: m}})
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			c.log.WarnContext(ctx, "cannot record what became of notices", "err", err)
		}
		if !sleep(ctx, settlePause) {
			return ctx.Err()
		}
	}
}

// markLimits tells those who want to know how much of its time limit a job has
// used, until ctx ends.
func (c *Coordinator) markLimits(ctx context.Context) error {
	for sleep(ctx, markEvery) {
		for _, m := range c.dueMarks(cluster.TimeOf(c.cfg.Clock())) {
			if _, err := c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_MarkAttempt{MarkAttempt: m}}); err != nil && ctx.Err() == nil {
				c.log.WarnContext(ctx, "cannot mark how much of its time a job has used", "job", m.Job, "err", err)
			}
		}
	}
	return ctx.Err()
}

// dueMarks are the marks that have come and that somebody wants to know of.
func (c *Coordinator) dueMarks(now cluster.Time) (out []*logv1.MarkAttempt) {
	var hooks cluster.MailEvents
	hs, _ := c.fsm.Webhooks()
	for _, h := range hs {
		hooks |= cluster.MailEvents(h.Events)
	}
	jobs, _ := c.fsm.Jobs(fsm.Query{
		States: []cluster.JobState{cluster.JobRunning},
		Keep: func(j *cluster.Job) bool {
			return j.Spec.TimeLimit > 0 && (j.Spec.Mail.Events|hooks)&cluster.MailMarks != 0
		},
	})
	for _, j := range jobs {
		a := j.Live()
		if a == nil || a.Started == 0 {
			continue
		}
		var due cluster.MailEvents
		for _, m := range [...]struct {
			mark    cluster.MailEvents
			percent time.Duration
		}{{cluster.MailTimeLimit50, 50}, {cluster.MailTimeLimit80, 80}, {cluster.MailTimeLimit90, 90}} {
			if now.Sub(a.Started) >= j.Spec.TimeLimit/100*m.percent {
				due |= m.mark
			}
		}
		if due &= (j.Spec.Mail.Events | hooks) &^ a.Marks; due != 0 {
			out = append(out, &logv1.MarkAttempt{Job: uint64(j.ID), Attempt: a.No, Marks: uint32(due)})
		}
	}
	return out
}

// secret makes what a webhook's requests are signed with.
func secret() []byte {
	return []byte("whsec_" + rand.Text())
}

// mailDoubts says what of the mail that a job asks for will not come.
func (c *Coordinator) mailDoubts(s *cluster.Spec) []string {
	if s.Mail.Events != 0 && c.cfg.Notices.Mail.Program == "" {
		return []string{"mail was asked for, and this cluster sends none (notify.sendmail of its coordinators); berth wait and berth webhook tell, too"}
	}
	return nil
}
