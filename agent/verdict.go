package agent

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/launcher"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// verdict turns how a process ended into how its attempt ended. The code and
// the signal are reported as they are, whatever the verdict.
func (a *Agent) verdict(ctx context.Context, t *task, s runtime.Task) *nodev1.Report {
	r := &nodev1.Report{Exit: &nodev1.Exit{Code: int32(s.ExitCode), Signal: int32(s.Signal)}, Usage: t.meter.usage(ctx, s)}
	if !s.Started.IsZero() {
		r.Started = timestamppb.New(s.Started)
	}
	if !s.Ended.IsZero() {
		r.Ended = timestamppb.New(s.Ended)
	}
	as, _ := t.wants()
	_, server, _ := t.blows()
	if server == nil && s.ExitCode != 0 && as != nil && a.cfg.MemCaps.Daemons != nil && a.cards.HeldBy(as, caps.MPS) != nil {
		a.checkDaemon(ctx, as.Gpus[0].Uuid) // it may have ended for what is not yet known
		_, server, _ = t.blows()
	}
	e := &attempt.Ended{ID: t.id.String(), Task: s, As: as, Life: t.life, Server: server, Idle: t.idle.Limit, Rest: launcher.RestOfBatch(as)}
	if !e.Judge(r) && (len(as.GetGpus()) == 0 || !e.JudgeMemory(r, a.memoryOf(ctx, e, r.Usage.GpuOom))) {
		e.JudgeExit(r)
	}
	return r
}

// memoryOf looks for what there is of the GPU memory of an attempt that failed. The
// output of one of which the provider itself refused an allocation is not read.
func (a *Agent) memoryOf(ctx context.Context, e *attempt.Ended, refused bool) *attempt.Memory {
	ended := e.Task.Ended
	if ended.IsZero() {
		ended = time.Now()
	}
	m := &attempt.Memory{}
	m.Held, _ = a.cards.Mem.Peak(e.ID, ended)
	m.By = a.cards.Mem.Blame(m.UUID, e.ID, ended)
	if !refused {
		m.Line = a.outputs.oomLine(ctx, e.As)
	}
	return m
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
