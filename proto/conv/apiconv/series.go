package apiconv

import (
	"math"
	"time"

	"github.com/berth-scheduler/berth/cluster/series"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// MaxSeriesGPUs bounds AttachSeries.gpus.
const MaxSeriesGPUs = 16

// SetSeries sets the lists of m.
func SetSeries(m *apiv1.GPUSeries, all []series.Sample) {
	n := len(all)
	m.At, m.UsedMib, m.UtilMilli, m.PowerW = make([]int64, n), make([]int64, n), make([]int32, n), make([]uint32, n)
	for i, x := range all {
		m.At[i], m.UsedMib[i], m.UtilMilli[i], m.PowerW[i] = x.At, x.UsedMiB, x.UtilMilli, x.PowerW
	}
}

// SeriesOf returns the samples that a node reports for a period, without those
// outside it, not increasing in time, or impossible for a GPU; none if its lists
// differ in length.
func SeriesOf(m *apiv1.GPUSeries, from, to time.Time) []series.Sample {
	n := len(m.GetAt())
	if len(m.GetUsedMib()) != n || len(m.GetUtilMilli()) != n || len(m.GetPowerW()) != n || n > series.FineSteps+series.CoarseSteps {
		return nil
	}
	out := make([]series.Sample, 0, n)
	least := from.Add(-series.FineStep).Unix() // within a step that began before
	for i, at := range m.GetAt() {
		x := series.Sample{At: at, UsedMiB: m.GetUsedMib()[i], UtilMilli: m.GetUtilMilli()[i], PowerW: m.GetPowerW()[i]}
		if at <= least || at > to.Unix() || x.UsedMiB < 0 || x.UsedMiB > math.MaxInt32 || x.UtilMilli < -1 || x.UtilMilli > 1000 || x.PowerW > math.MaxUint16 {
			continue
		}
		out, least = append(out, x), at
	}
	return out
}
