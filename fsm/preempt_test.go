package fsm

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

func preemptCmd(p dispatch.Preemption) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_PreemptAttempt{PreemptAttempt: conv.PreemptToLog(&p)}}
}

// hooked is a spec of one GPU that saves its state at USR1.
func hooked() *cluster.Spec {
	s := spec(1)
	s.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: time.Minute}
	return s
}

// up starts a job on a GPU and reports that it runs.
func (m *machine) up(s *cluster.Spec, gpu cluster.GPUID) cluster.JobID {
	m.t.Helper()
	id := m.submit(s)
	m.start(id, share1(gpu, 8000, 300))
	m.report(id, cluster.JobRunning)
	return id
}

// room asks the live attempt of a job to make room.
func (m *machine) room(id cluster.JobID) {
	m.t.Helper()
	m.must(preemptCmd(dispatch.Preemption{Job: id, Attempt: m.job(id).Last().No, For: 77, Why: "las: a shorter job"}))
}

// TestPreempted: the attempt keeps its card until its agent says that it
// ended, and its job waits again under its id.
func TestPreempted(t *testing.T) {
	t.Parallel()
	m := lab(t)
	id := m.up(hooked(), "n1-g0")
	held := m.f.st.fleet.Ledger().Clone()
	m.room(id)
	j := m.wantState(id, cluster.JobRunning)
	if !m.f.st.fleet.Ledger().Equal(held) || !j.Preempting() {
		t.Fatal("its card is free before it ended, or nobody asked it to")
	}
	want := cluster.Reason{Code: cluster.ReasonPreempted, Detail: "for job 77: las: a shorter job"}
	if j.Reason != want {
		t.Errorf("reason %v, want %v", j.Reason, want)
	}
	r := m.reportOf(id, cluster.JobPreempted)
	r.Exit, r.Usage = exit(0), usage(7000, false)
	m.must(reportCmd(r))
	j = m.wantState(id, cluster.JobPending)
	a := j.Last()
	if a.State != cluster.JobPreempted || a.Reason != want || a.Preempt == nil || a.Preempt.For != 77 {
		t.Errorf("attempt %+v", a)
	}
	if j.Eligible != m.f.Now() || j.Submitted >= j.Eligible || j.Reason.Code != cluster.ReasonRequeued || !strings.Contains(j.Reason.Detail, "las: a shorter job") {
		t.Errorf("eligible %v, reason %v", j.Eligible, j.Reason)
	}
	if u, _ := m.f.st.fleet.Ledger().GPU("n1-g0"); u.Shares != 0 || u.UsedMiB != 0 {
		t.Errorf("its card still counts %+v", u)
	}
	if m.f.SampleCount() != 0 {
		t.Error("learned from a part of a run")
	}
	m.report(id, cluster.JobCompleted) // once more, late: it changes nothing
	m.wantState(id, cluster.JobPending)
	m.start(id, share1("n2-g0", 8000, 300))
	m.report(id, cluster.JobRunning)
	m.report(id, cluster.JobCompleted)
	if j := m.wantState(id, cluster.JobCompleted); len(j.Attempts) != 2 {
		t.Errorf("%d attempts", len(j.Attempts))
	}
}

