package fsm

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/jobs"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// array is what is known of an array beside its tasks. Those that wait alike, or
// ended together before they began, are folded into one job; a task becomes a
// job by itself when something befalls it alone. So an array costs as much as
// what has happened to it, and not as much as it has tasks.
type array struct {
	id        cluster.JobID // that of its first task; those of the others follow
	spec      *cluster.Spec
	estimates []cluster.Estimate
	throttle  int
	// over are the tasks that ended, by rank, and good those of them that ended
	// as COMPLETED: tasks may be forgotten before their array is over.
	over, good bitset

	// What follows is made from the jobs.
	entries int // jobs of it that are there, folds counting once
	live    int // tasks with a live attempt
	queued  int // tasks in the queue of a GPU
	begun   int // tasks that have not ended and have been started once
	folds   []cluster.JobID
	named   bool
	told    [4]cluster.DependState // how dependencies on all of it stood last
}

func newArray(id cluster.JobID, spec *cluster.Spec, estimates []cluster.Estimate, throttle int) *array {
	n := spec.Array.Tasks.Len()
	return &array{id: id, spec: spec, estimates: estimates, throttle: throttle, over: newBitset(n), good: newBitset(n)}
}

func (a *array) len() int { return a.spec.Array.Tasks.Len() }

func (a *array) last() cluster.JobID { return a.id + cluster.JobID(a.len()-1) }

// done reports whether all tasks have ended.
func (a *array) done() bool { return a.over.n == a.len() }

// room is how many more tasks may run beside those that do, and those that stand
// in queues and may start at any time.
func (a *array) room() int {
	if a.throttle == 0 {
		return a.len()
	}
	return max(0, a.throttle-a.live-a.queued)
}

func (a *array) clone() *array {
	c := *a
	c.over, c.good, c.folds = a.over.clone(), a.good.clone(), slices.Clone(a.folds)
	return &c
}

// record is its stored form with that of its spec.
func (a *array) record(spec *logv1.Spec) *logv1.ArrayRecord {
	return &logv1.ArrayRecord{
		Id: uint64(a.id), Spec: spec, Estimates: conv.EstimatesToLog(a.estimates), Throttle: uint32(a.throttle),
		Over: a.over.bytes(), Good: a.good.bytes(),
	}
}

func (s *State) loadArray(m *logv1.ArrayRecord) error {
	spec, err := conv.SpecNamed(m.GetSpec(), s.bulkNamed)
	if err != nil {
		return fmt.Errorf("array %d: %w", m.GetId(), err)
	}
	id := cluster.JobID(m.GetId())
	if spec.Array == nil || id == 0 || s.arrays[id] != nil || m.GetThrottle() > cluster.MaxThrottle {
		return fmt.Errorf("array %d is malformed, or appears twice", id)
	}
	s.blobs.Apart(s.now, spec)
	a := newArray(id, spec, conv.EstimatesFromLog(m.GetEstimates()), int(m.GetThrottle()))
	if !a.over.read(m.GetOver()) || !a.good.read(m.GetGood()) || a.good.n > a.over.n {
		return fmt.Errorf("array %d of %d tasks: what ended is malformed", id, a.len())
	}
	s.putArray(a)
	return nil
}

func (s *State) putArray(a *array) {
	i, _ := slices.BinarySearch(s.arrayIDs, a.id)
	s.arrays[a.id], s.arrayIDs = a, slices.Insert(s.arrayIDs, i, a.id)
	s.digests.arrays.Touch(a.id)
}

func (s *State) dropArray(a *array) {
	delete(s.arrays, a.id)
	if i, found := slices.BinarySearch(s.arrayIDs, a.id); found {
		s.arrayIDs = slices.Delete(s.arrayIDs, i, i+1)
	}
	s.digests.arrays.Touch(a.id)
}

// arrayOf returns the array that a job id belongs to, nil for none.
func (s *State) arrayOf(id cluster.JobID) *array {
	i, found := slices.BinarySearch(s.arrayIDs, id)
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	if a := s.arrays[s.arrayIDs[i]]; id <= a.last() {
		return a
	}
	return nil
}

// foldOf returns the fold that holds the task with a job id, nil when it is none.
func (s *State) foldOf(id cluster.JobID) *cluster.Job {
	a := s.arrayOf(id)
	if a == nil {
		return nil
	}
	rank := int(id - a.id)
	for _, k := range a.folds {
		if j := s.jobs.Get(k); cluster.SpanHas(j.Fold, rank) {
			return j
		}
	}
	return nil
}

// job returns the job with an id, made of its fold where it has none of its own.
func (s *State) job(id cluster.JobID) *cluster.Job {
	if j := s.jobs.Get(id); j != nil && j.Fold == nil {
		return j
	}
	if len(s.arrays) == 0 {
		return nil
	}
	if f := s.foldOf(id); f != nil {
		return f.Task(int(id - f.ArrayJobID))
	}
	return nil
}

