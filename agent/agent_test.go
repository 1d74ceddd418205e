package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/agenttest"
	"github.com/berth-scheduler/berth/agent/journal"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/launcher"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

type users struct{}

func (users) Resolve(uid, gid uint32, name string) (launcher.User, error) {
	if name == "ghost" {
		return launcher.User{}, errors.New("no such account here")
	}
	return launcher.User{Name: name, Home: "/home/" + name, Shell: "/bin/sh", Groups: []uint32{gid, 7}}, nil
}

// rig is an agent with a fake runtime and a fake leader.
type rig struct {
	t      *testing.T
	dir    string
	rt     *agenttest.Runtime
	leader *agenttest.Leader
	agent  *agent.Agent // the present one
	stop   func()
	// tweak changes what an agent is started with; may be nil.
	tweak func(*agent.Config)
}

func newRig(t *testing.T) *rig { return newRigWith(t, nil) }

func newRigWith(t *testing.T, tweak func(*agent.Config)) *rig {
	t.Parallel()
	r := &rig{t: t, dir: t.TempDir(), rt: agenttest.New(), leader: agenttest.NewLeader(t), tweak: tweak}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

// start runs an agent on the rig's directory, as after a restart.
func (r *rig) start() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cfg := agent.Config{
		Node: "n1", BootID: "boot", Dir: r.dir, Coordinators: []string{"leader"}, Dial: r.leader.Dial, Host: r.rt,
		Users: users{}, CPUMilli: 8000, MemMiB: 1024, Grace: 50 * time.Millisecond, Heartbeat: 20 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if r.tweak != nil {
		r.tweak(&cfg)
	}
	a, err := agent.New(ctx, cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.agent = a
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			r.t.Errorf("agent: %v", err)
		}
		r.stop = func() {}
	}
}

// TestImagesGoneFromTheNode: an agent that starts again without the runtime for images
// keeps the attempts that run in one, and those of the host go on.
func TestImagesGoneFromTheNode(t *testing.T) {
	images := agenttest.New()
	there := true
	r := newRigWith(t, func(cfg *agent.Config) {
		if there {
			cfg.Images = images
		}
	})
	as := assignment(1)
	as.Image = "i"
	r.leader.Assign(as)
	r.reported(1, running)
	r.leader.Assign(assignment(2))
	r.reported(2, running)
	r.stop()
	there = false
	r.start()
	r.rt.Exit(id(2), 0, true)
	r.reported(2, completed)
	r.stop()
	there = true
	r.start()
	images.Exit(id(1), 0, true)
	r.reported(1, completed)
}

// TestStartsWhileTheRuntimeIsAway: a runtime that does not answer at once, since
// it starts at the same time, keeps no agent from starting.
func TestStartsWhileTheRuntimeIsAway(t *testing.T) {
	r := newRig(t)
	r.leader.Assign(assignment(1))
	r.reported(1, running)
	r.stop()
	r.rt.Fail("list", errors.New("connection refused"), errors.New("connection refused"))
	r.start()
	r.rt.Exit(id(1), 3, true)
	if got := r.reported(1, failed); got.GetExit().GetCode() != 3 {
		t.Errorf("job 1 ended with %v, want code 3", got.GetExit())
	}
}

func assignment(job uint64) *nodev1.Assignment {
	return &nodev1.Assignment{
		Job: job, Attempt: 1, Token: 100 + job, Uid: 1000, Gid: 1000, User: "alice", Name: "train",
		Command: [][]byte{[]byte("python"), []byte("train.py")}, Dir: []byte("/home/alice/run"), MemMib: 64, CpuMilli: 2000,
	}
}

func id(job uint64) cluster.AttemptID { return cluster.AttemptID{Job: cluster.JobID(job), No: 1} }

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within two minutes: %s; calls %v", what, r.rt.Calls())
		}
	}
}

