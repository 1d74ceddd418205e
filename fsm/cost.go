package fsm

import (
	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// EntryCost is how much commands of one entry may cost together by Cost, unless one
// alone costs more: some ten milliseconds in Apply.
const EntryCost = 4000

// Cost is about how many jobs a command would make Apply look at now. Leaders put no
// more into an entry than is applied in a moment: replicas answer nobody meanwhile.
func (f *FSM) Cost(cmd *logv1.Command) int {
	if n := ownCost(cmd); n > 0 {
		return n
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.st.cost(cmd)
}

// ownCost is the cost of a command that does not depend on the state, 0 for others.
func ownCost(cmd *logv1.Command) int {
	switch k := cmd.Kind.(type) {
	case *logv1.Command_SubmitJob:
		n := 1
		for _, j := range k.SubmitJob.GetJobs() {
			n += 1 + len(j.GetSpec().GetDepends())/8
		}
		return n
	case *logv1.Command_PutBulk:
		return 1 + int(k.PutBulk.GetSize()>>10) // it may be the part that makes it whole
	case *logv1.Command_ApplyPlan:
		return 1 + len(k.ApplyPlan.GetStarts()) + len(k.ApplyPlan.GetMoves())
	case *logv1.Command_EstimateJobs:
		n := 1
		for _, g := range k.EstimateJobs.GetGroups() {
			n += 1 + len(g.GetJobs())
		}
		return n
	case *logv1.Command_NoteProgress:
		return 1 + len(k.NoteProgress.GetAttempts())
	case *logv1.Command_SettleNotices:
		return 1 + (len(k.SettleNotices.GetSent())+len(k.SettleNotices.GetDead()))/8
	}
	return 0
}

func (s *State) cost(cmd *logv1.Command) int {
	if n := ownCost(cmd); n > 0 {
		return n
	}
	switch k := cmd.Kind.(type) {
	case *logv1.Command_CancelJob:
		return 1 + s.waiters(cluster.JobID(k.CancelJob.GetJob()))
	case *logv1.Command_ReportAttempt:
		return 1 + s.waiters(cluster.JobID(k.ReportAttempt.GetJob()))
	case *logv1.Command_ChangeTasks:
		if a := s.arrays[cluster.JobID(k.ChangeTasks.GetArray())]; a != nil {
			return 1 + a.entries + s.waitersOn(dependKey{a.id, true})
		}
	case *logv1.Command_ExpireJobs:
		n := 1
		for _, id := range k.ExpireJobs.GetJobs() {
			n += 1 + s.waiters(cluster.JobID(id))
		}
		return n
	case *logv1.Command_RegisterNode:
		return 1 + s.onNode(k.RegisterNode.GetNode().GetId())
	case *logv1.Command_SetNodeState:
		return 1 + s.onNode(k.SetNodeState.GetNode())
	case *logv1.Command_FenceNode:
		return 1 + s.onNode(k.FenceNode.GetNode())
	case *logv1.Command_SetPartition, *logv1.Command_SetReservation, *logv1.Command_SetStanding:
		return 1 + (s.jobs.Len()-len(s.finished))/16
	}
	return 1
}

// waiters is what the end of a job costs by those who wait for it or its array.
func (s *State) waiters(id cluster.JobID) int {
	if len(s.dependents) == 0 {
		return 0
	}
	n := s.waitersOn(dependKey{job: id})
	if a := s.arrayOf(id); a != nil {
		n += s.waitersOn(dependKey{a.id, true})
	}
	return n
}

// waitersOn counts them until they are too many for an entry anyway.
func (s *State) waitersOn(key dependKey) int {
	n := 0
	for _, id := range s.dependents[key] {
		if j := s.jobs.Get(id); j != nil {
			n += 1 + len(j.Spec.Depends)/64
		} else if a := s.arrays[id]; a != nil {
			n += a.entries
		}
		if n > EntryCost {
			break
		}
	}
	return n
}

// onNode is how many jobs a node has.
func (s *State) onNode(id string) int {
	if set := s.nodeJobs[cluster.NodeID(id)]; set != nil {
		return set.Len()
	}
	return 0
}
