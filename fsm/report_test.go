package fsm

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/learned"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func usage(peak int64, oom bool) *logv1.Usage {
	return &logv1.Usage{GpuMemPeakMib: peak, Milli: 400, HostMemPeakMib: 900, CpuMilli: 1500, GpuOom: oom}
}

func exit(code int32) *logv1.Exit { return &logv1.Exit{Code: code} }

// running is a job that runs on a share of n1-g0.
func running(m *machine, s *cluster.Spec, mib int64) cluster.JobID {
	id := m.submit(s)
	m.start(id, share1("n1-g0", mib, 300))
	m.report(id, cluster.JobRunning)
	return id
}

func TestReportsOnlyGoUp(t *testing.T) {
	t.Parallel()
	m := lab(t)
	id := m.submit(spec(1))
	m.start(id, share1("n1-g0", 8000, 300))
	for _, step := range []struct{ say, want cluster.JobState }{
		{cluster.JobStarting, cluster.JobStarting},
		{cluster.JobRunning, cluster.JobRunning},
		{cluster.JobStarting, cluster.JobRunning},
		{cluster.JobCompleting, cluster.JobCompleting},
		{cluster.JobRunning, cluster.JobCompleting},
		{cluster.JobCompleted, cluster.JobCompleted},
		{cluster.JobFailed, cluster.JobCompleted},
		{cluster.JobRunning, cluster.JobCompleted},
	} {
		r := m.report(id, step.say)
		j := m.wantState(id, step.want)
		if r.Released != j.State.Terminal() {
			t.Fatalf("after %s: released %t", step.say, r.Released)
		}
	}
}

func TestReportsThatAreRefused(t *testing.T) {
	t.Parallel()
	m := lab(t)
	id := running(m, spec(1), 8000)
	for _, tc := range []struct {
		name   string
		change func(*logv1.ReportAttempt)
		want   cluster.Code
	}{
		{"another node", func(r *logv1.ReportAttempt) { r.Node = "n2" }, cluster.CodeDenied},
		{"an attempt that is not", func(r *logv1.ReportAttempt) { r.Attempt = 2 }, cluster.CodeDenied},
		{"a lower token", func(r *logv1.ReportAttempt) { r.Token-- }, cluster.CodeDenied},
		{"a higher token", func(r *logv1.ReportAttempt) { r.Token++ }, cluster.CodeDenied},
		{"waiting", func(r *logv1.ReportAttempt) { r.State = uint32(cluster.JobPending) }, cluster.CodeInvalid},
		{"unreachable", func(r *logv1.ReportAttempt) { r.State = uint32(cluster.JobUnreachable) }, cluster.CodeInvalid},
		{"no state", func(r *logv1.ReportAttempt) { r.State = 0 }, cluster.CodeInvalid},
		{"a state that wraps around", func(r *logv1.ReportAttempt) { r.State = 256 + uint32(cluster.JobCompleted) }, cluster.CodeInvalid},
		{"an exit code out of range", func(r *logv1.ReportAttempt) { r.Exit = exit(256) }, cluster.CodeInvalid},
		{"a signal out of range", func(r *logv1.ReportAttempt) { r.Exit = &logv1.Exit{Signal: 65} }, cluster.CodeInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := m.reportOf(id, cluster.JobCompleted)
			tc.change(r)
			m.t = t
			m.refused(tc.want, reportCmd(r))
		})
	}
	m.t = t
	if r := m.must(reportCmd(&logv1.ReportAttempt{Node: "n1", Job: 99, Attempt: 1})); !r.Released {
		t.Error("a report about a job that is gone: the agent may forget it")
	}
}

func TestEndIsStored(t *testing.T) {
	t.Parallel()
	m := lab(t)
	id := running(m, spec(1), 8000)
	r := m.reportOf(id, cluster.JobFailed)
	r.Exit, r.Usage = &logv1.Exit{Code: 139, Signal: 11}, usage(7000, false)
	r.EndedUs = int64(m.now)
	r.Usage.DurationUs = -4
	m.must(reportCmd(r))
	j := m.wantState(id, cluster.JobFailed)
	a := j.Last()
	if d := cmp.Diff(&cluster.Exit{Code: 139, Signal: 11}, a.Exit); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(cluster.Usage{GPUMemPeakMiB: 7000, Milli: 400, HostMemPeakMiB: 900, CPUMilli: 1500}, a.Usage); d != "" {
		t.Error(d)
	}
	if j.Reason.Code != cluster.ReasonSignal || j.Ended != a.Ended || j.Started != a.Started || a.Started == 0 {
		t.Errorf("reason %s, job %d–%d, attempt %d–%d", j.Reason, j.Started, j.Ended, a.Started, a.Ended)
	}
	if u, _ := m.f.st.fleet.Ledger().GPU("n1-g0"); u.Shares != 0 || u.UsedMiB != 0 || len(m.f.GPUJobs("n1-g0")) != 0 || len(m.f.NodeJobs("n1")) != 0 {
		t.Errorf("the share is still held: %+v", u)
	}
}

