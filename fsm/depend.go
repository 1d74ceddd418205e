package fsm

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
)

// dependKey is what others wait for: a job, which may be one task of an array,
// or an array as a whole.
type dependKey struct {
	job   cluster.JobID
	array bool
}

// keyFor is what a dependency is on; false when no array has that task.
// Singletons are on nothing.
func (s *State) keyFor(d cluster.Dependency) (dependKey, bool) {
	a := s.arrays[d.Job]
	switch {
	case d.OneTask && a == nil:
		return dependKey{}, false
	case d.OneTask:
		rank, has := a.spec.Array.Tasks.Rank(d.Task)
		return dependKey{job: a.id + cluster.JobID(rank)}, has
	}
	return dependKey{d.Job, a != nil}, true
}

// knows reports whether what a key names is there.
func (s *State) knows(key dependKey) bool {
	if a := s.arrayOf(key.job); a != nil {
		return key.array || a.over.has(int(key.job-a.id)) || s.job(key.job) != nil
	}
	return s.jobs.Get(key.job) != nil
}

// stands is how a dependency stands, as far as is known, and since when it is
// met; on is the job that it is on, or nil to look it up. It is not for a
// singleton, nor for one task for each of another array.
func (s *State) stands(d cluster.Dependency, on *cluster.Job) (cluster.DependState, cluster.Time) {
	key, ok := s.keyFor(d)
	if !ok {
		return cluster.DependOpen, 0
	}
	if key.array {
		a := s.arrays[key.job]
		st := a.standing(d.Kind)
		return st, s.arraySince(a, d, st)
	}
	if on != nil && on.ID != key.job { // it ended folded with others
		on = on.Task(int(key.job - on.ArrayJobID))
	} else if on == nil {
		on = s.job(key.job)
	}
	if on != nil {
		return d.Of(on.State, len(on.Attempts) > 0), since(on)
	}
	a := s.arrayOf(key.job)
	if a == nil {
		return cluster.DependOpen, 0
	}
	end := cluster.JobFailed // a task that was forgotten
	if a.good.has(int(key.job - a.id)) {
		end = cluster.JobCompleted
	}
	return d.Of(end, true), 0
}

// since is when a job began, or ended without.
func since(j *cluster.Job) cluster.Time {
	if len(j.Attempts) > 0 {
		return j.Attempts[0].Placed
	}
	return j.Ended
}

// arraySince is when the last task of an array began, or ended without.
func (s *State) arraySince(a *array, d cluster.Dependency, st cluster.DependState) cluster.Time {
	at := cluster.Time(0)
	if d.Delay == 0 || st != cluster.DependMet {
		return 0
	}
	if at, known := s.begun[a.id]; known {
		return at
	}
	for _, j := range s.overlapping(a, a.spec.Array.Tasks.All()) {
		at = max(at, since(j))
	}
	if s.begun != nil {
		s.begun[a.id] = at
	}
	return at
}

// depend looks up how the dependencies of j stand, which is not put yet, and
// forgets those that it had before. One on a job that is not known is refused.
func (s *State) depend(j *cluster.Job) *cluster.Error {
	if s.rules >= command.ChangeVersion {
		j.Depends, j.DependAt = nil, 0
	}
	if len(j.Spec.Depends) == 0 {
		return nil
	}
	j.Depends = make([]cluster.DependState, len(j.Spec.Depends))
	for i, d := range j.Spec.Depends {
		if d.Kind == cluster.Singleton {
			continue // settled once it is put
		}
		key, ok := s.keyFor(d)
		if !ok && s.arrays[d.Job] != nil {
			return cluster.Errorf(cluster.CodeInvalid, "dependency %s: array %d has no task %d; its tasks are %s", d, d.Job, d.Task, short(s.arrays[d.Job].spec.Array.Tasks.String()))
		}
		if !ok || !s.knows(key) {
			return cluster.Errorf(cluster.CodeInvalid, "dependency %s: job %d is not known: it was never submitted, or it ended long ago and was forgotten", d, d.Job)
		}
		if taskByTask(j, d, key) {
			continue // task by task, once it is put
		}
		s.noteDepend(j, i, nil)
	}
	return nil
}

