package fsm

import (
	"maps"
	"slices"
	"sort"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/cluster/sharing"
	"github.com/berth-scheduler/berth/fsm/jobs"
	"github.com/berth-scheduler/berth/fsm/orders"
)

// ring holds the newest changes.
type ring struct {
	cap   int
	items []Change
	from  uint64 // changes up to this index are no longer held
}

func (r *ring) reset(index uint64) { r.items, r.from = nil, index }

func (r *ring) add(cs []Change, index uint64) {
	for i := range cs {
		cs[i].Index = index
	}
	r.items = append(r.items, cs...)
	if drop := len(r.items) - r.cap; drop > r.cap/4 {
		r.from = r.items[drop-1].Index
		// Never split an entry.
		for drop < len(r.items) && r.items[drop].Index == r.from {
			drop++
		}
		r.items = slices.Clone(r.items[drop:])
	}
}

// Changes returns what changed after an index, up to upTo. ok is false if the ring
// no longer holds all of it.
func (f *FSM) Changes(after uint64) (cs []Change, upTo uint64, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if after < f.ring.from {
		return nil, f.st.at.Index, false
	}
	i := sort.Search(len(f.ring.items), func(i int) bool { return f.ring.items[i].Index > after })
	return slices.Clone(f.ring.items[i:]), f.st.at.Index, true
}

// Index returns the index of the last applied entry.
func (f *FSM) Index() uint64 { return read(f.held, func(s *State) uint64 { return s.at.Index }) }

// Term returns the term of the last applied entry.
func (f *FSM) Term() uint64 { return read(f.held, func(s *State) uint64 { return s.term }) }

// EntryVersion returns the highest version of an entry in the log so far, which
// every coordinator reads.
func (f *FSM) EntryVersion() uint32 {
	return read(f.held, func(s *State) uint32 { return max(1, s.at.Format) })
}

// Now returns the leader's clock as of the last entry; it never goes back.
func (f *FSM) Now() cluster.Time {
	return read(f.held, func(s *State) cluster.Time { return s.at.Now })
}

// NextJobID returns the least id that the next job may have.
func (f *FSM) NextJobID() cluster.JobID {
	return read(f.held, func(s *State) cluster.JobID { return s.roll.NextID })
}

// Readers by subject. What they return is immutable, or a copy.
type (
	// AccountsReader reads accounts, and enters jobs in them.
	AccountsReader struct{ *held }
	// CredentialsReader reads join tokens and denied identities.
	CredentialsReader struct{ *held }
	// JobsReader reads jobs and what they have.
	JobsReader struct{ *held }
	// LearnedReader reads what was learned.
	LearnedReader struct{ *held }
	// NodesReader reads nodes, their jobs and their queues.
	NodesReader struct{ *held }
	// NoticesReader reads pending notices.
	NoticesReader struct{ *held }
)

func read[T any](f *held, get func(*State) T) T {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return get(f.st)
}

func read2[T, U any](f *held, get func(*State) (T, U)) (T, U) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return get(f.st)
}

// Read calls fn with the state under the read lock. fn must keep only immutable
// values, and must not call methods of the FSM.
func (f *FSM) Read(fn func(*State)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	fn(f.st)
}

// Index returns the index of the last applied entry.
func (s *State) Index() uint64 { return s.at.Index }

// Now returns the leader's clock as of the last entry.
func (s *State) Now() cluster.Time { return s.at.Now }

// Ledger returns the live ledger, which must not be kept or modified.
func (s *State) Ledger() *dispatch.Ledger { return s.fleet.Ledger() }

// Job returns a job.
func (s *State) Job(id cluster.JobID) (*cluster.Job, bool) {
	j := s.roll.Job(id)
	return j, j != nil
}

// Node returns a node.
func (s *State) Node(id cluster.NodeID) (*cluster.Node, bool) {
	n := s.fleet.Node(id)
	return n, n != nil
}

// Nodes returns all nodes by id. The slice does not change; the caller must not
// modify it.
func (s *State) Nodes() []*cluster.Node { return s.fleet.List() }

// OnGPU returns the jobs on a GPU, by id.
func (s *State) OnGPU(g cluster.GPUID) []cluster.JobID { return s.fleet.On(g) }

// Queue returns the waiters of a GPU, in order.
func (s *State) Queue(g cluster.GPUID) []dispatch.Waiter { return s.roll.Queues.Of(g) }