func (r *rig) reported(job uint64, want nodev1.AttemptState) *nodev1.Report {
	r.t.Helper()
	r.eventually(fmt.Sprintf("job %d reported %s", job, want), func() bool {
		last := r.leader.Last(id(job))
		return last != nil && last.State == want
	})
	return r.leader.Last(id(job))
}

const (
	running   = nodev1.AttemptState_ATTEMPT_STATE_RUNNING
	completed = nodev1.AttemptState_ATTEMPT_STATE_COMPLETED
	failed    = nodev1.AttemptState_ATTEMPT_STATE_FAILED
	cancelled = nodev1.AttemptState_ATTEMPT_STATE_CANCELLED
	timeout   = nodev1.AttemptState_ATTEMPT_STATE_TIMEOUT
	oom       = nodev1.AttemptState_ATTEMPT_STATE_OUT_OF_MEMORY
	lost      = nodev1.AttemptState_ATTEMPT_STATE_LOST
)

func TestAnAttemptRunsAndIsForgotten(t *testing.T) {
	r := newRig(t)
	r.leader.Assign(assignment(1))
	r.reported(1, running)
	r.rt.Exit(id(1), 0, true)
	r.reported(1, completed)
	r.eventually("forgotten", func() bool { return r.rt.Phase(id(1)) == runtime.Absent })
	want := []string{"create j1-a1", "start j1-a1", "delete j1-a1"}
	if got := r.rt.Calls(); !slices.Equal(got, want) {
		t.Errorf("calls %v, want %v", got, want)
	}
	l := r.rt.Launch(id(1))
	if l.UID != 1000 || !slices.Equal(l.Groups, []uint32{1000, 7}) || l.MemBytes != 64<<20 || l.Stdout != "/home/alice/run/berth-1.out" {
		t.Errorf("launched %+v", l)
	}
	if env := strings.Join(l.Env, "\n"); !strings.Contains(env, "BERTH_JOB_ID=1") || !strings.Contains(env, "HOME=/home/alice") || !strings.Contains(env, "CUDA_VISIBLE_DEVICES=\n") || !strings.Contains(env, "BERTH_DEVICE=cpu\n") {
		t.Errorf("environment %q", env)
	}
}

func TestVerdicts(t *testing.T) {
	r := newRig(t)
	for job, end := range map[uint64]func(cluster.AttemptID){
		1: func(id cluster.AttemptID) { r.rt.Exit(id, 3, true) },
		2: func(id cluster.AttemptID) { r.rt.OOMKill(id) },
		3: func(id cluster.AttemptID) { _ = r.rt.Signal(context.Background(), id, syscall.SIGSEGV) },
	} {
		r.leader.Assign(assignment(job))
		r.reported(job, running)
		end(id(job))
	}
	if got := r.reported(1, failed); got.Exit.Code != 3 || got.Reason != "NonZeroExitCode" {
		t.Errorf("exit 3: %v", got)
	}
	if got := r.reported(2, oom); got.Exit.Signal != 9 || got.Reason != "OutOfHostMemory" || !strings.Contains(got.Detail, "64 MiB") {
		t.Errorf("OOM kill: %v", got)
	}
	if got := r.reported(3, failed); got.Exit.Signal != 11 || got.Exit.Code != 139 || got.Reason != "RaisedSignal" {
		t.Errorf("SIGSEGV: %v", got)
	}
}

func TestLaunchFailures(t *testing.T) {
	r := newRig(t)
	r.rt.Fail("create", &launch.Error{Code: 127, Reason: "COMMAND", Err: errors.New("python: not found")})
	r.leader.Assign(assignment(1))
	if got := r.reported(1, failed); got.Exit.Code != 127 || got.Reason != "LaunchFailed" {
		t.Errorf("missing command: %v", got)
	}
	ghost := assignment(2)
	ghost.User = "ghost"
	r.leader.Assign(ghost)
	if got := r.reported(2, failed); got.Exit.Code != 125 || !strings.Contains(got.Detail, "no such account") {
		t.Errorf("unknown user: %v", got)
	}
	// What may pass by itself is tried again.
	r.rt.Fail("create", errors.New("busy"), errors.New("busy"))
	r.leader.Assign(assignment(3))
	r.reported(3, running)
	// And meanwhile its owner learns why.
	r.rt.Fail("create", slices.Repeat([]error{errors.New("busy")}, 100)...)
	r.leader.Assign(assignment(4))
	if got := r.reported(4, nodev1.AttemptState_ATTEMPT_STATE_STARTING); got.Reason != "LaunchFailed" || got.Detail != "it is tried again: busy" {
		t.Errorf("a launch that is tried again: %v", got)
	}
}

