package conv

import (
	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// tellingFromAPI reads whom a job wants written to, and how long it may idle.
func tellingFromAPI(s *cluster.Spec, m *apiv1.JobSpec) (err error) {
	if t := m.GetMailType(); t != "" {
		if s.Mail.Events, err = cluster.ParseMailEvents(t); err != nil {
			return err
		}
	}
	s.Mail.To, s.NoResize = m.GetMailUser(), m.GetNoResize()
	s.IdleOK, err = duration("idle_ok", m.GetIdleOk())
	return err
}

func idleToLog(m *cluster.IdleMark) *logv1.IdleMark {
	if m == nil {
		return nil
	}
	return &logv1.IdleMark{
		Stage: uint32(m.Stage), SinceUs: int64(m.Since), AtUs: int64(m.At), BusyMs: m.BusyMs, KnownMs: m.KnownMs, Was: gpuSharesToLog(m.Was),
	}
}

func idleFromLog(m *logv1.IdleMark) *cluster.IdleMark {
	if m == nil {
		return nil
	}
	return &cluster.IdleMark{
		Stage: cluster.IdleStage(min(m.Stage, uint32(cluster.IdleEnded))), Since: cluster.Time(m.SinceUs), At: cluster.Time(m.AtUs),
		BusyMs: m.BusyMs, KnownMs: m.KnownMs, Was: gpuSharesFromLog(m.Was),
	}
}

func resizeToLog(m *cluster.ResizeMark) *logv1.ResizeMark {
	if m == nil {
		return nil
	}
	return &logv1.ResizeMark{AtUs: int64(m.At), Was: gpuSharesToLog(m.Was), Cuts: m.Cuts}
}

func resizeFromLog(m *logv1.ResizeMark) *cluster.ResizeMark {
	if m == nil {
		return nil
	}
	return &cluster.ResizeMark{At: cluster.Time(m.AtUs), Was: gpuSharesFromLog(m.Was), Cuts: m.Cuts}
}

// Resize is the command that gives an attempt other shares.
func Resize(id cluster.AttemptID, shares []cluster.GPUShare) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_ResizeAttempt{ResizeAttempt: &logv1.ResizeAttempt{
		Job: uint64(id.Job), Attempt: id.No, Gpus: gpuSharesToLog(shares),
	}}}
}

// ResizedShares are those that a command gives.
func ResizedShares(c *logv1.ResizeAttempt) []cluster.GPUShare { return gpuSharesFromLog(c.Gpus) }
