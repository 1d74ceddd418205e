package relay

import (
	"time"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// series sends the samples of the requested GPUs, one frame per GPU so that none is large: at
// most 2,376 samples, which are 36 KB.
func (l *link) series(v *Visit, ask *apiv1.AttachSeries) error {
	if n := len(ask.GetGpus()); n > apiconv.MaxSeriesGPUs {
		return cluster.Errorf(cluster.CodeInvalid, "gpus: %d, at most %d are allowed", n, apiconv.MaxSeriesGPUs)
	}
	now := time.Now()
	for _, uuid := range ask.GetGpus() {
		all := v.Series.Of(now, uuid, time.Unix(ask.GetFrom(), 0), time.Unix(ask.GetTo(), 0))
		if len(all) == 0 {
			continue
		}
		g := &apiv1.GPUSeries{Gpu: uuid}
		apiconv.SetSeries(g, all)
		if err := l.send(&apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Series{Series: &apiv1.SeriesFrame{Gpus: []*apiv1.GPUSeries{g}}}}); err != nil {
			return err
		}
	}
	return l.ended(&apiv1.AttachEnded{})
}
