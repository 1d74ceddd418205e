package fsm

import (
	"fmt"

	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func (s *State) apply(index uint64, cmd *logv1.Command) Result {
	var r Result
	switch k := cmd.Kind.(type) {
	case *logv1.Command_SubmitJob, *logv1.Command_CancelJob, *logv1.Command_HoldJob, *logv1.Command_RequeueJob, *logv1.Command_ChangeTasks,
		*logv1.Command_UpdateJob, *logv1.Command_EstimateJobs, *logv1.Command_ExpireJobs:
		r = s.desk.Apply(cmd)
	case *logv1.Command_PutBulk:
		r = s.blobs.Put(s.entry(), k.PutBulk)
	case *logv1.Command_ApplyPlan, *logv1.Command_ReportAttempt, *logv1.Command_PreemptAttempt, *logv1.Command_UndoGang,
		*logv1.Command_MarkAttempt, *logv1.Command_IdleAttempt, *logv1.Command_ResizeAttempt, *logv1.Command_NoteProgress:
		r = s.steward.Apply(cmd)
	case *logv1.Command_RegisterNode:
		r = s.register(index, k.RegisterNode.GetNode())
	case *logv1.Command_SetNodeState:
		r = s.setNodeState(index, k.SetNodeState)
	case *logv1.Command_DrainNode, *logv1.Command_DrainGpu, *logv1.Command_SetSharing:
		r = s.fleet.Apply(cmd)
	case *logv1.Command_RemoveNode:
		r = s.removeNode(k.RemoveNode)
	case *logv1.Command_CreateToken, *logv1.Command_UseToken, *logv1.Command_DenyIdentity:
		r = s.keyring.Apply(s.entry(), cmd)
	case *logv1.Command_PublishWeights, *logv1.Command_InstallWeights, *logv1.Command_RollbackWeights, *logv1.Command_PinWeights,
		*logv1.Command_ImportRuns, *logv1.Command_InstallInterference:
		r = s.learned.Apply(s.entry(), cmd)
	case *logv1.Command_AddWebhook, *logv1.Command_RemoveWebhook, *logv1.Command_SettleNotices:
		r = s.outbox.Apply(s.entry(), cmd)
	case *logv1.Command_FenceNode:
		r = s.fence(index, k.FenceNode)
	case *logv1.Command_SetPartition:
		r = s.setPartition(index, k.SetPartition)
	case *logv1.Command_RemovePartition:
		r = s.removePartition(k.RemovePartition)
	case *logv1.Command_SetStanding:
		if r = s.books.Apply(s.entry(), cmd); r.Err == nil {
			s.roll.Changed(Change{Partition: "*"}) // plan anew
		}
	case *logv1.Command_SetReservation:
		r = s.setReservation(index, k.SetReservation)
	case *logv1.Command_RemoveReservation:
		r = s.removeReservation(k.RemoveReservation)
	case *logv1.Command_Checkpoint:
		// The FSM compares it: it keeps the hashes.
	case *logv1.Command_InitCluster:
		r = s.initCluster(k.InitCluster)
	default:
		// To go on would be to store something else than those who know it.
		panic(fmt.Sprintf("fsm: entry %d: a command of a kind that this berth does not know: %T", index, cmd.Kind))
	}
	r.Index = index
	return r
}
