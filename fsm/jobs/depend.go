package jobs

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
)

// Depends tracks dependencies between jobs. They are settled, for good, within the
// command that starts or ends what they name.
type Depends struct {
	roll *Roll
	// Dependents maps what is waited for to the jobs that wait, by id, and arrays;
	// ended ones may be among them. Names holds the jobs of each name.
	Dependents map[Awaited][]cluster.JobID
	Names      map[Name]*Namesakes
	// Unsettled are the jobs whose change may affect others, within a command.
	Unsettled []*cluster.Job
	// Begun is when the last tasks of arrays began, looked up once for all jobs of
	// a submission; nil outside of one.
	Begun map[cluster.JobID]cluster.Time
}

// Awaited is what others wait for: a job, which may be one task of an array, or a
// whole array.
type Awaited struct {
	Job   cluster.JobID
	Array bool
}

// keyFor returns what a dependency is on; false if no array has that task.
// Singletons have no key.
func (p *Depends) keyFor(d cluster.Dependency) (Awaited, bool) {
	a := p.roll.Arrays[d.Job]
	switch {
	case d.OneTask && a == nil:
		return Awaited{}, false
	case d.OneTask:
		rank, has := a.Spec.Array.Tasks.Rank(d.Task)
		return Awaited{Job: a.ID + cluster.JobID(rank)}, has
	}
	return Awaited{d.Job, a != nil}, true
}

// knows reports whether what a key names exists.
func (p *Depends) knows(key Awaited) bool {
	if a := p.roll.ArrayOf(key.Job); a != nil {
		return key.Array || a.Over.Has(int(key.Job-a.ID)) || p.roll.Job(key.Job) != nil
	}
	return p.roll.Jobs.Get(key.Job) != nil
}

// stands returns the state of a dependency, as far as known, and since when it is
// met; on is the job it depends on, or nil to look it up. It is not for singletons,
// nor for aftercorr on another array.
func (p *Depends) stands(d cluster.Dependency, on *cluster.Job) (cluster.DependState, cluster.Time) {
	key, ok := p.keyFor(d)
	if !ok {
		return cluster.DependOpen, 0
	}
	if key.Array {
		a := p.roll.Arrays[key.Job]
		st := a.Standing(d.Kind)
		return st, p.arraySince(a, d, st)
	}
	if on != nil && on.ID != key.Job { // it ended folded with others
		on = on.Task(int(key.Job - on.ArrayJobID))
	} else if on == nil {
		on = p.roll.Job(key.Job)
	}
	if on != nil {
		return d.Of(on.State, len(on.Attempts) > 0), since(on)
	}
	a := p.roll.ArrayOf(key.Job)
	if a == nil {
		return cluster.DependOpen, 0
	}
	end := cluster.JobFailed // a task that was forgotten
	if a.Good.Has(int(key.Job - a.ID)) {
		end = cluster.JobCompleted
	}
	return d.Of(end, true), 0
}

// since returns when a job began, or ended without starting.
func since(j *cluster.Job) cluster.Time {
	if len(j.Attempts) > 0 {
		return j.Attempts[0].Placed
	}
	return j.Ended
}

// arraySince returns when the last task of an array began, or ended without
// starting.
func (p *Depends) arraySince(a *Array, d cluster.Dependency, st cluster.DependState) cluster.Time {
	at := cluster.Time(0)
	if d.Delay == 0 || st != cluster.DependMet {
		return 0
	}
	if at, known := p.Begun[a.ID]; known {
		return at
	}
	for _, j := range p.roll.Overlapping(a, a.Spec.Array.Tasks.All()) {
		at = max(at, since(j))
	}
	if p.Begun != nil {
		p.Begun[a.ID] = at
	}
	return at
}

// Look determines the state of the dependencies of j, which is not stored yet, and
// drops its earlier ones. A dependency on an unknown job is refused.
func (p *Depends) Look(j *cluster.Job) *cluster.Error {
	if p.roll.At.Version >= command.ChangeVersion {
		j.Depends, j.DependAt = nil, 0
	}
	if len(j.Spec.Depends) == 0 {
		return nil
	}
	j.Depends = make([]cluster.DependState, len(j.Spec.Depends))
	for i, d := range j.Spec.Depends {
		if d.Kind == cluster.Singleton {
			continue // settled once it is stored
		}
		key, ok := p.keyFor(d)
		if !ok && p.roll.Arrays[d.Job] != nil {
			return cluster.Errorf(cluster.CodeInvalid, "dependency %s: array %d has no task %d; its tasks are %s", d, d.Job, d.Task, Short(p.roll.Arrays[d.Job].Spec.Array.Tasks.String()))
		}
		if !ok || !p.knows(key) {
			return cluster.Errorf(cluster.CodeInvalid, "dependency %s: job %d is not known: it was never submitted, or it ended long ago and was forgotten", d, d.Job)
		}
		if taskByTask(j, d, key) {
			continue // task by task, once it is stored
		}
		p.noteDepend(j, i, nil)
	}
	return nil
}

