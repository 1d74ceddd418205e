package lead

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// servicesEvery is how often services are checked.
const servicesEvery = time.Second

// served is what a leader remembers of a service: how it was scaled lately, and how
// busy its replicas keep their GPUs.
type served struct {
	scaler service.Scaler
	loads  service.Recorder
	busy   map[cluster.AttemptID]*busy
}

// busy is what an attempt has used, and how much it used lately of what it holds.
type busy struct {
	busyMs, knownMs int64
	part            float64
	known           bool
}

// busyOver is the window for measuring how busy a GPU is, in milliseconds.
const busyOver = 10_000

// saw records what an attempt that holds so many thousandths of GPUs has used.
func (b *busy) saw(u *nodes.Use, milli int64) {
	if u.KnownMs < b.knownMs || u.BusyMs < b.busyMs {
		*b = busy{busyMs: u.BusyMs, knownMs: u.KnownMs}
	}
	if d := u.KnownMs - b.knownMs; d >= busyOver && milli > 0 {
		b.part, b.known = float64(u.BusyMs-b.busyMs)/float64(d)/float64(milli), true
		b.busyMs, b.knownMs = u.BusyMs, u.KnownMs
	}
}

// serviceName identifies a service: names are per owner.
type serviceName struct {
	owner cluster.UID
	name  string
}

// services records which replicas of services are healthy, ends unhealthy and
// surplus ones, replaces old revisions with new ones and those on drained nodes, and scales, until
// ctx ends.
// Everything but loads is in the state, so that a new leader continues where the
// last one was.
func (l *Leader) services(ctx context.Context) error { return (&servants{Leader: l}).run(ctx) }

// servants do a leader's work on services. What they ask for in one round goes into
// the log together: one user with many flapping services holds up no others.
type servants struct {
	*Leader
	ask    []*logv1.Command
	loaded []*logv1.ServiceLoad
}

// loadsAtOnce bounds how many loads are in one command.
const loadsAtOnce = 200

func (l *servants) run(ctx context.Context) error {
	known := map[serviceName]*served{}
	l.demand.forget()
	for wait.Sleep(ctx, cmp.Or(l.cfg.ServicesEvery, servicesEvery)) {
		groups := map[serviceName][]fsm.Revision{}
		for _, r := range l.fsm.Services() {
			groups[named(&r)] = append(groups[named(&r)], r)
		}
		there := map[serviceName]*served{}
		var notes []*logv1.AttemptProgress
		for n, rs := range groups {
			if there[n] = known[n]; there[n] == nil {
				there[n] = &served{busy: map[cluster.AttemptID]*busy{}}
			}
			notes = append(notes, l.serve(ctx, there[n], rs)...)
		}
		l.writeDown(ctx, notes)
		l.propose(ctx)
		l.demand.keep(there)
		known = there
	}
	return ctx.Err()
}

// serve does what is due for one service, and returns what to record of its
// replicas.
func (l *servants) serve(ctx context.Context, kept *served, rs []fsm.Revision) (notes []*logv1.AttemptProgress) {
	newest := &rs[len(rs)-1]
	s, now := newest.Spec.Service, l.sinceEpoch()
	revisions := make([]service.Revision, len(rs))
	ids := map[uint64]map[uint32]*cluster.Job{}
	for i := range rs {
		revisions[i], ids[uint64(rs[i].ID)] = l.revision(&rs[i])
	}
	for _, a := range service.Plan(s, newest.Wanted, revisions, now) {
		if a.Kind == service.Note {
			notes = append(notes, noteServing(ids[a.Revision][a.Task], &a, now))
		}
		l.carryOut(ctx, &a, rs, ids[a.Revision][a.Task])
	}
	known := l.demand.measure(named(newest), rs, now)
	known.Unready = unready(revisions, ids)
	defer func() { l.demand.tell(named(newest), known) }()
	seen := service.Seen{Measured: known.Measured, History: newest.Load, ColdStart: known.ColdStart}
	if len(rs) > 1 {
		kept.scaler = service.Scaler{} // what is being replaced is not scaled
		l.takeOver(rs)
		return notes
	}
	seen.Ready, seen.Loads = l.loads(newest, kept)
	want := kept.scaler.Next(s, newest.Wanted, &seen, now)
	if known.Told = kept.scaler.Told(); want != newest.Wanted {
		l.log.InfoContext(ctx, "service is scaled", "service", s.Name, "user", newest.Owner.Name, "from", newest.Wanted, "to", want, "reason", known.Told.String())
		l.setWant(newest.ID, want, true)
	}
	if n, ended := kept.loads.Saw(seen.Total(s), now); ended {
		if n.Each = 0; s.Scale == (service.Scale{}) {
			n.Each = kept.scaler.Each()
		}
		l.loaded = append(l.loaded, &logv1.ServiceLoad{Array: uint64(newest.ID), Slot: n.Slot, Load: n.Load, Each: n.Each})
	}
	return notes
}

// takeOver gives the newest revision what is known of the load of the previous one.
func (l *servants) takeOver(rs []fsm.Revision) {
	last, to := &rs[len(rs)-2], &rs[len(rs)-1]
	if to.Load == nil && last.Load != nil && service.SameLoad(last.Spec.Service, to.Spec.Service) {
		l.loaded = append(l.loaded, &logv1.ServiceLoad{Array: uint64(to.ID), From: uint64(last.ID)})
	}
}

// noteServing returns the record of a replica's health, and of when it first took
// requests.
func noteServing(j *cluster.Job, a *service.Action, now time.Duration) *logv1.AttemptProgress {
	v := cluster.Serving{State: a.State, Why: a.Why}
	if was := j.Live().Serving; was != nil {
		v.First = was.First
	}
	if v.State == service.Ready && v.First == 0 {
		v.First = cluster.Time(now / time.Microsecond)
	}
	return conv.NoteServing(attemptOf(j), v)
}

