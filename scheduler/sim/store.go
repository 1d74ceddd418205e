package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/ladder"
	"github.com/berth-scheduler/berth/fsm/nodes"
	"github.com/berth-scheduler/berth/scheduler"
)

// store is the state that the scheduler sees: the replicated state machine itself,
// or a cheaper stand-in that keeps the same rules.
type store interface {
	scheduler.View
	// submit adds jobs that wait from now on, with rising ids.
	submit(now cluster.Time, jobs []*cluster.Job) error
	// snapshot returns everything, or only the jobs in no queue.
	snapshot(now cluster.Time, pendingOnly bool) *dispatch.Snapshot
	// apply commits a plan and returns what started.
	apply(now cluster.Time, p *dispatch.Plan) ([]cluster.AttemptID, error)
	// finish ends the live attempt of a job; again reports that it now waits.
	finish(now cluster.Time, id cluster.JobID, end outcome) (again bool, err error)
	// preempt asks a job's live attempt to make room, which finish then ends; took
	// reports whether it may be asked.
	preempt(now cluster.Time, p *dispatch.Preemption) (took bool, err error)
	// resize gives an attempt other shares of its cards; took reports whether it may
	// have them.
	resize(now cluster.Time, id cluster.AttemptID, to []cluster.GPUShare) (took bool, err error)
	// setNode makes a node silent or ready; nothing may run there.
	setNode(now cluster.Time, id cluster.NodeID, st cluster.NodeState) error
	// waiting returns the number of waiting jobs.
	waiting() int
	// check returns the first account that does not balance.
	check() error
}

// outcome is how an attempt ended.
type outcome struct {
	state cluster.JobState
	usage cluster.Usage
}

// plain is a store without a log. It keeps the rules of the state machine for what
// a simulation does: starts, moves, ends, and the ladder after an out-of-memory.
// TestStoresAgree compares the two.
type plain struct {
	now    cluster.Time
	index  uint64
	nodes  []*cluster.Node
	nodeAt map[cluster.NodeID]int
	ledger *dispatch.Ledger
	jobs   []*cluster.Job // by id less one
	wait   []*cluster.Job // by id, with holes for jobs that no longer wait
	nwait  int
	run    []*cluster.Job // by id
	onGPU  map[cluster.GPUID][]cluster.JobID
	queues map[cluster.GPUID][]dispatch.Waiter
	know   *dispatch.Interference
}

func newPlain(nodes []*cluster.Node) *plain {
	p := &plain{
		nodes: nodes, nodeAt: map[cluster.NodeID]int{}, ledger: dispatch.NewLedger(nil),
		onGPU: map[cluster.GPUID][]cluster.JobID{}, queues: map[cluster.GPUID][]dispatch.Waiter{},
	}
	p.ledger = dispatch.NewLedger(nodes)
	for i, n := range nodes {
		p.nodeAt[n.ID] = i
	}
	return p
}

// Now, Index, Ledger, Job, Node and Queue are scheduler.View.
func (p *plain) Now() cluster.Time        { return p.now }
func (p *plain) Index() uint64            { return p.index }
func (p *plain) Ledger() *dispatch.Ledger { return p.ledger }

func (p *plain) Job(id cluster.JobID) (*cluster.Job, bool) {
	if id == 0 || uint64(id) > uint64(len(p.jobs)) {
		return nil, false
	}
	return p.jobs[id-1], true
}

func (p *plain) Node(id cluster.NodeID) (*cluster.Node, bool) {
	i, ok := p.nodeAt[id]
	if !ok {
		return nil, false
	}
	return p.nodes[i], true
}

func (p *plain) Queue(g cluster.GPUID) []dispatch.Waiter { return p.queues[g] }

// OnGPU and Interference make it a scheduler.CompanyView.
func (p *plain) OnGPU(g cluster.GPUID) []cluster.JobID { return p.onGPU[g] }
func (p *plain) Interference() *dispatch.Interference  { return p.know }

func (p *plain) tick(now cluster.Time) {
	p.now = max(p.now, now)
	p.index++
}

