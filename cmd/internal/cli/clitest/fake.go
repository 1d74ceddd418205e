package clitest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// Fake stands in for the coordinators: it holds jobs and nodes, answers as
// they do, and records requests. A test may set the fields before the first
// request; later it changes them with Change, and reads them under Mu.
type Fake struct {
	apirpc.UnimplementedJobServiceServer
	apirpc.UnimplementedClusterServiceServer
	apirpc.UnimplementedModelServiceServer
	apirpc.UnimplementedHistoryServiceServer
	apirpc.UnimplementedAccountServiceServer
	// Mu guards the fields below.
	Mu    sync.Mutex
	Jobs  []*apiv1.Job
	Nodes []*apiv1.Node
	// Unwell are the leader's warnings, Warnings those of submits.
	Unwell []string
	// Hook, if set, is called before each method with its name, and may answer
	// the call with an error instead.
	Hook func(ctx context.Context, method string) error
	// Hidden jobs are only in the history.
	Hidden []*apiv1.Job
	// Arrays are whole arrays, by id.
	Arrays map[uint64]*apiv1.ArrayInfo
	// Warnings come with every answer to a submit.
	Warnings []string
	// Promises come with them.
	Promises []string
	// Incomplete, Behind and LeaderIndex are what it reports about its history.
	Incomplete bool
	Behind     bool
	// Admin lets the caller end anyone's jobs.
	Admin       bool
	LeaderIndex uint64

	// Ahead is how many jobs precede one, by its id, in answers to ListForecasts.
	Ahead map[uint64]uint32

	// Requests, Updates, Cancelled, Imported and LastList are the recorded
	// requests; Submitted are the ids that each request was given.
	Requests       []*apiv1.SubmitJobsRequest
	Updates        []*apiv1.UpdateJobRequest
	Cancelled      []uint64
	CancelledTasks []*apiv1.ArrayTasks
	Imported       *apiv1.ImportRunsRequest
	LastList       *apiv1.ListJobsRequest
	Submitted      map[string][]uint64

	// Unshared is where sharing is off, Denied whose certificates are revoked.
	Unshared []*apiv1.SharingOff
	Denied   []*apiv1.Denied

	changed chan struct{} // closed and replaced on each change
}

// NewFake returns one with SampleJobs and SampleNodes.
func NewFake() *Fake {
	return &Fake{Submitted: map[string][]uint64{}, changed: make(chan struct{}), Jobs: SampleJobs(), Nodes: SampleNodes()}
}

// Enter lets Hook answer in place of a method; fakes that embed this one call it.
func (f *Fake) Enter(ctx context.Context, method string) error {
	f.Mu.Lock()
	hook := f.Hook
	f.Mu.Unlock()
	if hook != nil {
		if err := hook(ctx, method); err != nil {
			if ce, ok := errors.AsType[*cluster.Error](err); ok {
				return apiconv.Status(ce).Err()
			}
			return err
		}
	}
	return nil
}

// Change runs do and wakes the watchers.
func (f *Fake) Change(do func()) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	do()
	close(f.changed)
	f.changed = make(chan struct{})
}

// SubmitJobs implements apirpc.UnsafeHistoryServiceServer.
func (f *Fake) SubmitJobs(ctx context.Context, r *apiv1.SubmitJobsRequest) (*apiv1.SubmitJobsResponse, error) {
	ids, seen := f.record(r)
	if err := f.Enter(ctx, "SubmitJobs"); err != nil {
		return nil, err
	}
	_ = seen
	return &apiv1.SubmitJobsResponse{Ids: ids, Warnings: f.Warnings, Promises: f.Promises}, nil
}

func (f *Fake) record(r *apiv1.SubmitJobsRequest) (ids []uint64, seen bool) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Requests = append(f.Requests, r)
	if ids, ok := f.Submitted[r.GetRequestId()]; ok {
		return ids, true
	}
	for range r.GetJobs() {
		ids = append(ids, uint64(101+len(f.Submitted)+len(ids)))
	}
	f.Submitted[r.GetRequestId()] = ids
	return ids, false
}

