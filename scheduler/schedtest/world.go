package schedtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// World is a cluster in memory: it applies plans with the checks of the state
// machine, ends jobs when their time has come, and returns snapshots. It is also
// the View of the fast path. It is not safe for concurrent use.
type World struct {
	Clock  cluster.Time
	Nodes  []*cluster.Node
	Jobs   map[cluster.JobID]*cluster.Job
	Queues map[cluster.GPUID][]dispatch.Waiter
	Ledg   *dispatch.Ledger
	// Know is what was learned of jobs that share a GPU.
	Know *dispatch.Interference
	// Runs returns how long a job really runs; nil means as long as declared or
	// predicted.
	Runs func(*cluster.Job) time.Duration
	// Rejected holds the parts of plans that were refused, Overtakes counts the
	// starts that overtook others.
	Rejected  []dispatch.Rejection
	Overtakes int
	index     uint64
	ends      map[cluster.JobID]cluster.Time
}

// NewWorld returns a world of nodes with the given jobs waiting. Jobs that are
// already in a queue (Job.Queue) are put there in order of id.
func NewWorld(nodes []*cluster.Node, jobs ...*cluster.Job) *World {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b *cluster.Node) int { return cmp.Compare(a.ID, b.ID) })
	w := &World{
		Clock: Now, Nodes: nodes, Jobs: map[cluster.JobID]*cluster.Job{}, Queues: map[cluster.GPUID][]dispatch.Waiter{},
		Ledg: dispatch.NewLedger(nodes), ends: map[cluster.JobID]cluster.Time{},
	}
	for _, j := range jobs {
		w.Submit(j)
	}
	return w
}

// Submit adds a waiting job.
func (w *World) Submit(j *cluster.Job) {
	w.index++
	w.Jobs[j.ID] = j
	if j.Queue != "" {
		j.State = cluster.JobQueued
		w.Queues[j.Queue] = append(slices.Clone(w.Queues[j.Queue]), dispatch.Waiter{Job: j.ID, Rank: w.rank(j)})
	}
}

// rank is the place at the end of a queue, as if the job had joined it when it
// began to wait, and was neither short nor long then. A job that waited for hours
// is old.
func (w *World) rank(j *cluster.Job) int64 {
	rank := int64(j.Eligible)
	if w.Clock.Sub(j.Eligible) < 4*time.Hour {
		rank += middleRank
	}
	if q := w.Queues[j.Queue]; len(q) > 0 {
		rank = max(q[len(q)-1].Rank+1, rank)
	}
	return rank
}

// middleRank is where such ranks begin; see scheduler.RankIsOld.
const middleRank = 3 << 58

// Snapshot returns the scheduler's view.
func (w *World) Snapshot() *dispatch.Snapshot {
	s := &dispatch.Snapshot{Index: w.index, Now: w.Clock, Nodes: w.Nodes, Ledger: w.Ledg.Clone(), Queues: maps.Clone(w.Queues), Interference: w.Know}
	for _, id := range slices.Sorted(maps.Keys(w.Jobs)) {
		switch j := w.Jobs[id]; {
		case j.State.Waiting():
			s.Waiting = append(s.Waiting, j)
		case j.Live() != nil:
			s.Running = append(s.Running, j)
		}
	}
	return s
}

// Now, Index, Ledger, Job, Node and Queue make a World a scheduler.View; with OnGPU
// and Interference it is a scheduler.CompanyView.
func (w *World) Now() cluster.Time { return w.Clock }

// Index returns the number of changes so far.
func (w *World) Index() uint64 { return w.index }

// Ledger returns the live ledger.
func (w *World) Ledger() *dispatch.Ledger { return w.Ledg }

// Job returns a job.
func (w *World) Job(id cluster.JobID) (*cluster.Job, bool) { j, ok := w.Jobs[id]; return j, ok }

// Node returns a node.
func (w *World) Node(id cluster.NodeID) (*cluster.Node, bool) {
	for _, n := range w.Nodes {
		if n.ID == id {
			return n, true
		}
	}
	return nil, false
}

// Interference returns what was learned.
func (w *World) Interference() *dispatch.Interference { return w.Know }

// OnGPU returns the jobs on a GPU, by id.
func (w *World) OnGPU(g cluster.GPUID) []cluster.JobID {
	var on []cluster.JobID
	for _, id := range slices.Sorted(maps.Keys(w.Jobs)) {
		if a := w.Jobs[id].Live(); a != nil && slices.ContainsFunc(a.HeldGPUs(), func(s cluster.GPUShare) bool { return s.GPU == g }) {
			on = append(on, id)
		}
	}
	return on
}