// mendDepends lets go those jobs that were told to wait for nobody before entries
// of command.ChangeVersion, and waited all the same.
func (s *State) mendDepends(index uint64) {
	for _, old := range s.barred.List() {
		if len(old.Spec.Depends) > 0 || len(old.Depends) == 0 {
			continue
		}
		j := old.Clone()
		j.Depends, j.DependAt, j.Revision = nil, 0, index
		s.waitAgain(j)
		s.putJob(old, j)
		s.changed(Change{Job: j.ID, New: true})
	}
}

func short(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}

// taskByTask reports whether each task of the array of j waits for one of another.
func taskByTask(j *cluster.Job, d cluster.Dependency, key dependKey) bool {
	return d.Kind == cluster.AfterCorr && key.array && j.Spec.Array != nil
}

// noteDepend writes into j, which is to be put, how its i-th dependency stands;
// on is as with stands.
func (s *State) noteDepend(j *cluster.Job, i int, on *cluster.Job) {
	d := j.Spec.Depends[i]
	st, at := s.stands(d, on)
	j.Depends[i] = st
	if st != cluster.DependMet {
		return
	}
	due := d.Since(at)
	switch {
	case !j.Spec.DependAny:
		j.DependAt = max(j.DependAt, due)
	case j.DependAt == 0 && (slices.Contains(j.Depends[:i], cluster.DependMet) || slices.Contains(j.Depends[i+1:], cluster.DependMet)):
		// Another one is enough by itself.
	case j.DependAt == 0 || due < j.DependAt:
		j.DependAt = due
	}
}

// nameKey is what singletons share.
type nameKey struct {
	uid  cluster.UID
	name string
}

func nameOf(j *cluster.Job) nameKey { return nameKey{j.Owner.UID, j.Spec.Name} }

// names are the jobs of one owner and name that have not ended, by id; who ended
// since may be among them. An array is one of them.
type names struct {
	ids  []cluster.JobID
	live int
}

// firstNamed is the first job or array of an owner and name that has not ended, 0
// when all have.
func (s *State) firstNamed(key nameKey) cluster.JobID {
	q := s.names[key]
	for q != nil && len(q.ids) > 0 {
		if s.unfinished(q.ids[0]) {
			return q.ids[0]
		}
		q.ids = q.ids[1:]
	}
	return 0
}

func (s *State) unfinished(id cluster.JobID) bool {
	if a := s.arrays[id]; a != nil {
		return !a.done()
	}
	j := s.jobs.Get(id)
	return j != nil && !j.State.Terminal()
}

// noteNamed keeps who has which name: id came, or is over.
func (s *State) noteNamed(key nameKey, id cluster.JobID, over bool) {
	q := s.names[key]
	switch {
	case !over:
		if q == nil {
			q = &names{}
			s.names[key] = q
		}
		q.ids = append(q.ids, id)
		q.live++
	case q.live == 1:
		delete(s.names, key)
	default:
		if q.live--; len(q.ids) > 2*q.live+64 {
			q.ids = slices.DeleteFunc(q.ids, func(id cluster.JobID) bool { return !s.unfinished(id) })
		}
	}
}

// unit is the job j, or the array that it is of.
func unit(j *cluster.Job) cluster.JobID {
	if j.ArrayJobID != 0 {
		return j.ArrayJobID
	}
	return j.ID
}

// indexDepends keeps who waits for whom, when j is put in the place of old, and
// notes what may have changed for others. Arrays keep their names themselves.
func (s *State) indexDepends(old, j *cluster.Job) {
	switch {
	case old != nil && old.State == j.State, old == nil && j.State.Terminal():
	case old == nil:
		if j.ArrayJobID == 0 {
			s.noteNamed(nameOf(j), j.ID, false)
		}
		if j.State.Waiting() && (j.Depend() != cluster.DependMet || j.DependAt > 0) {
			s.awaits(j)
		}
	case j.State.Terminal():
		if j.ArrayJobID == 0 {
			s.noteNamed(nameOf(j), j.ID, true)
		}
		if s.freesName(j) || s.waitedFor(j) {
			s.unsettled = append(s.unsettled, j)
		}
	case old.State.Waiting() && !j.State.Waiting() && s.waitedFor(j):
		s.unsettled = append(s.unsettled, j)
	}
}

