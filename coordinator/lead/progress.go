package lead

import (
	"context"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/wait"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

const (
	// progressEvery is how often what jobs say of how far they are is looked at, and
	// progressOf of how many one entry keeps it.
	progressEvery = 5 * time.Second
	progressOf    = 500
)

// noteProgress writes down how far running jobs say that they are, where that is news,
// until ctx ends.
func (l *Leader) noteProgress(ctx context.Context) error {
	for wait.Sleep(ctx, progressEvery) {
		var news []*logv1.AttemptProgress
		jobs, _ := l.fsm.Jobs(fsm.Query{States: []cluster.JobState{cluster.JobRunning}, Keep: func(j *cluster.Job) bool { return j.Live() != nil }})
		for _, j := range jobs {
			a := j.Live()
			id := cluster.AttemptID{Job: j.ID, No: a.No}
			if u, _ := l.useOf(id, a); u.Progress != nil && a.Progress.News(*u.Progress) {
				news = append(news, conv.NoteProgress(id, u.Progress))
			}
		}
		for len(news) > 0 && ctx.Err() == nil {
			n := min(len(news), progressOf)
			cmd := &logv1.Command{Kind: &logv1.Command_NoteProgress{NoteProgress: &logv1.NoteProgress{Attempts: news[:n]}}}
			news = news[n:]
			if fsm.NeedsVersion(cmd) > l.prop.Version() {
				break // not before every coordinator reads it
			}
			if _, err := l.prop.One(ctx, cmd); err != nil && ctx.Err() == nil {
				l.log.WarnContext(ctx, "cannot write down how far jobs are", "err", err)
				break
			}
		}
	}
	return ctx.Err()
}