// findTask returns the job that stands for a task, and without one for the
// whole array if id is that of an array.
func (f *Fake) findTask(id uint64, task *uint32) *apiv1.Job {
	if task == nil && f.Arrays[id] == nil {
		j := f.find(id)
		for i := 0; j == nil && i < len(f.Jobs); i++ {
			if f.Jobs[i].GetArrayCount() > 1 && wanted([]uint64{id}, f.Jobs[i]) {
				j = proto.CloneOf(f.Jobs[i])
				j.Id, j.ArrayCount = id, 1
			}
		}
		return j
	}
	for _, j := range f.Jobs {
		if j.GetArrayJobId() == id && (task == nil || client.JobRef{ID: j.GetId(), Array: id, Task: *task}.Of(j) && (j.GetArrayCount() > 1 || j.GetArrayTaskId() == *task)) {
			j = proto.CloneOf(j)
			if j.Array = f.Arrays[id]; task != nil {
				j.Array, j.ArrayTaskId, j.ArrayCount, j.ArrayTasks = nil, task, 1, ""
			}
			return j
		}
	}
	return nil
}

// wanted reports whether ids, if there are any, name a job or its array.
func wanted(ids []uint64, j *apiv1.Job) bool {
	return len(ids) == 0 || slices.ContainsFunc(ids, func(id uint64) bool { return client.JobRef{ID: id}.Of(j) })
}

func (f *Fake) find(id uint64) *apiv1.Job {
	for _, j := range f.Jobs {
		if j.GetId() == id {
			return j
		}
	}
	return nil
}

