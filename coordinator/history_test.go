package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// cancelled submits n jobs and cancels them, and returns their ids.
func cancelled(t *testing.T, c *coordtest.Cluster, at int, n int) []uint64 {
	t.Helper()
	jobs := apirpc.NewJobServiceClient(c.Dial(at, "gate", "g"))
	var ids []uint64
	ctx, cancel := context.WithTimeout(coordtest.As(t.Context(), 1000), 10*time.Minute)
	defer cancel()
	for len(ids) < n {
		req := &apiv1.SubmitJobsRequest{RequestId: fmt.Sprintf("history-test-%06d-%d", len(ids), time.Now().UnixNano())}
		for range min(20, n-len(ids)) {
			req.Jobs = append(req.Jobs, &apiv1.JobSpec{Name: "j", Command: [][]byte{[]byte("true"), []byte("secret")}, Dir: []byte("/"), Hold: true})
		}
		// Leaders may change: it is asked again until there is an answer.
		r, err := jobs.SubmitJobs(ctx, req)
		for ; err != nil && ctx.Err() == nil; r, err = jobs.SubmitJobs(ctx, req) {
			time.Sleep(20 * time.Millisecond)
		}
		if err != nil {
			t.Fatalf("submit: %v", err)
		}
		for done := false; !done; {
			a, err := jobs.CancelJobs(ctx, &apiv1.CancelJobsRequest{Ids: r.Ids})
			if ctx.Err() != nil {
				t.Fatalf("cancel: %v", err)
			}
			done = err == nil && len(a.Results) == len(r.Ids)
		}
		ids = append(ids, r.Ids...)
	}
	return ids
}

// historyOf returns the ids that one coordinator has, and whether it says that
// this is all.
func historyOf(t *testing.T, c *coordtest.Cluster, at int, req *apiv1.ListHistoryRequest) (jobs []*apiv1.Job, whole bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(coordtest.As(t.Context(), 1000), 2*time.Minute)
	defer cancel()
	stream, err := apirpc.NewHistoryServiceClient(c.Dial(at, "gate", "g")).ListHistory(ctx, req)
	if err != nil {
		t.Fatalf("history: %v", err)
	}
	whole = true
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return jobs, whole
		}
		if err != nil {
			t.Logf("history of %d: %v", at, err)
			return nil, false
		}
		whole = whole && !r.Incomplete
		jobs = append(jobs, r.Jobs...)
	}
}

// eventuallyAll waits until a coordinator has exactly the jobs, in their order.
func eventuallyAll(t *testing.T, c *coordtest.Cluster, at int, want []uint64) {
	t.Helper()
	var got []uint64
	whole := false
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var jobs []*apiv1.Job
		jobs, whole = historyOf(t, c, at, &apiv1.ListHistoryRequest{OldestFirst: true})
		got = got[:0]
		for _, j := range jobs {
			got = append(got, j.Id)
		}
		if whole && slices.Equal(got, want) {
			return
		}
	}
	t.Fatalf("coordinator %d has %d jobs (all of it: %t), want %d", at, len(got), whole, len(want))
}

// TestHistoryIsWholeAgain: a follower that lost its disk gets a snapshot in which
// most jobs are forgotten, and the rest of the history from the others; one whose
// files are damaged mends them; and each answers by itself, without a leader too.
func TestHistoryIsWholeAgain(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true, KeepFinished: 15, SnapshotThreshold: 64, SnapshotInterval: 300 * time.Millisecond, CatchUp: 500 * time.Millisecond})
	lead := c.Leader()
	follower, other := (lead+1)%3, (lead+2)%3
	ids := cancelled(t, c, lead, 2000)
	for i := range 3 {
		eventuallyAll(t, c, i, ids)
	}
	c.Stop(follower)
	c.Wipe(follower)
	ids = append(ids, cancelled(t, c, lead, 300)...)
	c.Restart(follower)
	eventuallyAll(t, c, follower, ids)

	if segs, err := filepath.Glob(filepath.Join(c.Dir(follower), "history", "seg-*")); err != nil || len(segs) == 0 {
		t.Fatalf("it read all from the log: nothing had to be fetched (%v)", err)
	}

	// An old job is shown in full to its owner.
	ctx, cancel := context.WithTimeout(coordtest.As(t.Context(), 1000), 2*time.Minute)
	defer cancel()
	r, err := apirpc.NewJobServiceClient(c.Dial(follower, "gate", "g")).GetJob(ctx, &apiv1.GetJobRequest{Id: ids[0]})
	if err != nil || len(r.Job.GetSpec().GetCommand()) != 2 || r.Job.State != "CANCELLED" {
		t.Fatalf("the first job: %v %v", r, err)
	}

	// The files of another one are changed behind its back.
	c.Stop(other)
	segs, err := filepath.Glob(filepath.Join(c.Dir(other), "history", "*"))
	if err != nil || len(segs) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, path := range segs {
		if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.Restart(other)
	eventuallyAll(t, c, other, ids)

	// The last one answers though there is no leader any more.
	c.Kill(lead)
	c.Kill(follower)
	eventuallyAll(t, c, other, ids)
}

