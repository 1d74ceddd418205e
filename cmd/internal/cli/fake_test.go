package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobcmd"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares got with testdata/<name>.golden.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", path, d)
	}
}

// fakeServer holds jobs and nodes and records what it is asked. hook, when set,
// may answer a call with an error instead.
type fakeServer struct {
	imported *apiv1.ImportRunsRequest
	apiv1.UnimplementedJobServiceServer
	apiv1.UnimplementedClusterServiceServer
	apiv1.UnimplementedModelServiceServer
	apiv1.UnimplementedHistoryServiceServer
	apiv1.UnimplementedAccountServiceServer
	mu        sync.Mutex
	jobs      []*apiv1.Job
	nodes     []*apiv1.Node
	submitted map[string][]uint64
	requests  []*apiv1.SubmitJobsRequest
	cancelled []uint64
	hook      func(ctx context.Context, method string) error
	changed   chan struct{} // closed and replaced on each change
	warnings  []string
	lastList  *apiv1.ListJobsRequest
	// hidden jobs are in the history alone.
	hidden []*apiv1.Job
	// arrays are known as a whole, by id.
	arrays map[uint64]*apiv1.ArrayInfo
	// ahead is how many jobs it says stand before one; updates is what it was
	// asked to change.
	ahead   map[uint64]uint32
	updates []*apiv1.UpdateJobRequest
	// incomplete, behind and leaderIndex are what it says of its history.
	incomplete, behind bool
	leaderIndex        uint64
}

func newFake() *fakeServer {
	return &fakeServer{submitted: map[string][]uint64{}, changed: make(chan struct{}), jobs: sampleJobs(), nodes: sampleNodes()}
}

func (f *fakeServer) enter(ctx context.Context, method string) error {
	f.mu.Lock()
	hook := f.hook
	f.mu.Unlock()
	if hook != nil {
		if err := hook(ctx, method); err != nil {
			var ce *cluster.Error
			if errors.As(err, &ce) {
				return conv.Status(ce).Err()
			}
			return err
		}
	}
	return nil
}

// change runs do and wakes the watchers.
func (f *fakeServer) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeServer) SubmitJobs(ctx context.Context, r *apiv1.SubmitJobsRequest) (*apiv1.SubmitJobsResponse, error) {
	ids, seen := f.record(r)
	if err := f.enter(ctx, "SubmitJobs"); err != nil {
		return nil, err
	}
	_ = seen
	return &apiv1.SubmitJobsResponse{Ids: ids, Warnings: f.warnings}, nil
}

func (f *fakeServer) record(r *apiv1.SubmitJobsRequest) (ids []uint64, seen bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r)
	if ids, ok := f.submitted[r.GetRequestId()]; ok {
		return ids, true
	}
	for range r.GetJobs() {
		ids = append(ids, uint64(101+len(f.submitted)+len(ids)))
	}
	f.submitted[r.GetRequestId()] = ids
	return ids, false
}

// findTask is the job that stands for a task, and without one for the array as a
// whole, where an id is that of an array.
func (f *fakeServer) findTask(id uint64, task *uint32) *apiv1.Job {
	if task == nil && f.arrays[id] == nil {
		j := f.find(id)
		for i := 0; j == nil && i < len(f.jobs); i++ {
			if f.jobs[i].GetArrayCount() > 1 && wanted([]uint64{id}, f.jobs[i]) {
				j = proto.CloneOf(f.jobs[i])
				j.Id, j.ArrayCount = id, 1
			}
		}
		return j
	}
	for _, j := range f.jobs {
		if j.GetArrayJobId() == id && (task == nil || client.JobRef{ID: j.GetId(), Array: id, Task: *task}.Of(j) && (j.GetArrayCount() > 1 || j.GetArrayTaskId() == *task)) {
			j = proto.CloneOf(j)
			if j.Array = f.arrays[id]; task != nil {
				j.Array, j.ArrayTaskId, j.ArrayCount, j.ArrayTasks = nil, task, 1, ""
			}
			return j
		}
	}
	return nil
}

// wanted tells whether ids, if there are any, name a job or its array.
func wanted(ids []uint64, j *apiv1.Job) bool {
	return len(ids) == 0 || slices.ContainsFunc(ids, func(id uint64) bool { return client.JobRef{ID: id}.Of(j) })
}

func (f *fakeServer) find(id uint64) *apiv1.Job {
	for _, j := range f.jobs {
		if j.GetId() == id {
			return j
		}
	}
	return nil
}