// Job returns a job.
func (f JobsReader) Job(id cluster.JobID) (*cluster.Job, bool) {
	return read2(f.held, func(s *State) (*cluster.Job, bool) { return s.Job(id) })
}

// Node returns a node.
func (f NodesReader) Node(id cluster.NodeID) (*cluster.Node, bool) {
	return read2(f.held, func(s *State) (*cluster.Node, bool) { return s.Node(id) })
}

// Nodes returns all nodes by id. The slice does not change; the caller must not
// modify it.
func (f NodesReader) Nodes() []*cluster.Node { return read(f.held, (*State).Nodes) }

// NodeJobs returns the jobs with a live attempt on a node, by id.
func (f NodesReader) NodeJobs(id cluster.NodeID) []*cluster.Job {
	return read(f.held, func(s *State) []*cluster.Job { return s.roll.On(id).List() })
}

// GPUJobs returns the jobs on a GPU, by id.
func (f NodesReader) GPUJobs(g cluster.GPUID) []cluster.JobID {
	return read(f.held, func(s *State) []cluster.JobID { return s.fleet.On(g) })
}

// Queue returns the waiters of a GPU, in order.
func (f NodesReader) Queue(g cluster.GPUID) []dispatch.Waiter {
	return read(f.held, func(s *State) []dispatch.Waiter { return s.roll.Queues.Of(g) })
}

// QueuePosition returns the queue that a job is in and its place there from 1, or
// nothing.
func (f JobsReader) QueuePosition(id cluster.JobID) (cluster.GPUID, int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	j := f.st.roll.Jobs.Get(id) // queued jobs are never folded
	if j == nil || j.Queue == "" {
		return "", 0
	}
	i := slices.IndexFunc(f.st.roll.Queues.Of(j.Queue), func(w dispatch.Waiter) bool { return w.Job == id })
	return j.Queue, i + 1
}

// Counts returns how many jobs are in each state.
func (f JobsReader) Counts() map[cluster.JobState]int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	out := make(map[cluster.JobState]int, len(f.st.roll.ByState))
	for st := range f.st.roll.ByState {
		n := f.st.roll.ByState[st].Len() + f.st.roll.Folded[st]
		if cluster.JobState(st) == cluster.JobPending {
			n += f.st.roll.Barred.Len()
		}
		if n > 0 {
			out[cluster.JobState(st)] = n
		}
	}
	return out
}

// Query selects jobs. A zero field selects all.
type Query struct {
	After  cluster.JobID // ids above this
	Until  cluster.JobID // and up to this, 0 for all
	Limit  int
	States []cluster.JobState
	UIDs   []cluster.UID
	Keep   func(*cluster.Job) bool // called under the read lock
}

// Jobs returns jobs by id, and the index of the state they are from.
func (f JobsReader) Jobs(q Query) ([]*cluster.Job, uint64) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	sets := []*jobs.Set{&f.st.roll.Jobs}
	if len(q.States) > 0 {
		sets = f.st.roll.Sets(q.States)
	}
	var out []*cluster.Job
	jobs.Merge(sets, q.After, func(j *cluster.Job) bool {
		if q.Until > 0 && j.ID > q.Until {
			return false
		}
		if (len(q.UIDs) == 0 || slices.Contains(q.UIDs, j.Owner.UID)) && (q.Keep == nil || q.Keep(j)) {
			out = append(out, j)
		}
		return q.Limit <= 0 || len(out) < q.Limit
	})
	return out, f.st.at.Index
}

// SchedulerSnapshot returns an immutable view for the scheduler. It leaves out jobs
// that may not start, however much is free.
func (f *FSM) SchedulerSnapshot() *dispatch.Snapshot {
	snap, _ := f.SchedulerSnapshotAt(0)
	return snap
}

// SchedulerSnapshotAt returns the view at now, or at the last entry if that is
// later, and the earliest later time at which another job may start; 0 if none
// waits for its time alone.
func (f *FSM) SchedulerSnapshotAt(now cluster.Time) (*dispatch.Snapshot, cluster.Time) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s := f.st
	now = max(now, s.at.Now)
	waiting, more, next := jobs.Startable(s.roll, now)
	if at := s.fleet.Reservations().Next(now); at != 0 && (next == 0 || at < next) {
		next = at
	}
	return &dispatch.Snapshot{
		More:  more,
		Index: s.at.Index, Now: now, Nodes: slices.Clone(s.fleet.List()), Ledger: s.fleet.Ledger().Clone(), Queues: maps.Clone(s.roll.Queues.All()),
		Partitions: s.Partitions(), Standing: s.books.ForPass(), Limits: s.books.Limits(now), Reservations: s.fleet.Reservations(),
		Waiting: waiting,
		Running: s.roll.Running(),
	}, next
}

