package fsm

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// holdVersion is that of the entries which may hold HoldJob and RequeueJob, and
// jobs that are held or wait for others or for a time.
const holdVersion = 7

// hold keeps a job from starting, or lets it again. One that runs goes on and is
// held once it waits again. Who asks for what holds already changes nothing.
func (s *State) hold(index uint64, c *logv1.HoldJob) Result {
	old := s.jobs.get(cluster.JobID(c.Job))
	switch {
	case old == nil:
		return refuse(cluster.CodeNotFound, "job %d is not known", c.Job)
	case old.Hold != nil && old.Hold.Admin && !c.Admin && c.Release:
		return refuse(cluster.CodeDenied, "job %d is held by an administrator, who alone releases it", c.Job)
	case old.State.Terminal():
		return refuse(cluster.CodeConflict, "job %d has ended as %s", c.Job, old.State)
	case !c.Release && old.Spec.Deadline > 0:
		return refuse(cluster.CodeConflict, "job %d was promised its deadline and cannot be held; cancel it instead", c.Job)
	case c.Release && old.Hold == nil, !c.Release && old.Hold != nil && (old.Hold.Admin || !c.Admin):
		return Result{}
	}
	j := old.Clone()
	j.Revision, j.Hold = index, nil
	if !c.Release {
		j.Hold = &cluster.Hold{At: s.now, By: cluster.UID(c.By), Admin: c.Admin}
	}
	if old.State.Waiting() {
		s.unqueue(j)
		j.State = cluster.JobPending
		s.waitAgain(j)
	}
	s.putJob(old, j)
	s.changed(Change{Job: j.ID, New: c.Release && old.State.Waiting()})
	return Result{}
}

// requeue asks the live attempt of a job to end, so that its job waits again:
// what preemption does, for any job and at somebody's wish.
func (s *State) requeue(index uint64, c *logv1.RequeueJob) Result {
	old := s.jobs.get(cluster.JobID(c.Job))
	if old == nil {
		return refuse(cluster.CodeNotFound, "job %d is not known", c.Job)
	}
	if why := old.Unrequeueable(); why != "" {
		return refuse(cluster.CodeConflict, "job %d cannot be requeued: %s", c.Job, why)
	}
	j := old.Clone()
	p := &cluster.PreemptRequest{At: s.now, Requeue: true, Hold: c.Hold, By: cluster.UID(c.By), Admin: c.Admin, Why: fmt.Sprintf("by uid %d", c.By)}
	if c.Admin {
		p.Why = "by an administrator"
	}
	j.Last().Preempt = p
	j.Reason, j.Revision = p.Reason(), index
	s.putJob(old, j)
	s.changed(Change{Job: j.ID})
	return Result{}
}

// waitAgain makes j, a copy that is to be put, wait from now: it says for what,
// if something bars it.
func (s *State) waitAgain(j *cluster.Job) {
	j.Eligible = max(s.now, j.Spec.Begin)
	if j.Reason = j.Barred(s.now); j.Reason.Code == "" {
		j.Reason = s.waitsFor(j.Spec)
	}
}

// bar notes what keeps j, a new job that is not put yet, from starting.
func (s *State) bar(j *cluster.Job) *cluster.Error {
	if err := s.depend(j); err != nil {
		return err
	}
	if j.Spec.Hold {
		j.Hold = &cluster.Hold{At: s.now, By: j.Owner.UID}
	}
	if r := j.Barred(s.now); r.Code != "" {
		s.waitAgain(j)
	}
	return nil
}

// depend looks up how the dependencies of j stand, a new job that is not put
// yet. One on a job that is not known is refused.
func (s *State) depend(j *cluster.Job) *cluster.Error {
	if len(j.Spec.Depends) == 0 {
		return nil
	}
	j.Depends = make([]cluster.DependState, len(j.Spec.Depends))
	for i, d := range j.Spec.Depends {
		if d.Kind == cluster.Singleton {
			continue // settled once it is put
		}
		on := s.jobs.get(d.Job)
		if on == nil {
			return cluster.Errorf(cluster.CodeInvalid, "dependency %s: job %d is not known: it was never submitted, or it ended long ago and was forgotten", d, d.Job)
		}
		j.Depends[i] = d.Of(on.State, len(on.Attempts) > 0)
	}
	return nil
}

// nameKey is what singletons share.
type nameKey struct {
	uid  cluster.UID
	name string
}

func nameOf(j *cluster.Job) nameKey { return nameKey{j.Owner.UID, j.Spec.Name} }

// names are the jobs of one owner and name that have not ended, by id; who ended
// since may be among them.
type names struct {
	ids  []cluster.JobID
	live int
}

// firstNamed is the first job of an owner and name that has not ended, 0 when
// all have.
func (s *State) firstNamed(key nameKey) cluster.JobID {
	q := s.named[key]
	for q != nil && len(q.ids) > 0 {
		if s.unfinished(q.ids[0]) {
			return q.ids[0]
		}
		q.ids = q.ids[1:]
	}
	return 0
}

func (s *State) unfinished(id cluster.JobID) bool {
	j := s.jobs.get(id)
	return j != nil && !j.State.Terminal()
}

