package jobs

import (
	"math/bits"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
)

// Array is what is known of an array besides its tasks. Tasks that wait alike, or
// ended together before they began, are folded into one job; a task becomes a job
// of its own when something happens to it alone. An array thus costs in proportion
// to what happened to it, not to its number of tasks.
type Array struct {
	ID        cluster.JobID // of its first task; those of the others follow
	Spec      *cluster.Spec
	Estimates []cluster.Estimate
	Throttle  int
	// Over are the tasks that ended, by rank, and Good those of them that ended as
	// COMPLETED: tasks may be forgotten before their array is over.
	Over, Good Ranks
	// Scaled is how many replicas a service should have, plus one, if it was scaled;
	// otherwise those of its spec. Throttle follows: it is less while this revision
	// takes the place of another.
	Scaled int
	// Load is the load of a service over the last week, nil while unknown.
	Load *service.History

	// The rest is derived from the jobs.
	Owner   cluster.Owner
	Entries int // jobs of it that exist, folds counting once
	Live    int // tasks with a live attempt
	Queued  int // tasks in the queue of a GPU
	// ByState is how many tasks are in each state, without forgotten ones.
	ByState [cluster.JobDeadline + 1]int
	Begun   int // tasks that were started once and have not ended
	Folds   []cluster.JobID
	Named   bool                   // its name is registered
	told    [4]cluster.DependState // last state of dependencies on the whole array
}

// NewArray returns an array none of whose tasks has ended.
func NewArray(id cluster.JobID, spec *cluster.Spec, estimates []cluster.Estimate, throttle int) *Array {
	n := spec.Array.Tasks.Len()
	return &Array{ID: id, Spec: spec, Estimates: estimates, Throttle: throttle, Over: newRanks(n), Good: newRanks(n)}
}

// Wanted returns how many tasks should run at once when no revision of its service
// takes the place of another, 0 for any number.
func (a *Array) Wanted() int {
	switch {
	case a.Spec.Service == nil:
		return a.Throttle
	case a.Scaled > 0:
		return a.Scaled - 1
	}
	return a.Spec.Service.Replicas
}

// Len returns the number of its tasks.
func (a *Array) Len() int { return a.Spec.Array.Tasks.Len() }

// Last returns the id of its last task.
func (a *Array) Last() cluster.JobID { return a.ID + cluster.JobID(a.Len()-1) }

// Done reports whether all tasks have ended.
func (a *Array) Done() bool { return a.Over.N == a.Len() }

// Room returns how many more tasks may run besides those that do, and those in
// queues that may start at any time.
func (a *Array) Room() int {
	if !a.limited() {
		return a.Len()
	}
	return max(0, a.Throttle-a.Live-a.Queued)
}

// limited reports whether the number of running tasks is limited. A service may
// have no replica at all; any other array without a number may run all.
func (a *Array) limited() bool { return a.Throttle > 0 || a.Spec.Service != nil }

// standby reports whether j is a replica that never ran while as many replicas of
// its service have begun as it should have; a replica that waits to restart keeps
// its place.
func (a *Array) standby(j *cluster.Job) bool {
	return a.Spec.Service != nil && len(j.Attempts) == 0 && a.Begun >= a.Throttle
}

// Clone returns an independent copy.
func (a *Array) Clone() *Array {
	c := *a
	c.Over, c.Good, c.Folds = a.Over.clone(), a.Good.clone(), slices.Clone(a.Folds)
	return &c
}

// Standing returns the state of a dependency of kind k on the whole array.
func (a *Array) Standing(k cluster.DependKind) cluster.DependState {
	switch {
	case k == cluster.After && a.Over.N+a.Begun == a.Len():
		return cluster.DependMet
	case (k == cluster.AfterOK || k == cluster.AfterCorr) && a.Good.N < a.Over.N:
		return cluster.DependFailed
	case k == cluster.After || !a.Done():
		return cluster.DependOpen
	case k == cluster.AfterNotOK && a.Good.N == a.Len():
		return cluster.DependFailed
	}
	return cluster.DependMet
}

// standings returns the states of dependencies of each kind on the whole array.
func (a *Array) standings() [4]cluster.DependState {
	return [4]cluster.DependState{a.Standing(cluster.After), a.Standing(cluster.AfterAny), a.Standing(cluster.AfterOK), a.Standing(cluster.AfterNotOK)}
}

// ended returns the ranks of tasks that ended, as COMPLETED and otherwise.
func (a *Array) ended() (good, bad []cluster.Span) {
	add := func(to []cluster.Span, w int, x uint64) []cluster.Span {
		for x != 0 {
			from := bits.TrailingZeros64(x)
			end := from + bits.TrailingZeros64(^(x >> from)) // after the last one
			x &^= (1<<(end-from) - 1) << from
			if n := len(to); n > 0 && to[n-1].To+1 == w*64+from {
				to[n-1].To = w*64 + end - 1
				continue
			}
			to = append(to, cluster.Span{From: w*64 + from, To: w*64 + end - 1})
		}
		return to
	}
	for w, x := range a.Over.words {
		good, bad = add(good, w, x&a.Good.words[w]), add(bad, w, x&^a.Good.words[w])
	}
	return good, bad
}

// Ranks is a set of N task ranks.
type Ranks struct {
	words []uint64
	N     int
	size  int
}

func newRanks(size int) Ranks { return Ranks{words: make([]uint64, (size+63)/64), size: size} }

// Has reports whether a rank is in the set.
func (b *Ranks) Has(k int) bool { return b.words[k/64]>>(k%64)&1 != 0 }

func (b *Ranks) set(sp cluster.Span) {
	for k := sp.From; k <= sp.To; {
		if k%64 == 0 && sp.To-k >= 63 {
			b.N += 64 - bits.OnesCount64(b.words[k/64])
			b.words[k/64] = ^uint64(0)
			k += 64
			continue
		}
		if !b.Has(k) {
			b.words[k/64] |= 1 << (k % 64)
			b.N++
		}
		k++
	}
}

func (b *Ranks) clone() Ranks { return Ranks{slices.Clone(b.words), b.N, b.size} }

// bytes returns the set with the lowest rank first; an empty set is no bytes.
func (b *Ranks) bytes() []byte {
	if b.N == 0 {
		return nil
	}
	out := make([]byte, (b.size+7)/8)
	for i := range out {
		out[i] = byte(b.words[i/8] >> (8 * (i % 8)))
	}
	return out
}

func (b *Ranks) read(data []byte) bool {
	if len(data) == 0 {
		return true
	}
	if len(data) != (b.size+7)/8 {
		return false
	}
	for i, v := range data {
		b.words[i/8] |= uint64(v) << (8 * (i % 8))
		b.N += bits.OnesCount8(v)
	}
	return b.size%64 == 0 || b.words[len(b.words)-1]>>(b.size%64) == 0
}