// Config returns the cluster's identity; ok is false in a new log.
func (f *FSM) Config() (clusterID, name string, keepFinished int, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	c := f.st.config
	return c.GetClusterId(), c.GetName(), int(c.GetKeepFinished()), c != nil
}

// Hash returns the canonical hash of the state: equal on replicas that
// applied the same log.
func (f *FSM) Hash() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.st.hashNow()
}

// LastCheckpoint returns the newest hash taken at a checkpoint, and its index; 0 if
// there was none since the start.
func (f *FSM) LastCheckpoint() (index uint64, hash []byte) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if n := len(f.hashes); n > 0 {
		return f.hashes[n-1].index, f.hashes[n-1].hash
	}
	return 0, nil
}

// Request returns the jobs of an earlier submission with this request id; ok is
// false if there was none, it is forgotten, or its body was different, which Apply
// refuses.
func (f JobsReader) Request(uid cluster.UID, id string, bodyHash []byte) (ids []cluster.JobID, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	r := f.st.desk.Requests.Get(orders.KeyOf(uid, id))
	if r == nil || len(bodyHash) < len(r.BodyHash) || r.BodyHash != [16]byte(bodyHash[:16]) {
		return nil, false
	}
	return r.Jobs(), true
}

// Expired returns the waiting jobs whose deadline has passed by now, by id, and the
// earliest deadline of one that expires later, or 0.
func (f JobsReader) Expired(now cluster.Time) (out []cluster.JobID, next cluster.Time) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, set := range f.st.roll.Sets([]cluster.JobState{cluster.JobPending, cluster.JobQueued}) {
		for j := range set.All {
			if at := j.Spec.Deadline; jobs.Expired(j, now) {
				out = append(out, j.ID)
			} else if at > 0 && (next == 0 || at < next) {
				next = at
			}
		}
	}
	slices.Sort(out)
	return out, next
}

// Partitions returns the partitions by name; none if the cluster is undivided.
func (f NodesReader) Partitions() []*cluster.Partition { return read(f.held, (*State).Partitions) }

// Partitions returns the partitions by name.
func (s *State) Partitions() []*cluster.Partition { return s.fleet.Partitions() }

// Partition returns a partition.
func (f NodesReader) Partition(name string) (*cluster.Partition, bool) {
	p := read(f.held, func(s *State) *cluster.Partition { return s.fleet.Partition(name) })
	return p, p != nil
}

// PartitionJobs counts the unended jobs of each partition.
func (f JobsReader) PartitionJobs() (waiting, live map[string]int) {
	return read2(f.held, func(s *State) (map[string]int, map[string]int) { return s.roll.ByPartition() })
}

// Reservations returns the reservations by name, including those that have ended.
func (f NodesReader) Reservations() dispatch.Reservations {
	return read(f.held, (*State).Reservations)
}

// Reservations returns the reservations by name. The slice is replaced, never
// changed, when one of them changes.
func (s *State) Reservations() dispatch.Reservations { return s.fleet.Reservations() }

// SharingOff returns where sharing is switched off, by place.
func (f NodesReader) SharingOff() sharing.Switches {
	return read(f.held, func(s *State) sharing.Switches { return s.fleet.SharingOff() })
}

// ArrayInfo describes an array as a whole.
type ArrayInfo struct {
	ID    cluster.JobID
	Spec  *cluster.Spec
	Owner cluster.Owner
	// Throttle is how many tasks may run at once now, 0 is any number.
	Throttle int
	// Wanted is how many replicas a service should have, which it has not while a
	// revision takes the place of another; of another array it is Throttle.
	Wanted int
	// Live tasks run, Queued ones are in the queue of a GPU; Over have ended, Good
	// of them as COMPLETED.
	Live, Queued, Over, Good int
	// First is a copy of the first of its tasks that has not ended or, if all have,
	// the first that is not forgotten.
	First *cluster.Job
}