// GetJob implements apirpc.UnsafeHistoryServiceServer.
func (f *Fake) GetJob(ctx context.Context, r *apiv1.GetJobRequest) (*apiv1.GetJobResponse, error) {
	if err := f.Enter(ctx, "GetJob"); err != nil {
		return nil, err
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	j := f.findTask(r.GetId(), r.Task)
	if j == nil {
		return nil, apiconv.Status(cluster.Errorf(cluster.CodeNotFound, "no such job: %d", r.GetId())).Err()
	}
	return &apiv1.GetJobResponse{Job: proto.CloneOf(j)}, nil
}

// ListJobs implements apirpc.UnsafeHistoryServiceServer.
func (f *Fake) ListJobs(ctx context.Context, r *apiv1.ListJobsRequest) (*apiv1.ListJobsResponse, error) {
	if err := f.Enter(ctx, "ListJobs"); err != nil {
		return nil, err
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.LastList = r
	var out []*apiv1.Job
	for _, j := range f.Jobs {
		switch {
		case !wanted(r.GetIds(), j),
			len(r.GetUsers()) > 0 && !slices.Contains(r.GetUsers(), j.GetUser()) && !slices.Contains(r.GetUsers(), strconv.Itoa(int(j.GetUid()))),
			len(r.GetNames()) > 0 && !slices.Contains(r.GetNames(), j.GetName()),
			len(r.GetPartitions()) > 0 && !slices.Contains(r.GetPartitions(), j.GetPartition()),
			len(r.GetStates()) > 0 && !slices.Contains(r.GetStates(), j.GetState()),
			len(r.GetStates()) == 0 && !r.GetFinished() && console.Terminal(j.GetState()):
			continue
		}
		out = append(out, proto.CloneOf(j))
	}
	// By id, as coordinators list; two jobs per page.
	at := 0
	if r.GetPageToken() != "" {
		at = len(r.GetPageToken())
	}
	slices.SortFunc(out, func(a, b *apiv1.Job) int { return cmp.Compare(a.GetId(), b.GetId()) })
	resp := &apiv1.ListJobsResponse{Jobs: out[at:min(at+2, len(out))]}
	if at+2 < len(out) {
		resp.NextPageToken = strings.Repeat("x", at+2)
	}
	return resp, nil
}

// ControlJobs knows ann's jobs and answers as coordinators do.
func (f *Fake) ControlJobs(ctx context.Context, r *apiv1.ControlJobsRequest) (*apiv1.ControlJobsResponse, error) {
	if err := f.Enter(ctx, "ControlJobs"); err != nil {
		return nil, err
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	resp := &apiv1.ControlJobsResponse{}
	for _, id := range r.GetIds() {
		res := &apiv1.ControlResult{Id: id}
		requeues := r.GetAction() == apiv1.JobAction_JOB_ACTION_REQUEUE
		switch j := f.find(id); {
		case j == nil:
			res.Fault, res.Message = "NOT_FOUND", fmt.Sprintf("job %d is not known", id)
		case j.GetUser() != "ann":
			res.Fault, res.Message = "DENIED", "the job belongs to another user"
		case console.Terminal(j.GetState()) && requeues:
			res.Fault, res.Message = "CONFLICT", fmt.Sprintf("job %d cannot be requeued: it has ended as %s; submit it again", id, j.GetState())
		case console.Waiting(j.GetState()) && requeues:
			res.Fault, res.Message = "CONFLICT", fmt.Sprintf("job %d cannot be requeued: it waits already", id)
		case console.Terminal(j.GetState()):
			res.Fault, res.Message = "CONFLICT", fmt.Sprintf("job %d has ended as %s", id, j.GetState())
		case !console.Waiting(j.GetState()) && r.GetAction() == apiv1.JobAction_JOB_ACTION_HOLD:
			res.Message = "it keeps running, and is held once it is queued again"
		}
		resp.Results = append(resp.Results, res)
	}
	return resp, nil
}

// CancelJobs implements apirpc.UnsafeHistoryServiceServer.
func (f *Fake) CancelJobs(ctx context.Context, r *apiv1.CancelJobsRequest) (*apiv1.CancelJobsResponse, error) {
	if err := f.Enter(ctx, "CancelJobs"); err != nil {
		return nil, err
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	resp := &apiv1.CancelJobsResponse{}
	for _, id := range r.GetIds() {
		out := apiv1.CancelOutcome_CANCEL_OUTCOME_CANCELLED
		switch j := f.find(id); {
		case j == nil:
			out = apiv1.CancelOutcome_CANCEL_OUTCOME_NOT_FOUND
		case j.GetUser() != "ann" && !f.Admin:
			out = apiv1.CancelOutcome_CANCEL_OUTCOME_DENIED
		case console.Terminal(j.GetState()):
			out = apiv1.CancelOutcome_CANCEL_OUTCOME_ALREADY_FINISHED
		default:
			f.Cancelled = append(f.Cancelled, id)
		}
		resp.Results = append(resp.Results, &apiv1.CancelResult{Id: id, Outcome: out})
	}
	for _, t := range r.GetTasks() {
		f.CancelledTasks = append(f.CancelledTasks, t)
		resp.Results = append(resp.Results, &apiv1.CancelResult{Id: t.GetArray(), Tasks: t.GetTasks(), Count: 1, Outcome: apiv1.CancelOutcome_CANCEL_OUTCOME_CANCELLED})
	}
	return resp, nil
}

// ExplainJob implements apirpc.UnsafeHistoryServiceServer.
func (f *Fake) ExplainJob(ctx context.Context, r *apiv1.ExplainJobRequest) (*apiv1.ExplainJobResponse, error) {
	g, err := f.GetJob(ctx, &apiv1.GetJobRequest{Id: r.GetId(), Task: r.Task})
	if err != nil {
		return nil, err
	}
	resp := &apiv1.ExplainJobResponse{Job: g.GetJob()}
	if console.Waiting(g.GetJob().GetState()) {
		resp.Explanations = []*apiv1.Explanation{
			{Code: "GPUMemory", Detail: "most free: GPU 0 of n1 with 11.2 GiB, needs 13.0 GiB", Count: 2, GpuType: "A100-SXM4-80GB"},
			{Code: "GPUSlots", Detail: "3 jobs share each of them already", Count: 1, GpuType: "T4"},
		}
		resp.Forecast = &apiv1.Forecast{
			Node: "n1", Gpu: "GPU-1a", GpuType: "A100-SXM4-80GB", Missing: "GPU 0 of n1: 11.2 GiB free, needs 13.0 GiB; 2 jobs end in ~25 min",
			StartP50: timestamppb.New(Now.Add(25 * time.Minute)), StartP90: timestamppb.New(Now.Add(48 * time.Minute)),
		}
	}
	return resp, nil
}

// WatchJobs implements apirpc.UnsafeHistoryServiceServer.
func (f *Fake) WatchJobs(r *apiv1.WatchJobsRequest, s grpc.ServerStreamingServer[apiv1.WatchJobsResponse]) error {
	for index := r.GetFromIndex(); ; index++ {
		if err := f.Enter(s.Context(), "WatchJobs"); err != nil {
			return err
		}
		f.Mu.Lock()
		var out []*apiv1.Job
		for _, j := range f.Jobs {
			if wanted(r.GetIds(), j) {
				out = append(out, proto.CloneOf(j))
			}
		}
		next := f.changed
		f.Mu.Unlock()
		if err := s.Send(&apiv1.WatchJobsResponse{Jobs: out, Index: index + 1}); err != nil {
			return err
		}
		select {
		case <-next:
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

// ImportRuns implements apirpc.UnsafeBackupServiceServer.
func (f *Fake) ImportRuns(ctx context.Context, r *apiv1.ImportRunsRequest) (*apiv1.ImportRunsResponse, error) {
	if err := f.Enter(ctx, "ImportRuns"); err != nil {
		return nil, err
	}
	f.Imported = r
	return &apiv1.ImportRunsResponse{Jobs: 3}, nil
}

// UpdateJob records the request; jobs of others may not be changed.
func (f *Fake) UpdateJob(ctx context.Context, r *apiv1.UpdateJobRequest) (*apiv1.UpdateJobResponse, error) {
	if err := f.Enter(ctx, "UpdateJob"); err != nil {
		return nil, err
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	j := f.find(r.GetId())
	switch {
	case j == nil:
		return nil, apiconv.Status(cluster.Errorf(cluster.CodeNotFound, "no such job: %d", r.GetId())).Err()
	case j.GetUser() != "ann":
		return nil, apiconv.Status(cluster.Errorf(cluster.CodeDenied, "job %d belongs to another user", r.GetId())).Err()
	case r.GetPartition() == "nosuch":
		return nil, apiconv.Status(cluster.Errorf(cluster.CodeNotFound, "partition \"nosuch\" is not known; see: berth partition list")).Err()
	}
	f.Updates = append(f.Updates, r)
	return &apiv1.UpdateJobResponse{Job: j, Warnings: f.Warnings, Promises: f.Promises}, nil
}

// ListStanding answers with a tree of accounts, parents first and otherwise
// unordered, and everyone's usage.
func (f *Fake) ListStanding(ctx context.Context, r *apiv1.ListStandingRequest) (*apiv1.ListStandingResponse, error) {
	if err := f.Enter(ctx, "ListStanding"); err != nil {
		return nil, err
	}
	use := func(shares, used float64, gpuHours int64, rank uint32) *apiv1.Use {
		return &apiv1.Use{SharesPart: shares, UsePart: used, LeftUs: gpuHours * 3600e6, Rank: rank, Of: min(rank*4, 4)}
	}
	return &apiv1.ListStandingResponse{
		Accounts: []*apiv1.Account{
			{Name: "science", Shares: 3, Use: use(0.75, 0.8, 80, 0)}, {Name: "lab", Shares: 1, Use: use(0.25, 0.2, 20, 0)},
			{Name: "chem", Parent: "science", Shares: 1, Use: use(0.25, 0, 0, 0)}, {Name: "bio", Parent: "science", Shares: 3, Use: use(0.75, 1, 80, 0)},
		},
		Members: []*apiv1.AccountUser{
			{Account: "bio", Uid: 1001, Name: "ann", Shares: 1, Use: use(1.0/3, 0.9, 72, 4)}, {Account: "bio", Uid: 1000, Name: "ada", Shares: 2, Use: use(2.0/3, 0.1, 8, 2)},
			{Account: "chem", Uid: 1002, Shares: 1, Use: use(1, 0, 0, 1)}, {Account: "lab", Uid: 1001, Name: "ann", Shares: 1, Use: use(1, 1, 20, 3)},
		},
	}, nil
}

// ListForecasts knows a range for even job ids, and none for others.
func (f *Fake) ListForecasts(_ context.Context, r *apiv1.ListForecastsRequest) (*apiv1.ListForecastsResponse, error) {
	resp := &apiv1.ListForecastsResponse{}
	for _, id := range r.GetIds() {
		m := &apiv1.JobForecast{Id: id, CannotSay: "JobHeldUser: by its owner; berth release lets it go"}
		if id%2 == 0 {
			m.CannotSay, m.Forecast = "", &apiv1.Forecast{Node: "n1", Missing: "GPU 0 of n1: is taken", Ahead: 3,
				StartP50: timestamppb.New(Now.Add(25 * time.Minute)), StartP90: timestamppb.New(Now.Add(48 * time.Minute))}
		}
		if n, ok := f.Ahead[id]; ok {
			m.Forecast = &apiv1.Forecast{Ahead: n}
		}
		resp.Forecasts = append(resp.Forecasts, m)
	}
	return resp, nil
}
