package jobs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	"github.com/berth-scheduler/berth/coordinator/api/admission"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/learner"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/model/interfere"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/deadline"
	"github.com/berth-scheduler/berth/scheduler/explain"
	"github.com/berth-scheduler/berth/scheduler/say"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// Limits of the users' API.
const (
	maxJobsPerCall  = 1000
	maxDependsOfAll = 20_000 // of all jobs of one request
	defaultPage     = 1000
	maxPage         = 20_000
	maxIDsPerFilter = 1000
	// copiesOf is how often an answer is in memory: as stored, as a message, and
	// encoded.
	copiesOf = 3
)

// jobServer answers users.
type jobServer struct {
	apirpc.UnimplementedJobServiceServer
	c *Jobs
}

// SubmitJobs commits jobs, all or none, and returns their ids.
func (s *jobServer) SubmitJobs(ctx context.Context, req *apiv1.SubmitJobsRequest) (*apiv1.SubmitJobsResponse, error) {
	who := authorize.CallerOf(ctx)
	if err := s.c.auth.May(who, authorize.Submit, nil); err != nil {
		return nil, err
	}
	if err := cmp.Or(apiconv.CheckRequestID(req.RequestId), checkSize(req.Jobs)); err != nil {
		return nil, err
	}
	hash, err := bodyHash(req.Jobs)
	if err != nil {
		return nil, err
	}
	cmd := &logv1.SubmitJob{
		RequestId: req.RequestId, BodyHash: hash, Owner: &logv1.Owner{Uid: uint32(who.UID), Gid: who.GID, Name: who.Name},
	}
	// A retry gets its answer whatever the limits are by now.
	if ids, ok := s.c.fsm.Request(who.UID, req.RequestId, cmd.BodyHash); ok {
		return submitted(ids, s.c.fsm.Index()), nil
	}
	if err := s.c.admission.RoomFor(who, len(req.Jobs)); err != nil {
		return nil, err
	}
	e := admission.Entry{Who: who, Of: len(req.Jobs), Now: cluster.TimeOf(s.c.clock()), Parts: s.c.fsm.Partitions(), Nodes: s.c.fsm.Nodes()}
	jobs, changes, err := s.letIn(ctx, &e, req.Jobs, cmd)
	if err != nil {
		return nil, err
	}
	leave, err := s.c.admission.TakeRoom(ctx, &e)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := s.c.admission.RoomForBytes(who, jobs); err != nil {
		return nil, err
	}
	r, err := s.c.admission.Propose(ctx, &e, jobs, cmd)
	if err != nil {
		return nil, err
	}
	resp := submitted(r.Jobs, r.Index)
	resp.Warnings, resp.Promises, resp.Changes = e.Warnings, e.Promises, changes
	return resp, nil
}

// letIn builds jobs from a request, admits each, and adds them to the proposal.
// changes are those of services, in words.
func (s *jobServer) letIn(ctx context.Context, e *admission.Entry, of []*apiv1.JobSpec, cmd *logv1.SubmitJob) (jobs []*cluster.Job, changes []string, err error) {
	types := s.c.learn.Types(e.Nodes)
	for _, js := range of {
		js, more, err := s.c.revised(ctx, e.Who, js)
		if err != nil {
			return nil, nil, err
		}
		changes = append(changes, more...)
		job, err := s.c.learn.Job(e.Who.Owner(), js, types)
		if err != nil {
			return nil, nil, err
		}
		e.Job = job
		if err := s.c.admission.Enter(e); err != nil {
			return nil, nil, err
		}
		jobs = append(jobs, job)
		cmd.Jobs = append(cmd.Jobs, &logv1.NewJob{Spec: s.c.admission.Stored(job.Spec), Estimates: conv.EstimatesToLog(job.Estimates)})
	}
	return jobs, changes, nil
}

// checkSize bounds what one submit may hold.
func checkSize(jobs []*apiv1.JobSpec) error {
	if n := len(jobs); n < 1 || n > maxJobsPerCall {
		return cluster.Errorf(cluster.CodeInvalid, "jobs: %d in one request, 1 to %d are allowed", n, maxJobsPerCall)
	}
	depends := 0
	for _, j := range jobs {
		if depends += len(j.GetDepends()); j.GetChange() != nil && len(jobs) > 1 {
			return cluster.Errorf(cluster.CodeInvalid, "change: a request that changes a service must hold nothing else")
		}
	}
	if depends > maxDependsOfAll {
		return cluster.Errorf(cluster.CodeInvalid, "dependency: %d in one request, at most %d are allowed; let jobs wait for an array, or send fewer jobs at once", depends, maxDependsOfAll)
	}
	return nil
}

