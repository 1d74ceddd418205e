package jobs

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
)

func (r *Roll) putArray(a *Array) {
	i, _ := slices.BinarySearch(r.ArrayIDs, a.ID)
	r.Arrays[a.ID], r.ArrayIDs = a, slices.Insert(r.ArrayIDs, i, a.ID)
	if a.Spec.Service != nil {
		i, _ := slices.BinarySearch(r.ServiceIDs, a.ID)
		r.ServiceIDs = slices.Insert(r.ServiceIDs, i, a.ID)
	}
	r.Digests.Arrays.Touch(a.ID)
}

func (r *Roll) dropArray(a *Array) {
	delete(r.Arrays, a.ID)
	if i, found := slices.BinarySearch(r.ArrayIDs, a.ID); found {
		r.ArrayIDs = slices.Delete(r.ArrayIDs, i, i+1)
	}
	if i, found := slices.BinarySearch(r.ServiceIDs, a.ID); found {
		r.ServiceIDs = slices.Delete(r.ServiceIDs, i, i+1)
	}
	r.Digests.Arrays.Touch(a.ID)
}

// ArrayOf returns the array that a job id belongs to, nil for none.
func (r *Roll) ArrayOf(id cluster.JobID) *Array {
	i, found := slices.BinarySearch(r.ArrayIDs, id)
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	if a := r.Arrays[r.ArrayIDs[i]]; id <= a.Last() {
		return a
	}
	return nil
}

// foldOf returns the fold that contains the task with a job id, nil if there is
// none.
func (r *Roll) foldOf(id cluster.JobID) *cluster.Job {
	a := r.ArrayOf(id)
	if a == nil {
		return nil
	}
	rank := int(id - a.ID)
	for _, k := range a.Folds {
		if j := r.Jobs.Get(k); cluster.SpanHas(j.Fold, rank) {
			return j
		}
	}
	return nil
}

// find returns the job with an id, or the fold that contains it.
func (r *Roll) find(id cluster.JobID) *cluster.Job {
	if j := r.Jobs.Get(id); j != nil && j.Fold == nil || len(r.Arrays) == 0 {
		return j
	}
	return r.foldOf(id)
}

// Job returns the job with an id, derived from its fold if it is not a job of its
// own.
func (r *Roll) Job(id cluster.JobID) *cluster.Job {
	j := r.find(id)
	if j == nil || j.Fold == nil {
		return j
	}
	return j.Task(int(id - j.ArrayJobID))
}

// Own returns the job with an id for changing: a task that waits in a fold is split
// off. Of one that ended in a fold it returns a copy.
func (r *Roll) Own(id cluster.JobID) *cluster.Job {
	j := r.find(id)
	if j == nil || j.Fold == nil {
		return j
	}
	rank := int(id - j.ArrayJobID)
	if j.State.Terminal() {
		return j.Task(rank)
	}
	return r.Split(j, []cluster.Span{{From: rank, To: rank}})
}

// Split splits ranks, which must be its own, off a waiting fold, and returns them as
// one job. The part with the last task keeps the fold's id.
func (r *Roll) Split(f *cluster.Job, ranks []cluster.Span) *cluster.Job {
	rest := cluster.SpanSub(f.Fold, ranks)
	if len(rest) == 0 {
		return f
	}
	out, left := f.Folding(ranks), f.Folding(rest)
	keeps, other := out, left
	if left.ID == f.ID {
		keeps, other = left, out
	}
	r.Put(f, keeps)
	r.Put(nil, other)
	r.Changed(command.Change{Job: left.ID})
	return out
}

// indexArray updates the array of j, which replaces old.
func (r *Roll) indexArray(old, j *cluster.Job) {
	a := r.Arrays[j.ArrayJobID]
	wasFold := old != nil && old.Fold != nil
	switch {
	case old == nil:
		if a.Entries++; a.Entries == 1 {
			a.Owner = j.Owner
			r.Blobs.Count(j.Owner.UID, a.Spec, 1)
		}
		if !a.Named && !a.Done() {
			a.Named = true
			r.Depends.noteNamed(NameOf(j), a.ID, false)
		}
	case old.State.Live():
		a.Live--
	case old.State == cluster.JobQueued:
		a.Queued--
	}
	if old != nil && !old.State.Terminal() && len(old.Attempts) > 0 {
		a.Begun--
	}
	if old != nil {
		a.ByState[old.State] -= old.Count()
	}
	a.ByState[j.State] += j.Count()
	switch {
	case j.State.Live():
		a.Live++
	case j.State == cluster.JobQueued:
		a.Queued++
	}
	if !j.State.Terminal() && len(j.Attempts) > 0 {
		a.Begun++
	}
	if isFold := j.Fold != nil; isFold != wasFold {
		if isFold {
			a.Folds = append(a.Folds, j.ID)
		} else {
			a.Folds = slices.DeleteFunc(a.Folds, func(id cluster.JobID) bool { return id == j.ID })
		}
	}
	if j.State.Terminal() && (old == nil || !old.State.Terminal()) {
		for _, sp := range j.Ranks() {
			a.Over.set(sp)
			if j.State == cluster.JobCompleted {
				a.Good.set(sp)
			}
		}
		r.Digests.Arrays.Touch(a.ID)
		if a.Done() && a.Named {
			a.Named = false
			r.Depends.noteNamed(NameOf(j), a.ID, true)
		}
	}
}

// Overlapping returns the jobs of an array that stand for any of some ranks, by id.
func (r *Roll) Overlapping(a *Array, ranks []cluster.Span) []*cluster.Job {
	var out []*cluster.Job
	if n := len(ranks); n == 0 {
		return nil
	} else if n == 1 && ranks[0].From == ranks[0].To {
		if j := r.find(a.ID + cluster.JobID(ranks[0].From)); j != nil {
			return []*cluster.Job{j}
		}
		return nil
	}
	Merge([]*Set{&r.Jobs}, a.ID-1, func(j *cluster.Job) bool {
		if j.ArrayJobID != a.ID {
			return false
		}
		if j.Fold == nil && cluster.SpanHas(ranks, j.Rank()) || j.Fold != nil && len(cluster.SpanAnd(j.Fold, ranks)) > 0 {
			out = append(out, j)
		}
		return j.ID < a.Last()
	})
	return out
}

// forgetTask removes a forgotten job from its array, and the array with the last
// one.
func (r *Roll) forgetTask(j *cluster.Job) {
	if j.Fold != nil {
		r.Folded[j.State] -= len1(j)
	}
	a := r.Arrays[j.ArrayJobID]
	if a == nil {
		return
	}
	a.ByState[j.State] -= j.Count()
	if a.Entries--; a.Entries == 0 {
		r.Blobs.Count(j.Owner.UID, a.Spec, -1)
	}
	if j.Fold != nil {
		a.Folds = slices.DeleteFunc(a.Folds, func(id cluster.JobID) bool { return id == j.ID })
	}
	if a.Entries == 0 {
		r.dropArray(a)
	}
}

// NewTasks makes the array of j, a new job, and returns all of its tasks folded.
func (r *Roll) NewTasks(j *cluster.Job) *cluster.Job {
	r.putArray(NewArray(j.ID, j.Spec, j.Estimates, j.Spec.Array.Throttle))
	j.ArrayJobID = j.ID
	return j.Folding(j.Spec.Array.Tasks.All())
}

// len1 returns how many tasks beyond one a fold has.
func len1(j *cluster.Job) int { return j.Count() - 1 }
