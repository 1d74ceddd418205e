package jobs

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/blobs"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/intern"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// jobsAtOnce is how many jobs are written at once.
const jobsAtOnce = 1024

// Each sends all records: arrays, then jobs, then queues.
func (r *Roll) Each(w *table.Writer) {
	for _, id := range table.SortedKeys(r.Arrays) {
		w.Send(&logv1.Record{Kind: &logv1.Record_Array{Array: arrayRecord(r.At.Format, r.Arrays[id])}})
	}
	for part := range slices.Chunk(r.Jobs.List(), jobsAtOnce) {
		w.Many(jobRecords(r.At.Format, part))
	}
	r.Queues.Each(w)
}

// Load restores a record that Each sent. Nodes come before it.
func (r *Roll) Load(rec *logv1.Record) error {
	switch k := rec.Kind.(type) {
	case *logv1.Record_Array:
		return r.loadArray(k.Array)
	case *logv1.Record_Job:
		return r.loadJob(k.Job)
	case *logv1.Record_Queue:
		gpu := cluster.GPUID(k.Queue.Gpu)
		intern.Share(r.Texts, &gpu)
		r.Queues.Load(gpu, k.Queue)
	}
	return nil
}

// Settle sorts what does not come in order, and checks that the records of jobs are
// consistent.
func (r *Roll) Settle() error {
	r.Changes, r.Depends.Unsettled = nil, nil
	for st := cluster.JobCompleted; st <= cluster.JobDeadline; st++ {
		for _, j := range r.ByState[st].List() {
			r.Finished = append(r.Finished, j.ID)
		}
	}
	slices.SortFunc(r.Finished, func(a, b cluster.JobID) int {
		if EndedBefore(r.Jobs.Get(a), r.Jobs.Get(b)) {
			return -1
		}
		return 1
	})
	queued := 0
	for gpu, q := range r.Queues.All() { // any fault will do
		for i, w := range q {
			j := r.Jobs.Get(w.Job)
			if j == nil || j.State != cluster.JobQueued || j.Queue != gpu || i > 0 && q[i-1].Compare(w) >= 0 {
				return fmt.Errorf("queue of GPU %q: job %d does not belong at place %d", gpu, w.Job, i+1)
			}
		}
		queued += len(q)
	}
	if n := r.ByState[cluster.JobQueued].Len(); n != queued {
		return fmt.Errorf("%d jobs are queued, the queues hold %d", n, queued)
	}
	if last := r.Jobs.Last(); last >= r.NextID {
		return fmt.Errorf("job %d is not below the next id %d", last, r.NextID)
	}
	return CheckArrays(r)
}

func (r *Roll) loadArray(m *logv1.ArrayRecord) error {
	spec, err := conv.SpecNamed(m.GetSpec(), r.BulkNamed)
	if err != nil {
		return fmt.Errorf("array %d: %w", m.GetId(), err)
	}
	id := cluster.JobID(m.GetId())
	if spec.Array == nil || id == 0 || r.Arrays[id] != nil || m.GetThrottle() > cluster.MaxThrottle {
		return fmt.Errorf("array %d is malformed, or appears twice", id)
	}
	r.Blobs.Apart(r.At.Now, spec)
	a := NewArray(id, spec, conv.EstimatesFromLog(m.GetEstimates()), int(m.GetThrottle()))
	if !a.Over.read(m.GetOver()) || !a.Good.read(m.GetGood()) || a.Good.N > a.Over.N {
		return fmt.Errorf("array %d of %d tasks: what ended is malformed", id, a.Len())
	}
	if a.Load = conv.LoadFromLog(m.GetLoad()); !a.Load.Valid() || a.Load != nil && spec.Service == nil {
		return fmt.Errorf("array %d: the load of its service is malformed", id)
	}
	if a.Scaled = int(m.GetScaled()); a.Scaled > cluster.MaxThrottle+1 || a.Scaled > 0 && spec.Service == nil {
		return fmt.Errorf("array %d: it cannot be scaled to %d replicas", id, a.Scaled-1)
	}
	r.putArray(a)
	return nil
}