func submitted(ids []cluster.JobID, index uint64) *apiv1.SubmitJobsResponse {
	return &apiv1.SubmitJobsResponse{Index: index, Ids: apiconv.IDs[uint64](ids)}
}

// bodyHash distinguishes two requests with one id.
func bodyHash(jobs []*apiv1.JobSpec) ([]byte, error) {
	h := sha256.New()
	for i, js := range jobs {
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(js)
		if err != nil {
			return nil, cluster.Errorf(cluster.CodeInvalid, "jobs[%d]: %v", i, err)
		}
		h.Write(strconv.AppendInt(nil, int64(len(data)), 10))
		h.Write(data)
	}
	return h.Sum(nil), nil
}

// GetJob returns one job in full; another user's job in brief.
func (s *jobServer) GetJob(ctx context.Context, req *apiv1.GetJobRequest) (*apiv1.GetJobResponse, error) {
	if err := s.c.office.Verify(ctx); err != nil {
		return nil, err
	}
	j, err := s.c.named(req.Id, req.Task)
	if err != nil {
		if j = s.c.archive.Named(ctx, cluster.JobID(req.Id), req.Task); j == nil {
			return nil, err
		}
	}
	if _, bulk := j.Spec.Weight(); bulk > 0 && s.c.auth.May(authorize.CallerOf(ctx), authorize.ReadJob, &j.Owner) == nil {
		if err := s.c.calls.Holds(ctx, copiesOf*bulk); err != nil {
			return nil, err
		}
	}
	m := s.c.view(j, authorize.CallerOf(ctx), whole)
	nameTypes(m)
	if req.Task == nil {
		m.Array = s.c.arrayInfo(req.Id, j)
	}
	return &apiv1.GetJobResponse{Job: m, Index: s.c.fsm.Index()}, nil
}

func noJob(id uint64) error {
	return cluster.Errorf(cluster.CodeNotFound, "job %d is not known: it was never submitted, or it ended long ago and was forgotten", id)
}

// ListJobs returns a page of jobs in order of id.
func (s *jobServer) ListJobs(ctx context.Context, req *apiv1.ListJobsRequest) (*apiv1.ListJobsResponse, error) {
	if err := s.c.office.Verify(ctx); err != nil {
		return nil, err
	}
	q, err := s.query(req)
	if err != nil {
		return nil, err
	}
	turn, err := s.c.calls.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer turn.End()
	jobs, index := s.c.fsm.Jobs(q)
	resp, err := s.listed(req, authorize.CallerOf(ctx), jobs, turn)
	if err != nil {
		return nil, err
	}
	resp.Index = index
	if len(jobs) == q.Limit && resp.NextPageToken == "" {
		resp.NextPageToken = strconv.FormatUint(uint64(jobs[len(jobs)-1].ID), 10)
	}
	return resp, nil
}

func (s *jobServer) query(req *apiv1.ListJobsRequest) (fsm.Query, error) {
	q := fsm.Query{Limit: defaultPage}
	if req.PageSize > 0 {
		q.Limit = int(min(req.PageSize, maxPage))
	}
	if req.Columns != apiv1.JobColumnsOf_JOB_COLUMNS_OF_UNSPECIFIED {
		q.Limit = maxColumnPage
	}
	if req.PageToken != "" {
		after, err := strconv.ParseUint(req.PageToken, 10, 64)
		if err != nil {
			return q, cluster.Errorf(cluster.CodeInvalid, "page_token %q was not returned by a listing", req.PageToken)
		}
		q.After = cluster.JobID(after)
	}
	if len(req.States)+len(req.Users)+len(req.Ids)+len(req.Partitions)+len(req.Names)+len(req.Nodes) > maxIDsPerFilter {
		return q, cluster.Errorf(cluster.CodeInvalid, "filter: more than %d states, users, ids, partitions, names and nodes", maxIDsPerFilter)
	}
	for _, name := range req.States {
		st, err := cluster.ParseJobState(name)
		if err != nil {
			return q, cluster.Errorf(cluster.CodeInvalid, "states: %v; one of PENDING, QUEUED, STARTING, RUNNING, COMPLETING, UNREACHABLE, COMPLETED, FAILED, CANCELLED, TIMEOUT, OUT_OF_MEMORY, NODE_FAIL, PREEMPTED, DEADLINE", err)
		}
		q.States = append(q.States, st)
	}
	if len(req.States) == 0 && !req.Finished && len(req.Ids) == 0 {
		q.States = []cluster.JobState{cluster.JobPending, cluster.JobQueued, cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable}
	}
	q.Keep = keeper(req)
	return q, nil
}