// own returns the job with an id to be changed: a task that waits among others
// becomes a job by itself. Of one that ended among others it returns a copy.
func (s *State) own(id cluster.JobID) *cluster.Job {
	if j := s.jobs.Get(id); j != nil && j.Fold == nil {
		return j
	}
	if len(s.arrays) == 0 {
		return nil
	}
	f := s.foldOf(id)
	if f == nil {
		return nil
	}
	rank := int(id - f.ArrayJobID)
	if f.State.Terminal() {
		return f.Task(rank)
	}
	return s.split(f, []cluster.Span{{From: rank, To: rank}})
}

// split takes ranks out of a waiting fold, some of its own, and returns them as
// one job. The one of both that has the last task keeps the fold's place.
func (s *State) split(f *cluster.Job, ranks []cluster.Span) *cluster.Job {
	rest := cluster.SpanSub(f.Fold, ranks)
	if len(rest) == 0 {
		return f
	}
	out, left := f.Folding(ranks), f.Folding(rest)
	out.Revision, left.Revision = s.index, s.index
	keeps, other := out, left
	if left.ID == f.ID {
		keeps, other = left, out
	}
	s.putJob(f, keeps)
	s.putJob(nil, other)
	s.changed(Change{Job: left.ID})
	return out
}

// indexArray keeps what is known of the array of j, which is put in the place
// of old.
func (s *State) indexArray(old, j *cluster.Job) {
	a := s.arrays[j.ArrayJobID]
	wasFold := old != nil && old.Fold != nil
	switch {
	case old == nil:
		if a.entries++; a.entries == 1 {
			s.blobs.Count(j.Owner.UID, a.spec, 1)
		}
		s.nameFirst(a, j)
	case old.State.Live():
		a.live--
	case old.State == cluster.JobQueued:
		a.queued--
	}
	if old != nil && !old.State.Terminal() && len(old.Attempts) > 0 {
		a.begun--
	}
	switch {
	case j.State.Live():
		a.live++
	case j.State == cluster.JobQueued:
		a.queued++
	}
	if !j.State.Terminal() && len(j.Attempts) > 0 {
		a.begun++
	}
	if isFold := j.Fold != nil; isFold != wasFold {
		if isFold {
			a.folds = append(a.folds, j.ID)
		} else {
			a.folds = slices.DeleteFunc(a.folds, func(id cluster.JobID) bool { return id == j.ID })
		}
	}
	if j.State.Terminal() && (old == nil || !old.State.Terminal()) {
		for _, sp := range j.Ranks() {
			a.over.set(sp)
			if j.State == cluster.JobCompleted {
				a.good.set(sp)
			}
		}
		s.digests.arrays.Touch(a.id)
		if a.done() && a.named {
			a.named = false
			s.noteNamed(nameOf(j), a.id, true)
		}
	}
}

// standing is how a dependency on the array as a whole stands.
func (a *array) standing(k cluster.DependKind) cluster.DependState {
	switch {
	case k == cluster.After && a.over.n+a.begun == a.len():
		return cluster.DependMet
	case (k == cluster.AfterOK || k == cluster.AfterCorr) && a.good.n < a.over.n:
		return cluster.DependFailed
	case k == cluster.After || !a.done():
		return cluster.DependOpen
	case k == cluster.AfterNotOK && a.good.n == a.len():
		return cluster.DependFailed
	}
	return cluster.DependMet
}

// standings is how dependencies of each kind on all of it stand.
func (a *array) standings() [4]cluster.DependState {
	return [4]cluster.DependState{a.standing(cluster.After), a.standing(cluster.AfterAny), a.standing(cluster.AfterOK), a.standing(cluster.AfterNotOK)}
}

// overlapping are the jobs of an array that stand for any of some ranks, by id.
func (s *State) overlapping(a *array, ranks []cluster.Span) []*cluster.Job {
	var out []*cluster.Job
	if n := len(ranks); n == 0 {
		return nil
	} else if n == 1 && ranks[0].From == ranks[0].To {
		id := a.id + cluster.JobID(ranks[0].From)
		if j := s.jobs.Get(id); j != nil && j.Fold == nil {
			return []*cluster.Job{j}
		}
		if f := s.foldOf(id); f != nil {
			return []*cluster.Job{f}
		}
		return nil
	}
	jobs.Merge([]*jobs.Set{&s.jobs}, a.id-1, func(j *cluster.Job) bool {
		if j.ArrayJobID != a.id {
			return false
		}
		if j.Fold == nil && cluster.SpanHas(ranks, j.Rank()) || j.Fold != nil && len(cluster.SpanAnd(j.Fold, ranks)) > 0 {
			out = append(out, j)
		}
		return j.ID < a.last()
	})
	return out
}

// ended are the ranks of tasks that ended, as COMPLETED and otherwise.
func (a *array) ended() (good, bad []cluster.Span) {
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
	for w, x := range a.over.words {
		good, bad = add(good, w, x&a.good.words[w]), add(bad, w, x&^a.good.words[w])
	}
	return good, bad
}

// bitset is a set of ranks.
type bitset struct {
	words []uint64
	n     int
	size  int
}

func newBitset(size int) bitset { return bitset{words: make([]uint64, (size+63)/64), size: size} }

