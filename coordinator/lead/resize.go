package lead

import (
	"context"
	"errors"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/scheduler/resize"
)

// resizeAll reduces what running jobs hold of GPUs to what they use, if their
// partitions want that, and gives them more before they need it, until ctx ends.
// What it has seen is soft state: a new leader waits anew until a peak is steady.
func (l *Leader) resizeAll(ctx context.Context) error {
	seen, cutAt := map[cluster.AttemptID]*resize.Steady{}, cluster.TimeOf(l.clock())
	var state stateSeen
	var of func(*cluster.Job) cluster.ResizeMode
	var jobs, short []*cluster.Job
	for wait.Sleep(ctx, resize.Every) {
		changed := state.changed(l.fsm)
		if changed {
			of = l.resizeModes()
			jobs, _ = l.fsm.Jobs(fsm.Query{States: []cluster.JobState{cluster.JobRunning}, Keep: func(j *cluster.Job) bool {
				return j.Live() != nil && (j.Live().WasCut() || of(j) != cluster.ResizeOff && j.MayResize())
			}})
		}
		there, now := map[cluster.AttemptID]*resize.Steady{}, cluster.TimeOf(l.clock())
		for _, j := range jobs {
			a := j.Live()
			if a.WasCut() {
				cutAt = now
			}
			id := cluster.AttemptID{Job: j.ID, No: a.No}
			told, ok := l.useOf(id, a)
			if !ok {
				continue
			}
			u, s := resize.Use{At: told.At, BusyMs: told.BusyMs, KnownMs: told.KnownMs, PeakMiB: told.PeakMiB}, seen[id]
			if s == nil {
				s = &resize.Steady{}
			}
			there[id] = s
			s.Add(u)
			l.resize(ctx, j, s, u, of(j))
		}
		seen = there
		if now.Sub(cutAt) > resize.TakeBack {
			continue // no job can wait for what was taken from it
		}
		if changed {
			short, _ = l.fsm.Jobs(fsm.Query{States: []cluster.JobState{cluster.JobPending, cluster.JobQueued}, Keep: func(j *cluster.Job) bool { return resize.CutShort(j, now) }})
		}
		for _, j := range short {
			if resize.CutShort(j, now) {
				l.yield(ctx, j)
			}
		}
	}
	return ctx.Err()
}

// resizeModes returns how the shares of jobs follow their use.
func (l *Leader) resizeModes() func(*cluster.Job) cluster.ResizeMode {
	by := map[string]*cluster.Partition{}
	for _, p := range l.fsm.Partitions() {
		by[p.Name] = p
	}
	return func(j *cluster.Job) cluster.ResizeMode { return cluster.ResizeOf(by[j.Spec.Partition], j.Spec) }
}

// resize proposes other shares for a job that should have them.
func (l *Leader) resize(ctx context.Context, j *cluster.Job, s *resize.Steady, u resize.Use, mode cluster.ResizeMode) {
	a := j.Live()
	n, ok := l.fsm.Node(a.Berth.Node)
	if !ok {
		return
	}
	to := s.Shares(j, n, u, mode)
	if to == nil {
		return
	}
	if a.WasCut() && !resize.HasRoom(n, l.fsm.NodeJobs(n.ID), j, to) {
		l.yield(ctx, j) // proposing what is refused costs a log entry each time
		return
	}
	cmd := conv.Resize(cluster.AttemptID{Job: j.ID, No: a.No}, to)
	if fsm.NeedsVersion(cmd) > l.prop.Version() {
		return // not before every coordinator reads it
	}
	_, err := l.prop.One(ctx, cmd)
	e, _ := errors.AsType[*cluster.Error](err)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		l.log.InfoContext(ctx, "a job's share of GPU memory follows what it uses", "job", j.ID.String(),
			"peak_mib", s.Peak(), "from_mib", a.Berth.GPUs[0].Share.MemMiB, "to_mib", to[0].Share.MemMiB)
	case a.WasCut() && e != nil && e.Code == cluster.CodeConflict:
		l.yield(ctx, j)
	default:
		l.log.WarnContext(ctx, "cannot change a job's share of GPU memory", "job", j.ID.String(), "err", err)
	}
}

// yield preempts a job that took what was cut from j's share: j regains what it was
// granted or, if it no longer runs there, waits for it.
func (l *Leader) yield(ctx context.Context, j *cluster.Job) {
	newest := resize.WhoYields(l.fsm.NodeJobs(j.Last().Berth.Node), j, cluster.TimeOf(l.clock()))
	if newest == nil {
		return
	}
	_, err := l.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_PreemptAttempt{PreemptAttempt: &logv1.PreemptAttempt{
		Job: uint64(newest.ID), Attempt: newest.Live().No, For: uint64(j.ID),
		Why: "job " + j.ID.String() + " takes up GPU memory that it was granted before this one came",
	}}})
	if err != nil && ctx.Err() == nil {
		l.log.WarnContext(ctx, "cannot have a job make room for one that grows", "job", newest.ID.String(), "err", err)
	}
}