// CancelJobs ends jobs, each with its own outcome; wrong ids do not affect the
// others.
func (s *jobServer) CancelJobs(ctx context.Context, req *apiv1.CancelJobsRequest) (*apiv1.CancelJobsResponse, error) {
	who := authorize.CallerOf(ctx)
	if n := len(req.Ids) + len(req.Tasks); n < 1 || n > maxJobsPerCall {
		return nil, cluster.Errorf(cluster.CodeInvalid, "ids: %d in one request, 1 to %d are allowed", n, maxJobsPerCall)
	}
	resp := &apiv1.CancelJobsResponse{}
	var a asked
	var at []*apiv1.CancelResult // of a.want
	for _, w := range s.wishes(req.Ids, req.Tasks) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		res := &apiv1.CancelResult{Id: w.id, Tasks: w.tasks}
		resp.Results = append(resp.Results, res)
		cmd, ranks, err := s.cancelWish(who, w)
		switch c := cmd.GetChangeTasks(); {
		case codeOf(err) == cluster.CodeNotFound:
			res.Outcome = apiv1.CancelOutcome_CANCEL_OUTCOME_NOT_FOUND
		case codeOf(err) == cluster.CodeDenied:
			res.Outcome = apiv1.CancelOutcome_CANCEL_OUTCOME_DENIED
		case err != nil:
			return nil, err
		case c != nil:
			a.addTasks(c, ranks)
			at = append(at, res)
		default:
			a.add(cmd)
			at = append(at, res)
		}
	}
	if len(a.cmds) == 0 {
		// No commit proves that what was read is current.
		return resp, s.c.office.Verify(ctx)
	}
	a.merge(s.tasksOf)
	results, err := s.c.prop.Each(ctx, a.cmds...)
	if err != nil {
		return nil, err
	}
	for i := range a.want {
		w, res := &a.want[i], at[i]
		r := &results[w.cmd]
		switch n := w.counts(r).Done; {
		case w.ranks == nil:
			res.Outcome = cancelOutcomes[r.Cancel]
		case r.Err != nil:
			res.Outcome = apiv1.CancelOutcome_CANCEL_OUTCOME_NOT_FOUND
		case n == 0:
			res.Outcome = apiv1.CancelOutcome_CANCEL_OUTCOME_ALREADY_FINISHED
		default:
			res.Outcome, res.Count = apiv1.CancelOutcome_CANCEL_OUTCOME_CANCELLED, uint32(n)
		}
	}
	return resp, nil
}

// cancelWish returns the log command that cancels a job or tasks of an array, and
// the ranks of the tasks.
func (s *jobServer) cancelWish(who authorize.Caller, w taskWish) (*logv1.Command, []cluster.Span, error) {
	if !w.array {
		j, ok := s.c.fsm.Job(cluster.JobID(w.id))
		if !ok {
			return nil, nil, noJob(w.id)
		}
		return &logv1.Command{Kind: &logv1.Command_CancelJob{CancelJob: &logv1.CancelJob{
			Job: w.id, By: uint32(who.UID), Admin: j.Owner.UID != who.UID,
		}}}, nil, s.c.auth.May(who, authorize.Cancel, &j.Owner)
	}
	c, ranks, err := s.changeCommand(who, w)
	if err != nil {
		return nil, nil, err
	}
	c.Change = logv1.TaskChange_TASK_CHANGE_CANCEL
	return &logv1.Command{Kind: &logv1.Command_ChangeTasks{ChangeTasks: c}}, ranks, nil
}

var cancelOutcomes = map[fsm.CancelOutcome]apiv1.CancelOutcome{
	fsm.Cancelled: apiv1.CancelOutcome_CANCEL_OUTCOME_CANCELLED,
	fsm.Finished:  apiv1.CancelOutcome_CANCEL_OUTCOME_ALREADY_FINISHED,
	fsm.NotFound:  apiv1.CancelOutcome_CANCEL_OUTCOME_NOT_FOUND,
}

