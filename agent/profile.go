package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/berth-scheduler/berth/agent/cards"
	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/probe"
	"github.com/berth-scheduler/berth/agent/profile"
	"github.com/berth-scheduler/berth/agent/progress"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// profilesFile is where an agent keeps its measurements of running attempts.
const profilesFile = "profiles.json"

// grouped is a runtime whose tasks have control groups of their own. Group returns nil for
// a task without one.
type grouped interface {
	Group(id cluster.AttemptID) *cgroup.Group
}

// groupOf returns the control group of an attempt, or nil.
func groupOf(rt runtime.Runtime, id cluster.AttemptID) *cgroup.Group {
	if g, ok := rt.(grouped); ok {
		return g.Group(id)
	}
	return nil
}

// meter measures an attempt while it runs. It belongs to the attempt's worker.
type meter struct {
	id       cluster.AttemptID
	recorder *profile.Recorder
	progress *progress.Feed
	prober   *probe.Prober
	says     string // the file in which the attempt reports its progress
	power    *cards.PowerMeter
	sampler  *cards.Sampler
	gpus     gpu.Provider
	log      *slog.Logger

	marks   map[string]cards.Energy // energy counters of its GPUs when it began
	release func()                  // releases the sampler's fast rate; nil without GPUs
	pid     int
}

func (m *meter) begin(rt runtime.Runtime, as *nodev1.Assignment, started time.Time) {
	m.marks = m.power.Mark(as.GetGpus())
	if len(as.GetGpus()) > 0 && m.release == nil {
		m.release = m.sampler.Hold()
	}
	a := profile.Attempt{ID: m.id, Started: started, Group: groupOf(rt, m.id)}
	for _, g := range as.GetGpus() {
		a.Cards = append(a.Cards, g.Uuid)
	}
	m.recorder.Begin(a)
	m.progress.Begin(m.id, m.says, as.GetMetric(), as.GetMetricMaximize())
	m.prober.Begin(m.id, as.GetUid(), as.GetReplica())
}

// observed tells the recorder which process the runtime sees.
func (m *meter) observed(s runtime.Task) {
	if m.pid != s.PID {
		m.pid = s.PID
		m.recorder.Pid(m.id, s.PID)
	}
}

// end ends what begin began. It may be called without begin, and twice.
func (m *meter) end(at time.Time) {
	m.recorder.End(m.id, at) // from now on, co-located attempts count as alone
	m.progress.End(m.id)
	m.prober.End(m.id)
	if m.release != nil {
		m.release()
	}
}

// usage returns what was measured of an attempt that ended.
func (m *meter) usage(ctx context.Context, s runtime.Task) *nodev1.Usage {
	u := &nodev1.Usage{HostMemPeakMib: s.MemPeakBytes >> 20, PowerW: m.power.Mean(m.marks)}
	if d := s.Ended.Sub(s.Started); !s.Started.IsZero() && d > 0 {
		u.CpuMilli = int64(s.CPUTime) * 1000 / int64(d)
	}
	ended := s.Ended
	if ended.IsZero() {
		ended = time.Now()
	}
	if res := m.recorder.End(m.id, ended); res != nil {
		// At the cap, the kernel drops the page cache before it kills.
		if res.HostMemPeak > 0 && !s.OOMKilled {
			u.HostMemPeakMib = (res.HostMemPeak + 1<<20 - 1) >> 20
		}
		u.GpuMemPeakMib, u.GpuMilli, u.Profile = res.GPUMemPeakMiB, res.Milli, res.Profile
		u.Profile.HostHighWaterMib = s.MemPeakBytes >> 20
		io := res.IO().Max(s.IO)
		u.Profile.ReadBytes, u.Profile.WrittenBytes = io.Read, io.Written
	}
	m.accounted(ctx, u)
	return u
}

// accounted replaces sampled values with the provider's own accounting, where there is one.
func (m *meter) accounted(ctx context.Context, u *nodev1.Usage) {
	acc, ok := m.gpus.(gpu.Accountant)
	if !ok {
		return
	}
	cards, err := acc.Account(ctx, m.id.String())
	if err != nil {
		m.log.Debug("no GPU account", "err", err)
		return
	}
	var busy, elapsed time.Duration
	u.GpuMemPeakMib = 0
	for _, c := range cards {
		u.GpuMemPeakMib = max(u.GpuMemPeakMib, c.PeakMiB)
		u.GpuOom = u.GpuOom || c.OOM
		busy += c.Busy
		elapsed += c.Elapsed
	}
	if elapsed > 0 {
		u.GpuMilli = int64(busy) * 1000 / int64(elapsed)
	}
}