// TestHistoryHidesFromOthers: what a user ran is told to them alone.
func TestHistoryHidesFromOthers(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, KeepFinished: 2})
	ids := cancelled(t, c, 0, 10)
	eventuallyAll(t, c, 0, ids)
	ctx, cancel := context.WithTimeout(coordtest.As(t.Context(), 1001), 2*time.Minute)
	defer cancel()
	stream, err := apirpc.NewHistoryServiceClient(c.Dial(0, "gate", "g")).ListHistory(ctx, &apiv1.ListHistoryRequest{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := stream.Recv()
	if err != nil || len(r.Jobs) != 10 {
		t.Fatalf("%v %v", r, err)
	}
	for _, j := range r.Jobs {
		if len(j.Spec.Command) > 0 || len(j.Spec.Dir) > 0 {
			t.Fatalf("another user's command and folder are shown: %v", j.Spec)
		}
	}
	rep, err := apirpc.NewHistoryServiceClient(c.Dial(0, "gate", "g")).GetReport(ctx, &apiv1.GetReportRequest{})
	if err != nil || rep.Total.GetJobs() != 10 || rep.Total.GetCancelled() != 10 || rep.Lines[0].Key != "u1000" {
		t.Fatalf("report: %v %v", rep, err)
	}
}

// TestHistoryOfAnArray: tasks that ended together are one, found by the array's
// id and by that of each of them, also once the state forgot them.
func TestHistoryOfAnArray(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, KeepFinished: 1})
	jobs := apirpc.NewJobServiceClient(c.Dial(0, "gate", "g"))
	ctx, cancel := context.WithTimeout(coordtest.As(t.Context(), 1000), 2*time.Minute)
	defer cancel()
	spec := &apiv1.JobSpec{Name: "sweep", Command: [][]byte{[]byte("true")}, Dir: []byte("/"), Hold: true, Array: "2-8:2"}
	var r *apiv1.SubmitJobsResponse
	for { // until all have said that they know arrays
		var err error
		if r, err = jobs.SubmitJobs(ctx, &apiv1.SubmitJobsRequest{RequestId: "history-test-array-0001", Jobs: []*apiv1.JobSpec{spec}}); err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("submit: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	array := r.Ids[0]
	if _, err := jobs.CancelJobs(ctx, &apiv1.CancelJobsRequest{Ids: []uint64{array}}); err != nil {
		t.Fatalf("cancel: %v", err)
	}
	cancelled(t, c, 0, 5)
	tasks := uint32(0)
	for tasks != 4 {
		tasks = 0
		got, _ := historyOf(t, c, 0, &apiv1.ListHistoryRequest{Filter: &apiv1.HistoryFilter{Ids: []uint64{array}}})
		for _, j := range got {
			if j.ArrayJobId != array || j.State != "CANCELLED" {
				t.Fatalf("not of the array: %v", j)
			}
			tasks += max(1, j.ArrayCount)
		}
		if ctx.Err() != nil {
			t.Fatalf("%d tasks, want 4: %v", tasks, got)
		}
	}
	g, err := jobs.GetJob(ctx, &apiv1.GetJobRequest{Id: array + 2})
	if err != nil || g.Job.GetArrayTaskId() != 6 || g.Job.State != "CANCELLED" {
		t.Fatalf("the third task: %v %v", g, err)
	}
	task := uint32(4)
	if g, err = jobs.GetJob(ctx, &apiv1.GetJobRequest{Id: array, Task: &task}); err != nil || g.Job.GetArrayTaskId() != 4 || g.Job.Id != array+1 {
		t.Fatalf("task 4: %v %v", g, err)
	}
	rep, err := apirpc.NewHistoryServiceClient(c.Dial(0, "gate", "g")).GetReport(ctx, &apiv1.GetReportRequest{})
	if err != nil || rep.Total.GetJobs() != 9 {
		t.Fatalf("report: %v %v", rep, err)
	}
}

// TestHistoryKeepsSoManyJobs: with history.max_jobs the oldest go first, a file
// at a time, and what is left is the same right after a restart.
func TestHistoryKeepsSoManyJobs(t *testing.T) {
	t.Parallel()
	const most, file = 100, 20
	c := coordtest.Start(t, coordtest.Options{N: 1, KeepFinished: 5, HistoryMaxJobs: most, HistoryFileJobs: file})
	ids := cancelled(t, c, 0, 300)
	var got []uint64
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		jobs, last := answerOf(t, c, 0, &apiv1.ListHistoryRequest{OldestFirst: true})
		got = idsOf(jobs)
		// What goes is one file, and what is written is one call's. An answer that
		// was given while files went may have some before a gap.
		if n := len(got); n >= most && n < most+2*file+20 && !last.Incomplete && slices.Equal(got, ids[len(ids)-n:]) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d jobs are kept, want the newest %d and some: %v", len(got), most, got)
		}
	}
	c.Stop(0)
	c.Restart(0)
	c.Leader()
	ctx, cancel := context.WithTimeout(coordtest.As(t.Context(), 1000), 2*time.Minute)
	defer cancel()
	gate := apirpc.NewHistoryServiceClient(c.Dial(0, "gate", "g"))
	var again []uint64
	for {
		jobs, last := answerOf(t, c, 0, &apiv1.ListHistoryRequest{OldestFirst: true})
		again = idsOf(jobs)
		if last.Incomplete || len(again) < most || !slices.Equal(again, ids[len(ids)-len(again):]) {
			t.Fatalf("after a restart: %v (incomplete: %t), before %v", again, last.Incomplete, got)
		}
		r, err := gate.GetReport(ctx, &apiv1.GetReportRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Total.GetJobs() == uint64(len(again)) {
			break
		}
		// A file went between the two answers, or what is told is not so.
		if jobs, _ := answerOf(t, c, 0, &apiv1.ListHistoryRequest{OldestFirst: true}); len(jobs) == len(again) {
			t.Fatalf("the report counts %d jobs, want %d", r.Total.GetJobs(), len(again))
		}
	}
	st, err := apirpc.NewClusterServiceClient(c.Dial(0, "gate", "g")).GetStatus(ctx, &apiv1.GetStatusRequest{})
	if err != nil || len(st.Members) != 1 || st.Members[0].HistoryJobs < most || st.Members[0].HistoryJobs > uint64(len(again)) {
		t.Fatalf("status: %v %v", st.GetMembers(), err)
	}
}
