package nodes

import (
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/series"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// seriesCards bounds for how many GPUs measurements are remembered, which is 70 MB
// at most.
const seriesCards = 16 << 10

// shown remembers measurements of GPUs within the last hour. Its owner holds a
// lock.
type shown map[cluster.GPUID]*series.Ring

func (s shown) add(gpu cluster.GPUID, now time.Time, u *nodev1.GPUUsage) {
	r := s[gpu]
	if r == nil {
		if len(s) >= seriesCards {
			return
		}
		r = series.NewRing(series.FineStep, series.FineSteps)
		s[gpu] = r
	}
	r.Add(now, series.Reading{UsedMiB: u.UsedMib, UtilMilli: u.UtilMilli, PowerW: u.PowerW})
}

// of returns a GPU's measurements from one time to another, the oldest first.
func (s shown) of(gpu cluster.GPUID, from, to time.Time) []series.Sample {
	r := s[gpu]
	if r == nil {
		return nil
	}
	return r.Of(from, to)
}

// Series returns a GPU's measurements within the last hour from one time to
// another, as far as this coordinator led then, the oldest first.
func (n *Nodes) Series(gpu cluster.GPUID, from, to time.Time) []series.Sample {
	n.live.mu.Lock()
	defer n.live.mu.Unlock()
	return n.live.series.of(gpu, from, to)
}