// Queue returns the jobs waiting for a GPU.
func (w *World) Queue(g cluster.GPUID) []dispatch.Waiter { return w.Queues[g] }

// Apply commits a plan: starts, then moves, each checked by itself.
func (w *World) Apply(p *dispatch.Plan) {
	w.index++
	for i := range p.Starts {
		st := &p.Starts[i]
		if why := w.conflict(st); why != "" {
			w.Rejected = append(w.Rejected, dispatch.Rejection{Job: st.Job, Reason: cluster.Reason{Code: cluster.ReasonStale, Detail: why}})
			continue
		}
		w.start(st)
	}
	for i := range p.Moves {
		w.move(&p.Moves[i])
	}
}

func (w *World) conflict(st *dispatch.Start) string {
	j := w.Jobs[st.Job]
	if j == nil || !j.State.Waiting() || int(st.Attempt) != len(j.Attempts)+1 {
		return fmt.Sprintf("job %d does not wait for attempt %d", st.Job, st.Attempt)
	}
	types, nodes := map[string]bool{}, map[cluster.NodeID]bool{}
	for _, b := range st.Berths() {
		if n := len(b.GPUs); n != j.Spec.GPUs && (n > 0 || !j.Spec.OrCPU) && (n < j.Spec.GPUs || !j.Spec.WholeNodes()) || j.Spec.Node != "" && j.Spec.Node != b.Node {
			return fmt.Sprintf("job %d: the berth is not what was asked for", st.Job)
		}
		if r := w.Ledg.Fits(b); r.Code != "" {
			return r.Detail
		}
		if u, _ := w.Ledg.Node(b.Node); j.Spec.TakesAllMem() && b.MemMiB != u.MemMiB {
			return fmt.Sprintf("job %d: %d MiB of node %s, it wants all %d", st.Job, b.MemMiB, b.Node, u.MemMiB)
		}
		nodes[b.Node] = true
	}
	if n := len(st.Rest) + 1; n != j.Spec.NodeCount() || len(nodes) != n {
		return fmt.Sprintf("job %d: %d berths on %d nodes, %d are asked for", st.Job, n, len(nodes), j.Spec.NodeCount())
	}
	for _, g := range st.AllGPUs() {
		u, _ := w.Ledg.GPU(g.GPU)
		if types[u.Type] = true; len(types) > 1 {
			return fmt.Sprintf("job %d: GPUs of several types", st.Job)
		}
		switch {
		case j.Spec.GPUType != "" && u.Type != j.Spec.GPUType:
			return fmt.Sprintf("job %d: wrong type %s", st.Job, u.Type)
		case (j.Spec.Exclusive || j.NeedWhole) && !g.Share.Exclusive:
			return fmt.Sprintf("job %d: wants its GPU alone", st.Job)
		}
		var on []cluster.JobID
		if u.Scope != cluster.ScopeAnyone { // looking at all jobs for each start takes minutes in large worlds
			on = w.OnGPU(g.GPU)
		}
		for _, id := range on {
			if !u.Scope.Allows(&w.Jobs[id].Owner, &j.Owner) {
				return fmt.Sprintf("job %d: GPU %s is shared %s, and job %d is there", st.Job, g.GPU, u.Scope.Among(), id)
			}
		}
		if q := w.Queues[g.GPU]; len(q) > 0 && q[0].Job != j.ID {
			if st.Overtook == "" {
				return fmt.Sprintf("job %d overtakes job %d without a reason", st.Job, q[0].Job)
			}
			w.Overtakes++
		}
	}
	return ""
}

// gangOf returns what an attempt on several nodes has on those after the first.
func gangOf(st *dispatch.Start, now cluster.Time) *cluster.Gang {
	if len(st.Rest) == 0 {
		return nil
	}
	g := &cluster.Gang{Rest: st.Rest, Go: true}
	for range st.Berths() {
		g.Parts = append(g.Parts, cluster.Part{State: cluster.JobRunning, Ready: true, Started: now})
	}
	return g
}

