package coordinator

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/history"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

const historyPage = 200 // jobs in one message

// historyServer answers from this coordinator's own store and state, whether it
// leads or not, but waits until it is as far as the leader.
type historyServer struct {
	apiv1.UnimplementedHistoryServiceServer
	c *Coordinator
}

// ListHistory streams jobs in the order of their ends.
func (s *historyServer) ListHistory(req *apiv1.ListHistoryRequest, stream grpc.ServerStreamingServer[apiv1.ListHistoryResponse]) error {
	ctx := stream.Context()
	q, err := historyQuery(req.Filter)
	if err != nil {
		return toStatus(ctx, s.c.log, err)
	}
	q.Limit, q.OldestFirst = int(min(req.Limit, 1<<30)), req.OldestFirst
	q.Before = history.Place{Index: req.AfterIndex, Job: cluster.JobID(req.AfterJob)}
	out := &historyPages{c: s.c, who: callerOf(ctx), stream: stream, currency: s.c.reach(ctx, req.MinIndex)}
	if req.Unfinished {
		for _, j := range s.c.unfinished(&q) {
			if err := out.add(j); err != nil {
				return toStatus(ctx, s.c.log, err)
			}
		}
	}
	whole, err := s.c.archive.scan(ctx, &q, out.add)
	if err != nil {
		return toStatus(ctx, s.c.log, err)
	}
	return out.end(whole)
}

// historyPages gathers jobs into messages.
type historyPages struct {
	c      *Coordinator
	who    caller
	stream grpc.ServerStreamingServer[apiv1.ListHistoryResponse]
	currency
	jobs []*apiv1.Job
	sent bool
}

func (p *historyPages) add(j *cluster.Job) error {
	p.jobs = append(p.jobs, p.c.historyView(j, p.who))
	if len(p.jobs) < historyPage {
		return nil
	}
	return p.flush()
}

func (p *historyPages) flush() error {
	m := p.message()
	p.jobs, p.sent = nil, true
	return p.stream.Send(m)
}

func (p *historyPages) message() *apiv1.ListHistoryResponse {
	return &apiv1.ListHistoryResponse{Jobs: p.jobs, Index: p.c.fsm.Index(), Behind: p.behind, LeaderIndex: p.want}
}

// end sends what is left, and whether jobs may be missing. At least one message
// is sent, so that the client learns the index.
func (p *historyPages) end(whole bool) error {
	if len(p.jobs) == 0 && p.sent && whole {
		return nil
	}
	m := p.message()
	m.Incomplete = !whole
	return p.stream.Send(m)
}

// historyView is a job as who may see it, without what only the leader knows.
func (c *Coordinator) historyView(j *cluster.Job, who caller) *apiv1.Job {
	m := conv.JobToAPI(j, conv.JobDetail{GPU: c.gpuName, Redact: c.authorize(who, actReadJob, &j.Owner) != nil})
	nameTypes(m)
	if j.InArray() && m.ArrayTasks == "" {
		m.ArrayTasks = j.TasksText() // its record has not the numbers of the others
	}
	return m
}

// nameTypes names the types of cards that are gone as their placement did.
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

