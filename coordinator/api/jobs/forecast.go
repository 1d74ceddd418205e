package jobs

import (
	"cmp"
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/api/calls"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/explain"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// mostForecasts bounds a request: each forecast simulates what is ahead of a job.
const mostForecasts = 200

// ListForecasts returns when waiting jobs are expected to start.
func (s *jobServer) ListForecasts(ctx context.Context, req *apiv1.ListForecastsRequest) (*apiv1.ListForecastsResponse, error) {
	if err := s.c.office.Verify(ctx); err != nil {
		return nil, err
	}
	if n := len(req.Ids); n > mostForecasts {
		return nil, cluster.Errorf(cluster.CodeInvalid, "ids: %d in one request, at most %d are allowed", n, mostForecasts)
	}
	turn, err := s.c.calls.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer turn.End()
	resp := &apiv1.ListForecastsResponse{}
	snap, _ := s.c.fsm.SchedulerSnapshotAt(cluster.TimeOf(s.c.clock()))
	for _, id := range req.Ids {
		if err := cmp.Or(ctx.Err(), turn.Step()); err != nil {
			return nil, err
		}
		if j, ok := s.c.fsm.Job(cluster.JobID(id)); ok && j.State.Waiting() {
			m := &apiv1.JobForecast{Id: id}
			m.Forecast, m.CannotSay = s.c.forecast(snap, j)
			resp.Forecasts = append(resp.Forecasts, m)
		}
	}
	return resp, nil
}

// forecast returns when a job is expected to start, or the reason why that is
// unknown.
func (c *Jobs) forecast(snap *dispatch.Snapshot, j *cluster.Job) (*apiv1.Forecast, string) {
	r := c.fsm.Barred(j, snap.Now)
	switch r.Code {
	case "":
	case cluster.ReasonBeginTime:
		// It starts no sooner, and how full the cluster will be then is unknown.
		at := timestamppb.New(max(j.Spec.Begin, j.DependAt).Std())
		return &apiv1.Forecast{StartP50: at, StartP90: at, Missing: c.barredDetail(j, r)}, ""
	default:
		return nil, cluster.Reason{Code: r.Code, Detail: c.barredDetail(j, r)}.String()
	}
	if r := c.lead.Scheduling().Of(j.Spec.Partition).SpanReason(j); r.Code != "" {
		return nil, r.String()
	}
	if len(j.Promised) > 0 {
		at := timestamppb.New(max(j.EstStart, snap.Now).Std())
		return &apiv1.Forecast{Node: string(j.Promised[0]), StartP50: at, StartP90: at, Missing: "planned for its deadline on " + hostnames.Fold(j.Promised)}, ""
	}
	view := *snap
	view.Running = c.learn.Known(snap.Running, snap.Nodes)
	view.Interference = c.learn.Company.ForScheduler(snap.Nodes, snap.Running, []*cluster.Job{j})
	j = site.Shared(&view, j, &c.lead.Scheduling().Site)
	part := site.PartitionOf(&view, j)
	own := site.Within(&view, part)
	if part != nil && (part.Down || len(own.Nodes) == 0) {
		for _, e := range explainPartition(&view, part) {
			return nil, e.Code + ": " + e.Detail
		}
	}
	if t := site.TenantReason(c.lead.Scheduling().Of(j.Spec.Partition), own, j); t.Code != "" {
		return nil, t.String()
	}
	pol := c.lead.PolicyOf(j)
	limit := site.LimitReason(&view, j, own.Nodes, pol)
	room, ok := c.quotaRoom(&view, j, own.Nodes, pol)
	if !ok {
		return nil, limit.String()
	}
	if f, ok := scheduler.ForecastStart(own, j, pol); ok {
		if f.P50 <= own.Now && c.lead.Scheduling().Of(j.Spec.Partition).Planner != nil {
			if _, behind := c.explain(own, j, pol); behind.Code != "" {
				return nil, behind.String()
			}
		}
		f.P50, f.P90 = max(f.P50, room.P50), max(f.P90, room.P90)
		if limit.Code != "" {
			f.Missing = limit.String()
		}
		return forecastToAPI(&f), ""
	}
	es, _ := c.explain(own, j, pol)
	for _, e := range es {
		return nil, e.Reason.String()
	}
	return nil, "no node could take it now"
}

// forecastNew says when a job that is not submitted would start.
func (c *Jobs) forecastNew(who authorize.Caller, spec *apiv1.JobSpec, resp *apiv1.PredictResponse) {
	if spec == nil {
		return
	}
	nodes := c.fsm.Nodes()
	j, err := c.learn.Job(who.Owner(), spec, c.learn.Types(nodes))
	if err != nil {
		return // its faults are already reported
	}
	if _, err := c.admission.Choose(who, j, c.fsm.Partitions(), nodes); err != nil {
		resp.CannotSay = apiconv.FromStatus(calls.ToStatus(context.Background(), c.log, err)).Msg
		return
	}
	snap, _ := c.fsm.SchedulerSnapshotAt(cluster.TimeOf(c.clock()))
	j.ID, j.State, j.Submitted, j.Eligible = c.fsm.NextJobID(), cluster.JobPending, snap.Now, snap.Now
	resp.NextJob = uint64(j.ID)
	j.Depends = make([]cluster.DependState, len(j.Spec.Depends))
	if d := j.Spec.DeadlineIn; d > 0 {
		j.Spec.Deadline, j.Spec.DeadlineIn = snap.Now.Add(d), 0
	}
	words, err := c.admission.Promise([]*cluster.Job{j}, snap.Now)
	if err != nil {
		resp.CannotSay = apiconv.FromStatus(calls.ToStatus(context.Background(), c.log, err)).Msg
		return
	}
	resp.Forecast, resp.CannotSay = c.forecast(snap, j)
	if len(words) > 0 {
		if resp.Forecast == nil {
			resp.Forecast, resp.CannotSay = &apiv1.Forecast{}, ""
		}
		resp.Forecast.Missing = words[0]
	}
}

func forecastToAPI(f *explain.Forecast) *apiv1.Forecast {
	m := &apiv1.Forecast{
		Node: string(f.Node), Missing: f.Missing,
		StartP50: timestamppb.New(f.P50.Std()), StartP90: timestamppb.New(f.P90.Std()), Ahead: uint32(max(0, f.Ahead)),
	}
	if f.GPU != nil {
		m.Gpu, m.GpuType = string(f.GPU.ID), f.GPU.Type
	}
	return m
}