// Array returns the array with an id, which is that of its first task.
func (f JobsReader) Array(id cluster.JobID) (ArrayInfo, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s := f.st
	a := s.roll.Arrays[id]
	if a == nil {
		return ArrayInfo{}, false
	}
	out := ArrayInfo{ID: id, Spec: a.Spec, Throttle: a.Throttle, Wanted: a.Wanted(), Live: a.Live, Queued: a.Queued, Over: a.Over.N, Good: a.Good.N}
	for k := 0; k < a.Len() && !a.Done(); k++ {
		if !a.Over.Has(k) {
			out.First = s.roll.Job(id + cluster.JobID(k))
			break
		}
	}
	jobs.Merge([]*jobs.Set{&s.roll.Jobs}, id-1, func(j *cluster.Job) bool {
		if out.Owner = j.Owner; out.First == nil {
			out.First = j.Task(j.Ranks()[0].From)
		}
		return false
	})
	return out, true
}

// Revision is an array of a service, with its unended jobs, by id; those that wait
// alike are one.
type Revision struct {
	ArrayInfo
	Jobs []*cluster.Job
	// Load is its load over the last week, nil while unknown.
	Load *service.History
}

// Services returns the unended arrays of services, by id.
func (f JobsReader) Services() []Revision {
	return f.ServicesWhere(func(cluster.UID, string, *cluster.Spec) bool { return true })
}

// ServicesWhere returns those of Services for which keep is true. The others cost
// little.
func (f JobsReader) ServicesWhere(keep func(owner cluster.UID, user string, s *cluster.Spec) bool) []Revision {
	return read(f.held, func(s *State) (out []Revision) {
		for _, id := range s.roll.ServiceIDs {
			a := s.roll.Arrays[id]
			if a.Done() || !keep(a.Owner.UID, a.Owner.Name, a.Spec) {
				continue
			}
			r := Revision{ArrayInfo: ArrayInfo{ID: id, Owner: a.Owner, Spec: a.Spec, Throttle: a.Throttle, Wanted: a.Wanted(), Live: a.Live, Queued: a.Queued, Over: a.Over.N, Good: a.Good.N}, Load: a.Load}
			for _, j := range s.roll.Overlapping(a, a.Spec.Array.Tasks.All()) {
				if !j.State.Terminal() {
					r.Jobs = append(r.Jobs, j)
				}
			}
			out = append(out, r)
		}
		return out
	})
}

// UserServices returns how many unended arrays of services a user has.
func (f JobsReader) UserServices(uid cluster.UID) (n int) {
	return read(f.held, func(s *State) int {
		for _, id := range s.roll.ServiceIDs {
			if a := s.roll.Arrays[id]; a.Owner.UID == uid && !a.Done() {
				n++
			}
		}
		return n
	})
}

// ArrayStates returns how many tasks of an array are in each state. Forgotten ones
// are in none.
func (f JobsReader) ArrayStates(id cluster.JobID) map[cluster.JobState]int {
	return read(f.held, func(s *State) map[cluster.JobState]int {
		a := s.roll.Arrays[id]
		if a == nil {
			return nil
		}
		out := map[cluster.JobState]int{}
		for st, n := range a.ByState {
			if n > 0 {
				out[cluster.JobState(st)] = n
			}
		}
		return out
	})
}

// Barred returns why a waiting job may not be planned at now, however much is free;
// the zero Reason means that it may.
func (f JobsReader) Barred(j *cluster.Job, now cluster.Time) cluster.Reason {
	return read(f.held, func(s *State) cluster.Reason {
		if why := s.roll.BarredBy(j, now); why.Code != "" {
			return why
		}
		return s.roll.Beyond(j, now)
	})
}

// Throttle returns how many tasks of an array may run at once, 0 for any number; of a
// service how many replicas it should have.
func (f JobsReader) Throttle(id cluster.JobID) int {
	return read(f.held, func(s *State) int {
		if a := s.roll.Arrays[id]; a != nil {
			return a.Wanted()
		}
		return 0
	})
}

// Entry returns what Jobs lists under an id: a job, or several tasks of an array,
// the last of which has the id.
func (f JobsReader) Entry(id cluster.JobID) (*cluster.Job, bool) {
	j := read(f.held, func(s *State) *cluster.Job { return s.roll.Jobs.Get(id) })
	return j, j != nil
}