// freesName reports whether others of the name of j, which ended, may be next.
func (s *State) freesName(j *cluster.Job) bool {
	if a := s.arrays[j.ArrayJobID]; a != nil && !a.done() {
		return false
	}
	return s.names[nameOf(j)] != nil
}

// awaits notes that j waits for others. All tasks of an array stand there as one.
func (s *State) awaits(j *cluster.Job) {
	id := unit(j)
	for i, d := range j.Spec.Depends {
		if d.Job == 0 || j.Depends[i] != cluster.DependOpen {
			continue
		}
		key, ok := s.keyFor(d)
		// In order, as a restored replica finds them.
		ws := s.dependents[key]
		if at, there := slices.BinarySearch(ws, id); ok && !there {
			s.dependents[key] = slices.Insert(ws, at, id)
		}
	}
	if j.ArrayJobID == 0 || len(s.unsettled) == 0 || s.unsettled[len(s.unsettled)-1].ArrayJobID != id {
		s.unsettled = append(s.unsettled, j)
	}
}

// waitedFor reports whether somebody waits for what becomes of j.
func (s *State) waitedFor(j *cluster.Job) bool {
	if len(s.dependents) == 0 {
		return false
	}
	if j.ArrayJobID != 0 && (j.Fold != nil || len(s.dependents[dependKey{j.ArrayJobID, true}]) > 0) {
		return true
	}
	return len(s.dependents[dependKey{job: j.ID}]) > 0
}

// settleDepends carries what a command made of jobs to those that wait for them, until
// nothing more follows: a job that is cancelled by it may be waited for, too.
func (s *State) settleDepends(index uint64) {
	for len(s.unsettled) > 0 {
		j := s.unsettled[0]
		s.unsettled = s.unsettled[1:]
		if j.State.Waiting() { // it was submitted
			s.redepend(index, unit(j), dependKey{}, nil)
			if j.ArrayJobID != 0 {
				s.correspondAll(index, s.arrays[j.ArrayJobID])
			}
			continue
		}
		if j.State.Terminal() && s.freesName(j) {
			s.redepend(index, s.firstNamed(nameOf(j)), dependKey{}, nil)
		}
		for _, sp := range j.Ranks() {
			for k := sp.From; k <= sp.To && len(s.dependents) > 0; k++ {
				key := dependKey{job: j.ID}
				if j.ArrayJobID != 0 {
					key.job = j.ArrayJobID + cluster.JobID(k)
				}
				s.inform(index, key, j, j.State.Terminal())
			}
		}
		if a := s.arrays[j.ArrayJobID]; a != nil && len(s.dependents) > 0 {
			key := dependKey{a.id, true}
			for _, id := range s.dependents[key] {
				switch w := s.arrays[id]; {
				case w == nil:
				case a.done(): // by several jobs at once, maybe; nobody is told again
					s.correspondAll(index, w)
				default:
					s.correspond(index, w, a, j)
				}
			}
			if now := a.standings(); now != a.told {
				a.told = now
				s.inform(index, key, nil, a.done())
			}
		}
	}
	s.unsettled = nil
}

// inform lets those know who wait for what a key names; over forgets them.
func (s *State) inform(index uint64, key dependKey, on *cluster.Job, over bool) {
	waiting := s.dependents[key]
	if over {
		delete(s.dependents, key)
	}
	for _, id := range waiting {
		s.redepend(index, id, key, on)
	}
}

// redepend brings the dependencies of a waiting job or array up to date: those
// what a key names, which is the job on or an array, and that on its name.
func (s *State) redepend(index uint64, id cluster.JobID, key dependKey, on *cluster.Job) {
	if id == 0 {
		return
	}
	a := s.arrays[id]
	if a == nil {
		s.redependJob(index, s.jobs.Get(id), key, on)
		return
	}
	if len(a.spec.Depends) == 0 {
		return
	}
	for _, j := range s.overlapping(a, a.spec.Array.Tasks.All()) {
		s.redependJob(index, j, key, on)
	}
}

