package fsm

import (
	"maps"
	"slices"
	"sort"

	"github.com/berth-scheduler/berth/cluster"
)

// Change says that a job or a node changed at an index.
type Change struct {
	Index     uint64
	Job       cluster.JobID  // or 0
	Node      cluster.NodeID // or ""
	Partition string         // or ""
	// Reservation is the name of one that was changed, or "".
	Reservation string
	// New tells that the job began to wait.
	New bool
	// Released are the GPUs on which something was freed.
	Released []cluster.GPUID
}

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
		// Never cut an entry in two.
		for drop < len(r.items) && r.items[drop].Index == r.from {
			drop++
		}
		r.items = slices.Clone(r.items[drop:])
	}
}

// Changes returns what changed after an index, up to upTo. ok is false when
// the ring no longer holds all of it.
func (f *FSM) Changes(after uint64) (cs []Change, upTo uint64, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if after < f.ring.from {
		return nil, f.st.index, false
	}
	i := sort.Search(len(f.ring.items), func(i int) bool { return f.ring.items[i].Index > after })
	return slices.Clone(f.ring.items[i:]), f.st.index, true
}

// Index returns the index of the last applied entry.
func (f *FSM) Index() uint64 { return read(f, func(s *State) uint64 { return s.index }) }

// Term returns the term of the last applied entry.
func (f *FSM) Term() uint64 { return read(f, func(s *State) uint64 { return s.term }) }

// EntryVersion returns the highest version of an entry in the log so far: every
// coordinator reads it.
func (f *FSM) EntryVersion() uint32 {
	return read(f, func(s *State) uint32 { return max(1, s.format) })
}

// Now returns the leader's clock as of the last entry; it never goes back.
func (f *FSM) Now() cluster.Time { return read(f, func(s *State) cluster.Time { return s.now }) }

// NextJobID returns the least id that the next job may have.
func (f *FSM) NextJobID() cluster.JobID {
	return read(f, func(s *State) cluster.JobID { return s.nextJob })
}

func read[T any](f *FSM, get func(*State) T) T {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return get(f.st)
}

// Read calls fn with the state under the read lock. fn keeps nothing but
// immutable values, and calls no method of the FSM.
func (f *FSM) Read(fn func(*State)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	fn(f.st)
}

// Index returns the index of the last applied entry.
func (s *State) Index() uint64 { return s.index }

// Now returns the leader's clock as of the last entry.
func (s *State) Now() cluster.Time { return s.now }

// Ledger returns the live ledger: not to be kept, not to be changed.
func (s *State) Ledger() *cluster.Ledger { return s.ledger }

// Job returns a job.
func (s *State) Job(id cluster.JobID) (*cluster.Job, bool) {
	j := s.job(id)
	return j, j != nil
}

// Node returns a node.
func (s *State) Node(id cluster.NodeID) (*cluster.Node, bool) {
	n, ok := s.nodes[id]
	return n, ok
}

// Nodes returns all nodes by id.
func (s *State) Nodes() []*cluster.Node { return s.sortedNodes() }

// OnGPU returns the jobs that lie on a GPU, by id.
func (s *State) OnGPU(g cluster.GPUID) []cluster.JobID { return s.gpuJobs[g] }

// Queue returns who waits for a GPU, in order.
func (s *State) Queue(g cluster.GPUID) []cluster.Waiter { return s.queues[g] }

// Job returns a job.
func (f *FSM) Job(id cluster.JobID) (*cluster.Job, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.st.Job(id)
}

// Node returns a node.
func (f *FSM) Node(id cluster.NodeID) (*cluster.Node, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.st.Node(id)
}

// Nodes returns all nodes by id.
func (f *FSM) Nodes() []*cluster.Node { return read(f, (*State).sortedNodes) }

func (s *State) sortedNodes() []*cluster.Node {
	out := make([]*cluster.Node, 0, len(s.nodes))
	for _, id := range sortedKeys(s.nodes) {
		out = append(out, s.nodes[id])
	}
	return out
}

// NodeJobs returns the jobs with a live attempt on a node, by id.
func (f *FSM) NodeJobs(id cluster.NodeID) []*cluster.Job {
	return read(f, func(s *State) []*cluster.Job { return s.liveOn(id) })
}

// GPUJobs returns the jobs that lie on a GPU, by id.
func (f *FSM) GPUJobs(g cluster.GPUID) []cluster.JobID {
	return read(f, func(s *State) []cluster.JobID { return s.gpuJobs[g] })
}

// Queue returns who waits for a GPU, in order.
func (f *FSM) Queue(g cluster.GPUID) []cluster.Waiter {
	return read(f, func(s *State) []cluster.Waiter { return s.queues[g] })
}

// QueuePosition returns the queue that a job is in and its place there from
// 1, or nothing.
func (f *FSM) QueuePosition(id cluster.JobID) (cluster.GPUID, int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	j := f.st.jobs.get(id) // nobody in a queue is folded
	if j == nil || j.Queue == "" {
		return "", 0
	}
	i := slices.IndexFunc(f.st.queues[j.Queue], func(w cluster.Waiter) bool { return w.Job == id })
	return j.Queue, i + 1
}

