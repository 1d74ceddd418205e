package coordinator_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/coordinator"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
)

const (
	alice = 1000
	bob   = 1001
	admin = 2000
)

func spec(gpuMemMiB int64) *apiv1.JobSpec {
	s := &apiv1.JobSpec{Name: "j", Command: [][]byte{[]byte("true")}, Dir: []byte("/")}
	if gpuMemMiB > 0 {
		s.Gpus, s.GpuMemMib, s.GpuUtilMilli = 1, gpuMemMiB, 100
	}
	return s
}

func reqID(i int) string { return fmt.Sprintf("request-%016d", i) }

func as(t *testing.T, uid uint32) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return coordtest.As(ctx, uid)
}

func job(t *testing.T, cc *grpc.ClientConn, uid uint32, id uint64) *apiv1.Job {
	t.Helper()
	resp, err := apirpc.NewJobServiceClient(cc).GetJob(as(t, uid), &apiv1.GetJobRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Job
}

func await(t *testing.T, cc *grpc.ClientConn, id uint64, state string) *apiv1.Job {
	t.Helper()
	var j *apiv1.Job
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if j = job(t, cc, alice, id); j.State == state {
			return j
		}
	}
	t.Fatalf("job %d is %s (%s), want %s", id, j.State, j.Reason, state)
	return nil
}

func next(t *testing.T, a *coordtest.Agent) *nodev1.Assignment {
	t.Helper()
	return assigned(t, a, 0)
}

// assigned waits for the assignment of a job, 0 for any.
func assigned(t *testing.T, a *coordtest.Agent, job uint64) *nodev1.Assignment {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		select {
		case asg := <-a.Assigned:
			if job == 0 || asg.Job == job {
				return asg
			}
		case <-deadline:
			t.Fatal("nothing was assigned within two minutes")
			return nil
		}
	}
}

const (
	running   = nodev1.AttemptState_ATTEMPT_STATE_RUNNING
	completed = nodev1.AttemptState_ATTEMPT_STATE_COMPLETED
	failed    = nodev1.AttemptState_ATTEMPT_STATE_FAILED
)

func TestJobsShareACardAndEnd(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	ids := submitted(t, cc, alice, reqID(1), spec(2000), spec(3000))
	one, two := next(t, a), next(t, a)
	a.Report(one, running, 0)
	a.Report(two, running, 0)
	j := await(t, cc, ids[0], "RUNNING")
	if j.Node != "n1" || len(j.Gpus) != 1 || j.Gpus[0].Type != "T4" || len(j.Neighbours) != 1 || j.Neighbours[0] != ids[1] {
		t.Errorf("running as %v", j)
	}
	a.Report(one, completed, 0)
	a.Report(two, failed, 3)
	first, second := await(t, cc, one.Job, "COMPLETED"), await(t, cc, two.Job, "FAILED")
	if first.GetExitCode() != 0 || second.GetExitCode() != 3 {
		t.Errorf("exit codes %d and %d, want 0 and 3", first.GetExitCode(), second.GetExitCode())
	}
}

func TestARequestIDGetsItsAnswerAgain(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true})
	l := c.Leader()
	ids, err := submit(t, c.Dial(l, "gate", "g"), alice, reqID(1), spec(0), spec(0))
	if err != nil || len(ids) != 2 {
		t.Fatalf("%v, %v", ids, err)
	}
	for i := range 3 { // followers pass it on
		again, err := submit(t, c.Dial(i, "gate", "g"), alice, reqID(1), spec(0), spec(0))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(ids) {
			t.Errorf("at coordinator %d: %v, %v; want %v", i, again, err, ids)
		}
	}
	if _, err := submit(t, c.Dial(l, "gate", "g"), alice, reqID(1), spec(0)); status.Code(err) != codes.AlreadyExists {
		t.Errorf("another body: %v, want AlreadyExists", err)
	}
	c.Stop(l)
	l = c.Leader()
	again, err := submit(t, c.Dial(l, "gate", "g"), alice, reqID(1), spec(0), spec(0))
	if err != nil || fmt.Sprint(again) != fmt.Sprint(ids) {
		t.Errorf("after the leader left: %v, %v; want %v", again, err, ids)
	}
}