// TestWhatComesFirst: an attempt that is to make room and ends otherwise.
func TestWhatComesFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil  func(*cluster.Spec)
		before func(*machine, cluster.JobID)
		says   cluster.JobState
		want   cluster.JobState // of the job
		ended  cluster.JobState // of the attempt
	}{
		"its own end":               {says: cluster.JobCompleted, want: cluster.JobCompleted, ended: cluster.JobCompleted},
		"its own failure":           {says: cluster.JobFailed, want: cluster.JobFailed, ended: cluster.JobFailed},
		"its time limit":            {says: cluster.JobTimeout, want: cluster.JobTimeout, ended: cluster.JobTimeout},
		"a node that is lost":       {says: cluster.JobNodeFail, want: cluster.JobNodeFail, ended: cluster.JobNodeFail},
		"stopped for no one's sake": {says: cluster.JobCancelled, want: cluster.JobPending, ended: cluster.JobPreempted},
		"a cancel": {
			before: func(m *machine, id cluster.JobID) { m.must(cancelCmd(id, 1000)) },
			says:   cluster.JobPreempted, want: cluster.JobCancelled, ended: cluster.JobCancelled,
		},
		"its deadline": {
			spoil:  func(s *cluster.Spec) { s.Deadline = t0.Add(time.Minute) },
			before: func(m *machine, _ cluster.JobID) { m.now = t0.Add(2 * time.Minute) },
			says:   cluster.JobPreempted, want: cluster.JobDeadline, ended: cluster.JobPreempted,
		},
		"a silent node": {
			before: func(m *machine, id cluster.JobID) {
				m.must(silentCmd("n1", "boot1"))
				m.wantState(id, cluster.JobUnreachable)
				m.must(registerCmd(node("n1", "boot1", 3)))
				if j := m.wantState(id, cluster.JobRunning); j.Reason.Code != cluster.ReasonPreempted || !j.Preempting() {
					m.t.Fatalf("back with reason %v", j.Reason)
				}
			},
			says: cluster.JobPreempted, want: cluster.JobPending, ended: cluster.JobPreempted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab(t)
			s := hooked()
			if c.spoil != nil {
				c.spoil(s)
			}
			id := m.up(s, "n1-g0")
			m.room(id)
			if c.before != nil {
				c.before(m, id)
			}
			m.report(id, c.says)
			j := m.wantState(id, c.want)
			if j.Last().State != c.ended {
				t.Errorf("the attempt is %s, want %s", j.Last().State, c.ended)
			}
			if u, _ := m.f.st.fleet.Ledger().GPU("n1-g0"); u.Shares != 0 {
				t.Error("its share is not free")
			}
			if f := restored(t, snapshotOf(t, m.f)); !bytes.Equal(f.Hash(), m.f.Hash()) {
				t.Error("restored, it differs")
			}
		})
	}
}

// TestNotPreempted: the state machine asks itself what planners may believe.
func TestNotPreempted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec   *cluster.Spec
		change func(*machine, cluster.JobID)
		p      dispatch.Preemption // Job is filled in when 0
		want   string
	}{
		"no hook":         {spec: spec(1), p: dispatch.Preemption{Attempt: 1}, want: "no checkpoint hook"},
		"another attempt": {p: dispatch.Preemption{Attempt: 2}, want: "attempt 2 of job"},
		"no such job":     {p: dispatch.Preemption{Job: 99, Attempt: 1}, want: "is gone"},
		"being cancelled": {change: func(m *machine, id cluster.JobID) { m.must(cancelCmd(id, 0)) }, p: dispatch.Preemption{Attempt: 1}, want: "being cancelled"},
		"twice":           {change: (*machine).room, p: dispatch.Preemption{Attempt: 1}, want: "is being preempted"},
		"over":            {change: func(m *machine, id cluster.JobID) { m.report(id, cluster.JobCompleted) }, p: dispatch.Preemption{Attempt: 1}, want: "not the live one"},
		"silent":          {change: func(m *machine, _ cluster.JobID) { m.must(silentCmd("n1", "boot1")) }, p: dispatch.Preemption{Attempt: 1}, want: "it is UNREACHABLE"},
		"ending":          {change: func(m *machine, id cluster.JobID) { m.report(id, cluster.JobCompleting) }, p: dispatch.Preemption{Attempt: 1}, want: "it is COMPLETING"},
		"too soon": {change: func(m *machine, id cluster.JobID) {
			m.again(id)
			m.now = m.now.Add(cluster.PreemptEvery - time.Minute)
		}, p: dispatch.Preemption{Attempt: 2}, want: "less than 10m"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab(t)
			s := c.spec
			if s == nil {
				s = hooked()
			}
			id := m.up(s, "n1-g0")
			if c.change != nil {
				c.change(m, id)
			}
			if c.p.Job == 0 {
				c.p.Job = id
			}
			before := contents(t, m.f)
			r := m.do(preemptCmd(c.p))[0]
			if r.Err == nil || !strings.Contains(r.Err.Msg, c.want) {
				t.Fatalf("got %v, want a refusal with %q", r.Err, c.want)
			}
			if d := cmp.Diff(before, contents(t, m.f)); d != "" {
				t.Errorf("refused, and changed:\n%s", d)
			}
		})
	}
}