func attemptOf(j *cluster.Job) cluster.AttemptID {
	return cluster.AttemptID{Job: j.ID, No: j.Live().No}
}

// revision returns a service's array as it is planned with, and its running jobs by
// task.
func (l *servants) revision(r *fsm.Revision) (service.Revision, map[uint32]*cluster.Job) {
	out, jobs := service.Revision{ID: uint64(r.ID), Want: r.Throttle}, map[uint32]*cluster.Job{}
	for _, j := range r.Jobs {
		a := j.Live()
		if a == nil {
			out.Waiting = true
			out.Since = max(out.Since, time.Duration(j.Eligible)*time.Microsecond)
			continue
		}
		jobs[j.ArrayTaskID] = j
		rep := service.Replica{Task: j.ArrayTaskID, Started: time.Duration(a.Started) * time.Microsecond, Ending: a.Preempt != nil || j.Cancel != nil || j.State == cluster.JobCompleting, Leaves: l.leaves(a)}
		if v := a.Serving; v != nil {
			rep.Serving = service.Serving{State: v.State, Since: time.Duration(v.Since) * time.Microsecond, Why: v.Why}
		}
		if j.State == cluster.JobRunning {
			u, _ := l.useOf(cluster.AttemptID{Job: j.ID, No: a.No}, a)
			rep.Probe = u.Probe
		}
		out.Live = append(out.Live, rep)
	}
	return out, jobs
}

// leaves reports whether a node of an attempt is drained.
func (l *servants) leaves(a *cluster.Attempt) bool {
	for _, b := range a.Berths() {
		if n, ok := l.fsm.Node(b.Node); ok && n.Drain {
			return true
		}
	}
	return false
}

// carryOut does what was planned, except for notes.
func (l *servants) carryOut(ctx context.Context, a *service.Action, rs []fsm.Revision, j *cluster.Job) {
	switch a.Kind {
	case service.Note:
		return
	case service.Restart:
		l.log.InfoContext(ctx, "replica ends to start again", "job", j.ID.String(), "reason", a.Why)
		if why := j.Unrequeueable(); why == "" {
			l.ask = append(l.ask, &logv1.Command{Kind: &logv1.Command_RequeueJob{RequeueJob: &logv1.RequeueJob{Job: uint64(j.ID), Admin: true, Why: a.Why}}})
			return
		}
		l.endReplica(j, a.Why)
	case service.End:
		l.endReplica(j, a.Why)
	case service.EndWaiting:
		for i := range rs {
			if uint64(rs[i].ID) != a.Revision {
				continue
			}
			if cmd := endTasks(slices.DeleteFunc(slices.Clone(rs[i].Jobs), func(j *cluster.Job) bool { return !j.State.Waiting() }), a.Why); cmd != nil {
				l.ask = append(l.ask, cmd)
			}
		}
	case service.SetWant:
		l.setWant(cluster.JobID(a.Revision), a.Want, false)
	}
}

func (l *servants) endReplica(j *cluster.Job, why string) {
	l.ask = append(l.ask, &logv1.Command{Kind: &logv1.Command_CancelJob{CancelJob: &logv1.CancelJob{Job: uint64(j.ID), Admin: true, Why: why}}})
}

// setWant sets how many replicas of a revision may run at once, for good or on the
// way to that.
func (l *servants) setWant(id cluster.JobID, n int, scales bool) {
	l.ask = append(l.ask, &logv1.Command{Kind: &logv1.Command_ChangeTasks{ChangeTasks: &logv1.ChangeTasks{
		Array: uint64(id), Change: logv1.TaskChange_TASK_CHANGE_THROTTLE, Admin: true, Throttle: uint32(n), Scales: scales,
	}}})
}

// propose puts the requests into the log. What fails is requested again in the next
// round.
func (l *servants) propose(ctx context.Context) {
	for some := range slices.Chunk(l.loaded, loadsAtOnce) {
		l.ask = append(l.ask, &logv1.Command{Kind: &logv1.Command_NoteLoads{NoteLoads: &logv1.NoteLoads{Services: some}}})
	}
	results, err := l.prop.Each(ctx, l.ask...)
	if err != nil && ctx.Err() == nil {
		l.log.WarnContext(ctx, "cannot change services", "err", err)
	}
	for i := range results {
		if err := results[i].Err; err != nil {
			l.log.WarnContext(ctx, "cannot change a service", "err", err)
		}
	}
	l.ask, l.loaded = nil, nil
}

// loads returns how many replicas take requests, and the loads of those whose load
// is known.
func (l *servants) loads(r *fsm.Revision, kept *served) (ready int, out []float64) {
	on := r.Spec.Service.Scale.On
	there := map[cluster.AttemptID]*busy{}
	for _, j := range r.Jobs {
		a := j.Live()
		if a == nil || a.Serving == nil || a.Serving.State != service.Ready {
			continue
		}
		if a.Preempt == nil && j.Cancel == nil {
			ready++
		}
		id := cluster.AttemptID{Job: j.ID, No: a.No}
		u, ok := l.useOf(id, a)
		if on != service.GPU {
			if u.Progress != nil && u.Progress.Seen != nil {
				out = append(out, u.Progress.Seen.Last)
			}
			continue
		}
		b := kept.busy[id]
		if b == nil {
			b = &busy{}
		}
		there[id] = b
		if ok {
			b.saw(&u, a.GPUMilli/max(1, int64(j.Spec.GPUs)))
		}
		if b.known {
			out = append(out, b.part)
		}
	}
	kept.busy = there
	return ready, out
}