func (s *State) redependJob(index uint64, old *cluster.Job, key dependKey, on *cluster.Job) {
	if old == nil || !old.State.Waiting() || len(old.Spec.Depends) == 0 || old.Depend() == cluster.DependMet && old.DependAt <= s.now {
		return
	}
	j := old.Clone()
	j.Depends = slices.Clone(old.Depends)
	for i, d := range old.Spec.Depends {
		if j.Depends[i] != cluster.DependOpen {
			continue
		}
		if d.Kind == cluster.Singleton {
			if s.firstNamed(nameOf(old)) == unit(old) {
				j.Depends[i] = cluster.DependMet
			}
			continue
		}
		if !d.OneTask && d.Job != key.job {
			continue // on something else, as most are
		}
		if k, ok := s.keyFor(d); ok && k == key && !taskByTask(old, d, key) {
			s.noteDepend(j, i, on)
		}
	}
	s.settled(index, old, j)
}

// settled puts j in the place of old, after its dependencies were looked at.
func (s *State) settled(index uint64, old, j *cluster.Job) {
	was, now := old.Depend(), j.Depend()
	kill := now == cluster.DependFailed && j.Spec.KillInvalidDepend
	if slices.Equal(j.Depends, old.Depends) && j.DependAt == old.DependAt && !kill {
		return
	}
	j.Revision = index
	switch {
	case kill:
		j.State, j.Ended, j.Hold = cluster.JobCancelled, s.now, nil
		j.Reason = cluster.Reason{Code: cluster.ReasonDependNever, Detail: "it was to be cancelled then"}
	case now != was || j.DependAt != old.DependAt:
		s.waitAgain(j)
	}
	s.putJob(old, j)
	s.changed(Change{Job: j.ID, New: now == cluster.DependMet})
}

// correspondAll looks, task by task, at what an array that was submitted waits
// for in others.
func (s *State) correspondAll(index uint64, a *array) {
	for _, d := range a.spec.Depends {
		b := s.arrays[d.Job]
		if d.Kind != cluster.AfterCorr || b == nil {
			continue
		}
		good, bad := b.ended()
		s.match(index, a, b, good, cluster.DependMet)
		s.match(index, a, b, bad, cluster.DependFailed)
		// Tasks without a counterpart wait for none of it.
		if alone := cluster.SpanSub(a.spec.Array.Tasks.All(), a.spec.Array.Tasks.In(&b.spec.Array.Tasks)); len(alone) > 0 {
			s.settleTasks(index, a, b.id, alone, cluster.DependFailed)
		}
	}
}

// correspond carries the end of tasks of b to the tasks of a with equal numbers.
func (s *State) correspond(index uint64, a, b *array, j *cluster.Job) {
	if !j.State.Terminal() || !slices.ContainsFunc(a.spec.Depends, func(d cluster.Dependency) bool {
		return d.Kind == cluster.AfterCorr && d.Job == b.id
	}) {
		return
	}
	st := cluster.DependFailed
	if j.State == cluster.JobCompleted {
		st = cluster.DependMet
	}
	s.match(index, a, b, j.Ranks(), st)
}

// match is settleTasks for the tasks of a that have the numbers of some of b.
func (s *State) match(index uint64, a, b *array, ranks []cluster.Span, st cluster.DependState) {
	if len(ranks) == 0 {
		return
	}
	var mine []cluster.Span
	if len(ranks) == 1 && ranks[0].From == ranks[0].To {
		k, ok := a.spec.Array.Tasks.Rank(b.spec.Array.Tasks.At(ranks[0].From))
		if !ok {
			return
		}
		mine = []cluster.Span{{From: k, To: k}}
	} else {
		some := b.spec.Array.Tasks.Select(ranks)
		mine = a.spec.Array.Tasks.In(&some)
	}
	s.settleTasks(index, a, b.id, mine, st)
}

// settleTasks settles what tasks of a wait for of the tasks of array b with their
// numbers.
func (s *State) settleTasks(index uint64, a *array, b cluster.JobID, ranks []cluster.Span, st cluster.DependState) {
	for _, old := range s.overlapping(a, ranks) {
		if !old.State.Waiting() || old.Depend() == cluster.DependMet {
			continue
		}
		if old.Fold != nil {
			old = s.split(old, cluster.SpanAnd(old.Fold, ranks))
		}
		j := old.Clone()
		j.Depends = slices.Clone(old.Depends)
		for i, d := range old.Spec.Depends {
			if d.Kind == cluster.AfterCorr && d.Job == b && j.Depends[i] == cluster.DependOpen {
				j.Depends[i] = st
			}
		}
		s.settled(index, old, j)
	}
}