func (p *plain) submit(now cluster.Time, jobs []*cluster.Job) error {
	p.tick(now)
	for _, j := range jobs {
		if j.ID != cluster.JobID(len(p.jobs)+1) {
			return fmt.Errorf("job id %d does not follow %d", j.ID, len(p.jobs))
		}
		j.Revision, j.State, j.Reason = p.index, cluster.JobPending, cluster.Reason{Code: cluster.ReasonUnconfirmed}
		j.Submitted, j.Eligible = p.now, p.now
		p.jobs = append(p.jobs, j)
		p.wait = append(p.wait, j)
		p.nwait++
	}
	return nil
}

// refuse removes a job that was just submitted.
func (p *plain) refuse(j *cluster.Job) {
	j.State = cluster.JobCancelled
	p.nwait--
}

func byID(j *cluster.Job, id cluster.JobID) int { return cmp.Compare(j.ID, id) }

// compact removes the holes from the list of waiting jobs.
func (p *plain) compact() {
	if len(p.wait) == p.nwait {
		return
	}
	p.wait = slices.DeleteFunc(p.wait, func(j *cluster.Job) bool { return !j.State.Waiting() })
}

func (p *plain) snapshot(now cluster.Time, pendingOnly bool) *dispatch.Snapshot {
	p.now = max(p.now, now)
	p.compact()
	s := &dispatch.Snapshot{
		Index: p.index, Now: p.now, Nodes: p.nodes, Ledger: p.ledger, Queues: p.queues, Running: slices.Clone(p.run),
		Interference: p.know,
	}
	if !pendingOnly {
		s.Waiting = slices.Clone(p.wait)
		return s
	}
	for _, j := range p.wait {
		if j.State == cluster.JobPending {
			s.Waiting = append(s.Waiting, j)
		}
	}
	return s
}

func (p *plain) waiting() int { return p.nwait }

func (p *plain) check() error { return p.ledger.Check() }

func (p *plain) apply(now cluster.Time, plan *dispatch.Plan) ([]cluster.AttemptID, error) {
	p.tick(now)
	var started []cluster.AttemptID
	for i := range plan.Starts {
		st := &plan.Starts[i]
		j, ok := p.Job(st.Job)
		if !ok || !p.mayStart(j, st) {
			continue
		}
		p.start(j, st)
		started = append(started, cluster.AttemptID{Job: j.ID, No: st.Attempt})
	}
	p.move(plan.Moves)
	return started, nil
}

// mayStart makes the state machine's check.
func (p *plain) mayStart(j *cluster.Job, st *dispatch.Start) bool {
	if !j.State.Waiting() || st.Attempt != uint32(len(j.Attempts))+1 || !j.Spec.Takes(len(st.Berth.GPUs)) {
		return false
	}
	for _, g := range st.Berth.GPUs {
		u, ok := p.ledger.GPU(g.GPU)
		switch {
		case !ok, (j.Spec.Exclusive || j.NeedWhole) && !g.Share.Exclusive,
			j.Spec.GPUType != "" && u.Type != j.Spec.GPUType,
			!g.Share.Exclusive && g.Share.MemMiB < j.MinGPUMemMiB:
			return false
		}
		if q := p.queues[g.GPU]; st.Overtook == "" && len(q) > 0 && q[0].Job != j.ID {
			return false
		}
	}
	for _, b := range st.Berths() {
		if p.ledger.Fits(b).Code != "" {
			return false
		}
	}
	return true
}

func (p *plain) start(j *cluster.Job, st *dispatch.Start) {
	p.unqueue(j)
	a := cluster.Attempt{
		No: st.Attempt, Token: cluster.Token(p.index), State: cluster.JobRunning, Berth: st.Berth, BootID: "b",
		Estimate: st.Estimate, Placed: p.now, Started: p.now, Loan: st.Loan,
	}
	if len(st.Rest) > 0 {
		a.Gang = &cluster.Gang{Rest: st.Rest, Parts: slices.Repeat([]cluster.Part{{State: cluster.JobRunning}}, 1+len(st.Rest)), Go: true}
	}
	p.ledger.TakeStart(st)
	for _, g := range a.AllGPUs() {
		for _, id := range p.onGPU[g.GPU] {
			o := p.jobs[id-1].Last()
			if len(o.Neighbours) < cluster.MaxNeighbours && !slices.Contains(o.Neighbours, j.ID) {
				o.Neighbours = append(o.Neighbours, j.ID)
			}
			if len(a.Neighbours) < cluster.MaxNeighbours && !slices.Contains(a.Neighbours, id) {
				a.Neighbours = append(a.Neighbours, id)
			}
		}
		p.onGPU[g.GPU] = append(p.onGPU[g.GPU], j.ID)
	}
	j.Attempts = append(j.Attempts, a)
	p.size(j, len(st.Berth.GPUs))
	j.State, j.Reason, j.Revision, j.Started, j.Ended = cluster.JobRunning, cluster.Reason{}, p.index, p.now, 0
	p.nwait--
	i, _ := slices.BinarySearchFunc(p.run, j.ID, byID)
	p.run = slices.Insert(p.run, i, j)
}

