package fsm

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// applyPlan commits each start and each move that is still right, and rejects
// the others whole.
func (s *State) applyPlan(index uint64, p *cluster.Plan) *cluster.PlanResult {
	res := &cluster.PlanResult{Index: index}
	for i := range p.Starts {
		st := &p.Starts[i]
		if r := s.conflict(st); r.Code != "" {
			res.Rejected = append(res.Rejected, cluster.Rejection{Job: st.Job, Reason: r})
			continue
		}
		s.start(index, st)
		res.Started = append(res.Started, cluster.AttemptID{Job: st.Job, No: st.Attempt})
	}
	s.applyMoves(index, p.Moves, res)
	return res
}

func stale(format string, args ...any) cluster.Reason {
	return cluster.Reason{Code: cluster.ReasonStale, Detail: fmt.Sprintf(format, args...)}
}

// conflict returns why a start can no longer be committed, the zero Reason
// when it can.
func (s *State) conflict(st *cluster.Start) cluster.Reason {
	j := s.job(st.Job)
	switch {
	case j == nil:
		return stale("job %d is gone", st.Job)
	case !j.State.Waiting() || j.Cancel != nil:
		return stale("job %d is %s", st.Job, j.State)
	case st.Attempt != uint32(len(j.Attempts))+1:
		return stale("attempt %d of job %d was planned, %d is next", st.Attempt, st.Job, len(j.Attempts)+1)
	}
	if r := s.barredBy(j, s.now); r.Code != "" {
		return stale("job %d may not start: %s", st.Job, r)
	}
	if r := s.unlikeSpec(j, st); r.Code != "" {
		return r
	}
	if r := s.overQuota(j, st); r.Code != "" {
		return r
	}
	if r := s.elsewhere(j, st); r.Code != "" {
		return r
	}
	for _, b := range st.Berths() {
		if r := s.ledger.Fits(b); r.Code != "" {
			return r
		}
		if r := s.strangers(j, b); r.Code != "" {
			return r
		}
		for _, g := range b.GPUs {
			if st.Overtook != "" {
				break
			}
			if q := s.queues[g.GPU]; len(q) > 0 && q[0].Job != j.ID {
				return cluster.Reason{Code: cluster.ReasonOvertake, Detail: fmt.Sprintf("job %d is before it in the queue of GPU %s", q[0].Job, g.GPU)}
			}
		}
	}
	return cluster.Reason{}
}

// strangers tells whose job on a card of the berth may not lie beside j: cards
// say among whom they are shared.
func (s *State) strangers(j *cluster.Job, b *cluster.Berth) cluster.Reason {
	n := s.nodes[b.Node]
	for _, gs := range b.GPUs {
		g := n.GPU(gs.GPU)
		if g == nil || g.Scope == cluster.ScopeAnyone {
			continue
		}
		for _, id := range s.gpuJobs[gs.GPU] {
			if o := s.jobs.get(id); !g.Scope.Allows(&o.Owner, &j.Owner) {
				return cluster.Reason{Code: cluster.ReasonSharing, Detail: fmt.Sprintf("GPU %s is shared %s; job %d there is not of them", g.ID, g.Scope.Among(), id)}
			}
		}
	}
	return cluster.Reason{}
}

// unlikeSpec tells where a start gives the job something else than it asked
// for.
func (s *State) unlikeSpec(j *cluster.Job, st *cluster.Start) cluster.Reason {
	if j.Spec.Node != "" && j.Spec.Node != st.Berth.Node {
		return stale("node %s was planned, %s is asked for", st.Berth.Node, j.Spec.Node)
	}
	for _, b := range st.Berths() {
		if r := s.unlikeBerth(j, b); r.Code != "" {
			return r
		}
	}
	return s.unlikeGang(j, st)
}

// unlikeBerth does so for the berth on one node.
func (s *State) unlikeBerth(j *cluster.Job, b *cluster.Berth) cluster.Reason {
	if n := len(b.GPUs); n != j.Spec.GPUs && !(n == 0 && j.Spec.OrCPU) && !(n > j.Spec.GPUs && j.Spec.GPUs > 0 && j.Spec.WholeNodes()) {
		return stale("%d GPUs were planned, %d are asked for", n, j.Spec.GPUs)
	}
	if r := s.outside(j, b); r.Code != "" {
		return r
	}
	for _, g := range b.GPUs {
		if (j.Spec.Exclusive || j.NeedWhole || j.Spec.WholeNodes()) && !g.Share.Exclusive {
			return stale("a share was planned, whole GPUs are asked for")
		}
		if u, ok := s.ledger.GPU(g.GPU); ok && j.Spec.GPUType != "" && u.Type != j.Spec.GPUType {
			return stale("GPU type %s was planned, %s is asked for", u.Type, j.Spec.GPUType)
		}
		if !g.Share.Exclusive && g.Share.MemMiB < j.MinGPUMemMiB {
			return stale("%d MiB were planned, it needs %d", g.Share.MemMiB, j.MinGPUMemMiB)
		}
	}
	return cluster.Reason{}
}

