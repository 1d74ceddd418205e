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

// Beside are the machines that the roll tells of its jobs, or asks about them.
type Beside struct {
	At     *command.Entry
	Fleet  *nodes.Fleet
	Books  *accounts.Books
	Blobs  *blobs.Store
	Outbox *notices.Outbox
	Texts  *intern.Texts
}

// Roll is the jobs that there are, in whatever state, and their arrays. Jobs in it are
// immutable: a change puts a new value in the place of the old. Others read what it
// has, and change it by its methods alone.
type Roll struct {
	Beside
	Jobs   Set
	Arrays map[cluster.JobID]*Array
	Queues Queues
	NextID cluster.JobID
	Keep   int // finished jobs beyond which the oldest are forgotten

	// What follows is made from the above and never stored.
	States
	ArrayIDs   []cluster.JobID         // sorted
	ServiceIDs []cluster.JobID         // of arrays that are services, sorted
	Finished   []cluster.JobID         // in order of ending, oldest first
	OnNode     map[cluster.NodeID]*Set // with a live attempt there
	Digests    struct{ Jobs, Arrays *table.Digests[cluster.JobID] }
	Depends    *Depends
	Changes    []command.Change // of the entry being applied
	// Forgot are the finished jobs that the entry being applied forgot, and EndedNow
	// tells that it ended some, for the feed of ended jobs.
	Forgot   []*cluster.Job
	EndedNow bool
}

// New returns a roll without jobs.
func New(h *table.Hash, beside Beside) *Roll {
	r := &Roll{Beside: beside, Arrays: map[cluster.JobID]*Array{}, Queues: NewQueues(h), NextID: 1, OnNode: map[cluster.NodeID]*Set{}}
	r.Depends = &Depends{roll: r, Dependents: map[Awaited][]cluster.JobID{}, Names: map[Name]*Namesakes{}}
	number := func(id cluster.JobID) []byte { return h.Number(uint64(id)) }
	r.Digests.Jobs = table.NewDigests(h, table.Job, number, func(id cluster.JobID) proto.Message {
		if j := r.Jobs.Get(id); j != nil {
			return jobRecord(r.At.Format, j)
		}
		return nil
	})
	r.Digests.Arrays = table.NewDigests(h, table.Array, number, func(id cluster.JobID) proto.Message {
		if a := r.Arrays[id]; a != nil {
			return arrayRecord(r.At.Format, a)
		}
		return nil
	})
	return r
}

// View is a copy to write from, which stays as it is.
func (r *Roll) View() *Roll {
	at, arrays := *r.At, make(map[cluster.JobID]*Array, len(r.Arrays))
	for id, a := range r.Arrays {
		arrays[id] = a.Clone()
	}
	return &Roll{Beside: Beside{At: &at}, Jobs: r.Jobs.Clone(), Arrays: arrays, Queues: r.Queues.View(), NextID: r.NextID}
}

// On are the jobs with a live attempt on a node.
func (r *Roll) On(id cluster.NodeID) *Set {
	if set := r.OnNode[id]; set != nil {
		return set
	}
	return &Set{}
}

// Put puts j in the place of old (nil for a new job), as of the entry, and keeps every
// index true. It does not touch the ledger.
func (r *Roll) Put(old, j *cluster.Job) {
	j.Revision = r.At.Index
	if r.At.Version >= command.ChangeVersion && j.State.Terminal() && !j.InArray() {
		j.Spec = j.Spec.Lean() // nobody runs it again
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

// place does what Put does but for the order of the finished.
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

// addFinished keeps the finished jobs in order of the entry that ended them
// and then of their ids, which a restored replica finds the same.
func (r *Roll) addFinished(j *cluster.Job) {
	i := len(r.Finished)
	for i > 0 && EndedBefore(j, r.Jobs.Get(r.Finished[i-1])) {
		i--
	}
	r.Finished = slices.Insert(r.Finished, i, j.ID)
	r.EndedNow = true
}

// EndedBefore orders finished jobs: nothing changes them after their end, so
// that their revision is its index.
func EndedBefore(a, b *cluster.Job) bool {
	return a.Revision < b.Revision || a.Revision == b.Revision && a.ID < b.ID
}

// Forget keeps the number of finished jobs within the configured bound.
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

// Change does so, and says that j changed, with what else there is to say of it.
func (r *Roll) Change(old, j *cluster.Job, c command.Change) {
	r.Put(old, j)
	c.Job = j.ID
	r.Changed(c)
}

// Changed says that something changed.
func (r *Roll) Changed(c command.Change) { r.Changes = append(r.Changes, c) }

// Dissolve sends everybody in a GPU's queue back to PENDING.
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

// WaitAgain makes j, a copy that is to be put, wait from now: it says for what,
// if something bars it.
func (r *Roll) WaitAgain(j *cluster.Job) {
	j.Eligible = max(r.At.Now, j.Spec.Begin, j.DependAt)
	if j.Reason = j.Barred(r.At.Now); j.Reason.Code == "" {
		j.Reason = r.Fleet.WaitsFor(j.Spec)
	}
}

// setOf is where j, which is about to be put, belongs among the jobs by state.
// Pending jobs that something bars stand apart: they may be many, and no pass
// should look at them.
func (r *Roll) setOf(j *cluster.Job) *Set {
	if j.State == cluster.JobPending && (j.Barred(r.At.Now).Code != "" || r.throttled(j)) {
		return &r.Barred
	}
	return &r.ByState[j.State]
}

// throttled reports whether only so many tasks of the array of j may run at once.
func (r *Roll) throttled(j *cluster.Job) bool {
	return j.ArrayJobID != 0 && r.Arrays[j.ArrayJobID].limited()
}

// BarredBy is why a waiting job may not be planned at a time: what Barred says,
// or that as many tasks of its array run as may.
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

// Announce keeps a notice of an event of j for each of those who want it.
func (r *Roll) Announce(j *cluster.Job, ev cluster.MailEvents, text string) {
	r.Outbox.Announce(*r.At, j, r.farOf(j), ev, text)
}

// farOf is how far the array of j has come, nil when it is of none.
func (r *Roll) farOf(j *cluster.Job) *notices.Array {
	a := r.Arrays[j.ArrayJobID]
	if a == nil {
		return nil
	}
	return &notices.Array{Tasks: a.Len(), Over: a.Over.N, Good: a.Good.N, Begun: a.Begun}
}

// CancelReason is why a job ended that somebody cancelled.
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

// EndLate ends j, a changed copy of old that would wait and whose deadline has
// passed.
func EndLate(r *Roll, old, j *cluster.Job, freed []cluster.GPUID) {
	j.Hold = nil
	j.State, j.Reason = cluster.JobDeadline, cluster.Reason{Code: cluster.ReasonDeadline, Detail: "its deadline passed before it could start"}
	r.Change(old, j, command.Change{Released: freed})
}
