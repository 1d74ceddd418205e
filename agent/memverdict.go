package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/launcher"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// overCapReport says of an attempt what it held and what to ask for.
func overCapReport(r *nodev1.Report, b *nodev1.MemBreach) {
	peak := max(r.Usage.GpuMemPeakMib, b.HeldMib)
	r.State = nodev1.AttemptState_ATTEMPT_STATE_OUT_OF_MEMORY
	r.Reason = string(cluster.ReasonGPUOOM)
	r.Usage.GpuMemPeakMib, r.Usage.GpuOom = peak, true
	r.Detail = fmt.Sprintf("held %d MiB of GPU %s, more than its share of %d MiB, and was ended; ask for --gpu-mem %s or more",
		peak, b.Uuid, b.CapMib, caps.SuggestText(peak, b.CapMib))
}

// neighbourReport ends an attempt for what others did to it; its job waits
// again, and it is not held against it.
func neighbourReport(why string) *nodev1.Report {
	return &nodev1.Report{
		State: nodev1.AttemptState_ATTEMPT_STATE_LOST, Reason: string(cluster.ReasonGPUNeighbour), Detail: why,
	}
}

// gpuVerdict judges an attempt that failed by itself: whether it ran out of
// GPU memory, whose fault that was, and what its owner should ask for. It
// reports false when GPU memory explains nothing.
func (a *Agent) gpuVerdict(ctx context.Context, t *task, s runtime.Task, r *nodev1.Report) bool {
	as, _ := t.wants()
	if len(as.GetGpus()) == 0 {
		return false
	}
	ended := s.Ended
	if ended.IsZero() {
		ended = time.Now()
	}
	h, _ := a.cards.Mem.Peak(t.id.String(), ended)
	limit, peak := h.LimitMiB, max(h.PeakMiB, r.Usage.GpuMemPeakMib)
	if limit == 0 {
		limit = shareMiB(as)
	}
	refused := r.Usage.GpuOom // the provider itself refused an allocation
	line := ""
	if !refused {
		line = a.outputs.oomLine(ctx, as)
	}
	near := h.Near || peak*1000 >= limit*970
	by := a.cards.Mem.Blame(h.UUID, t.id.String(), ended)
	switch {
	case (refused || line != "") && !near && by != "":
		r.State = nodev1.AttemptState_ATTEMPT_STATE_LOST
		r.Reason, r.Usage.GpuOom = string(cluster.ReasonGPUNeighbour), false
		r.Detail = fmt.Sprintf("an allocation on GPU %s was refused at %d MiB of its %d MiB, while %s held more than its share", h.UUID, peak, limit, by)
	case refused, line != "" && near:
		r.State = nodev1.AttemptState_ATTEMPT_STATE_OUT_OF_MEMORY
		r.Reason, r.Usage.GpuOom = string(cluster.ReasonGPUOOM), true
		r.Usage.GpuMemPeakMib = peak
		r.Detail = fmt.Sprintf("an allocation on the GPU was refused; it held %d MiB at most and its share is %d MiB; ask for --gpu-mem %s or more",
			peak, limit, caps.SuggestText(peak, limit))
	case line != "":
		r.State = nodev1.AttemptState_ATTEMPT_STATE_FAILED
		r.Reason = string(cluster.ReasonExit)
		if s.Signal != 0 {
			r.Reason = string(cluster.ReasonSignal)
		}
		r.Detail = fmt.Sprintf("exit code %d; its output says %q, but it held only %d MiB of its %d MiB: one large allocation, or a limit of the program's own",
			s.ExitCode, line, peak, limit)
	default:
		return false
	}
	return true
}

// outputs reads what jobs wrote of GPU memory.
type outputs struct {
	tail     func(ctx context.Context, l *launch.Launch, path string, bytes int64) ([]byte, error) // nil reads nothing
	launcher *launcher.Launcher
	oomLog   *caps.OOMLog
	log      *slog.Logger
}

// oomLine returns the line at the end of an attempt's output that says that
// GPU memory ran out, or "".
func (o *outputs) oomLine(ctx context.Context, as *nodev1.Assignment) string {
	if o.tail == nil {
		return ""
	}
	l, err := o.launcher.Outline(as)
	if err != nil {
		return ""
	}
	paths := []string{l.Stderr}
	if l.Stdout != l.Stderr {
		paths = append(paths, l.Stdout)
	}
	for _, path := range paths {
		tail, err := o.tail(ctx, l, path, caps.TailBytes)
		if err != nil {
			o.log.Debug("cannot read the end of a job's output", "job", cluster.JobID(as.Job).String(), "err", err)
			continue
		}
		if line := o.oomLog.Find(tail); line != "" {
			return line
		}
	}
	return ""
}