// TestSubmitsShareLogEntries: how many come while one entry is written is the
// machine's to say, which may be at other things; not each of ten times.
func TestSubmitsShareLogEntries(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true})
	const n = 400
	for try := range 10 {
		cc := c.Dial(c.Leader(), "gate", "g")
		before := index(t, cc)
		submitAtOnce(t, cc, try*n, n)
		used := index(t, cc) - before
		if used <= n/2 {
			return
		}
		t.Logf("%d submits at once took %d log entries", n, used)
	}
	t.Error("submits that come at once should share log entries")
}

// submitAtOnce submits n jobs, and checks that each has an id of its own.
func submitAtOnce(t *testing.T, cc *grpc.ClientConn, first, n int) {
	t.Helper()
	var wg sync.WaitGroup
	seen := make([]uint64, n)
	for i := range n {
		wg.Go(func() {
			ids, err := submit(t, cc, alice, reqID(first+i), spec(0))
			if err != nil {
				t.Errorf("submit: %v", err)
				return
			}
			seen[i] = ids[0]
		})
	}
	wg.Wait()
	unique := map[uint64]bool{}
	for _, id := range seen {
		unique[id] = true
	}
	if len(unique) != n {
		t.Errorf("%d different ids for %d submits", len(unique), n)
	}
}

func index(t *testing.T, cc *grpc.ClientConn) uint64 {
	t.Helper()
	st, err := apirpc.NewClusterServiceClient(cc).GetStatus(as(t, alice), &apiv1.GetStatusRequest{Brief: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Members) > 0 || st.Figures != nil {
		t.Errorf("in brief: %v", st)
	}
	return st.Index
}

func TestEverythingIsKnownAfterAllStopped(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true})
	ids := submitted(t, c.Dial(c.Leader(), "gate", "g"), alice, reqID(1), spec(0), spec(0), spec(0))
	for i := range 3 {
		c.Stop(i)
	}
	for i := range 3 {
		c.Restart(i)
	}
	cc := c.Dial(c.Leader(), "gate", "g")
	for _, id := range ids {
		if j := job(t, cc, alice, id); j.Id != id {
			t.Errorf("job %d is gone", id)
		}
	}
}

func TestASilentNodeComesBack(t *testing.T) {
	t.Parallel()
	var leases leaseClock
	c := coordtest.Start(t, coordtest.Options{N: 1, Clock: leases.now, Lease: aLease})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	silence := alive(a)
	ids, err := submit(t, cc, alice, reqID(1), spec(2000))
	if err != nil {
		t.Fatal(err)
	}
	asg := next(t, a)
	a.Report(asg, running, 0)
	await(t, cc, ids[0], "RUNNING")
	silence()
	a.Silence()
	leases.lapse(t, cc, "n1")
	await(t, cc, ids[0], "UNREACHABLE")
	a = c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	silence = alive(a)
	await(t, cc, ids[0], "RUNNING")
	a.Report(asg, completed, 0)
	await(t, cc, ids[0], "COMPLETED")

	ids = submitted(t, cc, alice, reqID(2), spec(2000))
	// The session began with the first job's assignment.
	a.Report(assigned(t, a, ids[0]), running, 0)
	await(t, cc, ids[0], "RUNNING")
	silence()
	a.Silence()
	c.Agent(0, "n1", "b2", coordtest.T4("GPU-1")) // it booted
	if j := await(t, cc, ids[0], "NODE_FAIL"); !strings.Contains(j.Reason, "NodeLost") {
		t.Errorf("reason %s, want NodeLost", j.Reason)
	}
}

