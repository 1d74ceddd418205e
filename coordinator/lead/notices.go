package lead

import (
	"context"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/notify"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const (
	settlePause = 200 * time.Millisecond
	markEvery   = 2 * time.Second
)

// sendNotices sends the notices in the state until ctx ends.
func (l *Leader) sendNotices(ctx context.Context) error {
	mail := l.cfg.Mail
	mail.Cluster, mail.ClusterID = l.cfg.ClusterName, l.cfg.ClusterID
	poster := notify.NewPoster(l.cfg.ClusterName, l.cfg.ClusterID, &l.cfg.Guard)
	defer poster.Close()
	return notify.New(notify.Config{
		Source: l.fsm, Settle: l.settleNotices, Mailer: &mail, Poster: poster, Tries: l.cfg.Tries, FirstPause: l.cfg.FirstPause,
		Clock: l.clock, Log: l.noticeLog, Metrics: l.metrics.notices,
	}).Run(ctx)
}

// settleNotices commits the outcome of notices. It keeps trying: what arrived must
// not be sent again.
func (l *Leader) settleNotices(ctx context.Context, m *logv1.SettleNotices) error {
	for {
		_, err := l.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_SettleNotices{SettleNotices: m}})
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			l.log.WarnContext(ctx, "cannot record what became of notices", "err", err)
		}
		if !wait.Sleep(ctx, settlePause) {
			return ctx.Err()
		}
	}
}

// markLimits records how much of its time limit a job has used, for users who asked
// to be notified, until ctx ends.
func (l *Leader) markLimits(ctx context.Context) error {
	var state stateSeen
	var hooks cluster.MailEvents
	var jobs []*cluster.Job
	for wait.Sleep(ctx, markEvery) {
		if state.changed(l.fsm) {
			hooks, jobs = marked(l.fsm)
		}
		for _, m := range dueMarks(jobs, hooks, cluster.TimeOf(l.clock())) {
			if _, err := l.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_MarkAttempt{MarkAttempt: m}}); err != nil && ctx.Err() == nil {
				l.log.WarnContext(ctx, "cannot mark how much of its time a job has used", "job", m.Job, "err", err)
			}
		}
	}
	return ctx.Err()
}

// marked returns the marks that go to webhooks, and the running jobs whose marks
// somebody wants to know of.
func marked(f *fsm.FSM) (hooks cluster.MailEvents, of []*cluster.Job) {
	hs, _ := f.Webhooks()
	for _, h := range hs {
		hooks |= cluster.MailEvents(h.Events)
	}
	of, _ = f.Jobs(fsm.Query{
		States: []cluster.JobState{cluster.JobRunning},
		Keep: func(j *cluster.Job) bool {
			return j.Spec.TimeLimit > 0 && (j.Spec.Mail.Events|hooks)&cluster.MailMarks != 0
		},
	})
	return hooks, of
}

// dueMarks returns the marks of jobs that were reached and that somebody wants to
// know of.
func dueMarks(jobs []*cluster.Job, hooks cluster.MailEvents, now cluster.Time) (out []*logv1.MarkAttempt) {
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
