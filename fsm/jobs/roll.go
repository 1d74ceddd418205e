package jobs

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/accounts"
	"github.com/berth-scheduler/berth/fsm/blobs"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/intern"
	"github.com/berth-scheduler/berth/fsm/nodes"
	"github.com/berth-scheduler/berth/fsm/notices"
	"github.com/berth-scheduler/berth/fsm/table"
)

// Beside are the other parts of the state that the roll informs of its jobs, or
// asks about them.
type Beside struct {
	At     *command.Entry
	Fleet  *nodes.Fleet
	Books  *accounts.Books
	Blobs  *blobs.Store
	Outbox *notices.Outbox
	Texts  *intern.Texts
}

// Roll holds all jobs, in any state, and their arrays. Jobs in it are immutable: a
// change replaces the value. Others may read its fields, and change it by its
// methods only.
type Roll struct {
	Beside
	Jobs   Set
	Arrays map[cluster.JobID]*Array
	Queues Queues
	NextID cluster.JobID
	Keep   int // number of finished jobs beyond which the oldest are forgotten

	// The rest is derived from the above and never stored.
	States
	ArrayIDs   []cluster.JobID         // sorted
	ServiceIDs []cluster.JobID         // of arrays that are services, sorted
	Finished   []cluster.JobID         // ordered by end, oldest first
	OnNode     map[cluster.NodeID]*Set // with a live attempt there
	Digests    struct{ Jobs, Arrays *table.Digests[cluster.JobID] }
	Depends    *Depends
	Changes    []command.Change // of the entry being applied
	// Forgot are the finished jobs that the entry being applied forgot, and
	// EndedNow means that it ended some, for the feed of ended jobs.
	Forgot   []*cluster.Job
	EndedNow bool
}

// New returns an empty roll.
func New(h *table.Hash, beside Beside) *Roll {
	r := &Roll{Beside: beside, Arrays: map[cluster.JobID]*Array{}, Queues: NewQueues(h), NextID: 1, OnNode: map[cluster.NodeID]*Set{}}
	r.Depends = &Depends{roll: r, Dependents: map[Awaited][]cluster.JobID{}, Names: map[Name]*Namesakes{}}
	number := func(id cluster.JobID) []byte { return h.Number(uint64(id)) }
	r.Digests.Jobs = table.OfValues(h, table.Job, number, func(id cluster.JobID) func() proto.Message {
		j, format := r.Jobs.Get(id), r.At.Format
		if j == nil {
			return nil
		}
		return func() proto.Message { return jobRecord(format, j) }
	})
	r.Digests.Arrays = table.NewDigests(h, table.Array, number, func(id cluster.JobID) proto.Message {
		if a := r.Arrays[id]; a != nil {
			return arrayRecord(r.At.Format, a)
		}
		return nil
	})
	return r
}

// View returns a copy for writing a snapshot; it does not change.
func (r *Roll) View() *Roll {
	at, arrays := *r.At, make(map[cluster.JobID]*Array, len(r.Arrays))
	for id, a := range r.Arrays {
		arrays[id] = a.Clone()
	}
	return &Roll{Beside: Beside{At: &at}, Jobs: r.Jobs.Clone(), Arrays: arrays, Queues: r.Queues.View(), NextID: r.NextID}
}

// On returns the jobs with a live attempt on a node.
func (r *Roll) On(id cluster.NodeID) *Set {
	if set := r.OnNode[id]; set != nil {
		return set
	}
	return &Set{}
}

// Put replaces old (nil for a new job) by j, as of the entry, and updates all
// indexes. It does not touch the ledger.
func (r *Roll) Put(old, j *cluster.Job) {
	j.Revision = r.At.Index
	if r.At.Version >= command.ChangeVersion && j.State.Terminal() && !j.InArray() {
		j.Spec = j.Spec.Lean() // it will not run again
	}
	if j.State.Waiting() && j.Spec.Elastic() {
		least, _, _ := j.Spec.Sizes()
		j.Spec = j.Spec.Sized(least)
	}
	r.place(old, j)
	if r.Outbox.Wants(j) && r.At.Version >= command.TellVersion {
		r.Outbox.Tell(*r.At, old, j, r.farOf(j))
	}
	if j.State.Terminal() && (old == nil || !old.State.Terminal()) {
		r.addFinished(j)
		if r.At.Version < command.ArrayVersion { // see applyEntry
			r.Forget()
		}
	}
}

