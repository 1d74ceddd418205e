package apiconv

import (
	"math"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// Ms converts milliseconds; values that do not fit become the longest duration.
func Ms(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(max(n, -most), most)) * time.Millisecond
}

func profileToAPI(p *cluster.Profile) *apiv1.Profile {
	if p == nil {
		return nil
	}
	m := &apiv1.Profile{
		GpuMemMeanMib: p.GPUMemMeanMiB, GpuUtilP95Milli: p.MilliP95, GpuMemActivityMilli: p.MemActivity,
		EnergyJ: p.EnergyJ, HostMemHighWaterMib: p.HighWaterMiB, ReadBytes: p.ReadBytes, WrittenBytes: p.WrittenBytes,
		SampledSeconds: p.Sampled.Seconds(), GapSeconds: p.Gap.Seconds(), MoreNeighbours: uint32(max(0, p.MoreNeighbours)),
	}
	for _, n := range p.Neighbours {
		m.Neighbours = append(m.Neighbours, &apiv1.NeighbourSpan{
			Job: uint64(n.Job), FromSeconds: n.From.Seconds(), Seconds: n.For.Seconds(), GpuUtilMilli: n.Milli,
		})
	}
	return m
}