func TestWatchGoesOnAtAnotherCoordinator(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true})
	l := c.Leader()
	first := submitted(t, c.Dial(l, "gate", "g"), alice, reqID(1), spec(0))
	watch := func(i int, from uint64) grpc.ServerStreamingClient[apiv1.WatchJobsResponse] {
		s, err := apirpc.NewJobServiceClient(c.Dial(i, "gate", "g")).WatchJobs(as(t, alice), &apiv1.WatchJobsRequest{FromIndex: from})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var m *apiv1.WatchJobsResponse
	for m.GetIndex() == 0 { // a follower may have applied nothing yet
		var err error
		if m, err = watch((l+1)%3, 0).Recv(); err != nil || !m.Snapshot {
			t.Fatalf("first answer %v, %v; want the present state", m, err)
		}
	}
	second := submitted(t, c.Dial(l, "gate", "g"), alice, reqID(2), spec(0))
	s := watch((l+2)%3, m.Index)
	for {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range m.Jobs {
			if j.Id == second[0] {
				return // the change after the index, at another coordinator
			}
			if j.Id == first[0] && m.Snapshot {
				t.Fatal("the present state came again")
			}
		}
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Waits: coordinator.Waits{JobUser: 50 * time.Millisecond}})
	gate, coord := c.Dial(0, "gate", "g"), c.Dial(0, "coordinator", "c9")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	ids := submitted(t, gate, alice, reqID(1), spec(0))
	drain := func(cc *grpc.ClientConn, uid uint32) error {
		_, err := apirpc.NewClusterServiceClient(cc).DrainNode(as(t, uid), &apiv1.DrainNodeRequest{Id: "n1", Reason: "r"})
		return err
	}
	sub := func(cc *grpc.ClientConn, uid uint32) error {
		_, err := submit(t, cc, uid, reqID(int(uid)+10), spec(0))
		return err
	}
	_, nobody := apirpc.NewJobServiceClient(gate).ListJobs(context.Background(), &apiv1.ListJobsRequest{})
	for _, tc := range []struct {
		name string
		err  error
		want codes.Code
	}{
		{"root submits", sub(coord, 0), codes.PermissionDenied},
		{"a system account submits", sub(coord, 999), codes.PermissionDenied},
		{"a gate speaks for root", sub(gate, 0), codes.PermissionDenied},
		{"a node submits for whose job it runs", sub(c.Dial(0, "agent", "n1"), alice), codes.OK},
		{"a node submits for another user", sub(c.Dial(0, "agent", "n1"), bob), codes.PermissionDenied},
		{"a gate says nothing of whom it speaks for", nobody, codes.Unauthenticated},
		{"a user drains", drain(gate, alice), codes.PermissionDenied},
		{"an administrator drains", drain(gate, admin), codes.OK},
		{"a user submits", sub(gate, bob), codes.OK},
	} {
		if got := status.Code(tc.err); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, tc.err, tc.want)
		}
	}
	resp, err := apirpc.NewJobServiceClient(gate).CancelJobs(as(t, bob), &apiv1.CancelJobsRequest{RequestId: reqID(7), Ids: []uint64{ids[0], 99}})
	if err != nil || resp.Results[0].Outcome != apiv1.CancelOutcome_CANCEL_OUTCOME_DENIED || resp.Results[1].Outcome != apiv1.CancelOutcome_CANCEL_OUTCOME_NOT_FOUND {
		t.Errorf("bob cancels alice's job and an unknown one: %v, %v", resp, err)
	}
	if j := job(t, gate, bob, ids[0]); len(j.Spec.Env) != 0 {
		t.Errorf("bob sees alice's environment")
	}
}

func TestNodesSpeakForThemselvesAlone(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	ids := submitted(t, cc, alice, reqID(1), spec(2000))
	asg := next(t, a)
	a.Report(asg, running, 0)
	await(t, cc, ids[0], "RUNNING")
	other := c.Agent(0, "n2", "b2", coordtest.T4("GPU-2"))
	other.Report(asg, failed, 1)
	mine, err := submit(t, cc, alice, reqID(2), spec(15000)) // only n2 has room
	if err != nil {
		t.Fatal(err)
	}
	other.Report(next(t, other), completed, 0) // by now the lie was looked at
	await(t, cc, mine[0], "COMPLETED")
	if j := job(t, cc, alice, ids[0]); j.State != "RUNNING" {
		t.Errorf("a report of another node made it %s", j.State)
	}
	s, err := noderpc.NewNodeServiceClient(c.Dial(0, "agent", "n3")).Session(as(t, alice))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Hello{Hello: &nodev1.Hello{Protocol: 1, Node: "n1", BootId: "b", CpuMilli: 1, MemMib: 1}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("n3 calls itself n1: %v, want PermissionDenied", err)
	}
}

// TestNoNodeBecomesAnother: a node may say anew what it is, but not in the
// middle of its session that it is another, whose jobs would be lost.
func TestNoNodeBecomesAnother(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	ctx, cancel := context.WithTimeout(as(t, alice), 2*time.Minute)
	defer cancel()
	s, err := noderpc.NewNodeServiceClient(c.Dial(0, "agent", "n3")).Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"n3", "n3", "n1"} {
		h := &nodev1.Hello{Protocol: 1, Node: node, BootId: "b", CpuMilli: 1, MemMib: 1}
		if err := s.Send(&nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Hello{Hello: h}}); err != nil {
			t.Fatal(err)
		}
	}
	for err == nil {
		_, err = s.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("n3 became n1: %v, want PermissionDenied", err)
	}
}

