package jobs

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/api/calls"
	"github.com/berth-scheduler/berth/coordinator/current"
	"github.com/berth-scheduler/berth/coordinator/history"
	"github.com/berth-scheduler/berth/coordinator/limit"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

const (
	historyPage = 200 // jobs in one message
)

// historyServer answers from this coordinator's own store and state, whether it
// leads or not, but waits until it has caught up with the leader.
type historyServer struct {
	apirpc.UnimplementedHistoryServiceServer
	c *Jobs
}

// ListHistory streams jobs in the order of their ends.
func (s *historyServer) ListHistory(req *apiv1.ListHistoryRequest, stream grpc.ServerStreamingServer[apiv1.ListHistoryResponse]) error {
	ctx := stream.Context()
	q, err := historyQuery(req.Filter)
	if err != nil {
		return err
	}
	q.Limit, q.OldestFirst = int(min(req.Limit, 1<<30)), req.OldestFirst
	q.Before = history.Place{Index: req.AfterIndex, Job: cluster.JobID(req.AfterJob)}
	out := &historyPages{c: s.c, who: authorize.CallerOf(ctx), stream: stream, Currency: s.c.current.Reach(ctx, req.MinIndex)}
	if out.turn, err = s.c.calls.Turn(ctx); err != nil {
		return err
	}
	defer out.turn.End()
	if req.Unfinished {
		for _, j := range s.c.unfinished(&q) {
			if err := out.add(j); err != nil {
				return err
			}
		}
	}
	whole, err := s.c.archive.Scan(ctx, &q, out.add)
	if err != nil {
		return err
	}
	return out.end(whole)
}

// historyPages collects jobs into messages.
type historyPages struct {
	c      *Jobs
	who    authorize.Caller
	stream grpc.ServerStreamingServer[apiv1.ListHistoryResponse]
	current.Currency
	jobs []*apiv1.Job
	sent bool
	turn *limit.Turn
}

func (p *historyPages) add(j *cluster.Job) error {
	p.jobs = append(p.jobs, p.c.historyView(j, p.who))
	if len(p.jobs) < historyPage {
		return p.turn.Step()
	}
	return p.flush()
}

func (p *historyPages) flush() error {
	m := p.message()
	p.jobs, p.sent = nil, true
	return p.send(m)
}

// send sends a message that was built in the turn, which others may have meanwhile.
func (p *historyPages) send(m *apiv1.ListHistoryResponse) error {
	data, err := calls.Encode(m)
	if err != nil {
		return err
	}
	p.turn.End()
	if err := p.stream.SendMsg(data); err != nil {
		return err
	}
	return p.turn.Step()
}

func (p *historyPages) message() *apiv1.ListHistoryResponse {
	return &apiv1.ListHistoryResponse{Jobs: p.jobs, Index: p.c.fsm.Index(), Behind: p.Behind, LeaderIndex: p.Want}
}

// end sends what is left, and whether jobs may be missing. It sends at least one
// message, so that the client learns the index.
func (p *historyPages) end(whole bool) error {
	if len(p.jobs) == 0 && p.sent && whole {
		return nil
	}
	m := p.message()
	m.Incomplete = !whole
	return p.send(m)
}

// historyView returns a job as who may see it, without what only the leader knows.
func (c *Jobs) historyView(j *cluster.Job, who authorize.Caller) *apiv1.Job {
	m := apiconv.JobToAPI(j, apiconv.JobDetail{GPU: c.gpuName, Redact: c.auth.May(who, authorize.ReadJob, &j.Owner) != nil})
	nameTypes(m)
	if j.InArray() && m.ArrayTasks == "" {
		m.ArrayTasks = j.TasksText() // its record lacks the numbers of the others
	}
	return m
}

// nameTypes names the types of GPUs that are gone as recorded in their placement.
func nameTypes(m *apiv1.Job) {
	name := func(gpus []*apiv1.GPUShare, p *apiv1.Prediction) {
		for _, g := range gpus {
			if g.Type == "" {
				g.Type = p.GetGpuType()
			}
		}
	}
	name(m.Gpus, m.Predicted)
	for _, a := range m.Attempts {
		name(a.Gpus, a.Predicted)
		for _, p := range a.Parts {
			name(p.Gpus, a.Predicted)
		}
	}
}