// ExplainJob says why a job waits.
func (s *jobServer) ExplainJob(ctx context.Context, req *apiv1.ExplainJobRequest) (*apiv1.ExplainJobResponse, error) {
	if err := s.c.office.Verify(ctx); err != nil {
		return nil, err
	}
	turn, err := s.c.calls.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer turn.End()
	j, err := s.c.explained(req.Id, req.Task)
	if err != nil {
		return nil, err
	}
	resp := &apiv1.ExplainJobResponse{Job: s.c.view(j, authorize.CallerOf(ctx), whole)}
	if req.Task == nil {
		resp.Job.Array = s.c.arrayInfo(req.Id, j)
	}
	if !j.State.Waiting() {
		resp.Explanations = s.c.heard(s.c.nodesOf(j), false)
		return resp, nil
	}
	snap := s.c.snapshot(j)
	resp.FairShare = s.c.accounts.FairShareOf(j)
	if s.c.explainBefore(resp, snap, j) {
		return resp, nil
	}
	pol, part := s.c.lead.PolicyOf(j), site.PartitionOf(snap, j)
	j, terms := s.c.explainTerms(snap, j, part)
	resp.Explanations = append(resp.Explanations, terms...)
	all := snap
	snap = site.Within(snap, part)
	if part != nil && len(snap.Nodes) == 0 {
		return resp, nil // there is nothing more to say
	}
	if r := site.LimitReason(snap, j, snap.Nodes, pol); r.Code != "" {
		if room, ok := s.c.quotaRoom(all, j, snap.Nodes, pol); ok {
			resp.Room = &apiv1.QuotaRoom{P50: timestamppb.New(room.P50.Std()), P90: timestamppb.New(room.P90.Std()), Words: room.Words}
		}
		resp.Explanations = append(resp.Explanations, &apiv1.Explanation{Code: string(r.Code), Detail: r.Detail, Count: 1})
		return resp, nil // nothing else matters until then
	}
	cells := site.TenantReason(s.c.lead.Scheduling().Of(j.Spec.Partition), snap, j)
	if cells.Code != "" {
		resp.Explanations = append(resp.Explanations, &apiv1.Explanation{Code: string(cells.Code), Detail: cells.Detail, Count: 1})
	}
	resp.Explanations = append(resp.Explanations, s.c.preparing(j.ID)...)
	es, behind := s.c.explain(snap, j, pol)
	for _, e := range es {
		if saidBefore(snap, j, part, cells, e.Reason) {
			continue
		}
		resp.Explanations = append(resp.Explanations, &apiv1.Explanation{Code: string(e.Reason.Code), Detail: e.Reason.Detail, Count: uint32(e.Count), GpuType: e.GPUType})
	}
	resp.Explanations = append(resp.Explanations, s.c.heard(snap.Nodes, true)...)
	if f, ok := scheduler.ForecastStart(snap, j, pol); ok && cells.Code == "" && (part == nil || !part.Down) && (behind.Code == "" || f.P50 > snap.Now) {
		resp.Forecast = forecastToAPI(&f)
	}
	return resp, nil
}

// saidBefore reports whether there is room, but not for this job or not yet, for which
// the reason was given, or that very reason is given again.
func saidBefore(snap *dispatch.Snapshot, j *cluster.Job, part *cluster.Partition, cells, r cluster.Reason) bool {
	shut := snap.Reservations.Outside(j, snap.Now)
	return (cells.Code != "" || shut.Code != "" || part != nil && part.Down) && (r.Code == cluster.ReasonUnconfirmed || r == cells || r == shut)
}

