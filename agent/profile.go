package agent

import (
	"context"
	"time"

	"github.com/berth-scheduler/berth/agent/cards"
	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/profile"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// profilesFile is where an agent keeps what it measured of attempts that run.
const profilesFile = "profiles.json"

// grouped is a runtime whose tasks have control groups of their own. Group
// returns nil where there are none.
type grouped interface {
	Group(id cluster.AttemptID) *cgroup.Group
}

// measured is what a worker keeps to measure its attempt while it runs.
type measured struct {
	power   map[string]cards.Energy // what its cards had drawn when it began
	release func()                  // of the sampler's fast rate; nil without GPUs
	pid     int
}

// measure begins to measure a running attempt.
func (t *task) measure(as *nodev1.Assignment) {
	t.measured.power = t.agent.power.Mark(as.GetGpus())
	if len(as.GetGpus()) > 0 && t.measured.release == nil {
		t.measured.release = t.agent.cards.Sampler.Hold()
	}
	a := profile.Attempt{ID: t.id, Started: t.life.Started}
	for _, g := range as.GetGpus() {
		a.Cards = append(a.Cards, g.Uuid)
	}
	if rt, ok := t.rt.(grouped); ok {
		a.Group = rt.Group(t.id)
	}
	t.agent.recorder.Begin(a)
}

// observed tells the recorder which process the runtime sees.
func (t *task) observed(s runtime.Task) {
	if t.measured.pid != s.PID {
		t.measured.pid = s.PID
		t.agent.recorder.Pid(t.id, s.PID)
	}
}

// unmeasure ends what measure began. It may be called without it, and twice.
func (t *task) unmeasure(at time.Time) {
	t.agent.recorder.End(t.id, at) // whoever lay beside it is alone from now on
	if t.measured.release != nil {
		t.measured.release()
	}
}

// usage is what was measured of an attempt that ended.
func (a *Agent) usage(ctx context.Context, t *task, s runtime.Task) *nodev1.Usage {
	u := &nodev1.Usage{HostMemPeakMib: s.MemPeakBytes >> 20}
	if d := s.Ended.Sub(s.Started); !s.Started.IsZero() && d > 0 {
		u.CpuMilli = int64(s.CPUTime) * 1000 / int64(d)
	}
	u.PowerW = a.power.Mean(t.measured.power)
	ended := s.Ended
	if ended.IsZero() {
		ended = time.Now()
	}
	if res := a.recorder.End(t.id, ended); res != nil {
		// At the cap the kernel has dropped the page cache before it killed.
		if res.HostMemPeak > 0 && !s.OOMKilled {
			u.HostMemPeakMib = (res.HostMemPeak + 1<<20 - 1) >> 20
		}
		u.GpuMemPeakMib, u.GpuMilli, u.Profile = res.GPUMemPeakMiB, res.Milli, res.Profile
		u.Profile.HostHighWaterMib = s.MemPeakBytes >> 20
		io := res.IO().Max(s.IO)
		u.Profile.ReadBytes, u.Profile.WrittenBytes = io.Read, io.Written
	}
	a.accounted(ctx, t, u)
	return u
}

// accounted replaces what was sampled by the provider's own accounts, where it
// keeps some.
func (a *Agent) accounted(ctx context.Context, t *task, u *nodev1.Usage) {
	acc, ok := a.cfg.GPUs.(gpu.Accountant)
	if !ok {
		return
	}
	cards, err := acc.Account(ctx, t.id.String())
	if err != nil {
		t.log.Debug("no GPU account", "err", err)
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
