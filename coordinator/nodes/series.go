package nodes

import (
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/series"
)

// seriesCards bounds for how many GPUs measurements are remembered, which is 70 MB
// at most.
const seriesCards = 16 << 10

// shown remembers measurements of GPUs within the last hour. Its owner holds a
// lock.
type shown map[cluster.GPUID]*series.Ring

// ring returns where a GPU's measurements go, nil if there are too many others.
func (s shown) ring(gpu cluster.GPUID) *series.Ring {
	r := s[gpu]
	if r == nil && len(s) < seriesCards {
		r = series.NewRing(series.FineStep, series.FineSteps)
		s[gpu] = r
	}
	return r
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
