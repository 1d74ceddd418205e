package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
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

type userEnd = grpc.BidiStreamingClient[apiv1.AttachRequest, apiv1.AttachResponse]

func logsOf(job uint64) *apiv1.AttachOpen {
	return &apiv1.AttachOpen{Job: job, What: &apiv1.AttachOpen_Logs{Logs: &apiv1.AttachLogs{Follow: true}}}
}

func shellIn(job uint64) *apiv1.AttachOpen {
	return &apiv1.AttachOpen{Job: job, What: &apiv1.AttachOpen_Exec{Exec: &apiv1.AttachExec{Terminal: true}}}
}

// attach opens a user's stream.
func attach(t *testing.T, cc *grpc.ClientConn, uid uint32, open *apiv1.AttachOpen) userEnd {
	t.Helper()
	ctx, cancel := context.WithTimeout(coordtest.As(context.Background(), uid), 2*time.Minute)
	t.Cleanup(cancel)
	s, err := apirpc.NewAttachServiceClient(cc).Attach(ctx)
	if err == nil {
		err = s.Send(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Open{Open: open}})
	}
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return s
}

func visited(t *testing.T, a *coordtest.Agent) *nodev1.Visit {
	t.Helper()
	select {
	case v := <-a.Visits:
		return v
	case <-time.After(2 * time.Minute):
		t.Fatal("the agent was asked for no visit")
		return nil
	}
}

func frame(data string) *nodev1.RelayRequest {
	return &nodev1.RelayRequest{Kind: &nodev1.RelayRequest_Frame{Frame: &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Stdout{Stdout: []byte(data)}}}}
}

// runningJob is a job of alice's that runs on the agent's node.
func runningJob(t *testing.T, cc *grpc.ClientConn, a *coordtest.Agent, no int) (uint64, *nodev1.Assignment) {
	t.Helper()
	ids := submitted(t, cc, alice, reqID(no), spec(2000))
	asg := assigned(t, a, ids[0])
	a.Report(asg, running, 0)
	await(t, cc, ids[0], "RUNNING")
	return ids[0], asg
}

// TestAttachCarriesFrames lays a user's stream and an agent's end to end, by
// the leader itself and over each of the others.
func TestAttachCarriesFrames(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true})
	lead := c.Leader()
	a := c.Agent(lead, "n1", "b1", coordtest.T4("GPU-1"))
	id, asg := runningJob(t, c.Dial(lead, "gate", "g"), a, 1)
	for i := range 3 {
		t.Run(fmt.Sprintf("over c%d", i+1), func(t *testing.T) {
			user := attach(t, c.Dial(i, "gate", "g"), alice, shellIn(id))
			v := visited(t, a)
			if v.Uid != alice || v.Admin || v.Open.GetExec() == nil || v.Of.Token != asg.Token || v.Of.Uid != alice || len(v.Of.Command) > 0 {
				t.Errorf("the agent is asked for %v", v)
			}
			end := a.Answer(t.Context(), v.Id)
			for k := range 100 {
				text := fmt.Sprint("down ", k)
				if err := end.Send(frame(text)); err != nil {
					t.Fatal(err)
				}
				if m, err := user.Recv(); err != nil || string(m.GetStdout()) != text {
					t.Fatalf("got %v, %v", m, err)
				}
				if err := user.Send(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Stdin{Stdin: []byte(text)}}); err != nil {
					t.Fatal(err)
				}
				if m, err := end.Recv(); err != nil || string(m.GetFrame().GetStdin()) != text {
					t.Fatalf("got %v, %v", m, err)
				}
			}
			if err := end.CloseSend(); err != nil {
				t.Fatal(err)
			}
			if m, err := user.Recv(); err != io.EOF {
				t.Errorf("after the agent's end: %v, %v", m, err)
			}
			if m, err := end.Recv(); err != io.EOF {
				t.Errorf("the agent's stream: %v, %v", m, err)
			}
		})
	}
}

