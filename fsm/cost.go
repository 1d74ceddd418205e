package fsm

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/jobs"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// Cost returns about how many jobs a command would make Apply process now. Leaders
// limit the cost of an entry, because replicas answer no requests while they apply
// it.
func (f *FSM) Cost(cmd *logv1.Command) int {
	if n := ownCost(cmd); n > 0 {
		return n
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	s := f.st
	switch k := cmd.Kind.(type) {
	case *logv1.Command_CancelJob:
		return 1 + s.roll.Depends.Waiters(cluster.JobID(k.CancelJob.GetJob()))
	case *logv1.Command_ReportAttempt:
		return 1 + s.roll.Depends.Waiters(cluster.JobID(k.ReportAttempt.GetJob()))
	case *logv1.Command_ChangeTasks:
		if a := s.roll.Arrays[cluster.JobID(k.ChangeTasks.GetArray())]; a != nil {
			return 1 + a.Entries + s.roll.Depends.WaitersOn(jobs.Awaited{Job: a.ID, Array: true})
		}
	case *logv1.Command_ExpireJobs:
		n := 1
		for _, id := range k.ExpireJobs.GetJobs() {
			n += 1 + s.roll.Depends.Waiters(cluster.JobID(id))
		}
		return n
	case *logv1.Command_RegisterNode:
		return 1 + s.roll.On(cluster.NodeID(k.RegisterNode.GetNode().GetId())).Len()
	case *logv1.Command_SetNodeState:
		return 1 + s.roll.On(cluster.NodeID(k.SetNodeState.GetNode())).Len()
	case *logv1.Command_FenceNode:
		return 1 + s.roll.On(cluster.NodeID(k.FenceNode.GetNode())).Len()
	case *logv1.Command_SetPartition, *logv1.Command_SetReservation, *logv1.Command_SetStanding:
		return 1 + (s.roll.Jobs.Len()-len(s.roll.Finished))/16
	}
	return 1
}

// ownCost returns the cost of a command if it does not depend on the state, else 0.
func ownCost(cmd *logv1.Command) int {
	switch k := cmd.Kind.(type) {
	case *logv1.Command_SubmitJob:
		n := 1
		for _, j := range k.SubmitJob.GetJobs() {
			n += 1 + len(j.GetSpec().GetDepends())/8
		}
		return n
	case *logv1.Command_PutBulk:
		return 1 + int(k.PutBulk.GetSize()>>10) // this part may complete it
	case *logv1.Command_ApplyPlan:
		return 1 + len(k.ApplyPlan.GetStarts()) + len(k.ApplyPlan.GetMoves())
	case *logv1.Command_EstimateJobs:
		n := 1
		for _, g := range k.EstimateJobs.GetGroups() {
			n += 1 + len(g.GetJobs())
		}
		return n
	case *logv1.Command_NoteLoads:
		return 1 + len(k.NoteLoads.GetServices())
	case *logv1.Command_NoteProgress:
		return 1 + len(k.NoteProgress.GetAttempts())
	case *logv1.Command_SettleNotices:
		return 1 + (len(k.SettleNotices.GetSent())+len(k.SettleNotices.GetDead()))/8
	}
	return 0
}
