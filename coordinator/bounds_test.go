package coordinator_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/coordinator"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

func TestABatchIsAllOrNothing(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	batch := make([]*apiv1.JobSpec, 1000)
	for i := range batch {
		batch[i] = spec(0)
	}
	batch[999] = &apiv1.JobSpec{Name: "no command", Dir: []byte("/")}
	if _, err := submit(t, cc, alice, reqID(1), batch...); status.Code(err) != codes.InvalidArgument {
		t.Errorf("the last of a thousand is wrong: %v, want InvalidArgument", err)
	}
	if jobs := everyJob(t, cc); len(jobs) != 0 {
		t.Errorf("%d jobs of a refused request", len(jobs))
	}
	batch[999] = spec(0)
	ids, err := submit(t, cc, alice, reqID(2), batch...)
	if err != nil || len(ids) != 1000 {
		t.Fatalf("%d ids, %v; want 1000", len(ids), err)
	}
	for i, id := range ids {
		if id != ids[0]+uint64(i) {
			t.Fatalf("ids %d and %d follow each other", ids[i-1], id)
		}
	}
	if jobs := everyJob(t, cc); len(jobs) != 1000 {
		t.Errorf("%d jobs, want 1000", len(jobs))
	}
	if _, err := submit(t, cc, alice, reqID(3), append(batch, spec(0))...); status.Code(err) != codes.InvalidArgument {
		t.Errorf("1001 jobs: %v, want InvalidArgument", err)
	}
}

func TestAnEntryTooLargeForTheLogIsTheCallersFault(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	batch := make([]*apiv1.JobSpec, 300)
	for i := range batch {
		batch[i] = spec(0)
		for k := range 3 { // more would not be kept with the job
			batch[i].Env = append(batch[i].Env, fmt.Appendf(nil, "A%02d=%s", k, strings.Repeat("x", 4000)))
		}
	}
	_, err := submit(t, cc, alice, reqID(1), batch...)
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(status.Convert(err).Message(), "in parts") {
		t.Errorf("3.5 MiB of jobs: %v, want InvalidArgument that says to send it in parts", err)
	}
	if _, err := submit(t, cc, alice, reqID(2), batch[:150]...); err != nil {
		t.Errorf("half of it: %v", err)
	}
}

