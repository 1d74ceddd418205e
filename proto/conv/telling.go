package conv

import (
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/study"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

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

// Resize returns the command that gives an attempt other shares.
func Resize(id cluster.AttemptID, shares []cluster.GPUShare) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_ResizeAttempt{ResizeAttempt: &logv1.ResizeAttempt{
		Job: uint64(id.Job), Attempt: id.No, Gpus: gpuSharesToLog(shares),
	}}}
}

// ResizedShares returns the shares that a command gives.
func ResizedShares(c *logv1.ResizeAttempt) []cluster.GPUShare { return gpuSharesFromLog(c.Gpus) }

// ProgressFromNode converts the progress that an attempt's node reports at now; nil
// for none.
func ProgressFromNode(m *nodev1.Steps, now cluster.Time) *cluster.Progress {
	if m == nil {
		return nil
	}
	p := cluster.Progress{
		At: now.Add(-time.Duration(min(max(m.AgoMs, 0), cluster.MaxStepTime.Milliseconds())) * time.Millisecond), Step: m.Step, Total: m.Total,
		StepTime: us(min(max(m.StepUs, 0), cluster.MaxStepTime.Microseconds())),
	}.Clip()
	if m.Metric != nil {
		p.Seen = &study.Seen{Last: *m.Metric, Best: m.Best, BestStep: m.BestStep}
	}
	return &p
}

// NoteProgress returns one attempt's entry for the command that records progress,
// which may hold several.
func NoteProgress(id cluster.AttemptID, p *cluster.Progress) *logv1.AttemptProgress {
	return &logv1.AttemptProgress{Job: uint64(id.Job), Attempt: id.No, Progress: progressToLog(p)}
}

// NoteServing is NoteProgress for the state of a replica.
func NoteServing(id cluster.AttemptID, s cluster.Serving) *logv1.AttemptProgress {
	return &logv1.AttemptProgress{Job: uint64(id.Job), Attempt: id.No, Serving: ServingToLog(&s)}
}

// PullFromNode converts a node's report on an image pull, nil for none.
func PullFromNode(m *nodev1.Pull) *cluster.Pull {
	if m == nil {
		return nil
	}
	p := cluster.Pull{Layers: m.Layers, Done: m.LayersDone, Bytes: m.Bytes, Got: m.BytesDone}.Clip()
	return &p
}

// PullToNode converts the progress of an image pull for a node to send.
func PullToNode(p cluster.Pull) *nodev1.Pull {
	return &nodev1.Pull{Layers: p.Layers, LayersDone: p.Done, Bytes: p.Bytes, BytesDone: p.Got}
}

// NotePull is NoteProgress for an image pull.
func NotePull(id cluster.AttemptID, p *cluster.Pull) *logv1.AttemptProgress {
	return &logv1.AttemptProgress{Job: uint64(id.Job), Attempt: id.No, Waits: reasonToLog(cluster.Reason{Code: cluster.ReasonPulling, Detail: p.String()})}
}

func progressToLog(p *cluster.Progress) *logv1.Progress {
	if p == nil {
		return nil
	}
	return &logv1.Progress{AtUs: int64(p.At), Step: p.Step, Total: p.Total, StepUs: p.StepTime.Microseconds(), Seen: seenToLog(p.Seen)}
}

// ProgressFromLog converts back; nil stays nil.
func ProgressFromLog(m *logv1.Progress) *cluster.Progress {
	if m == nil {
		return nil
	}
	return &cluster.Progress{At: cluster.Time(m.AtUs), Step: m.Step, Total: m.Total, StepTime: us(min(max(m.StepUs, 0), cluster.MaxStepTime.Microseconds())), Seen: seenFromLog(m.Seen)}
}

func cardPowerToLog(cards []cluster.CardPower) (out []*logv1.CardPower) {
	for _, p := range cards {
		out = append(out, &logv1.CardPower{Gpu: string(p.GPU), CapW: p.CapW, ClockMhz: p.ClockMHz, Why: p.Why})
	}
	return out
}

// CardPowerFromLog converts power and clock changes to GPUs.
func CardPowerFromLog(cards []*logv1.CardPower) (out []cluster.CardPower) {
	for _, p := range cards {
		out = append(out, cluster.CardPower{GPU: cluster.GPUID(p.GetGpu()), CapW: p.GetCapW(), ClockMHz: p.GetClockMhz(), Why: p.GetWhy()})
	}
	return out
}