// TestOutputDirectoryMadeLater: the directory of the output may be made just after
// the submit, whether the runtime looks for it before or when it starts the job.
func TestOutputDirectoryMadeLater(t *testing.T) {
	for job, op := range []string{1: "create", 2: "start"} {
		if op == "" {
			continue
		}
		t.Run(op, func(t *testing.T) {
			r := newRig(t)
			missing := &launch.Error{Code: 125, Reason: "OUTPUT", Missing: true, Err: errors.New("open log_1/out: no such file or directory")}
			r.rt.Fail(op, missing, missing, missing)
			r.leader.Assign(assignment(uint64(job)))
			r.reported(uint64(job), running)
		})
	}
}

// TestStartThatFails: nobody knows what became of it until the runtime says
// so. The process may run, and must then neither be started again nor be
// called failed.
func TestStartThatFails(t *testing.T) {
	r := newRig(t)
	lost := errors.New("connection reset by peer")
	r.rt.Fail("answer of start", lost)
	r.rt.Fail("inspect", lost, lost)
	r.leader.Assign(assignment(1))
	r.reported(1, running)
	r.rt.Exit(id(1), 3, true)
	if got := r.reported(1, failed); got.Exit.Code != 3 || got.Started == nil {
		t.Errorf("the answer was lost: %v", got)
	}
	if n := strings.Count(strings.Join(r.rt.Calls(), ","), "start j1-a1"); n != 1 {
		t.Errorf("started %d times", n)
	}
	r.rt.Fail("start", lost) // and nothing ran
	r.leader.Assign(assignment(2))
	r.reported(2, running)
	if n := strings.Count(strings.Join(r.rt.Calls(), ","), "start j2-a1"); n != 2 {
		t.Errorf("asked %d times to start, want once more", n)
	}
	r.rt.Fail("answer of start", lost)
	r.rt.Fail("inspect", lost)
	r.leader.Assign(assignment(3))
	r.eventually("the start of 3", func() bool { return r.rt.Phase(id(3)) == runtime.Running })
	stop := assignment(3)
	stop.Stop, stop.Grace = true, durationpb.New(time.Millisecond)
	r.leader.Assign(stop)
	if got := r.reported(3, cancelled); got.Exit == nil {
		t.Errorf("stopped while nobody knew whether it runs: %v", got)
	}
}

// TestStartCutOff: a runtime that dies within a start may take the process with
// it before its first step, with exit code 1. Only a job that is sure to have
// begun is said to have ended so.
func TestStartCutOff(t *testing.T) {
	r := newRig(t)
	cut := errors.New("connection reset by peer")
	endsWithin := func(job uint64, code int) {
		r.rt.Fail("answer of start", cut)
		r.rt.Fail("inspect", cut, cut) // until it has ended
		r.leader.Assign(assignment(job))
		r.eventually("the start", func() bool { return r.rt.Phase(id(job)) == runtime.Running })
		r.rt.Exit(id(job), code, false)
	}
	endsWithin(1, 1)
	if got := r.reported(1, failed); got.Exit.GetCode() != 1 {
		t.Errorf("it began, and ended with 1: %v", got)
	}
	r.rt.Doubt()
	endsWithin(2, 1)
	if got := r.reported(2, lost); got.Exit != nil {
		t.Errorf("nobody knows whether it began: %v", got)
	}
	r.rt.Fail("first step", cut, cut) // and the runtime knows it
	r.leader.Assign(assignment(4))
	r.reported(4, running)
	r.rt.Exit(id(4), 0, true)
	r.reported(4, completed)
	if n := strings.Count(strings.Join(r.rt.Calls(), ","), "create j4-a1"); n != 3 {
		t.Errorf("made %d times, want 3", n)
	}
	r.rt.Fail("first step", slices.Repeat([]error{cut}, 20)...)
	r.leader.Assign(assignment(5))
	if got := r.reported(5, lost); got.Reason != string(cluster.ReasonNodeFault) || !strings.Contains(got.Detail, "cut off 20 times") {
		t.Errorf("the runtime lets nothing go: %v", got)
	}
	endsWithin(3, 2) // nothing but the job ends so
	if got := r.reported(3, failed); got.Exit.GetCode() != 2 {
		t.Errorf("it ended with 2: %v", got)
	}
}