// noteNamed keeps who has which name.
func (s *State) noteNamed(j *cluster.Job) {
	key := nameOf(j)
	q := s.named[key]
	switch {
	case !j.State.Terminal():
		if q == nil {
			q = &names{}
			s.named[key] = q
		}
		q.ids = append(q.ids, j.ID)
		q.live++
	case q.live == 1:
		delete(s.named, key)
	default:
		if q.live--; len(q.ids) > 2*q.live+64 {
			q.ids = slices.DeleteFunc(q.ids, func(id cluster.JobID) bool { return !s.unfinished(id) })
		}
	}
}

// indexDepends keeps who waits for whom, when j is put in the place of old, and
// notes what may have changed for others.
func (s *State) indexDepends(old, j *cluster.Job) {
	switch {
	case old == nil && j.State.Terminal(), old != nil && old.State == j.State:
	case old == nil:
		s.noteNamed(j)
		if !j.State.Waiting() || j.Depend() == cluster.DependMet {
			return
		}
		for i, d := range j.Spec.Depends {
			if d.Job != 0 && j.Depends[i] == cluster.DependOpen {
				s.dependents[d.Job] = append(s.dependents[d.Job], j.ID)
			}
		}
		s.unsettled = append(s.unsettled, j)
	case j.State.Terminal():
		s.noteNamed(j)
		if s.named[nameOf(j)] != nil || len(s.dependents[j.ID]) > 0 {
			s.unsettled = append(s.unsettled, j)
		}
	case old.State.Waiting() && !j.State.Waiting() && len(s.dependents[j.ID]) > 0:
		s.unsettled = append(s.unsettled, j)
	}
}

// setOf is where j, which is about to be put, belongs among the jobs by state.
// Pending jobs that something bars stand apart: they may be many, and no pass
// should look at them.
func (s *State) setOf(j *cluster.Job) *jobSet {
	if j.State == cluster.JobPending && j.Barred(s.now).Code != "" {
		return &s.barred
	}
	return &s.byState[j.State]
}

// inSet is where old is now. What barred it when it was put may have passed.
func (s *State) inSet(old *cluster.Job) *jobSet {
	if old.State == cluster.JobPending && s.barred.n > 0 && s.barred.get(old.ID) != nil {
		return &s.barred
	}
	return &s.byState[old.State]
}

// startable are the waiting jobs that may start at a time, by id, and the least
// time after it at which another one may; 0 when none waits for its time alone.
func (s *State) startable(now cluster.Time) (jobs []*cluster.Job, next cluster.Time) {
	due := &jobSet{}
	for _, b := range s.barred.blocks {
		for _, j := range b.jobs {
			switch j.Barred(now).Code {
			case "":
				due.put(j)
			case cluster.ReasonBeginTime:
				if next == 0 || j.Spec.Begin < next {
					next = j.Spec.Begin
				}
			}
		}
	}
	return inSets(&s.byState[cluster.JobPending], due, &s.byState[cluster.JobQueued]), next
}

// settleDepends carries what a command made of jobs to those that wait for them, until
// nothing more follows: a job that is cancelled by it may be waited for, too.
func (s *State) settleDepends(index uint64) {
	for len(s.unsettled) > 0 {
		j := s.unsettled[0]
		s.unsettled = s.unsettled[1:]
		if j.State.Waiting() { // it was submitted
			s.redepend(index, j.ID, nil)
			continue
		}
		waiting := s.dependents[j.ID]
		if j.State.Terminal() {
			delete(s.dependents, j.ID)
			s.redepend(index, s.firstNamed(nameOf(j)), nil)
		}
		for _, id := range waiting {
			s.redepend(index, id, j)
		}
	}
	s.unsettled = nil
}

// redepend brings the dependencies of a waiting job up to date: those on the
// job on, which changed, and that on its name.
func (s *State) redepend(index uint64, id cluster.JobID, on *cluster.Job) {
	old := s.jobs.get(id)
	if old == nil || !old.State.Waiting() || old.Depend() == cluster.DependMet {
		return
	}
	deps := slices.Clone(old.Depends)
	for i, d := range old.Spec.Depends {
		switch {
		case deps[i] != cluster.DependOpen:
		case d.Kind == cluster.Singleton:
			if s.firstNamed(nameOf(old)) == id {
				deps[i] = cluster.DependMet
			}
		case on != nil && d.Job == on.ID:
			deps[i] = d.Of(on.State, len(on.Attempts) > 0)
		}
	}
	was := old.Depend()
	j := old.Clone()
	j.Depends, j.Revision = deps, index
	now := j.Depend()
	kill := now == cluster.DependFailed && j.Spec.KillInvalidDepend
	if slices.Equal(deps, old.Depends) && !kill {
		return
	}
	switch {
	case kill:
		j.State, j.Ended, j.Hold = cluster.JobCancelled, s.now, nil
		j.Reason = cluster.Reason{Code: cluster.ReasonDependNever, Detail: "it was to be cancelled then"}
	case now != was:
		s.waitAgain(j)
	}
	s.putJob(old, j)
	s.changed(Change{Job: id, New: now == cluster.DependMet})
}