// Mend releases jobs whose dependencies were cleared before entries of
// command.ChangeVersion, but which kept waiting.
func (p *Depends) Mend() {
	for _, old := range p.roll.Barred.List() {
		if len(old.Spec.Depends) > 0 || len(old.Depends) == 0 {
			continue
		}
		j := old.Clone()
		j.Depends, j.DependAt = nil, 0
		p.roll.WaitAgain(j)
		p.roll.Change(old, j, command.Change{New: true})
	}
}

// Short returns a text, or the beginning of a long one.
func Short(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}

// taskByTask reports whether each task of the array of j waits for a task of
// another.
func taskByTask(j *cluster.Job, d cluster.Dependency, key Awaited) bool {
	return d.Kind == cluster.AfterCorr && key.Array && j.Spec.Array != nil
}

// noteDepend records in j, which is to be stored, the state of its i-th dependency;
// on is as in stands.
func (p *Depends) noteDepend(j *cluster.Job, i int, on *cluster.Job) {
	d := j.Spec.Depends[i]
	st, at := p.stands(d, on)
	j.Depends[i] = st
	if st != cluster.DependMet {
		return
	}
	due := d.Since(at)
	switch {
	case !j.Spec.DependAny:
		j.DependAt = max(j.DependAt, due)
	case j.DependAt == 0 && (slices.Contains(j.Depends[:i], cluster.DependMet) || slices.Contains(j.Depends[i+1:], cluster.DependMet)):
		// Another dependency is already enough.
	case j.DependAt == 0 || due < j.DependAt:
		j.DependAt = due
	}
}

// Settle propagates a command's changes of jobs to those that wait for them, until
// nothing more follows: a job that is cancelled as a result may be waited for, too.
func (p *Depends) Settle() {
	for len(p.Unsettled) > 0 {
		j := p.Unsettled[0]
		p.Unsettled = p.Unsettled[1:]
		if j.State.Waiting() { // it was just submitted
			p.redepend(Unit(j), Awaited{}, nil)
			if j.ArrayJobID != 0 {
				p.correspondAll(p.roll.Arrays[j.ArrayJobID])
			}
			continue
		}
		if j.State.Terminal() && p.freesName(j) {
			p.redepend(p.firstNamed(NameOf(j)), Awaited{}, nil)
		}
		for _, sp := range j.Ranks() {
			for k := sp.From; k <= sp.To && len(p.Dependents) > 0; k++ {
				key := Awaited{Job: j.ID}
				if j.ArrayJobID != 0 {
					key.Job = j.ArrayJobID + cluster.JobID(k)
				}
				p.inform(key, j, j.State.Terminal())
			}
		}
		if a := p.roll.Arrays[j.ArrayJobID]; a != nil && len(p.Dependents) > 0 {
			key := Awaited{a.ID, true}
			for _, id := range p.Dependents[key] {
				switch w := p.roll.Arrays[id]; {
				case w == nil:
				case a.Done(): // perhaps by several jobs at once; nobody is told twice
					p.correspondAll(w)
				default:
					p.correspond(w, a, j)
				}
			}
			if now := a.standings(); now != a.told {
				a.told = now
				p.inform(key, nil, a.Done())
			}
		}
	}
	p.Unsettled = nil
}

// inform updates the jobs that wait for what a key names; over drops them.
func (p *Depends) inform(key Awaited, on *cluster.Job, over bool) {
	waiting := p.Dependents[key]
	if over {
		delete(p.Dependents, key)
	}
	for _, id := range waiting {
		p.redepend(id, key, on)
	}
}

// redepend updates the dependencies of a waiting job or array: those on what key
// names, which is the job on or an array, and that on its name.
func (p *Depends) redepend(id cluster.JobID, key Awaited, on *cluster.Job) {
	if id == 0 {
		return
	}
	a := p.roll.Arrays[id]
	if a == nil {
		p.redependJob(p.roll.Jobs.Get(id), key, on)
		return
	}
	if len(a.Spec.Depends) == 0 {
		return
	}
	for _, j := range p.roll.Overlapping(a, a.Spec.Array.Tasks.All()) {
		p.redependJob(j, key, on)
	}
}