func TestStopEscalatesFromTermToKill(t *testing.T) {
	r := newRig(t)
	r.rt.IgnoreTERM()
	r.leader.Assign(assignment(1))
	r.reported(1, running)
	stop := assignment(1)
	stop.Stop, stop.Grace = true, durationpb.New(30*time.Millisecond)
	r.leader.Assign(stop)
	if got := r.reported(1, cancelled); got.Exit.Signal != 9 {
		t.Errorf("ended by signal %d, want 9 after an ignored TERM", got.Exit.Signal)
	}
	calls := strings.Join(r.rt.Calls(), ",")
	if !strings.Contains(calls, "terminated j1-a1") || !strings.Contains(calls, "killed j1-a1") {
		t.Errorf("signals sent: %s", calls)
	}
}

func TestTimeLimit(t *testing.T) {
	r := newRig(t)
	as := assignment(1)
	as.TimeLimit = durationpb.New(40 * time.Millisecond)
	r.leader.Assign(as)
	if got := r.reported(1, timeout); got.Exit.Signal != 15 || got.Reason != "TimeLimit" {
		t.Errorf("%v", got)
	}
}

func TestARestartAdoptsWhatRunsAndKeepsExitCodes(t *testing.T) {
	r := newRig(t)
	for job := uint64(1); job <= 3; job++ {
		r.leader.Assign(assignment(job))
		r.reported(job, running)
	}
	r.stop()
	r.rt.Exit(id(1), 41, false) // while nobody looks
	r.start()
	if got := r.reported(1, failed); got.Exit.Code != 41 {
		t.Errorf("exit code %d, want 41", got.Exit.Code)
	}
	r.rt.Exit(id(2), 42, true)
	if got := r.reported(2, failed); got.Exit.Code != 42 {
		t.Errorf("exit code %d, want 42", got.Exit.Code)
	}
	if p := r.rt.Phase(id(3)); p != runtime.Running {
		t.Errorf("job 3 is %s, want running", p)
	}
	starts := 0
	for _, c := range r.rt.Calls() {
		if strings.HasPrefix(c, "start ") {
			starts++
		}
	}
	if starts != 3 {
		t.Errorf("%d starts, want 3: nothing runs twice", starts)
	}
}

func TestAnEndIsReportedUntilItIsAcknowledged(t *testing.T) {
	r := newRig(t)
	r.leader.Assign(assignment(1))
	r.reported(1, running)
	r.leader.MuteAcks(true)
	r.rt.Exit(id(1), 9, true)
	r.reported(1, failed)
	r.stop() // the runtime has deleted the task: only the journal knows
	before := len(r.leader.Reports(id(1)))
	r.leader.MuteAcks(false)
	r.start()
	r.eventually("said again", func() bool { return len(r.leader.Reports(id(1))) > before })
	if got := r.leader.Last(id(1)); got.Exit.GetCode() != 9 {
		t.Errorf("after a restart: %v, want exit code 9", got)
	}
}