// Counts returns how many jobs are in each state.
func (f *FSM) Counts() map[cluster.JobState]int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	out := make(map[cluster.JobState]int, len(f.st.byState))
	for st := range f.st.byState {
		n := f.st.byState[st].n + f.st.folded[st]
		if cluster.JobState(st) == cluster.JobPending {
			n += f.st.barred.n
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
	Limit  int
	States []cluster.JobState
	UIDs   []cluster.UID
	Keep   func(*cluster.Job) bool // called under the read lock
}

// Jobs returns jobs by id, and the index as of which they are.
func (f *FSM) Jobs(q Query) ([]*cluster.Job, uint64) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	sets := []*jobSet{&f.st.jobs}
	if len(q.States) > 0 {
		sets = f.st.sets(q.States)
	}
	var out []*cluster.Job
	merge(sets, q.After, func(j *cluster.Job) bool {
		if (len(q.UIDs) == 0 || slices.Contains(q.UIDs, j.Owner.UID)) && (q.Keep == nil || q.Keep(j)) {
			out = append(out, j)
		}
		return q.Limit <= 0 || len(out) < q.Limit
	})
	return out, f.st.index
}

// sets returns the jobs in each of the given states; states may repeat.
func (s *State) sets(states []cluster.JobState) []*jobSet {
	var seen [len(s.byState)]bool
	var out []*jobSet
	for _, st := range states {
		if st.Valid() && !seen[st] {
			seen[st] = true
			out = append(out, &s.byState[st])
			if st == cluster.JobPending && s.barred.n > 0 {
				out = append(out, &s.barred)
			}
		}
	}
	return out
}

// inStates returns the jobs in the given states by id.
func (s *State) inStates(states ...cluster.JobState) []*cluster.Job {
	return inSets(s.sets(states)...)
}

// inSets returns the jobs of disjoint sets by id.
func inSets(sets ...*jobSet) []*cluster.Job {
	n := 0
	for _, set := range sets {
		n += set.n
	}
	out := make([]*cluster.Job, 0, n)
	merge(sets, 0, func(j *cluster.Job) bool {
		out = append(out, j)
		return true
	})
	return out
}

// SchedulerSnapshot returns an immutable view for the scheduler. Jobs that may
// not start, however much is free, are not part of it.
func (f *FSM) SchedulerSnapshot() *cluster.Snapshot {
	snap, _ := f.SchedulerSnapshotAt(0)
	return snap
}

// SchedulerSnapshotAt is the view at a time, when that is later than the last
// entry, and the least time after it at which another job may start; 0 when
// none waits for its time alone.
func (f *FSM) SchedulerSnapshotAt(now cluster.Time) (*cluster.Snapshot, cluster.Time) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s := f.st
	now = max(now, s.now)
	waiting, more, next := s.startable(now)
	if at := s.reserved.Next(now); at != 0 && (next == 0 || at < next) {
		next = at
	}
	return &cluster.Snapshot{
		More:  more,
		Index: s.index, Now: now, Nodes: s.sortedNodes(), Ledger: s.ledger.Clone(), Queues: maps.Clone(s.queues),
		Partitions: s.Partitions(), Standing: s.standing.forPass(), Limits: s.limits(now), Reservations: s.reserved,
		Waiting: waiting,
		Running: s.inStates(cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable),
	}, next
}

// Config returns the cluster's identity; ok is false in a new log.
func (f *FSM) Config() (clusterID, name string, keepFinished int, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	c := f.st.config
	return c.GetClusterId(), c.GetName(), int(c.GetKeepFinished()), c != nil
}

// Denied reports whether an identity was removed from the cluster.
func (f *FSM) Denied(role, id string) bool {
	return read(f, func(s *State) bool { return s.isDenied(role, id) })
}

// DeniedIdentity is one that may not take part in the cluster.
type DeniedIdentity struct {
	Role, ID string
	At       cluster.Time
}

// AllDenied returns every identity that is denied, by role and id.
func (f *FSM) AllDenied() []DeniedIdentity {
	return read(f, func(s *State) []DeniedIdentity {
		out := make([]DeniedIdentity, 0, len(s.denied))
		for _, who := range s.sortedDenied() {
			out = append(out, DeniedIdentity{Role: who.role, ID: who.id, At: s.denied[who]})
		}
		return out
	})
}

// Weights returns the predictor's published weights; version 0 is none.
func (f *FSM) Weights() (version uint64, blob []byte) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.st.weights.GetVersion(), f.st.weights.GetBlob()
}

// Samples returns what finished attempts taught, oldest first.
func (f *FSM) Samples() []Sample {
	return read(f, func(s *State) []Sample { return slices.Clone(s.samples) })
}

// NewestSamples returns at most n of the newest samples, oldest first.
func (f *FSM) NewestSamples(n int) []Sample {
	return read(f, func(s *State) []Sample { return slices.Clone(s.samples[max(0, len(s.samples)-n):]) })
}

// SampleCount returns how many samples are held.
func (f *FSM) SampleCount() int { return read(f, func(s *State) int { return len(s.samples) }) }

// SampleSeq returns the number of the newest sample.
func (f *FSM) SampleSeq() uint64 { return read(f, func(s *State) uint64 { return s.sampleNo }) }

// Hash returns the canonical hash of the state: equal on replicas that
// applied the same log.
func (f *FSM) Hash() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.st.hashNow()
}

// LastCheckpoint returns the newest hash that was taken on the way, and its
// index; 0 is none since the start.
func (f *FSM) LastCheckpoint() (index uint64, hash []byte) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if n := len(f.hashes); n > 0 {
		return f.hashes[n-1].index, f.hashes[n-1].hash
	}
	return 0, nil
}

// Request returns the jobs that an earlier submit with this request id was
// answered with; ok is false when there was none, it is forgotten, or its body
// was another one, which Apply refuses.
func (f *FSM) Request(uid cluster.UID, id string, bodyHash []byte) (jobs []cluster.JobID, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	r, ok := f.st.requests[keyOf(uid, id)]
	if !ok || len(bodyHash) < len(r.bodyHash) || r.bodyHash != [16]byte(bodyHash[:16]) {
		return nil, false
	}
	return r.jobs(), true
}