func (b *bitset) has(k int) bool { return b.words[k/64]>>(k%64)&1 != 0 }

func (b *bitset) set(sp cluster.Span) {
	for k := sp.From; k <= sp.To; {
		if k%64 == 0 && sp.To-k >= 63 {
			b.n += 64 - bits.OnesCount64(b.words[k/64])
			b.words[k/64] = ^uint64(0)
			k += 64
			continue
		}
		if !b.has(k) {
			b.words[k/64] |= 1 << (k % 64)
			b.n++
		}
		k++
	}
}

func (b *bitset) clone() bitset { return bitset{slices.Clone(b.words), b.n, b.size} }

// bytes is the set with the lowest rank first; an empty one is no bytes.
func (b *bitset) bytes() []byte {
	if b.n == 0 {
		return nil
	}
	out := make([]byte, (b.size+7)/8)
	for i := range out {
		out[i] = byte(b.words[i/8] >> (8 * (i % 8)))
	}
	return out
}

func (b *bitset) read(data []byte) bool {
	if len(data) == 0 {
		return true
	}
	if len(data) != (b.size+7)/8 {
		return false
	}
	for i, v := range data {
		b.words[i/8] |= uint64(v) << (8 * (i % 8))
		b.n += bits.OnesCount8(v)
	}
	return b.size%64 == 0 || b.words[len(b.words)-1]>>(b.size%64) == 0
}

// newTasks makes the array of j, a new job, and returns all of its tasks folded.
func (s *State) newTasks(j *cluster.Job) *cluster.Job {
	a := newArray(j.ID, j.Spec, j.Estimates, j.Spec.Array.Throttle)
	s.putArray(a)
	j.ArrayJobID = j.ID
	return j.Folding(j.Spec.Array.Tasks.All())
}

// nameFirst keeps the name of an array from its first job on.
func (s *State) nameFirst(a *array, j *cluster.Job) {
	if !a.named && !a.done() {
		a.named = true
		s.noteNamed(nameOf(j), a.id, false)
	}
}

// forgetTask takes a job that is forgotten out of what is known of its array,
// and forgets that with the last one.
func (s *State) forgetTask(j *cluster.Job) {
	if j.Fold != nil {
		s.folded[j.State] -= len1(j)
	}
	a := s.arrays[j.ArrayJobID]
	if a == nil {
		return
	}
	if a.entries--; a.entries == 0 {
		s.blobs.Count(j.Owner.UID, a.spec, -1)
	}
	if j.Fold != nil {
		a.folds = slices.DeleteFunc(a.folds, func(id cluster.JobID) bool { return id == j.ID })
	}
	if a.entries == 0 {
		s.dropArray(a)
	}
}

// len1 is how many tasks a fold has beyond one.
func len1(j *cluster.Job) int { return j.Count() - 1 }

func cloneArrays(as map[cluster.JobID]*array) map[cluster.JobID]*array {
	out := make(map[cluster.JobID]*array, len(as))
	for id, a := range as {
		out[id] = a.clone()
	}
	return out
}

// readJob reads a stored job; what its array has in common is there already.
func (s *State) readJob(m *logv1.Job) (*cluster.Job, error) {
	if m.GetArrayJob() == 0 {
		return conv.JobNamed(m, s.bulkNamed)
	}
	a := s.arrays[cluster.JobID(m.GetArrayJob())]
	if a == nil {
		return nil, fmt.Errorf("job %d is of array %d, which is not there", m.GetId(), m.GetArrayJob())
	}
	j, err := conv.TaskFromLog(m, a.spec, a.estimates)
	if err != nil {
		return nil, err
	}
	if j.Fold != nil && (len(j.Attempts) > 0 || j.State != cluster.JobPending && !j.State.Terminal()) {
		return nil, fmt.Errorf("job %d folds tasks that are %s", j.ID, j.State)
	}
	return j, nil
}

// checkArrays reports whether each task of the arrays of a restored state is where
// it belongs: in one job unless it ended.
func (s *State) checkArrays() error {
	for _, id := range s.arrayIDs {
		a, seen := s.arrays[id], newBitset(s.arrays[id].len())
		n := 0
		for _, j := range s.overlapping(a, a.spec.Array.Tasks.All()) {
			for _, sp := range j.Ranks() {
				seen.set(sp)
				n += sp.To - sp.From + 1
			}
			if j.State.Terminal() {
				continue
			}
			for _, sp := range j.Ranks() {
				for k := sp.From; k <= sp.To; k++ {
					if a.over.has(k) {
						return fmt.Errorf("task %d of array %d is %s and has ended", a.spec.Array.Tasks.At(k), id, j.State)
					}
				}
			}
		}
		if n != seen.n {
			return fmt.Errorf("array %d has a task twice", id)
		}
		for k := range a.len() {
			if !seen.has(k) && !a.over.has(k) {
				return fmt.Errorf("array %d lacks task %d", id, a.spec.Array.Tasks.At(k))
			}
		}
		if n == 0 {
			return fmt.Errorf("array %d has no jobs", id)
		}
	}
	return nil
}