func TestWhatTheLeaderDoesNotWantIsEnded(t *testing.T) {
	r := newRig(t)
	r.leader.Assign(assignment(1))
	r.reported(1, running)
	r.stop()
	r.leader.Drop(id(1)) // the node was fenced meanwhile
	r.start()
	r.eventually("ended and deleted", func() bool { return r.rt.Phase(id(1)) == runtime.Absent })
}

// TestAGoodEndOfACancelledJob: a job that is told to end is cancelled, also when it
// tidies up and ends with 0.
func TestAGoodEndOfACancelledJob(t *testing.T) {
	r := newRig(t)
	r.rt.IgnoreTERM()
	r.leader.Assign(assignment(1))
	r.reported(1, running)
	stop := assignment(1)
	stop.Stop, stop.Grace = true, durationpb.New(time.Hour)
	r.leader.Assign(stop)
	r.eventually("asked to end", func() bool { return slices.Contains(r.rt.Calls(), "terminated j1-a1") })
	r.rt.Exit(id(1), 0, true)
	r.eventually("ended", func() bool { last := r.leader.Last(id(1)); return last != nil && last.State >= completed })
	if got := r.leader.Last(id(1)); got.State != cancelled {
		t.Errorf("reported %s, want cancelled", got.State)
	}
}

// TestTheRuntimeKnowsWhatTheJournalDoesNot: an agent whose journal was moved away
// finds what runs, goes on with what the leader wants, without starting it
// again, and ends the rest.
func TestTheRuntimeKnowsWhatTheJournalDoesNot(t *testing.T) {
	r := newRig(t)
	for job := range uint64(2) {
		r.leader.Assign(assignment(job + 1))
		r.reported(job+1, running)
	}
	r.stop()
	if err := os.Remove(journal.Path(r.dir)); err != nil {
		t.Fatal(err)
	}
	r.leader.Drop(id(1))
	r.start()
	r.eventually("what nobody wants is ended and deleted", func() bool { return r.rt.Phase(id(1)) == runtime.Absent })
	r.rt.Exit(id(2), 5, true)
	if got := r.reported(2, failed); got.Exit.GetCode() != 5 {
		t.Errorf("what is wanted ended with %v, want 5", got.Exit)
	}
	starts := 0
	for _, c := range r.rt.Calls() {
		if strings.HasPrefix(c, "start ") {
			starts++
		}
	}
	if starts != 2 {
		t.Errorf("%d starts, want 2: nothing runs twice", starts)
	}
}

func TestAnOldFencingTokenIsRefused(t *testing.T) {
	r := newRig(t)
	newer := assignment(1)
	newer.Attempt, newer.Token = 2, 500
	r.leader.Assign(newer)
	r.eventually("attempt 2 runs", func() bool { return r.rt.Phase(cluster.AttemptID{Job: 1, No: 2}) == runtime.Running })
	older := assignment(1)
	older.Token = 400
	r.leader.Assign(older)
	r.leader.Assign(assignment(2))
	r.reported(2, running) // by now the older one was looked at
	if p := r.rt.Phase(id(1)); p != runtime.Absent {
		t.Errorf("an attempt with an older token is %s", p)
	}
}

func TestALostTaskIsReportedLost(t *testing.T) {
	r := newRig(t)
	r.leader.Assign(assignment(1))
	r.reported(1, running)
	r.stop()
	if err := r.rt.Signal(context.Background(), id(1), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := r.rt.Delete(context.Background(), id(1)); err != nil { // behind the agent's back
		t.Fatal(err)
	}
	r.rt.Fail("create", &launch.Error{Code: 125, Reason: "TEST", Err: errors.New("must not run twice")})
	r.start()
	r.eventually("an end", func() bool { l := r.leader.Last(id(1)); return l != nil && l.State >= completed })
	if starts := strings.Count(strings.Join(r.rt.Calls(), ","), "start "); starts != 1 {
		t.Errorf("%d starts, want 1", starts)
	}
}