// again lets a job make room and run again.
func (m *machine) again(id cluster.JobID) {
	m.t.Helper()
	m.room(id)
	m.report(id, cluster.JobPreempted)
	m.start(id, share1("n1-g0", 8000, 300))
	m.report(id, cluster.JobRunning)
}

// TestPreemptionIsNoFailure: it counts neither as a try nor on the ladder of
// out-of-memory, and ends at a bound of its own.
func TestPreemptionIsNoFailure(t *testing.T) {
	t.Parallel()
	m := lab(t)
	id := m.up(hooked(), "n1-g0")
	for range cluster.MaxPreemptions {
		m.again(id)
		m.now = m.now.Add(cluster.PreemptEvery)
	}
	r := m.do(preemptCmd(dispatch.Preemption{Job: id, Attempt: cluster.MaxPreemptions + 1}))[0]
	if r.Err == nil || !strings.Contains(r.Err.Msg, "preempted 200 times") {
		t.Fatalf("%v, want a refusal", r.Err)
	}
	m.oom(id, 7900)
	if j := m.wantState(id, cluster.JobPending); j.NeedWhole || j.MinGPUMemMiB != 12_000 {
		t.Errorf("after its first out-of-memory: whole %v, %d MiB", j.NeedWhole, j.MinGPUMemMiB)
	}
}

// TestLearnsFromAllParts: what a job took is what all its parts took.
func TestLearnsFromAllParts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gpu  cluster.GPUID
		kind string
		want time.Duration
	}{
		"one type":  {"n1-g0", "A100", 30 * time.Minute},
		"two types": {"n1-g0", "H100", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab(t)
			s := hooked()
			s.Signature = "train"
			id := m.up(s, c.gpu)
			took := func(d time.Duration, state cluster.JobState) {
				m.now = m.job(id).Last().Started.Add(d - time.Second) // the entry comes a second later
				r := m.reportOf(id, state)
				r.Usage = usage(7000, false)
				r.Usage.Steps = 100
				m.must(reportCmd(r))
			}
			m.room(id)
			took(20*time.Minute, cluster.JobPreempted)
			st := m.startOf(id, share1(c.gpu, 8000, 300))
			st.Estimate.GPUType = c.kind
			if r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{st}})); len(r.Plan.Started) != 1 {
				t.Fatal(r.Plan.Rejected)
			}
			m.report(id, cluster.JobRunning)
			took(10*time.Minute, cluster.JobCompleted)
			x := m.f.st.learned.Samples()[0]
			if x.Duration.Round(10*time.Second) != c.want || x.Steps != 200 || x.GPUMemPeakMiB != 7000 {
				t.Errorf("learned %s, %d steps, %d MiB; want %s", x.Duration, x.Steps, x.GPUMemPeakMiB, c.want)
			}
		})
	}
}

func TestPreemptionNeedsNewerEntries(t *testing.T) {
	t.Parallel()
	if got := NeedsVersion(preemptCmd(dispatch.Preemption{})); got != 5 {
		t.Errorf("a preemption needs version %d", got)
	}
	if got := NeedsVersion(submitCmd(1, "0123456789abcdef", 1000, spec(1), hooked())); got != 5 {
		t.Errorf("a job with a hook needs version %d", got)
	}
}
