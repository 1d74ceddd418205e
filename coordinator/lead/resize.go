package lead

import (
	"context"
	"errors"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	"github.com/berth-scheduler/berth/coordinator/wait"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// resizeEvery is how often it is looked for jobs that use less of their GPUs than they
// hold, or more than was left to them.
const resizeEvery = 2 * time.Second

// takeBack is for how long after its end a job that met what was left to it has others
// make room for it.
const takeBack = 10 * time.Minute

// steady is since when the peak of an attempt's GPU memory has not risen, and what its
// use had come to then.
type steady struct {
	peak int64
	at   nodes.Use
}

// add takes over what an attempt used.
func (s *steady) add(u nodes.Use) {
	if u.PeakMiB > s.peak || u.KnownMs < s.at.KnownMs {
		s.peak, s.at = u.PeakMiB, u
	}
}

// milli is how much of each of its GPUs an attempt has used since its peak is steady,
// in thousandths; a whole one where that is not known.
func (s *steady) milli(u nodes.Use, cards int) int64 {
	known := u.KnownMs - s.at.KnownMs
	if known <= 0 || cards == 0 {
		return cluster.WholeGPU
	}
	return min(cluster.WholeGPU, max(0, u.BusyMs-s.at.BusyMs)/known/int64(cards))
}

// resizeAll cuts what running jobs hold of GPUs to what they use, where their
// partitions want that, and gives them more before they need it, until ctx ends. What
// it has seen is soft: a new leader waits anew until a peak is steady.
func (l *Leader) resizeAll(ctx context.Context) error {
	seen, first := map[cluster.AttemptID]*steady{}, true
	for wait.Sleep(ctx, resizeEvery) {
		modes := map[string]cluster.ResizeMode{}
		for _, p := range l.fsm.Partitions() {
			if p.Resize != cluster.ResizeOff {
				modes[p.Name] = p.Resize
			}
		}
		if len(modes) == 0 && len(seen) == 0 && !first { // nobody was cut, or may be
			continue
		}
		first = false
		jobs, _ := l.fsm.Jobs(fsm.Query{States: []cluster.JobState{cluster.JobRunning}, Keep: func(j *cluster.Job) bool {
			return j.Live() != nil && (j.Live().WasCut() || modes[j.Spec.Partition] != cluster.ResizeOff && j.MayResize())
		}})
		there := map[cluster.AttemptID]*steady{}
		for _, j := range jobs {
			a := j.Live()
			id := cluster.AttemptID{Job: j.ID, No: a.No}
			u, ok := l.useOf(id, a)
			if !ok {
				continue
			}
			s := seen[id]
			if s == nil {
				s = &steady{}
			}
			there[id] = s
			s.add(u)
			l.resize(ctx, j, s, u, modes[j.Spec.Partition])
		}
		seen = there
		now := cluster.TimeOf(l.clock())
		short, _ := l.fsm.Jobs(fsm.Query{States: []cluster.JobState{cluster.JobPending, cluster.JobQueued}, Keep: func(j *cluster.Job) bool { return cutShort(j, now) }})
		for _, j := range short {
			l.yield(ctx, j)
		}
	}
	return ctx.Err()
}

// cutShort reports whether a job waits since it met what was left to it of its share, and
// may start at once.
func cutShort(j *cluster.Job, now cluster.Time) bool {
	a := j.Last()
	return a != nil && a.WasCut() && a.Usage.GPUOOM && j.Hold == nil && now.Sub(a.Ended) < takeBack
}

// resize proposes other shares for a job where it should have them.
func (l *Leader) resize(ctx context.Context, j *cluster.Job, s *steady, u nodes.Use, mode cluster.ResizeMode) {
	a, rule := j.Live(), mode.Rule()
	var was []cluster.GPUShare
	if a.WasCut() {
		was = a.Resize.Was
	} else if s.peak == 0 || j.Spec.GPUMemMiB > 0 && !rule.Declared || u.At.Sub(max(s.at.At, a.Started)) < rule.Wait(a.Estimate.Duration) {
		return
	}
	sellable, ok := l.movable(a)
	if !ok {
		return
	}
	to := rule.Shares(a.Berth.GPUs, was, sellable, s.peak, s.milli(u, len(a.Berth.GPUs)))
	if to == nil {
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
			"peak_mib", s.peak, "from_mib", a.Berth.GPUs[0].Share.MemMiB, "to_mib", to[0].Share.MemMiB)
	case len(was) > 0 && e != nil && e.Code == cluster.CodeConflict:
		l.yield(ctx, j)
	default:
		l.log.WarnContext(ctx, "cannot change a job's share of GPU memory", "job", j.ID.String(), "err", err)
	}
}

// movable are the memories that an attempt's cards sell, false where a card cannot move
// the cap of a job that runs, or is shared with nobody.
func (l *Leader) movable(a *cluster.Attempt) (sellable []int64, ok bool) {
	n, ok := l.fsm.Node(a.Berth.Node)
	if !ok {
		return nil, false
	}
	for _, s := range a.Berth.GPUs {
		g := n.GPU(s.GPU)
		if g == nil || !g.Shareable() || g.CapMode != watchMode && g.CapMode != simMode {
			return nil, false
		}
		sellable = append(sellable, g.SellableMiB)
	}
	return sellable, true
}

// yield has one who came into what was taken of j's share make room: j takes up again
// what it was granted, or lies no more where it was and waits for it.
func (l *Leader) yield(ctx context.Context, j *cluster.Job) {
	newest := whoYields(l.fsm.NodeJobs(j.Last().Berth.Node), j, cluster.TimeOf(l.clock()))
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

// whoYields is the newest of those who came to the cards of j since its share was cut,
// that can save its state and has no deadline; nil without one, and while somebody there
// leaves already.
func whoYields(jobs []*cluster.Job, j *cluster.Job, now cluster.Time) (newest *cluster.Job) {
	last := j.Last()
	for _, o := range jobs {
		switch {
		case o.ID == j.ID || o.Live() == nil || !meet(o.Live(), last) || o.Live().Placed < last.Resize.At:
		case o.Preempting() || o.Cancel != nil:
			return nil
		case o.Unpreemptible(now) != "" || o.Spec.Deadline != 0:
		case newest == nil || o.Live().Started > newest.Live().Started:
			newest = o
		}
	}
	return newest
}

// meet reports whether two attempts have shares of one GPU.
func meet(a, b *cluster.Attempt) bool {
	for _, x := range a.Berth.GPUs {
		for _, y := range b.Berth.GPUs {
			if x.GPU == y.GPU {
				return true
			}
		}
	}
	return false
}