// TestAttachRefuses is who may do what, and every request that cannot be met.
func TestAttachRefuses(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	runs, asg := runningJob(t, cc, a, 1)
	ended, endedAs := runningJob(t, cc, a, 2)
	a.Report(endedAs, completed, 0)
	await(t, cc, ended, "COMPLETED")
	hold := spec(0)
	hold.Hold = true
	ids := submitted(t, cc, alice, reqID(3), hold)
	waits := ids[0]
	at := func(o *apiv1.AttachOpen, attempt uint32, node string) *apiv1.AttachOpen {
		o.Attempt, o.Node = attempt, node
		return o
	}
	neg, both := logsOf(runs), logsOf(runs)
	neg.GetLogs().Offset = -1
	two := int64(2)
	both.GetLogs().Offset, both.GetLogs().TailLines = 7, &two
	odd := shellIn(runs)
	odd.GetExec().Command = [][]byte{[]byte("a\x00b")}
	series := &apiv1.AttachOpen{Job: runs, What: &apiv1.AttachOpen_Series{Series: &apiv1.AttachSeries{Gpus: []string{"GPU-1"}}}}
	wide := shellIn(runs)
	wide.GetExec().Window = &apiv1.WindowSize{Rows: 70_000}
	for _, x := range []struct {
		name string
		uid  uint32
		open *apiv1.AttachOpen
		code codes.Code
		says string
	}{
		{"another user's output", bob, logsOf(runs), codes.PermissionDenied, "another user"},
		{"another user's job", bob, shellIn(runs), codes.PermissionDenied, "another user"},
		{"no such job", alice, shellIn(999), codes.NotFound, "not known"},
		{"no job", alice, shellIn(0), codes.InvalidArgument, "which job"},
		{"nothing", alice, &apiv1.AttachOpen{Job: runs}, codes.InvalidArgument, "neither"},
		{"a job that waits", alice, shellIn(waits), codes.FailedPrecondition, "has not started"},
		{"output of a job that waits", alice, logsOf(waits), codes.FailedPrecondition, "has not started"},
		{"a job that ended", alice, shellIn(ended), codes.FailedPrecondition, "is not running (COMPLETED)"},
		{"an attempt to come", alice, at(shellIn(runs), 2, ""), codes.FailedPrecondition, "has not started"},
		{"another node", alice, at(shellIn(runs), 0, "n2"), codes.NotFound, "not on node n2 but on n1"},
		{"a negative offset", alice, neg, codes.InvalidArgument, "offset"},
		{"two beginnings", alice, both, codes.InvalidArgument, "only one"},
		{"a zero byte", alice, odd, codes.InvalidArgument, "zero byte"},
		{"what the leader alone asks for", alice, series, codes.InvalidArgument, "GetSeries"},
		{"a wide window", alice, wide, codes.InvalidArgument, "65535"},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, err := attach(t, cc, x.uid, x.open).Recv()
			if status.Code(err) != x.code || !strings.Contains(err.Error(), x.says) {
				t.Errorf("got %v, want %v with %q", err, x.code, x.says)
			}
		})
	}
	for _, x := range []struct {
		name  string
		uid   uint32
		open  *apiv1.AttachOpen
		admin bool
	}{
		{"owner's shell", alice, shellIn(runs), false},
		{"owner's output", alice, logsOf(runs), false},
		{"output of a job that ended", alice, logsOf(ended), false},
		{"administrator's shell", admin, at(shellIn(runs), asg.Attempt, "n1"), true},
		{"administrator's look", admin, logsOf(runs), true},
	} {
		t.Run(x.name, func(t *testing.T) {
			attach(t, cc, x.uid, x.open)
			if v := visited(t, a); v.Uid != x.uid || v.Admin != x.admin || v.Of.Uid != alice {
				t.Errorf("the agent is asked for %v", v)
			}
		})
	}
	if len(a.Visits) > 0 {
		t.Errorf("the agent was asked for what was refused: %v", <-a.Visits)
	}
}

// TestAttachNodeAway has no session with the node, one whose agent does not
// answer, and one that refuses.
func TestAttachNodeAway(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	id, _ := runningJob(t, cc, a, 1)
	user := attach(t, cc, alice, logsOf(id))
	end := a.Answer(t.Context(), visited(t, a).Id)
	refusal := &nodev1.Refusal{Reason: "NOT_FOUND", Message: "the output file is not on node n1"}
	if err := end.Send(&nodev1.RelayRequest{Kind: &nodev1.RelayRequest_Refused{Refused: refusal}}); err != nil {
		t.Fatal(err)
	}
	if _, err := user.Recv(); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), refusal.Message) {
		t.Errorf("refused by the agent: %v", err)
	}
	if _, err := a.Answer(t.Context(), "made-up").Recv(); status.Code(err) != codes.NotFound {
		t.Errorf("an answer that nobody asked for: %v", err)
	}
	waiting := attach(t, cc, alice, shellIn(id))
	visited(t, a)
	a.Silence()
	if _, err := waiting.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "node n1 is not connected") {
		t.Errorf("the session ends meanwhile: %v", err)
	}
	if _, err := attach(t, cc, alice, logsOf(id)).Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "node n1 is not connected") {
		t.Errorf("no session: %v", err)
	}
}