// size sets with how many GPUs an elastic job runs, or how few it waits for.
func (p *plain) size(j *cluster.Job, n int) {
	if j.Spec.Elastic() {
		j.Spec = j.Spec.Sized(n)
	}
}

// unqueue removes j from its queue. Planners may hold the old slice.
func (p *plain) unqueue(j *cluster.Job) {
	if j.Promised != nil {
		j.EstStart, j.Promised = 0, nil
	}
	if j.Queue == "" {
		return
	}
	q := p.queues[j.Queue]
	i := slices.IndexFunc(q, func(w dispatch.Waiter) bool { return w.Job == j.ID })
	switch {
	case len(q) == 1 && i == 0:
		delete(p.queues, j.Queue)
	case i == 0:
		p.queues[j.Queue] = q[1:]
	case i > 0:
		p.queues[j.Queue] = slices.Concat(q[:i], q[i+1:])
	}
	j.Queue, j.EstStart = "", 0
}

func (p *plain) move(moves []dispatch.QueueMove) {
	added := map[cluster.GPUID][]dispatch.Waiter{}
	left := map[cluster.GPUID]struct{}{}
	for i := range moves {
		m := &moves[i]
		j, ok := p.Job(m.Job)
		if !ok || !j.State.Waiting() {
			continue
		}
		if j.Queue != "" {
			left[j.Queue] = struct{}{}
		}
		j.State, j.Queue, j.EstStart, j.Promised = cluster.JobPending, "", 0, nil
		j.Reason, j.Revision = cluster.Reason{Code: m.Reason}, p.index
		if m.GPU != "" {
			j.State, j.Queue, j.EstStart = cluster.JobQueued, m.GPU, m.EstStart
			added[m.GPU] = append(added[m.GPU], dispatch.Waiter{Job: j.ID, Rank: m.Rank})
		} else if m.Nodes != nil {
			j.EstStart, j.Promised = m.EstStart, m.Nodes
		}
	}
	for g := range left {
		if _, ok := added[g]; !ok {
			added[g] = nil
		}
	}
	for g, add := range added { // queues are independent of each other
		p.requeue(g, add)
	}
}

// requeue drops jobs from a queue that are elsewhere now or are added again.
func (p *plain) requeue(g cluster.GPUID, add []dispatch.Waiter) {
	fresh := make(map[cluster.JobID]struct{}, len(add))
	for _, w := range add {
		fresh[w.Job] = struct{}{}
	}
	q := make([]dispatch.Waiter, 0, len(p.queues[g])+len(add))
	for _, w := range p.queues[g] {
		if _, again := fresh[w.Job]; !again && p.jobs[w.Job-1].Queue == g {
			q = append(q, w)
		}
	}
	q = append(q, add...)
	slices.SortFunc(q, dispatch.Waiter.Compare)
	if len(q) == 0 {
		delete(p.queues, g)
		return
	}
	p.queues[g] = q
}

// preempt leaves it to the planner how often jobs are preempted: published rules
// have no bound, and policies check the state machine's own first.
func (p *plain) preempt(now cluster.Time, x *dispatch.Preemption) (bool, error) {
	p.tick(now)
	j, ok := p.Job(x.Job)
	if !ok || j.State != cluster.JobRunning || j.Last().No != x.Attempt || j.Preempting() {
		return false, nil
	}
	j.Last().Preempt = &cluster.PreemptRequest{At: p.now, For: x.For, Why: x.Why}
	return true, nil
}