// unfinished returns the jobs that have not ended and that match the query except
// for the time of their end, by id.
func (c *Jobs) unfinished(q *history.Query) []*cluster.Job {
	live := *q
	live.EndedFrom, live.EndedBefore, live.Before = 0, 0, history.Place{}
	jobs, _ := c.fsm.Jobs(fsm.Query{
		Limit: int(^uint(0) >> 1),
		States: []cluster.JobState{
			cluster.JobPending, cluster.JobQueued, cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable,
		},
		Keep: func(j *cluster.Job) bool {
			r := history.RowOf(j)
			return live.Match(&r)
		},
	})
	return jobs
}

// GetReport aggregates jobs.
func (s *historyServer) GetReport(ctx context.Context, req *apiv1.GetReportRequest) (*apiv1.GetReportResponse, error) {
	q, err := historyQuery(req.Filter)
	if err != nil {
		return nil, err
	}
	by := cmp.Or(history.By(req.By), history.ByUser)
	if !by.Valid() {
		return nil, cluster.Errorf(cluster.CodeInvalid, "by: is %.40q, want user, account, partition or gpu-type", req.By)
	}
	at := s.c.current.Reach(ctx, 0)
	turn, err := s.c.calls.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer turn.End()
	sum, whole, err := s.c.archive.Report(ctx, &q, by, turn)
	if err != nil {
		return nil, err
	}
	resp := &apiv1.GetReportResponse{Index: s.c.fsm.Index(), Incomplete: !whole, Behind: at.Behind, LeaderIndex: at.Want}
	lines, total := sum.Lines()
	for i := range lines {
		resp.Lines = append(resp.Lines, lineToAPI(&lines[i]))
	}
	resp.Total = lineToAPI(&total)
	return resp, nil
}

func lineToAPI(l *history.Line) *apiv1.ReportLine {
	return &apiv1.ReportLine{
		Key: l.Key, Jobs: uint64(l.Jobs), Completed: uint64(l.Completed), Failed: uint64(l.Failed), Cancelled: uint64(l.Cancelled),
		AllocatedGpuSeconds: l.Allocated.Seconds(), MeasuredGpuSeconds: l.Measured.Seconds(), UsedGpuSeconds: l.Used.Seconds(),
		ChargedGpuSeconds: l.Charged.Seconds(), CoreSeconds: l.Cores.Seconds(), IdleGpuSeconds: l.Idle.Seconds(),
		WaitP50Seconds: l.WaitP50.Round(time.Millisecond).Seconds(), WaitP95Seconds: l.WaitP95.Round(time.Millisecond).Seconds(),
	}
}

func historyQuery(f *apiv1.HistoryFilter) (history.Query, error) {
	q := history.Query{Users: f.GetUsers(), Accounts: f.GetAccounts(), Partitions: f.GetPartitions(), Names: f.GetNames()}
	if n := len(q.Users) + len(q.Accounts) + len(q.Partitions) + len(q.Names) + len(f.GetIds()) + len(f.GetStates()); n > maxIDsPerFilter {
		return q, cluster.Errorf(cluster.CodeInvalid, "filter: has %d values, at most %d are allowed", n, maxIDsPerFilter)
	}
	q.IDs = apiconv.IDs[cluster.JobID](f.GetIds())
	for _, name := range f.GetStates() {
		st, err := cluster.ParseJobState(name)
		if err != nil {
			return q, cluster.Errorf(cluster.CodeInvalid, "states: %v", err)
		}
		q.States = append(q.States, st)
	}
	if t := f.GetEndedFrom(); t != nil {
		q.EndedFrom = cluster.TimeOf(t.AsTime())
	}
	if t := f.GetEndedBefore(); t != nil {
		q.EndedBefore = max(1, cluster.TimeOf(t.AsTime()))
	}
	if t := f.GetSubmittedBefore(); t != nil {
		q.SubmittedBefore = max(1, cluster.TimeOf(t.AsTime()))
	}
	return q, nil
}