// readJob decodes a stored job; what its array has in common is already loaded.
func (r *Roll) readJob(m *logv1.Job) (*cluster.Job, error) {
	if m.GetArrayJob() == 0 {
		return conv.JobNamed(m, r.BulkNamed)
	}
	a := r.Arrays[cluster.JobID(m.GetArrayJob())]
	if a == nil {
		return nil, fmt.Errorf("job %d is of array %d, which is not there", m.GetId(), m.GetArrayJob())
	}
	j, err := conv.TaskFromLog(m, a.Spec, a.Estimates)
	if err != nil {
		return nil, err
	}
	if j.Fold != nil && (len(j.Attempts) > 0 || j.State != cluster.JobPending && !j.State.Terminal()) {
		return nil, fmt.Errorf("job %d folds tasks that are %s", j.ID, j.State)
	}
	return j, nil
}

// CheckArrays reports whether each task of the arrays of a restored state is in its
// place: in exactly one job unless it ended.
func CheckArrays(r *Roll) error {
	for _, id := range r.ArrayIDs {
		a, seen := r.Arrays[id], newRanks(r.Arrays[id].Len())
		n := 0
		for _, j := range r.Overlapping(a, a.Spec.Array.Tasks.All()) {
			for _, sp := range j.Ranks() {
				seen.set(sp)
				n += sp.To - sp.From + 1
			}
			if j.State.Terminal() {
				continue
			}
			for _, sp := range j.Ranks() {
				for k := sp.From; k <= sp.To; k++ {
					if a.Over.Has(k) {
						return fmt.Errorf("task %d of array %d is %s and has ended", a.Spec.Array.Tasks.At(k), id, j.State)
					}
				}
			}
		}
		if n != seen.N {
			return fmt.Errorf("array %d has a task twice", id)
		}
		for k := range a.Len() {
			if !seen.Has(k) && !a.Over.Has(k) {
				return fmt.Errorf("array %d lacks task %d", id, a.Spec.Array.Tasks.At(k))
			}
		}
		if n == 0 {
			return fmt.Errorf("array %d has no jobs", id)
		}
	}
	return nil
}

// Intern makes a new or restored job share what it can, and moves the large parts
// out of its spec; an array's spec is its own.
func (r *Roll) Intern(j *cluster.Job) {
	if !j.InArray() {
		r.Blobs.Apart(r.At.Now, j.Spec)
	}
	r.Texts.Job(j)
}

// BulkNamed returns the environment with its script that a record or a spec names.
func (r *Roll) BulkNamed(sum []byte) cluster.Bulk { return r.Blobs.Named(r.At.Now, sum) }

// jobRecord returns the stored form of a job, arrayRecord that of an array. From
// version 12 on they name their large parts.
func jobRecord(format uint32, j *cluster.Job) *logv1.Job {
	if format < command.BulkVersion {
		return conv.JobToLog(j)
	}
	return conv.JobNaming(j)
}

// jobRecords returns the records of jobs. Those that were submitted alike share what
// takes the most room.
func jobRecords(format uint32, js []*cluster.Job) *table.Records {
	record := func(job func(*cluster.Job) *logv1.Job) func(int) *logv1.Record {
		return func(i int) *logv1.Record { return &logv1.Record{Kind: &logv1.Record_Job{Job: job(js[i])}} }
	}
	rs := &table.Records{N: len(js), Whole: record(func(j *cluster.Job) *logv1.Job { return jobRecord(format, j) })}
	if format >= command.BulkVersion {
		rs.Own, rs.Shared = record(conv.JobAlone), record(conv.JobShared)
		rs.Same = func(i, k int) bool { return conv.ShareStored(js[i], js[k]) }
	}
	return rs
}

func arrayRecord(format uint32, a *Array) *logv1.ArrayRecord {
	spec := conv.SpecNaming
	if format < command.BulkVersion {
		spec = conv.SpecToLog
	}
	return &logv1.ArrayRecord{
		Id: uint64(a.ID), Spec: spec(a.Spec), Estimates: conv.EstimatesToLog(a.Estimates), Throttle: uint32(a.Throttle),
		Over: a.Over.bytes(), Good: a.Good.bytes(), Load: conv.LoadToLog(a.Load), Scaled: uint32(a.Scaled),
	}
}

