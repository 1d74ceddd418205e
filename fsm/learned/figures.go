package learned

import (
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// Bounds of the figures of an attempt.
const (
	maxPowerW  = 10_000 // per GPU
	maxSteps   = 1_000_000_000_000
	longestRun = 366 * 24 * time.Hour

	maxCPUMilli = 1 << 22 // per attempt
)

// Absurd reports whether a report holds impossible numbers: negative ones, memory
// that exceeds its GPU's by more than a twentieth, more than a whole GPU, or an end
// before the start. card may be nil.
func Absurd(r *logv1.ReportAttempt, a *cluster.Attempt, card *cluster.GPU) bool {
	u := r.GetUsage()
	for _, v := range []struct{ got, most int64 }{
		{u.GetGpuMemPeakMib(), cluster.MaxMemMiB}, {u.GetMilli(), cluster.WholeGPU}, {u.GetHostMemPeakMib(), cluster.MaxMemMiB},
		{u.GetCpuMilli(), maxCPUMilli}, {u.GetDurationUs(), longestRun.Microseconds()}, {u.GetPowerW(), maxPowerW}, {u.GetSteps(), maxSteps},
	} {
		if v.got < 0 || v.got > v.most {
			return true
		}
	}
	if card != nil && card.MemMiB > 0 && u.GetGpuMemPeakMib() > card.MemMiB+card.MemMiB/20 {
		return true
	}
	return r.EndedUs > 0 && r.EndedUs < r.StartedUs || a.Ended.Sub(max(a.Started, a.Placed)) > longestRun
}

const (
	maxEnergyJ = maxPowerW * 64 * 366 * 24 * 3600 // all GPUs of a node in a year
	maxIOBytes = 1 << 60
	maxMilli   = 1000
)

// SaneProfile bounds an agent's profile of a, whose Neighbours and times are set,
// so that no sum of it overflows. It keeps only neighbours that the placements
// confirm.
func SaneProfile(p *cluster.Profile, a *cluster.Attempt) *cluster.Profile {
	if p == nil {
		return nil
	}
	ran := a.Ended.Sub(max(a.Started, a.Placed))
	q := *p
	bound(&q.GPUMemMeanMiB, cluster.MaxMemMiB)
	bound(&q.MilliP95, maxMilli)
	bound(&q.MemActivity, maxMilli)
	bound(&q.EnergyJ, maxEnergyJ)
	bound(&q.HighWaterMiB, 16*cluster.MaxMemMiB)
	bound(&q.ReadBytes, maxIOBytes)
	bound(&q.WrittenBytes, maxIOBytes)
	q.Sampled, q.Gap = within(q.Sampled, ran), within(q.Gap, ran)
	q.Neighbours = nil
	for _, n := range p.Neighbours {
		if !slices.Contains(a.Neighbours, n.Job) {
			continue
		}
		if len(q.Neighbours) == cluster.MaxProfileSpans {
			q.MoreNeighbours++
			continue
		}
		n.From = within(n.From, ran)
		n.For = within(n.For, ran-n.From)
		bound(&n.Milli, maxMilli)
		q.Neighbours = append(q.Neighbours, n)
	}
	q.Neighbours = slices.Clip(q.Neighbours)
	q.MoreNeighbours = min(max(0, q.MoreNeighbours), maxMore)
	return &q
}

const maxMore = 1 << 20

func bound(v *int64, most int64) { *v = min(max(0, *v), most) }

// within bounds a time by the attempt's own, in whole milliseconds as stored: a
// restored state must equal the saved one.
func within(d, most time.Duration) time.Duration {
	return min(max(0, d), max(0, most)).Truncate(time.Millisecond)
}

// SaneUsage bounds an agent's measurements, so that no sum of them overflows.
func SaneUsage(u cluster.Usage, longest time.Duration) cluster.Usage {
	u.GPUMemPeakMiB = min(max(0, u.GPUMemPeakMiB), cluster.MaxMemMiB)
	u.HostMemPeakMiB = min(max(0, u.HostMemPeakMiB), cluster.MaxMemMiB)
	u.Milli = min(max(0, u.Milli), cluster.WholeGPU)
	u.CPUMilli = min(max(0, u.CPUMilli), maxCPUMilli)
	u.Duration = min(max(0, u.Duration), longest)
	u.PowerW = min(max(0, u.PowerW), maxPowerW)
	u.Steps = min(max(0, u.Steps), maxSteps)
	return u
}
