package jobs

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// Name is what singletons share.
type Name struct {
	uid  cluster.UID
	name string
}

// NameOf returns the name of a job among singletons.
func NameOf(j *cluster.Job) Name { return Name{j.Owner.UID, j.Spec.Name} }

// Namesakes are the unended jobs of one owner and name, by id; some may have ended
// since. An array counts as one.
type Namesakes struct {
	ids  []cluster.JobID
	Live int
}

// firstNamed returns the first unended job or array of an owner and name, 0 if
// there is none.
func (p *Depends) firstNamed(key Name) cluster.JobID {
	q := p.Names[key]
	for q != nil && len(q.ids) > 0 {
		if p.unfinished(q.ids[0]) {
			return q.ids[0]
		}
		q.ids = q.ids[1:]
	}
	return 0
}

func (p *Depends) unfinished(id cluster.JobID) bool {
	if a := p.roll.Arrays[id]; a != nil {
		return !a.Done()
	}
	j := p.roll.Jobs.Get(id)
	return j != nil && !j.State.Terminal()
}

// noteNamed records that id has a name, or no longer has it if over.
func (p *Depends) noteNamed(key Name, id cluster.JobID, over bool) {
	q := p.Names[key]
	switch {
	case !over:
		if q == nil {
			q = &Namesakes{}
			p.Names[key] = q
		}
		q.ids = append(q.ids, id)
		q.Live++
	case q.Live == 1:
		delete(p.Names, key)
	default:
		if q.Live--; len(q.ids) > 2*q.Live+64 {
			q.ids = slices.DeleteFunc(q.ids, func(id cluster.JobID) bool { return !p.unfinished(id) })
		}
	}
}

// Unit returns the id of j, or of the array that it belongs to.
func Unit(j *cluster.Job) cluster.JobID {
	return cmp.Or(j.ArrayJobID, j.ID)
}

// index updates who waits for whom when j replaces old, and records what may have
// changed for others. Arrays keep their names themselves.
func (p *Depends) index(old, j *cluster.Job) {
	switch {
	case old != nil && old.State == j.State, old == nil && j.State.Terminal():
	case old == nil:
		if j.ArrayJobID == 0 {
			p.noteNamed(NameOf(j), j.ID, false)
		}
		if j.State.Waiting() && (j.Depend() != cluster.DependMet || j.DependAt > 0) {
			p.awaits(j)
		}
	case j.State.Terminal():
		if j.ArrayJobID == 0 {
			p.noteNamed(NameOf(j), j.ID, true)
		}
		if p.freesName(j) || p.waitedFor(j) {
			p.Unsettled = append(p.Unsettled, j)
		}
	case old.State.Waiting() && !j.State.Waiting() && p.waitedFor(j):
		p.Unsettled = append(p.Unsettled, j)
	}
}

// freesName reports whether the end of j may release another job of its name.
func (p *Depends) freesName(j *cluster.Job) bool {
	if a := p.roll.Arrays[j.ArrayJobID]; a != nil && !a.Done() {
		return false
	}
	return p.Names[NameOf(j)] != nil
}

// awaits records that j waits for others. All tasks of an array count as one.
func (p *Depends) awaits(j *cluster.Job) {
	id := Unit(j)
	for i, d := range j.Spec.Depends {
		if d.Job == 0 || j.Depends[i] != cluster.DependOpen {
			continue
		}
		key, ok := p.keyFor(d)
		// Sorted, as on a restored replica.
		ws := p.Dependents[key]
		if at, there := slices.BinarySearch(ws, id); ok && !there {
			p.Dependents[key] = slices.Insert(ws, at, id)
		}
	}
	if j.ArrayJobID == 0 || len(p.Unsettled) == 0 || p.Unsettled[len(p.Unsettled)-1].ArrayJobID != id {
		p.Unsettled = append(p.Unsettled, j)
	}
}

// waitedFor reports whether any job waits for the outcome of j.
func (p *Depends) waitedFor(j *cluster.Job) bool {
	if len(p.Dependents) == 0 {
		return false
	}
	if j.ArrayJobID != 0 && (j.Fold != nil || len(p.Dependents[Awaited{j.ArrayJobID, true}]) > 0) {
		return true
	}
	return len(p.Dependents[Awaited{Job: j.ID}]) > 0
}

// Reindex stores j, whose spec changed, in place of old: jobs are also indexed by
// name and by what they wait for.
func (p *Depends) Reindex(old, j *cluster.Job) {
	p.roll.Put(old, j)
	if from, to := NameOf(old), NameOf(j); from != to {
		p.rename(j.ID, from, to)
		if first := p.roll.Jobs.Get(p.firstNamed(from)); first != nil {
			p.Unsettled = append(p.Unsettled, first)
		}
	}
	if !j.State.Waiting() || j.Depend() == cluster.DependMet {
		return
	}
	p.awaits(j)
}

// rename moves an unended job from one name to another.
func (p *Depends) rename(id cluster.JobID, from, to Name) {
	if q := p.Names[from]; q != nil {
		q.ids = slices.DeleteFunc(q.ids, func(o cluster.JobID) bool { return o == id })
		if q.Live--; q.Live == 0 {
			delete(p.Names, from)
		}
	}
	q := p.Names[to]
	if q == nil {
		q = &Namesakes{}
		p.Names[to] = q
	}
	at, _ := slices.BinarySearch(q.ids, id)
	q.ids = slices.Insert(q.ids, at, id)
	q.Live++
}

// EntryCost is the total Cost that commands of one entry may have, unless a single
// one exceeds it: some ten milliseconds in Apply.
const EntryCost = 4000

// Waiters returns the cost of ending a job due to those that wait for it or its
// array.
func (p *Depends) Waiters(id cluster.JobID) int {
	if len(p.Dependents) == 0 {
		return 0
	}
	n := p.WaitersOn(Awaited{Job: id})
	if a := p.roll.ArrayOf(id); a != nil {
		n += p.WaitersOn(Awaited{a.ID, true})
	}
	return n
}

// WaitersOn counts them up to more than an entry may hold.
func (p *Depends) WaitersOn(key Awaited) int {
	n := 0
	for _, id := range p.Dependents[key] {
		if j := p.roll.Jobs.Get(id); j != nil {
			n += 1 + len(j.Spec.Depends)/64
		} else if a := p.roll.Arrays[id]; a != nil {
			n += a.Entries
		}
		if n > EntryCost {
			break
		}
	}
	return n
}
