package conv

import (
	"math"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// spanNumbers is how many numbers the log keeps per NeighbourSpan.
const spanNumbers = 4

// reportedProfile converts an agent's profile for the log. The state machine bounds
// it.
func reportedProfile(p *nodev1.Profile) *logv1.Profile {
	if p == nil {
		return nil
	}
	m := &logv1.Profile{
		GpuMemMeanMib: p.GpuMemMeanMib, GpuP95Milli: p.GpuP95Milli, GpuMemActivityMilli: p.GpuMemActivityMilli,
		EnergyJ: p.EnergyJ, HostHighWaterMib: p.HostHighWaterMib, ReadBytes: p.ReadBytes, WrittenBytes: p.WrittenBytes,
		SampledMs: p.SampledMs, GapMs: p.GapMs, MoreNeighbours: p.MoreNeighbours,
	}
	for i, n := range p.Neighbours {
		if i == cluster.MaxProfileSpans {
			m.MoreNeighbours += uint32(len(p.Neighbours) - i)
			break
		}
		m.Neighbours = append(m.Neighbours, int64(n.Job), n.FromMs, n.ForMs, n.Milli)
	}
	return m
}

func profileToLog(p *cluster.Profile) *logv1.Profile {
	if p == nil {
		return nil
	}
	m := &logv1.Profile{
		GpuMemMeanMib: p.GPUMemMeanMiB, GpuP95Milli: p.MilliP95, GpuMemActivityMilli: p.MemActivity,
		EnergyJ: p.EnergyJ, HostHighWaterMib: p.HighWaterMiB, ReadBytes: p.ReadBytes, WrittenBytes: p.WrittenBytes,
		SampledMs: p.Sampled.Milliseconds(), GapMs: p.Gap.Milliseconds(), MoreNeighbours: uint32(p.MoreNeighbours),
	}
	for _, n := range p.Neighbours {
		m.Neighbours = append(m.Neighbours, int64(n.Job), n.From.Milliseconds(), n.For.Milliseconds(), n.Milli)
	}
	return m
}

// profileFromLog converts back; numbers that do not form a whole span are dropped.
func profileFromLog(m *logv1.Profile) *cluster.Profile {
	if m == nil {
		return nil
	}
	p := &cluster.Profile{
		GPUMemMeanMiB: m.GpuMemMeanMib, MilliP95: m.GpuP95Milli, MemActivity: m.GpuMemActivityMilli,
		EnergyJ: m.EnergyJ, HighWaterMiB: m.HostHighWaterMib, ReadBytes: m.ReadBytes, WrittenBytes: m.WrittenBytes,
		Sampled: apiconv.Ms(m.SampledMs), Gap: apiconv.Ms(m.GapMs), MoreNeighbours: int(min(m.MoreNeighbours, math.MaxInt32)),
	}
	if n := len(m.Neighbours) / spanNumbers; n > 0 {
		p.Neighbours = make([]cluster.NeighbourSpan, 0, n)
		for s := m.Neighbours; len(s) >= spanNumbers; s = s[spanNumbers:] {
			p.Neighbours = append(p.Neighbours, cluster.NeighbourSpan{Job: cluster.JobID(s[0]), From: apiconv.Ms(s[1]), For: apiconv.Ms(s[2]), Milli: s[3]})
		}
	}
	return p
}