// explain is scheduler.Explain, except that the policy in use explains what only it
// knows. behind reports that there is room, but reserved for a job ahead, or on a GPU
// that must be cut: when it may have that is unknown.
func (c *Jobs) explain(snap *dispatch.Snapshot, j *cluster.Job, pol scheduler.Policy) (es []explain.Explanation, behind cluster.Reason) {
	es = scheduler.Explain(snap, j, pol)
	if behind = c.cuts(j.ID); behind.Code != "" {
		es = slices.DeleteFunc(es, func(e explain.Explanation) bool { return e.Reason.Code == cluster.ReasonUnconfirmed })
	}
	chosen, view := c.lead.Scheduling().Of(j.Spec.Partition), *snap
	if chosen.Planner == nil {
		return es, behind
	}
	c.lead.Prepare(&view)
	r, ok := chosen.WhyWaits(&view, j)
	if !ok {
		return es, behind
	}
	for i := range es {
		if es[i].Reason.Code == cluster.ReasonUnconfirmed || i == 0 && site.Spans(j) {
			es[i].Reason = r
		}
	}
	if r.Code == cluster.ReasonQueueOrder {
		behind = r
	}
	return es, behind
}

// explainTerms says what a job's partition, its loans and its deadline have to do
// with its wait, and returns it as passes see it.
func (c *Jobs) explainTerms(snap *dispatch.Snapshot, j *cluster.Job, part *cluster.Partition) (as *cluster.Job, said []*apiv1.Explanation) {
	said = append(explainPartition(snap, part), explainLoans(snap, j)...)
	if as = site.Shared(snap, j, &c.lead.Scheduling().Site); as != j {
		said = append(said, &apiv1.Explanation{Code: string(cluster.ReasonDeadline), Detail: "its deadline needs " + deadline.Units(j, as.Spec.Size()), Count: 1})
	}
	if len(j.Promised) > 0 {
		said = append(said, &apiv1.Explanation{Code: string(cluster.ReasonDeadline), Detail: "planned for its deadline on " + hostnames.Fold(j.Promised) + " from " + say.Clock(j.EstStart), Count: 1})
	}
	return as, said
}

// explainBefore says what keeps a job from being considered at all, whatever is
// free; there is nothing to add if it returns true.
func (c *Jobs) explainBefore(resp *apiv1.ExplainJobResponse, snap *dispatch.Snapshot, j *cluster.Job) (all bool) {
	say := func(code cluster.ReasonCode, detail string) {
		resp.Explanations = append(resp.Explanations, &apiv1.Explanation{Code: string(code), Detail: detail, Count: 1})
	}
	if r := c.fsm.Barred(j, snap.Now); r.Code != "" {
		detail := c.barredDetail(j, r)
		if r.Code == cluster.ReasonBeginTime && j.Spec.Service != nil { // without what only its owner may see
			detail = cmp.Or(resp.Job.GetReasonDetail(), detail)
		}
		say(r.Code, detail)
		return true
	}
	if r := snap.Reservations.Outside(j, snap.Now); r.Code != "" {
		say(r.Code, r.Detail)
		if r.Code != cluster.ReasonReservation { // its own, which has yet to open
			return true
		}
	}
	if r := c.lead.Scheduling().Of(j.Spec.Partition).SpanReason(j); r.Code != "" {
		say(r.Code, r.Detail)
		return true
	}
	return false
}

// Predict returns what a job would need on each GPU type of the cluster.
func (s *jobServer) Predict(ctx context.Context, req *apiv1.PredictRequest) (*apiv1.PredictResponse, error) {
	turn, err := s.c.calls.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer turn.End()
	return s.predict(authorize.CallerOf(ctx), req)
}

func (s *jobServer) predict(who authorize.Caller, req *apiv1.PredictRequest) (*apiv1.PredictResponse, error) {
	resp, nodes := &apiv1.PredictResponse{}, s.c.fsm.Nodes()
	set, err := s.c.beside(req.Beside)
	if err != nil {
		return nil, err
	}
	if req.Spec != nil || len(set) == 0 {
		var one *learner.Sharer
		if resp.Predictions, one, err = s.c.learn.Explain(who.Owner(), req.Spec, nodes); err != nil {
			return nil, err
		}
		set = append([]learner.Sharer{*one}, set...)
	}
	s.c.forecastNew(who, req.Spec, resp)
	switch n := len(set); {
	case len(req.Beside) == 0:
		return resp, nil
	case n < 2 || n > interfere.MaxSet:
		return nil, cluster.Errorf(cluster.CodeInvalid, "beside: %d jobs in all, want 2 to %d", n, interfere.MaxSet)
	case set[0].Spec.GPUs == 0:
		return nil, cluster.Errorf(cluster.CodeInvalid, "beside: the job asks for no GPU that it could share")
	}
	resp.Sharing = s.c.sharing(set, nodes)
	return resp, nil
}