func (w *World) start(st *dispatch.Start) {
	j := w.Jobs[st.Job].Clone()
	w.unqueue(j)
	w.Ledg.TakeStart(st)
	j.State, j.Started = cluster.JobRunning, w.Clock
	j.Attempts = append(j.Attempts, cluster.Attempt{
		No: st.Attempt, State: cluster.JobRunning, Berth: st.Berth, Gang: gangOf(st, w.Clock), Estimate: st.Estimate, Placed: w.Clock, Started: w.Clock,
		Why: st.Why, Overtook: st.Overtook, Loan: st.Loan,
	})
	d := cmp.Or(st.Estimate.Duration, j.Spec.Duration)
	if w.Runs != nil {
		d = w.Runs(j)
	}
	w.ends[j.ID] = w.Clock.Add(max(d, time.Second))
	w.Jobs[j.ID] = j
}

func (w *World) unqueue(j *cluster.Job) {
	if j.Promised != nil {
		j.EstStart, j.Promised = 0, nil
	}
	if j.Queue == "" {
		return
	}
	w.Queues[j.Queue] = slices.DeleteFunc(slices.Clone(w.Queues[j.Queue]), func(x dispatch.Waiter) bool { return x.Job == j.ID })
	if len(w.Queues[j.Queue]) == 0 {
		delete(w.Queues, j.Queue)
	}
	j.Queue, j.EstStart = "", 0
}

func (w *World) move(m *dispatch.QueueMove) {
	old := w.Jobs[m.Job]
	_, known := w.Ledg.GPU(m.GPU)
	if old == nil || !old.State.Waiting() || m.GPU != "" && !known {
		w.Rejected = append(w.Rejected, dispatch.Rejection{Job: m.Job, Reason: cluster.Reason{Code: cluster.ReasonStale, Detail: "bad move"}})
		return
	}
	j := old.Clone()
	w.unqueue(j)
	j.State, j.Reason = cluster.JobPending, cluster.Reason{Code: m.Reason}
	if j.Promised = m.Nodes; m.Nodes != nil {
		j.EstStart = m.EstStart
	}
	if m.GPU != "" {
		j.State, j.Queue, j.EstStart = cluster.JobQueued, m.GPU, m.EstStart
		q := append(slices.Clone(w.Queues[m.GPU]), dispatch.Waiter{Job: j.ID, Rank: m.Rank})
		slices.SortFunc(q, dispatch.Waiter.Compare)
		w.Queues[m.GPU] = q
	}
	w.Jobs[j.ID] = j
}

// Advance advances time by d, ends what is due, in order of id, and returns the
// GPUs on which something ended, sorted.
func (w *World) Advance(d time.Duration) []cluster.GPUID {
	w.Clock = w.Clock.Add(d)
	w.index++
	freed := map[cluster.GPUID]struct{}{}
	for _, id := range slices.Sorted(maps.Keys(w.ends)) {
		if w.ends[id] > w.Clock {
			continue
		}
		for _, g := range w.End(id) {
			freed[g] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(freed))
}

// End completes a running job and returns the GPUs it held.
func (w *World) End(id cluster.JobID) []cluster.GPUID {
	j := w.Jobs[id].Clone()
	a := j.Last()
	held := a.HeldGPUs()
	for _, b := range a.Held() {
		w.Ledg.Release(b)
	}
	a.State, a.Ended, j.State, j.Ended = cluster.JobCompleted, w.Clock, cluster.JobCompleted, w.Clock
	delete(w.ends, id)
	w.Jobs[id] = j
	var out []cluster.GPUID
	for _, g := range held {
		out = append(out, g.GPU)
	}
	return out
}

// Check returns the first violated invariant: the ledger balances, exclusive jobs
// are alone, and queues hold exactly the queued jobs.
func (w *World) Check() error {
	if err := w.Ledg.Check(); err != nil {
		return err
	}
	fresh, queued := dispatch.NewLedger(w.Nodes), 0
	for _, id := range slices.Sorted(maps.Keys(w.Jobs)) {
		j := w.Jobs[id]
		if a := j.Live(); a != nil {
			for _, b := range a.Held() {
				fresh.Take(b)
			}
		}
		if j.State == cluster.JobQueued {
			queued++
			if !slices.ContainsFunc(w.Queues[j.Queue], func(x dispatch.Waiter) bool { return x.Job == id }) {
				return fmt.Errorf("job %d is queued at %s but not in its queue", id, j.Queue)
			}
		}
	}
	for _, q := range w.Queues {
		queued -= len(q)
	}
	switch {
	case queued != 0:
		return fmt.Errorf("%d more jobs are queued than stand in queues", queued)
	case !fresh.Equal(w.Ledg):
		return fmt.Errorf("the ledger is not the sum of what runs")
	}
	return nil
}