func (f *fakeServer) GetJob(ctx context.Context, r *apiv1.GetJobRequest) (*apiv1.GetJobResponse, error) {
	if err := f.enter(ctx, "GetJob"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	j := f.findTask(r.GetId(), r.Task)
	if j == nil {
		return nil, conv.Status(cluster.Errorf(cluster.CodeNotFound, "no such job: %d", r.GetId())).Err()
	}
	return &apiv1.GetJobResponse{Job: proto.CloneOf(j)}, nil
}

func (f *fakeServer) ListJobs(ctx context.Context, r *apiv1.ListJobsRequest) (*apiv1.ListJobsResponse, error) {
	if err := f.enter(ctx, "ListJobs"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastList = r
	var out []*apiv1.Job
	for _, j := range f.jobs {
		switch {
		case !wanted(r.GetIds(), j),
			len(r.GetUsers()) > 0 && !slices.Contains(r.GetUsers(), j.GetUser()),
			len(r.GetStates()) > 0 && !slices.Contains(r.GetStates(), j.GetState()),
			len(r.GetStates()) == 0 && !r.GetFinished() && console.Terminal(j.GetState()):
			continue
		}
		out = append(out, proto.CloneOf(j))
	}
	// Two jobs a page, in falling order, to see that the client puts them right.
	at := 0
	if r.GetPageToken() != "" {
		at = len(r.GetPageToken())
	}
	slices.Reverse(out)
	resp := &apiv1.ListJobsResponse{Jobs: out[at:min(at+2, len(out))]}
	if at+2 < len(out) {
		resp.NextPageToken = strings.Repeat("x", at+2)
	}
	return resp, nil
}

// ControlJobs knows ann's jobs and answers as coordinators do.
func (f *fakeServer) ControlJobs(ctx context.Context, r *apiv1.ControlJobsRequest) (*apiv1.ControlJobsResponse, error) {
	if err := f.enter(ctx, "ControlJobs"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
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
			res.Message = "it runs on, and is held once it waits again"
		}
		resp.Results = append(resp.Results, res)
	}
	return resp, nil
}

func (f *fakeServer) CancelJobs(ctx context.Context, r *apiv1.CancelJobsRequest) (*apiv1.CancelJobsResponse, error) {
	if err := f.enter(ctx, "CancelJobs"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := &apiv1.CancelJobsResponse{}
	for _, id := range r.GetIds() {
		out := apiv1.CancelOutcome_CANCEL_OUTCOME_CANCELLED
		switch j := f.find(id); {
		case j == nil:
			out = apiv1.CancelOutcome_CANCEL_OUTCOME_NOT_FOUND
		case j.GetUser() != "ann":
			out = apiv1.CancelOutcome_CANCEL_OUTCOME_DENIED
		case console.Terminal(j.GetState()):
			out = apiv1.CancelOutcome_CANCEL_OUTCOME_ALREADY_FINISHED
		default:
			f.cancelled = append(f.cancelled, id)
		}
		resp.Results = append(resp.Results, &apiv1.CancelResult{Id: id, Outcome: out})
	}
	return resp, nil
}

func (f *fakeServer) ExplainJob(ctx context.Context, r *apiv1.ExplainJobRequest) (*apiv1.ExplainJobResponse, error) {
	g, err := f.GetJob(ctx, &apiv1.GetJobRequest{Id: r.GetId(), Task: r.Task})
	if err != nil {
		return nil, err
	}
	resp := &apiv1.ExplainJobResponse{Job: g.GetJob()}
	if console.Waiting(g.GetJob().GetState()) {
		resp.Explanations = []*apiv1.Explanation{
			{Code: "GPUMemory", Detail: "most free: GPU 1 of n1 with 11.2 GiB, needs 13.0 GiB", Count: 2, GpuType: "A100-SXM4-80GB"},
			{Code: "GPUSlots", Detail: "3 jobs share each of them already", Count: 1, GpuType: "T4"},
		}
		resp.Forecast = &apiv1.Forecast{
			Node: "n1", Gpu: "GPU-1a", GpuType: "A100-SXM4-80GB", Missing: "GPU 1 of n1: 11.2 GiB free, needs 13.0 GiB; 2 jobs end in ~25 min",
			StartP50: timestamppb.New(now.Add(25 * time.Minute)), StartP90: timestamppb.New(now.Add(48 * time.Minute)),
		}
	}
	return resp, nil
}

func (f *fakeServer) Predict(ctx context.Context, r *apiv1.PredictRequest) (*apiv1.PredictResponse, error) {
	if err := f.enter(ctx, "Predict"); err != nil {
		return nil, err
	}
	resp := &apiv1.PredictResponse{}
	if len(r.GetBeside()) > 0 {
		resp.Sharing = sampleSharing(r)
	}
	if r.GetSpec() == nil {
		return resp, nil
	}
	resp.Predictions = []*apiv1.Prediction{
		samplePrediction("A100-SXM4-80GB"),
		{GpuType: "T4", GpuMemMib: 11500, GpuMemP95Mib: 12100, GpuUtilMilli: 990, Seconds: 18000, HostMemMib: 6144, CpuMilli: 2000, Confidence: 0.4, Source: "history"},
	}
	if r.GetSpec().GetOrCpu() {
		resp.Predictions = append(resp.Predictions, samplePredictionOnCores())
	}
	return resp, nil
}

// sampleSharing is how the jobs of a request get on with each other.
func sampleSharing(r *apiv1.PredictRequest) []*apiv1.Sharing {
	ids := r.GetBeside()
	if r.GetSpec() != nil {
		ids = append([]uint64{0}, ids...)
	}
	a100 := &apiv1.Sharing{GpuType: "A100-SXM4-80GB", Mode: "mps", Limit: 1.5, Advice: &apiv1.SharingAdvice{
		GpuType: "A100-SXM4-80GB", Mode: "mps", Verdict: "gains", Pairs: 31, Losing: 2, MeanSum: 1.302, StdErr: 0.048}}
	t4 := &apiv1.Sharing{GpuType: "T4", Mode: "time-slicing", Limit: 1.5, Advice: &apiv1.SharingAdvice{GpuType: "T4", Mode: "time-slicing", Verdict: "unsure"}}
	for i, id := range ids {
		slow := 1.25 + 0.5*float64(i)
		a100.Jobs = append(a100.Jobs, &apiv1.SharedJob{Id: id, Speed: 1 / slow, Slowdown: slow, Parts: []string{"job 12: 1.25× (+0.20 computing at the same time)"}})
		t4.Jobs = append(t4.Jobs, &apiv1.SharedJob{Id: id, Speed: 0.8, Slowdown: 1.25})
	}
	return []*apiv1.Sharing{a100, t4}
}

func (f *fakeServer) WatchJobs(r *apiv1.WatchJobsRequest, s grpc.ServerStreamingServer[apiv1.WatchJobsResponse]) error {
	for index := r.GetFromIndex(); ; index++ {
		if err := f.enter(s.Context(), "WatchJobs"); err != nil {
			return err
		}
		f.mu.Lock()
		var out []*apiv1.Job
		for _, j := range f.jobs {
			if wanted(r.GetIds(), j) {
				out = append(out, proto.CloneOf(j))
			}
		}
		next := f.changed
		f.mu.Unlock()
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

func (f *fakeServer) ListNodes(ctx context.Context, r *apiv1.ListNodesRequest) (*apiv1.ListNodesResponse, error) {
	if err := f.enter(ctx, "ListNodes"); err != nil {
		return nil, err
	}
	resp := &apiv1.ListNodesResponse{}
	for _, n := range f.nodes {
		if len(r.GetIds()) == 0 || slices.Contains(r.GetIds(), n.GetId()) {
			resp.Nodes = append(resp.Nodes, n)
		}
	}
	return resp, nil
}

func (f *fakeServer) FenceNode(ctx context.Context, r *apiv1.FenceNodeRequest) (*apiv1.FenceNodeResponse, error) {
	if err := f.enter(ctx, "FenceNode"); err != nil {
		return nil, err
	}
	return &apiv1.FenceNodeResponse{Node: &apiv1.Node{Id: r.GetId(), State: "unreachable"}, Lost: []uint64{12, 13}, Requeued: []uint64{17}}, nil
}

func (f *fakeServer) RemoveNode(ctx context.Context, _ *apiv1.RemoveNodeRequest) (*apiv1.RemoveNodeResponse, error) {
	return &apiv1.RemoveNodeResponse{}, f.enter(ctx, "RemoveNode")
}

func (f *fakeServer) CreateToken(ctx context.Context, r *apiv1.CreateTokenRequest) (*apiv1.CreateTokenResponse, error) {
	if err := f.enter(ctx, "CreateToken"); err != nil {
		return nil, err
	}
	return &apiv1.CreateTokenResponse{Token: "tok-" + r.GetRole() + "-" + r.GetId(), Expires: timestamppb.New(now.Add(r.GetTtl().AsDuration()))}, nil
}

func (f *fakeServer) GetStatus(ctx context.Context, _ *apiv1.GetStatusRequest) (*apiv1.GetStatusResponse, error) {
	if err := f.enter(ctx, "GetStatus"); err != nil {
		return nil, err
	}
	return &apiv1.GetStatusResponse{
		ClusterId: "6f1c2a9e", Name: "lab", Index: 4711, AnsweredBy: "c2",
		Jobs: []*apiv1.JobCount{{State: "RUNNING", Count: 3}, {State: "QUEUED", Count: 1}},
		Members: []*apiv1.Member{
			{Id: "c1", Address: "10.0.0.1:7701", Leader: true, Voter: true, Reachable: true, Term: 3, LastIndex: 4711, AppliedIndex: 4711, StateHash: "9c1185a5c5e9fc54612808977ee8f548", StateHashIndex: 4000, Pid: 811, Version: "0.1.0", ModelVersion: 7, ModelSha256: sampleSHA, HistoryJobs: 15_300, HistoryBytes: 4_700_000},
			{Id: "c2", Address: "10.0.0.2:7701", Voter: true, Reachable: true, Term: 3, LastIndex: 4711, AppliedIndex: 4710, StateHash: "9c1185a5c5e9fc54612808977ee8f548", StateHashIndex: 4000, Pid: 790, Version: "0.1.0", HistoryJobs: 1, HistoryHoles: 1, HistoryProblem: "write history/head-00000000000000000000: no space left on device"},
			{Id: "c3", Address: "10.0.0.3:7701", Voter: true},
		},
	}, nil
}

// now is what clocks show in tests.
var now = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

// world is one test's surroundings: sockets with servers, and what a command
// wrote.
type world struct {
	t       *testing.T
	env     *console.Env
	out     bytes.Buffer
	errs    bytes.Buffer
	vars    map[string]string
	sockets map[string]*bufconn.Listener
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, vars: map[string]string{"USER": "ann", "BERTH_SOCKET": "/a"}, sockets: map[string]*bufconn.Listener{}}
	w.env = &console.Env{
		Stdin: strings.NewReader(""), Stdout: &w.out, Stderr: &w.errs, Width: func() int { return 0 },
		Getenv:   func(k string) string { return w.vars[k] },
		Environ:  func() []string { return []string{"PATH=/usr/bin", "HOME=/home/ann", "SHLVL=1"} },
		Getwd:    func() (string, error) { return "/home/ann/run", nil },
		Hostname: func() (string, error) { return "login", nil },
		User:     func() string { return w.vars["USER"] },
		Now:      func() time.Time { return now },
		Dial: func(ctx context.Context, path string) (net.Conn, error) {
			if l, ok := w.sockets[path]; ok {
				return l.DialContext(ctx)
			}
			return nil, &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", os.ErrNotExist)}
		},
		RequestID: func() string { return "0123456789abcdef0123456789abcdef" },
	}
	return w
}

// serve starts f behind a socket until the test ends.
func (w *world) serve(socket string, f *fakeServer) { w.serveWith(socket, f, f) }

// serveParted is serve for a cluster with partitions.
func (w *world) serveParted(socket string, p *parted) { w.serveWith(socket, p.fakeServer, p) }

func (w *world) serveWith(socket string, f *fakeServer, c apiv1.ClusterServiceServer) {
	l := bufconn.Listen(1 << 20)
	s := grpc.NewServer()
	apiv1.RegisterJobServiceServer(s, f)
	apiv1.RegisterClusterServiceServer(s, c)
	apiv1.RegisterModelServiceServer(s, f)
	apiv1.RegisterHistoryServiceServer(s, f)
	apiv1.RegisterAccountServiceServer(s, f)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	w.t.Cleanup(func() { s.Stop(); wg.Wait() })
	w.sockets[socket] = l
}

// run executes a command and returns its exit code.
func (w *world) run(args ...string) int { return w.runCtx(w.t.Context(), args...) }

func (w *world) runCtx(ctx context.Context, args ...string) int {
	w.out.Reset()
	w.errs.Reset()
	w.env.Out = nil
	return execute(ctx, args, w.env)
}

// transcript is a run as a user would see it.
func (w *world) transcript(args ...string) string {
	code := w.run(args...)
	var b strings.Builder
	b.WriteString("$ berth " + jobcmd.QuoteCommand(args) + "\n")
	io.WriteString(&b, w.out.String())
	if w.errs.Len() > 0 {
		b.WriteString("-- standard error\n" + w.errs.String())
	}
	b.WriteString("-- exit code " + strconv.Itoa(code) + "\n")
	return b.String()
}