func TestNodeClocksAreClamped(t *testing.T) {
	t.Parallel()
	day := int64(24 * time.Hour / time.Microsecond)
	for _, tc := range []struct {
		name           string
		started, ended func(placed, now int64) int64
	}{
		{"a day behind", func(p, n int64) int64 { return p - day }, func(p, n int64) int64 { return p - day + 5 }},
		{"a day ahead", func(p, n int64) int64 { return n + day }, func(p, n int64) int64 { return n + 2*day }},
		{"before the epoch", func(p, n int64) int64 { return -1 }, func(p, n int64) int64 { return -1 }},
		{"ended before it began", func(p, n int64) int64 { return n }, func(p, n int64) int64 { return p }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := lab(t)
			id := m.submit(spec(1))
			m.start(id, share1("n1-g0", 8000, 300))
			placed := int64(m.job(id).Last().Placed)
			r := m.reportOf(id, cluster.JobRunning)
			r.StartedUs = tc.started(placed, int64(m.now))
			m.must(reportCmd(r))
			r = m.reportOf(id, cluster.JobCompleted)
			r.EndedUs = tc.ended(placed, int64(m.now))
			m.must(reportCmd(r))
			a := m.job(id).Last()
			if a.Started < a.Placed || a.Ended < a.Started || a.Ended > m.now {
				t.Errorf("placed %d, started %d, ended %d, now %d", a.Placed, a.Started, a.Ended, m.now)
			}
		})
	}
}

func TestReasonsOfAnEnd(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		state cluster.JobState
		exit  *logv1.Exit
		usage *logv1.Usage
		said  string
		want  cluster.ReasonCode
	}{
		{"completed needs none", cluster.JobCompleted, exit(0), nil, "", ""},
		{"what the agent says stands", cluster.JobFailed, exit(1), nil, "LaunchFailed", cluster.ReasonLaunch},
		{"exit code", cluster.JobFailed, exit(1), nil, "", cluster.ReasonExit},
		{"signal", cluster.JobFailed, &logv1.Exit{Code: 137, Signal: 9}, nil, "", cluster.ReasonSignal},
		{"never ran", cluster.JobFailed, nil, nil, "", cluster.ReasonLaunch},
		{"time limit", cluster.JobTimeout, exit(143), nil, "", cluster.ReasonTimeLimit},
		{"host memory", cluster.JobOutOfMemory, exit(137), usage(5, false), "", cluster.ReasonHostOOM},
		{"lost", cluster.JobNodeFail, nil, nil, "", cluster.ReasonNodeLost},
		{"cancelled by nobody", cluster.JobCancelled, exit(143), nil, "", cluster.ReasonRuntimeLost},
		{"preempted by nobody", cluster.JobPreempted, nil, nil, "", cluster.ReasonRuntimeLost},
		{"deadline of nobody", cluster.JobDeadline, exit(0), nil, "", cluster.ReasonRuntimeLost},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := lab(t)
			s := spec(1)
			s.MemMiB = 1024
			id := running(m, s, 8000)
			r := m.reportOf(id, tc.state)
			r.Exit, r.Usage = tc.exit, tc.usage
			if tc.said != "" {
				r.Reason = &logv1.Reason{Code: tc.said}
			}
			m.must(reportCmd(r))
			if j := m.wantState(id, tc.state); j.Reason.Code != tc.want || j.Last().Reason != j.Reason {
				t.Errorf("reason %s, of the attempt %s, want %s", j.Reason, j.Last().Reason, tc.want)
			}
		})
	}
}

// TestTheNodesFaultIsNotTheJobs: what never ran waits again without having
// asked for it, as often as any job tries.
func TestTheNodesFaultIsNotTheJobs(t *testing.T) {
	t.Parallel()
	m := lab(t)
	id := running(m, spec(1), 8000)
	for range maxAttempts - 1 {
		r := m.reportOf(id, cluster.JobNodeFail)
		r.Reason = &logv1.Reason{Code: string(cluster.ReasonNodeFault), Detail: "PROLOG: exit code 1"}
		m.must(reportCmd(r))
		if j := m.wantState(id, cluster.JobPending); j.Reason.Code != cluster.ReasonRequeued {
			t.Fatalf("waits as %s", j.Reason)
		}
		m.start(id, share1("n1-g0", 8000, 300))
	}
	r := m.reportOf(id, cluster.JobNodeFail)
	r.Reason = &logv1.Reason{Code: string(cluster.ReasonNodeFault)}
	m.must(reportCmd(r))
	m.wantState(id, cluster.JobNodeFail)
}

