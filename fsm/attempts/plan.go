package attempts

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/intern"
	"github.com/berth-scheduler/berth/fsm/jobs"
	"github.com/berth-scheduler/berth/fsm/nodes"
)

// applyPlan commits each start and each move that is still valid, and rejects the
// others entirely.
func (s *starter) applyPlan(p *dispatch.Plan) *dispatch.Result {
	res := &dispatch.Result{}
	for i := range p.Starts {
		st := &p.Starts[i]
		if r := s.conflict(st); r.Code != "" {
			res.Rejected = append(res.Rejected, dispatch.Rejection{Job: st.Job, Reason: r})
			continue
		}
		s.start(st)
		res.Started = append(res.Started, cluster.AttemptID{Job: st.Job, No: st.Attempt})
	}
	s.applyMoves(p.Moves, res)
	return res
}

// conflict returns why a start can no longer be committed, the zero Reason if it
// can.
func (s *starter) conflict(st *dispatch.Start) cluster.Reason {
	j := s.roll.Job(st.Job)
	switch {
	case j == nil:
		return nodes.Stale("job %d is gone", st.Job)
	case !j.State.Waiting() || j.Cancel != nil:
		return nodes.Stale("job %d is %s", st.Job, j.State)
	case st.Attempt != uint32(len(j.Attempts))+1:
		return nodes.Stale("attempt %d of job %d was planned, %d is next", st.Attempt, st.Job, len(j.Attempts)+1)
	}
	if r := s.roll.BarredBy(j, s.at.Now); r.Code != "" {
		return nodes.Stale("job %d may not start: %s", st.Job, r)
	}
	if r := s.fleet.Unlike(j, st); r.Code != "" {
		return r
	}
	if r := s.books.OverQuota(j, s.fleet.Ledger(), st); r.Code != "" {
		return r
	}
	if r := s.fleet.Elsewhere(j, st); r.Code != "" {
		return r
	}
	for _, b := range st.Berths() {
		if r := s.fleet.Ledger().Fits(b); r.Code != "" {
			return r
		}
		if r := s.fleet.Strangers(j, b); r.Code != "" {
			return r
		}
		for _, g := range b.GPUs {
			if st.Overtook != "" {
				break
			}
			if q := s.roll.Queues.Of(g.GPU); len(q) > 0 && q[0].Job != j.ID {
				return cluster.Reason{Code: cluster.ReasonOvertake, Detail: fmt.Sprintf("job %d is before it in the queue of GPU %s", q[0].Job, g.GPU)}
			}
		}
	}
	return cluster.Reason{}
}

// start commits a start that has no conflict.
func (s *starter) start(st *dispatch.Start) {
	old := s.roll.Own(st.Job)
	j := old.Clone()
	s.roll.Queues.Leave(j)
	s.texts.Berth(&st.Berth)
	s.texts.Estimate(&st.Estimate)
	a := cluster.Attempt{
		No: st.Attempt, Token: cluster.Token(s.at.Index), State: cluster.JobStarting, Berth: st.Berth, BootID: s.fleet.Node(st.Berth.Node).BootID,
		Estimate: st.Estimate, Placed: s.at.Now, Why: st.Why, Overtook: st.Overtook, Gang: s.newGang(st, j.Spec), Port: st.Port, Secret: st.Secret, Loan: st.Loan,
	}
	if s.at.Version >= command.AccountVersion {
		a.GPUMilli = s.fleet.Ledger().HeldMilli(st.AllGPUs())
	}
	for _, b := range st.Berths() {
		s.lay(j.ID, &a, b)
	}
	j.Attempts = append(j.Attempts, a)
	if j.Spec.Elastic() {
		j.Spec = j.Spec.Sized(j.Last().Size(j.Spec))
	}
	j.State, j.Reason = cluster.JobStarting, cluster.Reason{}
	j.Started, j.Ended = 0, 0
	s.roll.Change(old, j, command.Change{})
}

// lay takes what an attempt of a job gets on a node.
func (s *starter) lay(id cluster.JobID, a *cluster.Attempt, b *cluster.Berth) {
	s.fleet.Ledger().Take(b)
	for _, g := range b.GPUs {
		for _, other := range s.fleet.On(g.GPU) {
			s.meet(other, id)
			a.Neighbours = addNeighbour(a.Neighbours, other)
		}
		s.fleet.Lay(g.GPU, id)
	}
}

func addNeighbour(ns []cluster.JobID, id cluster.JobID) []cluster.JobID {
	if len(ns) >= cluster.MaxNeighbours || slices.Contains(ns, id) {
		return ns
	}
	return append(slices.Clone(ns), id)
}

// meet records on a running job that another one was placed on its GPU.
func (s *starter) meet(id, newcomer cluster.JobID) {
	old := s.roll.Jobs.Get(id)
	ns := addNeighbour(old.Last().Neighbours, newcomer)
	if len(ns) == len(old.Last().Neighbours) {
		return
	}
	j := old.Clone()
	j.Last().Neighbours = ns
	s.roll.Put(old, j)
	s.roll.Changed(command.Change{Job: id})
}

// applyMoves moves waiting jobs into or out of queues.
func (s *starter) applyMoves(moves []dispatch.QueueMove, res *dispatch.Result) {
	es, seen := jobs.Edits{}, make(map[cluster.JobID]struct{}, len(moves))
	for i := range moves {
		m := &moves[i]
		r := s.immovable(m)
		if _, twice := seen[m.Job]; twice {
			r = nodes.Stale("job %d is moved twice in one plan", m.Job)
		}
		if r.Code != "" {
			res.Rejected = append(res.Rejected, dispatch.Rejection{Job: m.Job, Reason: r})
			continue
		}
		seen[m.Job] = struct{}{}
		s.move(m, es)
		res.Moved++
	}
	s.roll.Queues.Commit(es)
}

// immovable returns why a move is no longer valid, the zero Reason if it is.
func (s *starter) immovable(m *dispatch.QueueMove) cluster.Reason {
	j := s.roll.Job(m.Job)
	if j == nil || !j.State.Waiting() || j.Cancel != nil {
		return nodes.Stale("job %d does not wait any more", m.Job)
	}
	if r := s.roll.BarredBy(j, s.at.Now); r.Code != "" {
		return nodes.Stale("job %d may not be planned: %s", m.Job, r)
	}
	switch {
	case m.GPU != "":
		return s.fleet.Immovable(j, m)
	case len(m.Nodes) > 0:
		return s.fleet.Unpromised(j, m.Nodes)
	}
	return cluster.Reason{}
}

func (s *starter) move(m *dispatch.QueueMove, es jobs.Edits) {
	old := s.roll.Own(m.Job)
	j := old.Clone()
	if old.Queue != "" {
		es.Drop(old.Queue, j.ID)
	}
	intern.Share(s.texts, &m.GPU)
	intern.Share(s.texts, &m.Reason)
	j.State, j.Queue, j.EstStart, j.Promised = cluster.JobPending, "", 0, nil
	j.Reason = cluster.Reason{Code: m.Reason}
	switch {
	case m.GPU != "":
		j.State, j.Queue, j.EstStart = cluster.JobQueued, m.GPU, m.EstStart
		es.Add(m.GPU, dispatch.Waiter{Job: j.ID, Rank: m.Rank})
	case len(m.Nodes) > 0:
		j.Promised, j.EstStart = m.Nodes, m.EstStart
	}
	s.roll.Change(old, j, command.Change{})
}