func (p *Depends) redependJob(old *cluster.Job, key Awaited, on *cluster.Job) {
	if old == nil || !old.State.Waiting() || len(old.Spec.Depends) == 0 || old.Depend() == cluster.DependMet && old.DependAt <= p.roll.At.Now {
		return
	}
	j := old.Clone()
	j.Depends = slices.Clone(old.Depends)
	for i, d := range old.Spec.Depends {
		if j.Depends[i] != cluster.DependOpen {
			continue
		}
		if d.Kind == cluster.Singleton {
			if p.firstNamed(NameOf(old)) == Unit(old) {
				j.Depends[i] = cluster.DependMet
			}
			continue
		}
		if !d.OneTask && d.Job != key.Job {
			continue // on something else, as most are
		}
		if k, ok := p.keyFor(d); ok && k == key && !taskByTask(old, d, key) {
			p.noteDepend(j, i, on)
		}
	}
	p.settled(old, j)
}

// settled stores j in place of old after its dependencies were updated.
func (p *Depends) settled(old, j *cluster.Job) {
	was, now := old.Depend(), j.Depend()
	kill := now == cluster.DependFailed && j.Spec.KillInvalidDepend
	if slices.Equal(j.Depends, old.Depends) && j.DependAt == old.DependAt && !kill {
		return
	}
	switch {
	case kill:
		j.State, j.Ended, j.Hold = cluster.JobCancelled, p.roll.At.Now, nil
		j.Reason = cluster.Reason{Code: cluster.ReasonDependNever, Detail: "it was to be cancelled then"}
	case now != was || j.DependAt != old.DependAt:
		p.roll.WaitAgain(j)
	}
	p.roll.Change(old, j, command.Change{New: now == cluster.DependMet})
}

// correspondAll updates, task by task, what a submitted array waits for in others.
func (p *Depends) correspondAll(a *Array) {
	for _, d := range a.Spec.Depends {
		b := p.roll.Arrays[d.Job]
		if d.Kind != cluster.AfterCorr || b == nil {
			continue
		}
		good, bad := b.ended()
		p.match(a, b, good, cluster.DependMet)
		p.match(a, b, bad, cluster.DependFailed)
		// Tasks without a counterpart wait for nothing.
		if alone := cluster.SpanSub(a.Spec.Array.Tasks.All(), a.Spec.Array.Tasks.In(&b.Spec.Array.Tasks)); len(alone) > 0 {
			p.settleTasks(a, b.ID, alone, cluster.DependFailed)
		}
	}
}

// correspond propagates the end of tasks of b to the tasks of a with equal numbers.
func (p *Depends) correspond(a, b *Array, j *cluster.Job) {
	if !j.State.Terminal() || !slices.ContainsFunc(a.Spec.Depends, func(d cluster.Dependency) bool {
		return d.Kind == cluster.AfterCorr && d.Job == b.ID
	}) {
		return
	}
	st := cluster.DependFailed
	if j.State == cluster.JobCompleted {
		st = cluster.DependMet
	}
	p.match(a, b, j.Ranks(), st)
}

// match is settleTasks for the tasks of a that have the numbers of some of b.
func (p *Depends) match(a, b *Array, ranks []cluster.Span, st cluster.DependState) {
	if len(ranks) == 0 {
		return
	}
	var mine []cluster.Span
	if len(ranks) == 1 && ranks[0].From == ranks[0].To {
		k, ok := a.Spec.Array.Tasks.Rank(b.Spec.Array.Tasks.At(ranks[0].From))
		if !ok {
			return
		}
		mine = []cluster.Span{{From: k, To: k}}
	} else {
		some := b.Spec.Array.Tasks.Select(ranks)
		mine = a.Spec.Array.Tasks.In(&some)
	}
	p.settleTasks(a, b.ID, mine, st)
}

// settleTasks settles the dependencies of tasks of a on the tasks of array b with
// their numbers.
func (p *Depends) settleTasks(a *Array, b cluster.JobID, ranks []cluster.Span, st cluster.DependState) {
	for _, old := range p.roll.Overlapping(a, ranks) {
		if !old.State.Waiting() || old.Depend() == cluster.DependMet {
			continue
		}
		if old.Fold != nil {
			old = p.roll.Split(old, cluster.SpanAnd(old.Fold, ranks))
		}
		j := old.Clone()
		j.Depends = slices.Clone(old.Depends)
		for i, d := range old.Spec.Depends {
			if d.Kind == cluster.AfterCorr && d.Job == b && j.Depends[i] == cluster.DependOpen {
				j.Depends[i] = st
			}
		}
		p.settled(old, j)
	}
}