func TestOutOfGPUMemory(t *testing.T) {
	t.Parallel()
	declared := func() *cluster.Spec {
		s := spec(1)
		s.GPUMemMiB = 8000
		return s
	}
	t.Run("larger, then whole, then over", func(t *testing.T) {
		m := lab(t)
		id := running(m, spec(1), 8000)
		m.oom(id, 7900)
		j := m.wantState(id, cluster.JobPending)
		if j.MinGPUMemMiB != 12_000 || j.NeedWhole || j.Reason.Code != cluster.ReasonRequeued || j.Eligible != m.now {
			t.Fatalf("first: %+v", j)
		}
		small := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{m.startOf(id, share1("n1-g0", 11_999, 300))}}))
		if len(small.Plan.Rejected) != 1 {
			t.Fatal("a share below the new least was taken")
		}
		m.start(id, share1("n1-g0", 12_000, 300))
		m.oom(id, 11_900)
		if j = m.wantState(id, cluster.JobPending); !j.NeedWhole {
			t.Fatalf("second: %+v", j)
		}
		shared := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{m.startOf(id, share1("n1-g0", 30_000, 300))}}))
		if len(shared.Plan.Rejected) != 1 {
			t.Fatal("a share was taken where a whole GPU is needed")
		}
		m.start(id, whole("n1-g0"))
		m.oom(id, 39_000)
		if j = m.wantState(id, cluster.JobOutOfMemory); j.Reason.Code != cluster.ReasonGPUOOM || len(j.Attempts) != 3 {
			t.Fatalf("third: %+v", j)
		}
	})
	t.Run("the peak counts when it is above the share", func(t *testing.T) {
		m := lab(t)
		id := running(m, spec(1), 8000)
		m.oom(id, 20_000)
		if j := m.wantState(id, cluster.JobPending); j.MinGPUMemMiB != 22_000 {
			t.Errorf("least %d", j.MinGPUMemMiB)
		}
	})
	t.Run("no more than the largest GPU has", func(t *testing.T) {
		m := lab(t)
		id := running(m, spec(1), 39_000)
		m.oom(id, 1<<62)
		if j := m.wantState(id, cluster.JobPending); j.MinGPUMemMiB != 40_000 {
			t.Errorf("least %d", j.MinGPUMemMiB)
		}
	})
	t.Run("a declared cap is final", func(t *testing.T) {
		m := lab(t)
		id := running(m, declared(), 8000)
		m.oom(id, 8000)
		m.wantState(id, cluster.JobOutOfMemory)
	})
	t.Run("a declared cap is not final beside a neighbour", func(t *testing.T) {
		m := lab(t)
		id := running(m, declared(), 8000)
		running(m, spec(1), 8000)
		m.oom(id, 8000)
		m.wantState(id, cluster.JobPending)
	})
	t.Run("a share above the declared cap is not the cap", func(t *testing.T) {
		m := lab(t)
		id := running(m, declared(), 9000)
		m.oom(id, 8000)
		m.wantState(id, cluster.JobPending)
	})
	t.Run("declared host memory is final", func(t *testing.T) {
		m := lab(t)
		s := spec(1)
		s.MemMiB = 1024
		id := running(m, s, 8000)
		m.report(id, cluster.JobOutOfMemory)
		m.wantState(id, cluster.JobOutOfMemory)
	})
}

func TestLostAttempts(t *testing.T) {
	t.Parallel()
	t.Run("final unless the job allows it", func(t *testing.T) {
		m := lab(t)
		id := running(m, spec(1), 8000)
		m.report(id, cluster.JobNodeFail)
		m.wantState(id, cluster.JobNodeFail)
	})
	t.Run("waits again, and not for ever", func(t *testing.T) {
		m := lab(t)
		s := spec(1)
		s.RequeueOnLoss = true
		id := m.submit(s)
		for i := 1; i < maxAttempts; i++ {
			m.start(id, share1("n1-g0", 8000, 300))
			m.report(id, cluster.JobNodeFail)
			m.wantState(id, cluster.JobPending)
		}
		m.start(id, share1("n1-g0", 8000, 300))
		m.report(id, cluster.JobNodeFail)
		m.wantState(id, cluster.JobNodeFail)
	})
}