// place does what Put does except for the order of the finished.
func (r *Roll) place(old, j *cluster.Job) {
	set := r.setOf(j)
	if old != nil {
		if was := r.InSet(old); was != set {
			was.Remove(old.ID)
		}
	}
	if old != nil && old.State.Live() {
		for rank, b := range old.Last().Held() {
			if !j.State.Live() || !j.Last().PartLive(rank) {
				r.OnNode[b.Node].Remove(old.ID)
			}
		}
	}
	if j.ArrayJobID != 0 {
		r.indexArray(old, j)
	}
	r.Depends.index(old, j)
	r.Books.Count(old, j)
	if !j.InArray() {
		r.Blobs.Weigh(old, j)
	}
	if old != nil && old.Fold != nil {
		r.Folded[old.State] -= len1(old)
	}
	if j.Fold != nil {
		r.Folded[j.State] += len1(j)
	}
	r.Jobs.Put(j)
	set.Put(j)
	r.Digests.Jobs.Touch(j.ID)
	if j.State.Live() {
		for _, b := range j.Last().Held() {
			if r.OnNode[b.Node] == nil {
				r.OnNode[b.Node] = &Set{}
			}
			r.OnNode[b.Node].Put(j)
		}
	}
}

// addFinished keeps the finished jobs ordered by the entry that ended them and then
// by id, as on a restored replica.
func (r *Roll) addFinished(j *cluster.Job) {
	i := len(r.Finished)
	for i > 0 && EndedBefore(j, r.Jobs.Get(r.Finished[i-1])) {
		i--
	}
	r.Finished = slices.Insert(r.Finished, i, j.ID)
	r.EndedNow = true
}

// EndedBefore orders finished jobs: nothing changes them after their end, so their
// revision is its index.
func EndedBefore(a, b *cluster.Job) bool {
	return a.Revision < b.Revision || a.Revision == b.Revision && a.ID < b.ID
}

// Forget forgets the oldest finished jobs beyond the configured bound.
func (r *Roll) Forget() {
	for len(r.Finished) > r.Keep {
		id := r.Finished[0]
		r.Finished = r.Finished[1:]
		j := r.Jobs.Get(id)
		r.Forgot = append(r.Forgot, j)
		r.ByState[j.State].Remove(id)
		r.forgetTask(j)
		r.Jobs.Remove(id)
		r.Digests.Jobs.Touch(id)
	}
}

// Change is Put that reports the change c of j.
func (r *Roll) Change(old, j *cluster.Job, c command.Change) {
	r.Put(old, j)
	c.Job = j.ID
	r.Changed(c)
}

// Changed records a change.
func (r *Roll) Changed(c command.Change) { r.Changes = append(r.Changes, c) }

// Dissolve returns all jobs in a GPU's queue to PENDING.
func (r *Roll) Dissolve(gpu cluster.GPUID, why cluster.ReasonCode) {
	q := r.Queues.Of(gpu)
	if len(q) == 0 {
		return
	}
	for _, w := range q {
		old := r.Jobs.Get(w.Job)
		j := old.Clone()
		j.State, j.Reason, j.Queue, j.EstStart = cluster.JobPending, cluster.Reason{Code: why}, "", 0
		r.Change(old, j, command.Change{New: true})
	}
	r.Queues.Set(gpu, nil)
}

// WaitAgain makes j, a copy that is to be stored, wait from now, with the reason
// that bars it, if any.
func (r *Roll) WaitAgain(j *cluster.Job) {
	j.Eligible = max(r.At.Now, j.Spec.Begin, j.DependAt)
	if j.Reason = j.Barred(r.At.Now); j.Reason.Code == "" {
		j.Reason = r.Fleet.WaitsFor(j.Spec)
	}
}

// setOf returns the set by state for j, which is about to be stored. Barred pending
// jobs are kept apart: they may be many, and no pass should look at them.
func (r *Roll) setOf(j *cluster.Job) *Set {
	if j.State == cluster.JobPending && (j.Barred(r.At.Now).Code != "" || r.throttled(j)) {
		return &r.Barred
	}
	return &r.ByState[j.State]
}

// throttled reports whether the number of running tasks of the array of j is
// limited.
func (r *Roll) throttled(j *cluster.Job) bool {
	return j.ArrayJobID != 0 && r.Arrays[j.ArrayJobID].limited()
}