// start commits one start that conflicts with nothing.
func (s *State) start(index uint64, st *cluster.Start) {
	old := s.own(st.Job)
	j := old.Clone()
	s.unqueue(j)
	s.cache.berth(&st.Berth)
	s.cache.estimate(&st.Estimate)
	a := cluster.Attempt{
		No: st.Attempt, Token: cluster.Token(index), State: cluster.JobStarting, Berth: st.Berth, BootID: s.nodes[st.Berth.Node].BootID,
		Estimate: st.Estimate, Placed: s.now, Why: st.Why, Overtook: st.Overtook, Gang: s.newGang(st), Port: st.Port,
	}
	if s.rules >= accountVersion {
		a.GPUMilli = cluster.HeldMilli(st.AllGPUs(), s.sellable)
	}
	for _, b := range st.Berths() {
		s.ledger.Take(b)
		for _, g := range b.GPUs {
			for _, other := range s.gpuJobs[g.GPU] {
				s.meet(index, other, j.ID)
				a.Neighbours = addNeighbour(a.Neighbours, other)
			}
			s.layOn(g.GPU, j.ID)
		}
	}
	j.Attempts = append(j.Attempts, a)
	j.State, j.Reason, j.Revision = cluster.JobStarting, cluster.Reason{}, index
	j.Started, j.Ended = 0, 0
	s.putJob(old, j)
	s.changed(Change{Job: j.ID})
}

// layOn records that a job lies on a GPU. The order is that of ids, so that a
// restored replica has the same.
func (s *State) layOn(gpu cluster.GPUID, id cluster.JobID) {
	on := s.gpuJobs[gpu]
	i, _ := slices.BinarySearch(on, id)
	s.gpuJobs[gpu] = slices.Concat(on[:i], []cluster.JobID{id}, on[i:])
}

func addNeighbour(ns []cluster.JobID, id cluster.JobID) []cluster.JobID {
	if len(ns) >= cluster.MaxNeighbours || slices.Contains(ns, id) {
		return ns
	}
	return append(slices.Clone(ns), id)
}

// meet records on a running job that another one came beside it.
func (s *State) meet(index uint64, id, newcomer cluster.JobID) {
	old := s.jobs.get(id)
	ns := addNeighbour(old.Last().Neighbours, newcomer)
	if len(ns) == len(old.Last().Neighbours) {
		return
	}
	j := old.Clone()
	j.Last().Neighbours = ns
	j.Revision = index
	s.putJob(old, j)
	s.changed(Change{Job: id})
}

// applyMoves puts waiting jobs into queues, or out of them.
func (s *State) applyMoves(index uint64, moves []cluster.QueueMove, res *cluster.PlanResult) {
	es, seen := edits{}, make(map[cluster.JobID]struct{}, len(moves))
	for i := range moves {
		m := &moves[i]
		r := s.immovable(m)
		if _, twice := seen[m.Job]; twice {
			r = stale("job %d is moved twice in one plan", m.Job)
		}
		if r.Code != "" {
			res.Rejected = append(res.Rejected, cluster.Rejection{Job: m.Job, Reason: r})
			continue
		}
		seen[m.Job] = struct{}{}
		s.move(index, m, es)
		res.Moved++
	}
	s.commitEdits(es)
}

// immovable returns why a move is no longer right, the zero Reason when it is.
func (s *State) immovable(m *cluster.QueueMove) cluster.Reason {
	j := s.job(m.Job)
	if j == nil || !j.State.Waiting() || j.Cancel != nil {
		return stale("job %d does not wait any more", m.Job)
	}
	if r := s.barredBy(j, s.now); r.Code != "" {
		return stale("job %d may not be planned: %s", m.Job, r)
	}
	if m.GPU == "" {
		return cluster.Reason{}
	}
	n := s.nodes[s.gpuNode[m.GPU]]
	switch {
	case n == nil:
		return stale("GPU %s is gone", m.GPU)
	case !n.Schedulable():
		return stale("node %s of GPU %s is drained or silent", n.ID, m.GPU)
	case !n.Open(n.GPU(m.GPU)):
		return stale("GPU %s of node %s is %s", m.GPU, n.ID, n.Why(n.GPU(m.GPU)))
	case j.Spec.GPUs == 0:
		return stale("job %d needs no GPU to wait for", m.Job)
	case j.Spec.NodeCount() > 1:
		return stale("job %d needs several nodes and waits in no queue", m.Job)
	case j.Spec.Node != "" && j.Spec.Node != n.ID:
		return stale("GPU %s is on node %s, the job asks for %s", m.GPU, n.ID, j.Spec.Node)
	case j.Spec.GPUType != "" && j.Spec.GPUType != n.GPU(m.GPU).Type:
		return stale("GPU %s is of type %s, the job asks for %s", m.GPU, n.GPU(m.GPU).Type, j.Spec.GPUType)
	}
	if r := s.elsewhereQueue(j, n); r.Code != "" {
		return r
	}
	return s.outsideQueue(j, m.GPU)
}

func (s *State) move(index uint64, m *cluster.QueueMove, es edits) {
	old := s.own(m.Job)
	j := old.Clone()
	if old.Queue != "" {
		es.of(old.Queue).drop[j.ID] = struct{}{}
	}
	share(&s.cache, &m.GPU)
	share(&s.cache, &m.Reason)
	j.State, j.Queue, j.EstStart = cluster.JobPending, "", 0
	j.Reason, j.Revision = cluster.Reason{Code: m.Reason}, index
	if m.GPU != "" {
		j.State, j.Queue, j.EstStart = cluster.JobQueued, m.GPU, m.EstStart
		es.of(m.GPU).add = append(es.of(m.GPU).add, cluster.Waiter{Job: j.ID, Rank: m.Rank})
	}
	s.putJob(old, j)
	s.changed(Change{Job: j.ID})
}