func TestSamples(t *testing.T) {
	t.Parallel()
	end := func(m *machine, s *cluster.Spec, state cluster.JobState, u *logv1.Usage) {
		id := running(m, s, 8000)
		r := m.reportOf(id, state)
		r.Usage = u
		m.must(reportCmd(r))
	}
	t.Run("what is learnt of each end", func(t *testing.T) {
		m := lab(t)
		n1 := node("n1", "boot1", 2)
		n1.Driver = "580.65.06"
		m.must(registerCmd(n1))
		s := spec(1)
		s.Features = []byte{1, 2}
		var ends []cluster.Time
		for _, e := range []struct {
			state cluster.JobState
			u     *logv1.Usage
		}{{cluster.JobCompleted, usage(7000, false)}, {cluster.JobTimeout, usage(7100, false)}, {cluster.JobOutOfMemory, usage(7200, true)}} {
			e.u.PowerW, e.u.Steps = 250, 1000
			end(m, s, e.state, e.u)
			ends = append(ends, m.now)
		}
		end(m, s, cluster.JobFailed, usage(10, false))
		end(m, s, cluster.JobCompleted, nil)
		got := m.f.Samples()
		base := Sample{Signature: "sig-1", GPUType: "A100", Milli: 400, HostMemMiB: 900, CPUMilli: 1500, UID: 1000, Features: []byte{1, 2}, PowerW: 250, Steps: 1000, Driver: "580.65.06",
			Predicted: cluster.Estimate{GPUType: "A100", GPUMemMiB: 8000, Milli: 300, Source: "declared"}}
		want := []Sample{base, base, base}
		for i := range want {
			want[i].Seq, want[i].At = uint64(i)+1, ends[i]
			want[i].GPUMemPeakMiB = 7000 + 100*int64(i)
		}
		want[0].Duration = time.Second
		want[2].Censored = true
		if d := cmp.Diff(want, got); d != "" || m.f.SampleSeq() != 3 {
			t.Fatal(d)
		}
	})
	t.Run("with how many it shared the card", func(t *testing.T) {
		m := lab(t)
		first := running(m, spec(1), 8000)
		running(m, spec(1), 8000)
		r := m.reportOf(first, cluster.JobCompleted)
		r.Usage = usage(7000, false)
		m.must(reportCmd(r))
		if got := m.f.Samples(); len(got) != 1 || got[0].Neighbours != 1 {
			t.Fatalf("%+v", got)
		}
	})
	t.Run("nothing of a job without a signature", func(t *testing.T) {
		m := lab(t)
		s := spec(1)
		s.Signature = ""
		end(m, s, cluster.JobCompleted, usage(7000, false))
		if n := len(m.f.Samples()); n != 0 {
			t.Fatalf("%d samples", n)
		}
	})
}

func TestSamplesAreBounded(t *testing.T) {
	t.Parallel()
	s := newState()
	s.fleet.Put(node("n1", "b", 1))
	learn := func(signature string, uid cluster.UID) {
		sp := spec(1)
		sp.Signature = signature
		a := &cluster.Attempt{State: cluster.JobCompleted, Berth: cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{share1("n1-g0", 1, 1)}}, Usage: cluster.Usage{Milli: 1}}
		s.learned.Learn(*s.at, learned.Run{
			Job: &cluster.Job{Spec: sp, Owner: cluster.Owner{UID: uid}}, Attempt: a, Report: &logv1.ReportAttempt{},
			Company: func() []Company { return nil }, Card: s.fleet.Card("n1", "n1-g0"),
		})
	}
	count := func(match func(*Sample) bool) (n int) {
		for i := range s.learned.Samples() {
			if match(&s.learned.Samples()[i]) {
				n++
			}
		}
		return n
	}
	for range perSignature + 10 {
		learn("same", 1)
	}
	if len(s.learned.Samples()) != perSignature || s.learned.Samples()[0].Seq != 11 {
		t.Fatalf("%d samples of one job, the oldest is %d", len(s.learned.Samples()), s.learned.Samples()[0].Seq)
	}
	for i := range maxSamples + 500 {
		learn("many-"+cluster.JobID(i).String(), 2)
	}
	if n := count(func(x *Sample) bool { return x.UID == 1 }); len(s.learned.Samples()) != maxSamples || n != perSignature {
		t.Fatalf("%d samples, %d of the first user: one who is over a quarter pushes out only its own", len(s.learned.Samples()), n)
	}
	for i := range perUser {
		learn("third-"+cluster.JobID(i).String(), 3)
	}
	if n := count(func(x *Sample) bool { return x.UID == 3 }); len(s.learned.Samples()) != maxSamples || n != perUser {
		t.Fatalf("%d samples, %d of the third user", len(s.learned.Samples()), n)
	}
	s.hashNow() // what is dropped after this must leave the hash
	learn("third-again", 3)
	if n := count(func(x *Sample) bool { return x.UID == 3 }); n != perUser {
		t.Fatalf("%d samples of the third user, bound %d", n, perUser)
	}
	f := holding(s)
	if got := restored(t, snapshotOf(t, f)); !bytes.Equal(got.Hash(), f.Hash()) || len(got.Samples()) != maxSamples {
		t.Fatal("a restored replica has other samples")
	}
}
