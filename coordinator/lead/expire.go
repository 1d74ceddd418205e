package lead

import (
	"context"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// expireEvery is how often the leader checks for deadlines that passed, and
// maxExpired how many jobs one command ends.
const (
	expireEvery = time.Second
	maxExpired  = 1000
)

// expire ends waiting jobs whose deadline has passed, and drains whose time is
// over, until ctx ends.
func (l *Leader) expire(ctx context.Context) error {
	var state stateSeen
	next := cluster.Time(0) // when the next deadline passes, 0 if none does
	for wait.Sleep(ctx, expireEvery) {
		l.endDrains(ctx)
		now := cluster.TimeOf(l.clock())
		if !state.changed(l.fsm) && (next == 0 || now < next) {
			continue
		}
		var ids []cluster.JobID
		ids, next = l.fsm.Expired(now)
		for chunk := range slices.Chunk(ids, maxExpired) {
			cmd := &logv1.ExpireJobs{}
			for _, id := range chunk {
				cmd.Jobs = append(cmd.Jobs, uint64(id))
			}
			if _, err := l.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_ExpireJobs{ExpireJobs: cmd}}); err != nil && ctx.Err() == nil {
				l.log.WarnContext(ctx, "cannot end jobs whose deadline passed", "err", err)
				next = now
				break
			}
		}
	}
	return ctx.Err()
}

// endDrains lets jobs start again on nodes whose drain was limited and is over.
func (l *Leader) endDrains(ctx context.Context) {
	now := cluster.TimeOf(l.clock())
	for _, n := range l.fsm.Nodes() {
		if !n.Drain || n.DrainUntil == 0 || n.DrainUntil > now {
			continue
		}
		cmd := &logv1.DrainNode{Node: string(n.ID), UntilUs: int64(n.DrainUntil)}
		if _, err := l.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_DrainNode{DrainNode: cmd}}); err != nil {
			if ctx.Err() == nil {
				l.log.WarnContext(ctx, "cannot end a drain", "node", n.ID, "err", err)
			}
			return
		}
		l.log.InfoContext(ctx, "the drain of a node is over", "node", n.ID)
	}
}