// resize reduces shares where allowed, and lets them grow as far as there is room.
func (p *plain) resize(now cluster.Time, id cluster.AttemptID, to []cluster.GPUShare) (bool, error) {
	p.tick(now)
	j, ok := p.Job(id.Job)
	if !ok || j.Live() == nil || j.Live().No != id.No {
		return false, nil
	}
	a, mark := j.Last(), cluster.ResizeMark{At: p.now, Cuts: 1}
	next := a.Berth
	next.GPUs = slices.Clone(to)
	if a.WasCut() {
		if mark = *a.Resize; !nodes.Smaller(a.Berth.GPUs, to) || !nodes.Within(to, mark.Was) {
			return false, nil
		}
		if p.ledger.Release(&a.Berth); p.ledger.Fits(&next).Code != "" {
			p.ledger.Take(&a.Berth)
			return false, nil
		}
		if nodes.Within(mark.Was, to) {
			mark.Was = nil
		}
	} else {
		if !j.MayResize() || !nodes.Smaller(to, a.Berth.GPUs) {
			return false, nil
		}
		mark.Was = a.Berth.GPUs
		p.ledger.Release(&a.Berth)
	}
	p.ledger.Take(&next)
	a.Berth, a.Resize, j.Revision = next, &mark, p.index
	return true, nil
}

func (p *plain) finish(now cluster.Time, id cluster.JobID, end outcome) (bool, error) {
	p.tick(now)
	j, ok := p.Job(id)
	if !ok || !j.State.Live() {
		return false, fmt.Errorf("job %d has no live attempt to end", id)
	}
	a := j.Last()
	for _, b := range a.Berths() {
		p.ledger.Release(b)
	}
	for _, g := range a.AllGPUs() {
		on := slices.DeleteFunc(p.onGPU[g.GPU], func(o cluster.JobID) bool { return o == id })
		p.onGPU[g.GPU] = on
	}
	a.State, a.Ended, a.Usage = end.state, p.now, end.usage
	j.Ended, j.Revision = p.now, p.index
	i, _ := slices.BinarySearchFunc(p.run, id, byID)
	p.run = slices.Delete(p.run, i, i+1)
	if !p.again(j, a) {
		j.State = end.state
		return false, nil
	}
	p.compact() // before it waits again, or its old place would count
	least, _, _ := j.Spec.Sizes()
	p.size(j, least)
	j.State, j.Reason, j.Eligible = cluster.JobPending, cluster.Reason{Code: cluster.ReasonRequeued}, p.now
	i, _ = slices.BinarySearchFunc(p.wait, id, byID)
	p.wait = slices.Insert(p.wait, i, j)
	p.nwait++
	return true, nil
}

// again reports whether a job runs once more, and with what.
func (p *plain) again(j *cluster.Job, a *cluster.Attempt) bool {
	switch a.State {
	case cluster.JobPreempted:
		return true
	case cluster.JobNodeFail:
		return j.Spec.RequeueOnLoss
	case cluster.JobOutOfMemory:
		ladder := ladder.Ladder{Nodes: slices.Values(p.nodes)}
		next := ladder.Next(j, a)
		if next.Again {
			j.NeedWhole, j.MinGPUMemMiB, j.MinHostMemMiB = next.Whole, next.MinGPUMemMiB, next.MinHostMemMiB
		}
		return next.Again
	}
	return false
}

func (p *plain) setNode(now cluster.Time, id cluster.NodeID, st cluster.NodeState) error {
	p.tick(now)
	i, ok := p.nodeAt[id]
	if !ok {
		return fmt.Errorf("node %s is not known", id)
	}
	n := *p.nodes[i]
	n.State, n.Revision, n.Changed = st, p.index, p.now
	p.nodes = slices.Clone(p.nodes)
	p.nodes[i] = &n
	p.ledger.SetNode(&n)
	if st == cluster.NodeReady {
		return nil
	}
	for k := range n.GPUs {
		g := n.GPUs[k].ID
		for _, w := range p.queues[g] {
			j := p.jobs[w.Job-1]
			j.State, j.Queue, j.EstStart = cluster.JobPending, "", 0
		}
		delete(p.queues, g)
	}
	return nil
}
