package lead

import (
	"context"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

const (
	// progressEvery is how often jobs' reported progress is read, and progressOf of
	// how many one entry records it.
	progressEvery = 5 * time.Second
	progressOf    = 500
)

// pace is how often something was recorded of an attempt, and when last.
type pace struct {
	times int
	last  cluster.Time
}

// due reports whether news of the attempt may be recorded now, and counts it. The
// more there was the longer it waits, up to a minute: a job that reports something
// else each second does not fill the log.
func (p *pace) due(now cluster.Time) bool {
	if p.times > 0 && now.Sub(p.last) < min(time.Minute, progressEvery*time.Duration(p.times/16)) {
		return false
	}
	p.times, p.last = p.times+1, now
	return true
}

// noteProgress records the progress that running jobs report, and that of the image
// pulls of starting ones, if it is news, until ctx ends.
func (l *Leader) noteProgress(ctx context.Context) error {
	paces := map[cluster.AttemptID]*pace{} // soft: a new leader starts afresh
	for wait.Sleep(ctx, progressEvery) {
		now, there := cluster.TimeOf(l.clock()), map[cluster.AttemptID]*pace{}
		var news []*logv1.AttemptProgress
		for _, id := range l.telling() {
			j, ok := l.fsm.Job(id.Job)
			if !ok || j.State != cluster.JobStarting && j.State != cluster.JobRunning || j.Live() == nil || j.Live().No != id.No {
				continue
			}
			u, _ := l.useOf(id, j.Live())
			if u.Progress == nil && u.Pull == nil {
				continue
			}
			if there[id] = paces[id]; there[id] == nil {
				there[id] = &pace{}
			}
			if n := newsOf(j, &u); n != nil && there[id].due(now) {
				news = append(news, n)
			}
		}
		paces = there
		l.writeDown(ctx, news)
	}
	return ctx.Err()
}

// newsOf returns what is worth recording of a job's reports from the nodes of its
// attempt, nil for nothing.
func newsOf(j *cluster.Job, u *nodes.Use) *logv1.AttemptProgress {
	a := j.Live()
	id := cluster.AttemptID{Job: j.ID, No: a.No}
	switch p := u.Progress; {
	case a.Started == 0 && u.Pull != nil && j.Reason.Detail != u.Pull.String():
		return conv.NotePull(id, u.Pull)
	case a.Started != 0 && p != nil && (a.Progress.News(*p) || showsCost(a, p)):
		return conv.NoteProgress(id, p)
	}
	return nil
}

// showsCost reports whether an attempt's progress shows what its last change in
// place cost.
func showsCost(a *cluster.Attempt, now *cluster.Progress) bool {
	n := len(a.Changes)
	return n > 0 && a.Changes[n-1].Took == 0 && a.Changes[n-1].Counted(now).Took > 0
}

// noteFar records the progress of a job that is about to change in place: the cost
// of that is counted from there.
func (l *Leader) noteFar(ctx context.Context, job cluster.JobID) {
	j, ok := l.fsm.Job(job)
	if !ok || j.Live() == nil {
		return
	}
	id := cluster.AttemptID{Job: j.ID, No: j.Live().No}
	if u, _ := l.useOf(id, j.Live()); u.Progress != nil {
		l.writeDown(ctx, []*logv1.AttemptProgress{conv.NoteProgress(id, u.Progress)})
	}
}

// writeDown records the progress of attempts in the log.
func (l *Leader) writeDown(ctx context.Context, news []*logv1.AttemptProgress) {
	for len(news) > 0 && ctx.Err() == nil {
		n := min(len(news), progressOf)
		cmd := &logv1.Command{Kind: &logv1.Command_NoteProgress{NoteProgress: &logv1.NoteProgress{Attempts: news[:n]}}}
		news = news[n:]
		if fsm.NeedsVersion(cmd) > l.prop.Version() {
			return // not before every coordinator reads it
		}
		if _, err := l.prop.One(ctx, cmd); err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "cannot write down how far jobs are", "err", err)
			return
		}
	}
}