func TestTheKernelSaysWhoCallsOnTheSocket(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true, AllowRoot: true})
	me := uint32(os.Getuid())
	for i := range 3 { // at a follower, the coordinator speaks for the user
		jobs := apirpc.NewJobServiceClient(c.Client(i))
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		resp, err := jobs.SubmitJobs(ctx, &apiv1.SubmitJobsRequest{RequestId: reqID(i), Jobs: []*apiv1.JobSpec{spec(0)}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := jobs.GetJob(ctx, &apiv1.GetJobRequest{Id: resp.Ids[0]})
		if err != nil || got.Job.Uid != me {
			t.Errorf("job %v, %v; want it to be uid %d's", got, err, me)
		}
		for name, call := range map[string]error{
			"unary":  second(jobs.ListJobs(as(t, alice), &apiv1.ListJobsRequest{})),
			"stream": firstError(jobs.WatchJobs(as(t, alice), &apiv1.WatchJobsRequest{})),
		} {
			if status.Code(call) != codes.PermissionDenied {
				t.Errorf("%s call on behalf of somebody over the socket: %v, want PermissionDenied", name, call)
			}
		}
		err = c.Client(i).Invoke(ctx, "/berth.node.v1.NodeService/Join", &nodev1.JoinRequest{}, &nodev1.JoinResponse{})
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("a daemon's method over the socket: %v, want Unimplemented", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// firstError returns how a stream began.
func firstError[T any](s grpc.ServerStreamingClient[T], err error) error {
	if err != nil {
		return err
	}
	_, err = s.Recv()
	return err
}

func TestAPanicEndsOneCallOnly(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	jobs := apirpc.NewJobServiceClient(c.Dial(0, "gate", "g"))
	unary := second(jobs.ListJobs(as(t, coordtest.PanicUID), &apiv1.ListJobsRequest{}))
	stream := firstError(jobs.WatchJobs(as(t, coordtest.PanicUID), &apiv1.WatchJobsRequest{}))
	for name, err := range map[string]error{"unary": unary, "stream": stream} {
		if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "the test asked") {
			t.Errorf("%s: %v, want Internal without the cause", name, err)
		}
	}
	if _, err := jobs.ListJobs(as(t, alice), &apiv1.ListJobsRequest{}); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestWatchesBeginWhereTheyCan(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Waits: coordinator.Waits{Index: 50 * time.Millisecond}})
	cc := c.Dial(0, "gate", "g")
	private := spec(0)
	private.Command = append(private.Command, []byte("--password=x"))
	private.Env = [][]byte{[]byte("KEY=x")}
	ids := submitted(t, cc, alice, reqID(1), spec(0), private)
	jobs := apirpc.NewJobServiceClient(cc)
	watch := func(uid uint32, req *apiv1.WatchJobsRequest) grpc.ServerStreamingClient[apiv1.WatchJobsResponse] {
		s, err := jobs.WatchJobs(as(t, uid), req)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	m, err := watch(bob, &apiv1.WatchJobsRequest{Ids: ids[1:]}).Recv()
	if err != nil || !m.Snapshot || len(m.Jobs) != 1 || m.Jobs[0].Id != ids[1] {
		t.Fatalf("watch of one job from 0: %v, %v", m, err)
	}
	if js := m.Jobs[0].GetSpec(); len(js.GetCommand()) > 1 || len(js.GetEnv()) > 0 || len(js.GetDir()) > 0 {
		t.Errorf("bob sees more of what alice runs than the program's name: %v", js)
	}
	if _, err := watch(alice, &apiv1.WatchJobsRequest{FromIndex: math.MaxUint64}).Recv(); status.Code(err) != codes.OutOfRange {
		t.Errorf("watch from an index that never was: %v, want OutOfRange", err)
	}
	if _, err := watch(alice, &apiv1.WatchJobsRequest{Ids: make([]uint64, 1001)}).Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("watch of 1001 jobs: %v, want InvalidArgument", err)
	}
}

func TestListingsAreBounded(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	ids := submitted(t, cc, alice, reqID(1), spec(0), spec(0), spec(0), spec(0), spec(0))
	jobs := apirpc.NewJobServiceClient(cc)
	var got []uint64
	req := &apiv1.ListJobsRequest{PageSize: 2}
	for pages := 0; ; pages++ {
		resp, err := jobs.ListJobs(as(t, bob), req)
		if err != nil || pages > 3 {
			t.Fatalf("page %d: %v", pages, err)
		}
		for _, j := range resp.Jobs {
			got = append(got, j.Id)
		}
		if req.PageToken = resp.NextPageToken; req.PageToken == "" {
			break
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		t.Errorf("pages of two hold %v, want %v", got, ids)
	}
	list := func(r *apiv1.ListJobsRequest) error { return second(jobs.ListJobs(as(t, alice), r)) }
	past, cancel := context.WithDeadline(coordtest.As(context.Background(), alice), time.Now().Add(-time.Second))
	defer cancel()
	for _, tc := range []struct {
		name string
		err  error
		want codes.Code
	}{
		{"a huge page", list(&apiv1.ListJobsRequest{PageSize: math.MaxUint32}), codes.OK},
		{"a token with a sign", list(&apiv1.ListJobsRequest{PageToken: "-1"}), codes.InvalidArgument},
		{"a token beyond 64 bits", list(&apiv1.ListJobsRequest{PageToken: "18446744073709551616"}), codes.InvalidArgument},
		{"too many ids", list(&apiv1.ListJobsRequest{Ids: make([]uint64, 1001)}), codes.InvalidArgument},
		{"an unknown job", second(jobs.GetJob(as(t, alice), &apiv1.GetJobRequest{Id: math.MaxUint64})), codes.NotFound},
		{"cancel without ids", second(jobs.CancelJobs(as(t, alice), &apiv1.CancelJobsRequest{})), codes.InvalidArgument},
		{"cancel of 1001", second(jobs.CancelJobs(as(t, alice), &apiv1.CancelJobsRequest{Ids: make([]uint64, 1001)})), codes.InvalidArgument},
		{"a deadline in the past", second(jobs.ListJobs(past, &apiv1.ListJobsRequest{})), codes.DeadlineExceeded},
		{"a method of no service", cc.Invoke(as(t, alice), "/grpc.reflection.v1.ServerReflection/X", &apiv1.GetJobRequest{}, &apiv1.GetJobResponse{}), codes.Unimplemented},
		{"a uid beyond 31 bits", second(jobs.ListJobs(as(t, 1<<31), &apiv1.ListJobsRequest{})), codes.Unauthenticated},
		{"two uids", second(jobs.ListJobs(metadata.AppendToOutgoingContext(as(t, alice), "berth-on-behalf-of-uid", "1001"), &apiv1.ListJobsRequest{})), codes.Unauthenticated},
	} {
		if got := status.Code(tc.err); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, tc.err, tc.want)
		}
	}
}

// TestBytesOfAUser: what jobs bring with them is bounded by user and in all, equal
// parts count once, and count no more when the jobs have ended.
func TestBytesOfAUser(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, MaxBytesPerUser: 1 << 20, MaxBytes: 3 << 19})
	jobs := apirpc.NewJobServiceClient(c.Dial(0, "gate", "g"))
	submit := func(uid uint32, tag string) (uint64, error) {
		s := spec(2000)
		s.Hold = true
		for k := range 100 {
			s.Env = append(s.Env, fmt.Appendf(nil, "A%d=%s%s", k, tag, strings.Repeat("x", 4000)))
		}
		r, err := jobs.SubmitJobs(as(t, uid), &apiv1.SubmitJobsRequest{RequestId: rand.Text(), Jobs: []*apiv1.JobSpec{s}})
		if err != nil {
			return 0, err
		}
		return r.Ids[0], nil
	}
	var first uint64
	for i, tag := range []string{"a", "a", "b", "a"} {
		id, err := submit(alice, tag)
		if err != nil {
			t.Fatalf("%d, of two contents: %v", i, err)
		}
		if tag == "b" {
			first = id
		}
	}
	if _, err := submit(alice, "c"); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "limits.spec_mib_per_user") {
		t.Errorf("a third content: %v", err)
	}
	if _, err := submit(bob, "a"); err != nil {
		t.Errorf("another user: %v", err)
	}
	if _, err := submit(bob, "b"); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "limits.spec_mib_total") {
		t.Errorf("more than all users may have: %v", err)
	}
	show, err := jobs.GetJob(as(t, alice), &apiv1.GetJobRequest{Id: first})
	if err != nil || len(show.GetJob().GetSpec().GetEnv()) != 100 {
		t.Errorf("its owner sees %d lines, %v", len(show.GetJob().GetSpec().GetEnv()), err)
	}
	list, err := jobs.ListJobs(as(t, alice), &apiv1.ListJobsRequest{})
	if err != nil || len(list.GetJobs()) == 0 || proto.Size(list) > 100<<10 {
		t.Errorf("a list has %d bytes, %v", proto.Size(list), err)
	}
	if _, err := jobs.CancelJobs(as(t, alice), &apiv1.CancelJobsRequest{Ids: []uint64{first}}); err != nil {
		t.Fatal(err)
	}
	if _, err := submit(alice, "c"); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}