func TestJoinTokensWorkOnce(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	tok, err := apirpc.NewClusterServiceClient(cc).CreateToken(as(t, admin), &apiv1.CreateTokenRequest{Id: "n7"})
	if err != nil {
		t.Fatal(err)
	}
	join := func(node, secret string) error {
		_, err := noderpc.NewNodeServiceClient(cc).Join(as(t, alice), &nodev1.JoinRequest{Node: node, TokenSecret: secret, Csr: []byte("csr")})
		return err
	}
	wrong, otherName := join("n7", "guess"), join("n8", tok.Token)
	if status.Code(wrong) != codes.Unauthenticated || status.Code(otherName) != codes.Unauthenticated {
		t.Errorf("wrong secret: %v; other name: %v; want Unauthenticated", wrong, otherName)
	}
	if err := join("n7", tok.Token); err != nil {
		t.Errorf("join: %v", err)
	}
	if err := join("n7", tok.Token); status.Code(err) != codes.Unauthenticated {
		t.Errorf("second use: %v, want Unauthenticated", err)
	}
}

// TestWrongTokensCostNothing: neither a signature, which would say that there
// is nothing to sign, nor an entry in the log; and there is an end to them.
func TestWrongTokensCostNothing(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	before := index(t, cc)
	for i := range 1000 {
		_, err := noderpc.NewNodeServiceClient(cc).Join(as(t, alice), &nodev1.JoinRequest{Node: "n7", TokenSecret: "guess"})
		if status.Code(err) == codes.ResourceExhausted && i >= 30 {
			break
		}
		if status.Code(err) != codes.Unauthenticated {
			t.Fatalf("guess %d: %v, want Unauthenticated, and from the 30th on ResourceExhausted", i, err)
		}
		if i == 999 {
			t.Error("a thousand guesses and no end")
		}
	}
	if after := index(t, cc); after != before {
		t.Errorf("index %d after wrong tokens, want %d", after, before)
	}
}

func TestBadRequestsChangeNothing(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, MaxQueued: 5})
	cc := c.Dial(0, "gate", "g")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	jobs, before := apirpc.NewJobServiceClient(cc), index(t, cc)
	sub := func(id string, specs ...*apiv1.JobSpec) error {
		_, err := submit(t, cc, alice, id, specs...)
		return err
	}
	list := func(r *apiv1.ListJobsRequest) error { _, err := jobs.ListJobs(as(t, alice), r); return err }
	three := spec(0)
	three.Gpus = 3
	big := spec(0)
	big.Comment = strings.Repeat("x", 5<<20)
	for _, tc := range []struct {
		name string
		err  error
		want codes.Code
	}{
		{"no request id", sub("", spec(0)), codes.InvalidArgument},
		{"short request id", sub("x", spec(0)), codes.InvalidArgument},
		{"long request id", sub(strings.Repeat("x", 1024), spec(0)), codes.InvalidArgument},
		{"no jobs", sub(reqID(1)), codes.InvalidArgument},
		{"no command", sub(reqID(1), &apiv1.JobSpec{Name: "j"}), codes.InvalidArgument},
		{"more GPUs than any node has", sub(reqID(1), three), codes.InvalidArgument},
		{"more memory than any card has", sub(reqID(1), spec(20000)), codes.InvalidArgument},
		{"more jobs than may wait", sub(reqID(1), spec(0), spec(0), spec(0), spec(0), spec(0), spec(0)), codes.ResourceExhausted},
		{"message over the limit", sub(reqID(1), big), codes.ResourceExhausted},
		{"unknown state", list(&apiv1.ListJobsRequest{States: []string{"SLEEPING"}}), codes.InvalidArgument},
		{"forged page token", list(&apiv1.ListJobsRequest{PageToken: "x"}), codes.InvalidArgument},
		{"unknown method", cc.Invoke(as(t, alice), "/berth.api.v1.JobService/Nope", &apiv1.GetJobRequest{}, &apiv1.GetJobResponse{}), codes.Unimplemented},
	} {
		if got := status.Code(tc.err); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, tc.err, tc.want)
		}
	}
	if after := index(t, cc); after > before+1 { // the node's registration may come between
		t.Errorf("%d log entries for requests that were refused", after-before)
	}
}
