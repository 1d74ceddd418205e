package jobs

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/series"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/limit"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// seriesServer serves measurements of jobs' GPUs.
type seriesServer struct {
	apirpc.UnimplementedSeriesServiceServer
	c *Jobs
}

// GetSeries returns what was measured on the GPUs of a job's last attempt while it
// held them, and the metric that it reported.
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
	if err := s.c.calls.MayWork(ctx); err != nil {
		return nil, err
	}
	turn, err := s.c.calls.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer turn.End()
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
	return resp, s.showed(ctx, turn, resp, j, a, to)
}

// Limits on asking nodes for what the leader does not know. What is left out is
// served as far as the leader knows it: with all of it an answer takes 2 MB.
const (
	askedNodes = 16
	askedGPUs  = 64
	askWait    = 2 * time.Second
)

// showed adds what was measured on an attempt's GPUs until to: what the leader
// received, and from their nodes what it did not, as far as they answer. turn ends
// while it waits for these: for a job with thousands of GPUs the rest takes long.
func (s *seriesServer) showed(ctx context.Context, turn *limit.Turn, resp *apiv1.GetSeriesResponse, j *cluster.Job, a *cluster.Attempt, to time.Time) error {
	from, weekAgo, gpus := a.Started.Std(), s.c.clock().Add(-series.Week), 0
	known := map[cluster.GPUID][]series.Sample{}
	var asks sync.WaitGroup
	answers := make(chan map[cluster.GPUID][]series.Sample, askedNodes)
	ask, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	for rank, b := range a.Berths() {
		var lacks []string
		for _, share := range b.GPUs {
			if err := cmp.Or(ctx.Err(), turn.Step()); err != nil {
				cancel()
				asks.Wait()
				return err
			}
			resp.Gpus = append(resp.Gpus, s.gpu(b.Node, &share))
			own := s.c.nodes.Series(share.GPU, from, to)
			known[share.GPU] = own
			if (len(own) == 0 || time.Unix(own[0].At, 0).After(from)) && to.After(weekAgo) {
				lacks = append(lacks, string(share.GPU))
			}
		}
		gpus += len(lacks)
		if len(lacks) == 0 || len(lacks) > apiconv.MaxSeriesGPUs || rank >= askedNodes || gpus > askedGPUs {
			continue
		}
		of := conv.VisitOf(j, a, rank)
		asks.Go(func() { answers <- s.ask(ask, b.Node, of, lacks, from, to) })
	}
	turn.End()
	asks.Wait()
	close(answers)
	for told := range answers {
		for gpu, all := range told {
			known[gpu] = series.Merge(all, known[gpu])
		}
	}
	for _, m := range resp.Gpus {
		if err := cmp.Or(ctx.Err(), turn.Step()); err != nil {
			return err
		}
		apiconv.SetSeries(m, known[cluster.GPUID(m.Gpu)])
	}
	return nil
}

// ask gets from the agent of a node what was measured on its GPUs; nothing if it
// does not answer, as older agents do not.
func (s *seriesServer) ask(ctx context.Context, node cluster.NodeID, of *nodev1.Assignment, gpus []string, from, to time.Time) map[cluster.GPUID][]series.Sample {
	who := authorize.CallerOf(ctx)
	release, err := s.c.nodes.AdmitStream(who.UID)
	if err != nil {
		return nil
	}
	defer release()
	end, leave, err := s.c.nodes.Visit(ctx, node, &nodev1.Visit{
		Uid: uint32(who.UID), Admin: who.Admin && of.GetUid() != uint32(who.UID), Of: of,
		Open: &apiv1.AttachOpen{Job: of.GetJob(), Attempt: of.GetAttempt(), Node: string(node), What: &apiv1.AttachOpen_Series{
			Series: &apiv1.AttachSeries{Gpus: gpus, From: from.Unix(), To: to.Unix()},
		}},
	})
	if err != nil {
		return nil
	}
	leave = sync.OnceFunc(leave)
	defer leave()
	defer context.AfterFunc(ctx, leave)() // which ends Recv
	told := map[cluster.GPUID][]series.Sample{}
	for range 2 * apiconv.MaxSeriesGPUs { // including keep-alives
		m, err := end.Recv()
		if err != nil || m.GetEnded() != nil {
			break
		}
		for _, g := range m.GetSeries().GetGpus() {
			if slices.Contains(gpus, g.GetGpu()) {
				told[cluster.GPUID(g.GetGpu())] = apiconv.SeriesOf(g, from, to)
			}
		}
	}
	return told
}

func (s *seriesServer) gpu(node cluster.NodeID, share *cluster.GPUShare) *apiv1.GPUSeries {
	m := &apiv1.GPUSeries{Node: string(node), Gpu: string(share.GPU), GivenMib: share.Share.MemMiB}
	if n, ok := s.c.fsm.Node(node); ok {
		if g := n.GPU(share.GPU); g != nil {
			m.Index, m.Type, m.MemMib = uint32(g.Index), g.Type, g.MemMiB
		}
	}
	return m
}
