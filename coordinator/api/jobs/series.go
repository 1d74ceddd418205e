package jobs

import (
	"context"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/series"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// seriesServer answers for what the GPUs of jobs showed.
type seriesServer struct {
	apirpc.UnimplementedSeriesServiceServer
	c *Jobs
}

// GetSeries says what the GPUs of a job's last attempt showed while it was on them, and
// what it said of its metric.
func (s *seriesServer) GetSeries(ctx context.Context, req *apiv1.GetSeriesRequest) (*apiv1.GetSeriesResponse, error) {
	if err := s.c.office.Verify(ctx); err != nil {
		return nil, err
	}
	j, err := s.c.named(req.Id, req.Task)
	if err != nil {
		return nil, err
	}
	if err := s.c.auth.May(authorize.CallerOf(ctx), authorize.ReadJob, &j.Owner); err != nil {
		return nil, err
	}
	resp := &apiv1.GetSeriesResponse{StepSeconds: uint32(series.FineStep / time.Second)}
	a := j.Last()
	if a == nil || a.Started == 0 {
		return resp, nil
	}
	if st := j.Spec.Study; st != nil {
		resp.Metric = st.Metric
		for _, p := range s.c.nodes.Curve(j.ID, a) {
			resp.Steps, resp.Values = append(resp.Steps, p.Step), append(resp.Values, p.Value)
		}
	}
	to := s.c.clock()
	if a.Ended != 0 {
		to = a.Ended.Std()
	}
	for _, b := range a.Berths() {
		for _, share := range b.GPUs {
			resp.Gpus = append(resp.Gpus, s.gpu(b.Node, &share, a.Started.Std(), to))
		}
	}
	return resp, nil
}

func (s *seriesServer) gpu(node cluster.NodeID, share *cluster.GPUShare, from, to time.Time) *apiv1.GPUSeries {
	m := &apiv1.GPUSeries{Node: string(node), Gpu: string(share.GPU), GivenMib: share.Share.MemMiB}
	if n, ok := s.c.fsm.Node(node); ok {
		if g := n.GPU(share.GPU); g != nil {
			m.Index, m.Type, m.MemMib = uint32(g.Index), g.Type, g.MemMiB
		}
	}
	for _, x := range s.c.nodes.Series(share.GPU, from, to) {
		m.At, m.UsedMib = append(m.At, x.At), append(m.UsedMib, x.UsedMiB)
		m.UtilMilli, m.PowerW = append(m.UtilMilli, x.UtilMilli), append(m.PowerW, x.PowerW)
	}
	return m
}