// BarredBy returns why a waiting job may not be planned at now: what Barred
// returns, or that as many tasks of its array run as allowed.
func (r *Roll) BarredBy(j *cluster.Job, now cluster.Time) cluster.Reason {
	if why := j.Barred(now); why.Code != "" {
		return why
	}
	if a := r.Arrays[j.ArrayJobID]; a != nil && a.limited() {
		if a.standby(j) {
			return cluster.Reason{Code: cluster.ReasonStandby}
		}
		if j.State == cluster.JobQueued && a.Live < a.Throttle || a.Room() > 0 {
			return cluster.Reason{}
		}
		if j.Spec.Service != nil {
			return cluster.Reason{Code: cluster.ReasonStandby}
		}
		return cluster.Reason{Code: cluster.ReasonArrayLimit}
	}
	return cluster.Reason{}
}

// Beyond returns why j is no part of plans, as things are at now, although fewer tasks of
// its array run than may: enough others by a smaller id are to run before it, whatever
// those wait for. Of a service that is so for replicas that never ran, of another array
// for tasks that no plan considered.
func (r *Roll) Beyond(j *cluster.Job, now cluster.Time) (why cluster.Reason) {
	a := r.Arrays[j.ArrayJobID]
	if a == nil || !a.limited() || j.State != cluster.JobPending {
		return why
	}
	before, room, replica := 0, a.Room(), a.Spec.Service != nil
	switch {
	case replica && len(j.Attempts) == 0:
		why.Code, room = cluster.ReasonStandby, min(room, a.Throttle-a.Begun)
	case !replica && j.Reason.Code == cluster.ReasonUnconfirmed:
		why.Code = cluster.ReasonArrayLimit
	default:
		return why
	}
	Merge([]*Set{&r.Barred}, a.ID-1, func(o *cluster.Job) bool {
		if o.ID >= j.ID || before >= room {
			return false
		}
		if o.ArrayJobID == a.ID && (!replica || len(o.Attempts) == 0) && o.Barred(now).Code == "" {
			before += o.Count()
		}
		return true
	})
	if before < room {
		return cluster.Reason{}
	}
	return why
}

// Announce queues a notice of an event of j for everyone who wants it.
func (r *Roll) Announce(j *cluster.Job, ev cluster.MailEvents, text string) {
	r.Outbox.Announce(*r.At, j, r.farOf(j), ev, text)
}

// farOf returns the progress of the array of j, nil if it is in none.
func (r *Roll) farOf(j *cluster.Job) *notices.Array {
	a := r.Arrays[j.ArrayJobID]
	if a == nil {
		return nil
	}
	return &notices.Array{Tasks: a.Len(), Over: a.Over.N, Good: a.Good.N, Begun: a.Begun}
}

// CancelReason returns why a cancelled job ended.
func CancelReason(j *cluster.Job) cluster.Reason {
	if a := j.Last(); a != nil && a.Idle != nil && a.Idle.Stage == cluster.IdleEnded {
		return cluster.Reason{Code: cluster.ReasonIdle, Detail: "ended by its partition's policy: its GPUs stood idle"}
	}
	if j.Cancel != nil && j.Cancel.Why != "" && j.Spec.Service != nil {
		return cluster.Reason{Code: cluster.ReasonReplaced, Detail: j.Cancel.Why}
	}
	if j.Cancel != nil && j.Cancel.Why != "" {
		return cluster.Reason{Code: cluster.ReasonStudy, Detail: j.Cancel.Why}
	}
	if j.Cancel != nil && j.Cancel.Admin {
		return cluster.Reason{Code: cluster.ReasonByAdmin}
	}
	return cluster.Reason{Code: cluster.ReasonByUser}
}

// Expired reports whether the deadline of a job has passed.
func Expired(j *cluster.Job, now cluster.Time) bool {
	return j.Spec.Deadline > 0 && j.Spec.Deadline <= now
}

// EndLate ends j, a changed copy of old that would wait although its deadline has
// passed.
func EndLate(r *Roll, old, j *cluster.Job, freed []cluster.GPUID) {
	j.Hold = nil
	j.State, j.Reason = cluster.JobDeadline, cluster.Reason{Code: cluster.ReasonDeadline, Detail: "its deadline passed before it could start"}
	r.Change(old, j, command.Change{Released: freed})
}
