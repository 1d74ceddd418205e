package jobs

import (
	"math/bits"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
)

// Array is what is known of an array beside its tasks. Those that wait alike, or
// ended together before they began, are folded into one job; a task becomes a
// job by itself when something befalls it alone. So an array costs as much as
// what has happened to it, and not as much as it has tasks.
type Array struct {
	ID        cluster.JobID // that of its first task; those of the others follow
	Spec      *cluster.Spec
	Estimates []cluster.Estimate
	Throttle  int
	// Over are the tasks that ended, by rank, and Good those of them that ended
	// as COMPLETED: tasks may be forgotten before their array is over.
	Over, Good Ranks
	// Load is that of a service over the last week, nil while nothing is known.
	Load *service.History

	// What follows is made from the jobs.
	Owner   cluster.Owner
	Entries int // jobs of it that are there, folds counting once
	Live    int // tasks with a live attempt
	Queued  int // tasks in the queue of a GPU
	// ByState is how many tasks are in each state, without those that were forgotten.
	ByState [cluster.JobDeadline + 1]int
	Begun   int // tasks that have not ended and have been started once
	Folds   []cluster.JobID
	Named   bool                   // its name is kept
	told    [4]cluster.DependState // how dependencies on all of it stood last
}

// NewArray returns an array of which no task has ended.
func NewArray(id cluster.JobID, spec *cluster.Spec, estimates []cluster.Estimate, throttle int) *Array {
	n := spec.Array.Tasks.Len()
	return &Array{ID: id, Spec: spec, Estimates: estimates, Throttle: throttle, Over: newRanks(n), Good: newRanks(n)}
}

// Len is how many tasks it has.
func (a *Array) Len() int { return a.Spec.Array.Tasks.Len() }

// Last is the id of its last task.
func (a *Array) Last() cluster.JobID { return a.ID + cluster.JobID(a.Len()-1) }

// Done reports whether all tasks have ended.
func (a *Array) Done() bool { return a.Over.N == a.Len() }

// Room is how many more tasks may run beside those that do, and those that stand
// in queues and may start at any time.
func (a *Array) Room() int {
	if !a.limited() {
		return a.Len()
	}
	return max(0, a.Throttle-a.Live-a.Queued)
}

// limited reports whether only so many of its tasks may run at once. A service may have no
// replica at all; any other array without a number may run all.
func (a *Array) limited() bool { return a.Throttle > 0 || a.Spec.Service != nil }

// standby reports whether j is a replica that never ran, and that as many have begun of its
// service as it is to have: one that waits to start again keeps its place.
func (a *Array) standby(j *cluster.Job) bool {
	return a.Spec.Service != nil && len(j.Attempts) == 0 && a.Begun >= a.Throttle
}

// Clone is a copy that stays as it is.
func (a *Array) Clone() *Array {
	c := *a
	c.Over, c.Good, c.Folds = a.Over.clone(), a.Good.clone(), slices.Clone(a.Folds)
	return &c
}

// Standing is how a dependency on the array as a whole stands.
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

// standings is how dependencies of each kind on all of it stand.
func (a *Array) standings() [4]cluster.DependState {
	return [4]cluster.DependState{a.Standing(cluster.After), a.Standing(cluster.AfterAny), a.Standing(cluster.AfterOK), a.Standing(cluster.AfterNotOK)}
}

// ended are the ranks of tasks that ended, as COMPLETED and otherwise.
func (a *Array) ended() (good, bad []cluster.Span) {
	add := func(to []cluster.Span, w int, x uint64) []cluster.Span {
		for x != 0 {
			from := bits.TrailingZeros64(x)
			end := from + bits.TrailingZeros64(^(x >> from)) // behind the last one
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

// Ranks is a set of ranks of tasks, N of them.
type Ranks struct {
	words []uint64
	N     int
	size  int
}

func newRanks(size int) Ranks { return Ranks{words: make([]uint64, (size+63)/64), size: size} }

// Has reports whether a rank is among them.
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

// bytes is the set with the lowest rank first; an empty one is no bytes.
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