// Rehash digests again what now has another stored form.
func (r *Roll) Rehash() {
	for _, a := range r.Arrays {
		if a.Spec.Bulk != nil {
			r.Digests.Arrays.Touch(a.ID)
		}
	}
	for j := range withBulk(r) {
		r.Digests.Jobs.Touch(j.ID)
	}
}

// withBulk yields the jobs outside arrays that have a large part.
func withBulk(r *Roll) func(yield func(*cluster.Job) bool) {
	return func(yield func(*cluster.Job) bool) {
		Merge([]*Set{&r.Jobs}, 0, func(j *cluster.Job) bool {
			return j.InArray() || j.Spec.Bulk == nil || yield(j)
		})
	}
}

// Named returns the large parts that records name.
func (r *Roll) Named() map[blobs.Sum]cluster.Bulk {
	all := map[blobs.Sum]cluster.Bulk{}
	if r.At.Format < command.BulkVersion {
		return all
	}
	for _, a := range r.Arrays {
		if b := a.Spec.Bulk; b != nil {
			all[b.Sum()] = b
		}
	}
	for j := range withBulk(r) {
		all[j.Spec.Bulk.Sum()] = j.Spec.Bulk
	}
	return all
}

// loadJob loads a job and takes what it holds. Nodes come before jobs.
func (r *Roll) loadJob(m *logv1.Job) error {
	j, err := r.readJob(m)
	if err != nil {
		return err
	}
	if r.Jobs.Get(j.ID) != nil {
		return fmt.Errorf("job %d appears twice", j.ID)
	}
	r.Intern(j)
	if j.State.Live() {
		a := j.Live()
		if a == nil {
			return fmt.Errorf("job %d is %s without a live attempt", j.ID, j.State)
		}
		if err := CheckGang(j, a); err != nil {
			return err
		}
		for _, b := range a.Held() {
			for _, g := range b.GPUs {
				r.Fleet.Ledger().Remember(b.Node, g.GPU) // it may have vanished under the job
				r.Fleet.Lay(g.GPU, j.ID)
			}
			if !r.Fleet.Ledger().Take(b) {
				return fmt.Errorf("job %d is on node %q, which is not there", j.ID, b.Node)
			}
		}
	}
	r.place(nil, j)
	return nil
}

// CheckGang returns how a stored job and the gang of one of its attempts contradict
// each other.
func CheckGang(j *cluster.Job, a *cluster.Attempt) error {
	g := a.Gang
	if n := a.Width(); n != j.Spec.NodeCount() {
		return fmt.Errorf("job %d asks for %d nodes, attempt %d has %d", j.ID, j.Spec.NodeCount(), a.No, n)
	}
	if g == nil {
		return nil
	}
	live := 0
	for i := range g.Parts {
		if g.Parts[i].State.Live() {
			live++
		}
	}
	if a.State.Live() != (live > 0) || a.State.Live() && a.State != GangState(g) {
		return fmt.Errorf("job %d: attempt %d is %s with %d live parts", j.ID, a.No, a.State, live)
	}
	return nil
}

// GangState returns the state of an attempt with some live part: it runs when all
// do. If nodes joined or left, it is the state of the parts that were there all the
// time, and it ends with the first of them.
func GangState(g *cluster.Gang) cluster.JobState {
	var n [cluster.JobUnreachable + 1]int
	live, changed := 0, g.Changed()
	for i := range g.Parts {
		p := &g.Parts[i]
		if p.Left > 0 || p.Token > 0 && p.State != cluster.JobUnreachable {
			continue
		}
		if st := p.State; st.Live() {
			n[st]++
			live++
		}
	}
	switch {
	case n[cluster.JobUnreachable] > 0:
		return cluster.JobUnreachable
	case g.Stopping() || n[cluster.JobCompleting] == live || changed && (!g.Parts[0].State.Live() || g.Parts[0].State == cluster.JobCompleting):
		return cluster.JobCompleting
	case n[cluster.JobStarting] > 0:
		return cluster.JobStarting
	}
	return cluster.JobRunning
}