// TestAttachSilentAgent has an agent that does not answer, and then too late.
func TestAttachSilentAgent(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Waits: coordinator.Waits{Visit: 50 * time.Millisecond}})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	id, _ := runningJob(t, cc, a, 1)
	silent := attach(t, cc, alice, shellIn(id))
	v := visited(t, a)
	if _, err := silent.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "node n1 does not answer within 50ms") {
		t.Errorf("an agent that does not answer: %v", err)
	}
	if _, err := a.Answer(t.Context(), v.Id).Recv(); status.Code(err) != codes.NotFound {
		t.Errorf("an answer that is late: %v", err)
	}
}

// TestAttachOneNodesVisitIsNotAnothers has a node answer for another.
func TestAttachOneNodesVisitIsNotAnothers(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	id, _ := runningJob(t, cc, a, 1)
	thief := c.Agent(0, "n2", "b2", coordtest.T4("GPU-2"))
	user := attach(t, cc, alice, shellIn(id))
	v := visited(t, a)
	if _, err := thief.Answer(t.Context(), v.Id).Recv(); status.Code(err) != codes.NotFound {
		t.Errorf("another node's answer: %v", err)
	}
	end := a.Answer(t.Context(), v.Id)
	if err := end.Send(frame("mine")); err != nil {
		t.Fatal(err)
	}
	if m, err := user.Recv(); err != nil || string(m.GetStdout()) != "mine" {
		t.Errorf("got %v, %v", m, err)
	}
	relay := noderpc.NewRelayServiceClient(c.Dial(0, "gate", "g"))
	if s, err := relay.Relay(t.Context()); err == nil {
		if _, err := s.Recv(); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a gate relays: %v", err)
		}
	}
}

// TestAttachLimits counts the streams of a user.
func TestAttachLimits(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	id, _ := runningJob(t, cc, a, 1)
	var first noderpc.RelayService_RelayClient
	for range 32 {
		attach(t, cc, alice, logsOf(id))
		if end := a.Answer(t.Context(), visited(t, a).Id); first == nil {
			first = end
		}
	}
	if _, err := attach(t, cc, alice, logsOf(id)).Recv(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "at most 32") {
		t.Errorf("one more: %v", err)
	}
	attach(t, cc, admin, logsOf(id))
	visited(t, a) // others have their own
	if err := first.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Recv(); err != io.EOF {
		t.Errorf("the agent's end: %v", err)
	}
	deadline := time.Now().Add(2 * time.Minute)
	for len(a.Visits) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("no room after one has ended")
		}
		s := attach(t, cc, alice, logsOf(id))
		got := make(chan struct{})
		go func() { defer close(got); _, _ = s.Recv() }()
		select {
		case <-got:
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// TestAttachEndsWithTheLeader says so to the user.
func TestAttachEndsWithTheLeader(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true})
	lead := c.Leader()
	a := c.Agent(lead, "n1", "b1", coordtest.T4("GPU-1"))
	id, _ := runningJob(t, c.Dial(lead, "gate", "g"), a, 1)
	var users []userEnd
	for i := range 3 {
		u := attach(t, c.Dial(i, "gate", "g"), alice, shellIn(id))
		end := a.Answer(t.Context(), visited(t, a).Id)
		if err := end.Send(frame("hello")); err != nil {
			t.Fatal(err)
		}
		if m, err := u.Recv(); err != nil || string(m.GetStdout()) != "hello" {
			t.Fatalf("got %v, %v", m, err)
		}
		users = append(users, u)
	}
	c.Elect(lead)
	for i, u := range users {
		_, err := u.Recv()
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "a new leader") {
			t.Errorf("over c%d: %v", i+1, err)
		}
	}
}
