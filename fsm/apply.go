package fsm

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func (s *State) apply(cmd *logv1.Command) Result {
	var r Result
	switch k := cmd.Kind.(type) {
	case *logv1.Command_SubmitJob, *logv1.Command_CancelJob, *logv1.Command_HoldJob, *logv1.Command_RequeueJob, *logv1.Command_ChangeTasks,
		*logv1.Command_UpdateJob, *logv1.Command_EstimateJobs, *logv1.Command_ExpireJobs, *logv1.Command_NoteLoads:
		r = s.desk.Apply(cmd)
	case *logv1.Command_PutBulk:
		r = s.blobs.Put(*s.at, k.PutBulk)
	case *logv1.Command_ApplyPlan, *logv1.Command_ReportAttempt, *logv1.Command_PreemptAttempt, *logv1.Command_UndoGang,
		*logv1.Command_MarkAttempt, *logv1.Command_IdleAttempt, *logv1.Command_ResizeAttempt, *logv1.Command_NoteProgress,
		*logv1.Command_GrowAttempt, *logv1.Command_ShrinkAttempt:
		r = s.steward.Apply(cmd)
	case *logv1.Command_RegisterNode, *logv1.Command_SetNodeState, *logv1.Command_FenceNode, *logv1.Command_RemoveNode, *logv1.Command_PowerNode,
		*logv1.Command_SetPartition, *logv1.Command_RemovePartition, *logv1.Command_SetReservation, *logv1.Command_RemoveReservation:
		r = s.staff.Apply(cmd)
	case *logv1.Command_DrainNode, *logv1.Command_DrainGpu, *logv1.Command_SetSharing:
		r = s.fleet.Apply(cmd)
	case *logv1.Command_CreateToken, *logv1.Command_UseToken, *logv1.Command_DenyIdentity:
		r = s.keyring.Apply(*s.at, cmd)
	case *logv1.Command_PublishWeights, *logv1.Command_InstallWeights, *logv1.Command_RollbackWeights, *logv1.Command_PinWeights,
		*logv1.Command_ImportRuns, *logv1.Command_InstallInterference:
		r = s.learned.Apply(*s.at, cmd)
	case *logv1.Command_AddWebhook, *logv1.Command_RemoveWebhook, *logv1.Command_SettleNotices:
		r = s.outbox.Apply(*s.at, cmd)
	case *logv1.Command_SetStanding:
		if r = s.books.Apply(*s.at, cmd); r.Err == nil {
			s.roll.Changed(Change{Partition: "*"}) // plan again
		}
	case *logv1.Command_Checkpoint:
		// handled by the FSM, which keeps the hashes
	case *logv1.Command_InitCluster:
		r = s.initCluster(k.InitCluster)
	default:
		// Continuing would make this replica's state differ from that of replicas
		// that know it.
		panic(fmt.Sprintf("fsm: entry %d: a command of a kind that this berth does not know: %T", s.at.Index, cmd.Kind))
	}
	r.Index = s.at.Index
	return r
}

const (
	defaultKeep = 20_000
	maxKeep     = 10_000_000
)

// initCluster gives the log its cluster, once; repeating it with the same id
// changes nothing.
func (s *State) initCluster(c *logv1.InitCluster) Result {
	cfg := c.GetConfig()
	switch {
	case cfg.GetClusterId() == "":
		return command.Refuse(cluster.CodeInvalid, "the cluster id is missing")
	case cfg.KeepFinished > maxKeep:
		return command.Refuse(cluster.CodeInvalid, "keep_finished: %d is outside 0 to %d", cfg.KeepFinished, maxKeep)
	case s.config != nil && s.config.ClusterId != cfg.ClusterId:
		return command.Refuse(cluster.CodeConflict, "the cluster is %q already", s.config.ClusterId)
	case s.config != nil:
		return Result{}
	}
	s.setConfig(cfg)
	s.roll.Forget()
	return Result{}
}

func (s *State) setConfig(c *logv1.Config) {
	s.config = &logv1.Config{ClusterId: c.ClusterId, Name: c.Name, KeepFinished: c.KeepFinished}
	s.configDigest.Touch(table.One{})
	if s.roll.Keep = int(c.KeepFinished); s.roll.Keep == 0 {
		s.roll.Keep = defaultKeep
	}
}