// unfinished returns the jobs that have not ended and that the query would
// choose but for the time of their end, by id.
func (c *Coordinator) unfinished(q *history.Query) []*cluster.Job {
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

// scan yields the finished jobs that a query chooses: those that wait to be
// written, and those of the store. What is found damaged on the way is mended and
// read then. whole tells that nothing is missing.
func (a *archive) scan(ctx context.Context, q *history.Query, yield func(*cluster.Job) error) (whole bool, err error) {
	r := &reading{ctx: ctx, q: *q, left: q.Limit, yield: yield}
	for lost := false; ; {
		tail, view := a.present()
		err := r.once(tail, view)
		if err == nil {
			return !lost && view != nil && len(view.Holes()) == 0, nil
		}
		there, err := a.repaired(ctx, err)
		if err != nil {
			return false, err
		}
		lost = lost || !there
	}
}

// reading is a scan: it goes on behind the last job that was yielded.
type reading struct {
	ctx    context.Context
	q      history.Query
	left   int
	yield  func(*cluster.Job) error
	failed error
	done   bool
}

// each yields one job and tells whether to go on.
func (r *reading) each(x history.Result) bool {
	if r.failed = r.ctx.Err(); r.failed != nil {
		return false
	}
	var j *cluster.Job
	if j, r.failed = x.Job(); r.failed != nil {
		return false
	}
	r.q.Before = x.Row.Place()
	if j.Fold != nil && len(r.q.IDs) > 0 && !slices.ContainsFunc(r.q.IDs, func(id cluster.JobID) bool { return standsFor(j, id) }) {
		return true
	}
	r.failed = r.yield(j)
	r.left--
	r.done = r.left == 0
	return r.failed == nil && !r.done
}

// once reads what there is now. After a *history.Damage it may be called again.
func (r *reading) once(tail []*cluster.Job, view *history.View) error {
	q := r.q // its place stays as it is while this lasts
	q.Limit, r.failed = 0, nil
	fresh := func() bool {
		for i := range tail {
			j := tail[i]
			if !q.OldestFirst {
				j = tail[len(tail)-1-i]
			}
			if row := history.RowOf(j); q.Match(&row) && !r.each(history.Of(j, &row)) {
				return false
			}
		}
		return true
	}
	if !q.OldestFirst && !fresh() {
		return r.failed
	}
	if view != nil {
		if err := view.Scan(&q, r.each); err != nil {
			return err
		}
	}
	if r.failed == nil && q.OldestFirst && !r.done {
		fresh()
	}
	return r.failed
}

// standsFor tells whether j, which stands for several tasks, is meant by an id.
func standsFor(j *cluster.Job, id cluster.JobID) bool {
	return id == j.ArrayJobID || id > j.ArrayJobID && cluster.SpanHas(j.Fold, int(id-j.ArrayJobID))
}

// present returns the store as it is, and the jobs that ended after it: no job
// is in both or, but for holes, in neither.
func (a *archive) present() (tail []*cluster.Job, view *history.View) {
	s := a.store.Load()
	if s == nil {
		return a.tail(0), nil
	}
	// In this order: what is let go of between the two is in the view.
	tail = a.tail(s.UpTo())
	view = s.View()
	return slices.DeleteFunc(tail, func(j *cluster.Job) bool { return j.Revision <= view.UpTo() }), view
}

// GetReport adds up jobs.
func (s *historyServer) GetReport(ctx context.Context, req *apiv1.GetReportRequest) (*apiv1.GetReportResponse, error) {
	q, err := historyQuery(req.Filter)
	if err != nil {
		return nil, toStatus(ctx, s.c.log, err)
	}
	by := history.By(req.By)
	if by == "" {
		by = history.ByUser
	}
	if !by.Valid() {
		return nil, toStatus(ctx, s.c.log, cluster.Errorf(cluster.CodeInvalid, "by: is %.40q, want user, account, partition or gpu-type", req.By))
	}
	current := s.c.reach(ctx, 0)
	sum, whole, err := s.c.archive.report(ctx, &q, by)
	if err != nil {
		return nil, toStatus(ctx, s.c.log, err)
	}
	resp := &apiv1.GetReportResponse{Index: s.c.fsm.Index(), Incomplete: !whole, Behind: current.behind, LeaderIndex: current.want}
	lines, total := sum.Lines()
	for i := range lines {
		resp.Lines = append(resp.Lines, lineToAPI(&lines[i]))
	}
	resp.Total = lineToAPI(&total)
	return resp, nil
}

// report adds up what a query chooses; whole is that of scan.
func (a *archive) report(ctx context.Context, q *history.Query, by history.By) (sum *history.Report, whole bool, err error) {
	for lost := false; ; {
		sum = history.NewReport(by)
		tail, view := a.present()
		for _, j := range tail {
			if row := history.RowOf(j); q.Match(&row) {
				sum.Add(&row)
			}
		}
		if view == nil {
			return sum, false, nil
		}
		if err = view.Rows(q, sum.Add); err == nil {
			return sum, !lost && len(view.Holes()) == 0, nil
		}
		there, err := a.repaired(ctx, err)
		if err != nil {
			return nil, false, err
		}
		lost = lost || !there
	}
}

func lineToAPI(l *history.Line) *apiv1.ReportLine {
	return &apiv1.ReportLine{
		Key: l.Key, Jobs: uint64(l.Jobs), Completed: uint64(l.Completed), Failed: uint64(l.Failed), Cancelled: uint64(l.Cancelled),
		AllocatedGpuSeconds: l.Allocated.Seconds(), MeasuredGpuSeconds: l.Measured.Seconds(), UsedGpuSeconds: l.Used.Seconds(),
		ChargedGpuSeconds: l.Charged.Seconds(), CoreSeconds: l.Cores.Seconds(), IdleGpuSeconds: l.Idle.Seconds(),
		WaitP50Seconds: l.WaitP50.Round(time.Millisecond).Seconds(), WaitP95Seconds: l.WaitP95.Round(time.Millisecond).Seconds(),
	}
}

// historyQuery reads a filter.
func historyQuery(f *apiv1.HistoryFilter) (history.Query, error) {
	q := history.Query{Users: f.GetUsers(), Accounts: f.GetAccounts(), Partitions: f.GetPartitions(), Names: f.GetNames()}
	if n := len(q.Users) + len(q.Accounts) + len(q.Partitions) + len(q.Names) + len(f.GetIds()) + len(f.GetStates()); n > maxIDsPerFilter {
		return q, cluster.Errorf(cluster.CodeInvalid, "filter: has %d values, at most %d are allowed", n, maxIDsPerFilter)
	}
	for _, id := range f.GetIds() {
		q.IDs = append(q.IDs, cluster.JobID(id))
	}
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
